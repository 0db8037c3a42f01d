"""Metric families as Prometheus reads them: text format 0.0.4. Used by `serving`.

Written here and not with a library, because DCGM's counters do not end in `_total` and dashboards know them so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpuyard.agent.exporting.families import Family

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(families: Iterable[Family]) -> str:
    """Families without a series are left out."""
    return "".join(line for family in families if family.series for line in _lines(family))


def _lines(family: Family) -> Iterable[str]:
    yield f"# HELP {family.name} {_escaped(family.words)}\n"
    yield f"# TYPE {family.name} {family.kind}\n"
    for labels, value in family.series:
        yield f"{family.name}{_labels(labels)} {_number(value)}\n"


def _labels(labels: Mapping[str, str]) -> str:
    inside = ",".join(f'{name}="{_quoted(value)}"' for name, value in labels.items())
    return f"{{{inside}}}" if inside else ""


def _quoted(value: str) -> str:
    return _escaped(value).replace('"', r"\"")


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
