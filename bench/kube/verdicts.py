"""What was measured beside what is aimed at, as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bench.kube import cached, latency

AIMS = {"rate_to_kube-scheduler": 5.0, "rate_to_ceiling": 0.8}
BOUND = "rate_of_ceiling_to_kube-scheduler"
"""Not ours, and no aim: what nobody who writes through this API server can be above."""
Row = tuple[str, float, str]
"""What it is, its figure, and its aim with whether it is met; "" where none is aimed at."""


def told(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Of every part that was measured, a line for each aim."""
    rows = [row for name, result in results.items() for row in _rows(name, result)]
    wide = max((len(row[0]) for row in rows), default=0)
    return "\n".join(f"{what:<{wide}}  {figure:>8.2f}  {aim}".rstrip() for what, figure, aim in rows)


def _rows(name: str, result: Mapping[str, Any]) -> Iterator[Row]:
    if name == "kube-latency":
        yield _most("one pod on an idle cluster, p99, ms", result["gpuyard"]["p99_ms"], latency.AIM_MS)
    elif name == "kube-cache":
        for kind in cached.KINDS:
            pods = f"{result['pods']:,} pods, {kind}"
            yield _most(f"{pods}: MiB", result[kind]["mib"], cached.AIM_MIB)
            yield _most(f"{pods}: seconds to sync", result[kind]["synced_s"], cached.AIM_S)
    else:
        for ratio, figure in result["ratios"].items():
            what = f"{name.removeprefix('kube-')}, {ratio.replace('_', ' ')}, median of {result['rounds']}"
            if ratio in AIMS:
                yield what, figure, f"≥ {AIMS[ratio]:<6g} {'✗✓'[figure >= AIMS[ratio]]}"
            elif ratio == BOUND:
                yield what, figure, ""


def _most(what: str, figure: float, aim: float) -> Row:
    return what, figure, f"≤ {aim:<6g} {'✗✓'[figure <= aim]}"
