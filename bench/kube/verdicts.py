"""What was measured beside what is aimed at, as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bench.kube import cached, latency

AIMS = {"rate_to_kube-scheduler": 5.0, "rate_to_ceiling": 0.8}
Row = tuple[str, float, str, float, bool]
"""What it is, its figure, how that is to be to its aim, the aim, and whether it is so."""


def told(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Of every part that was measured, a line for each aim."""
    rows = [row for name, result in results.items() for row in _rows(name, result)]
    wide = max((len(row[0]) for row in rows), default=0)
    return "\n".join(
        f"{what:<{wide}}  {figure:>8.2f}  {how} {aim:<6g} {'✗✓'[met]}" for what, figure, how, aim, met in rows
    )


def _rows(name: str, result: Mapping[str, Any]) -> Iterator[Row]:
    if name == "kube-latency":
        yield _most("one pod on an idle cluster, p99, ms", result["gpuyard"]["p99_ms"], latency.AIM_MS)
    elif name == "kube-cache":
        for kind in cached.KINDS:
            pods = f"{result['pods']:,} pods, {kind}"
            yield _most(f"{pods}: MiB", result[kind]["mib"], cached.AIM_MIB)
            yield _most(f"{pods}: seconds to sync", result[kind]["synced_s"], cached.AIM_S)
    else:
        of = f"median of {result['rounds']}"
        for ratio, aim in AIMS.items():
            if ratio in result["ratios"]:
                figure = result["ratios"][ratio]
                yield f"{name.removeprefix('kube-')}, {ratio.replace('_', ' ')}, {of}", figure, "≥", aim, figure >= aim


def _most(what: str, figure: float, aim: float) -> Row:
    return what, figure, "≤", aim, figure <= aim
