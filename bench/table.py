"""Results as a table that a person reads: the figure, the aim, the peer, memory, spread."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from bench.running import Result

COLUMNS = ("", "benchmark", "figure", "aim", "peer", "peak memory", "spread", "beside it")
PAPER = 230
"""Characters in a line when nobody watches."""
CLOCK = (
    "Planning and reading count the time that the one core they use works: on an idle machine, the time that passes."
)
TO_THE_RIGHT = {"figure", "aim", "peak memory"}


def show(results: Iterable[Result]) -> None:
    """Print one row each."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in COLUMNS:
        table.add_column(column, justify="right" if column in TO_THE_RIGHT else "left")
    for result in results:
        table.add_row(*row(result))
    console = Console(width=None if sys.stdout.isatty() else PAPER)
    console.print(table)
    console.print(CLOCK, style="dim")


def row(result: Result) -> tuple[str, ...]:
    """The cells of one result."""
    return (
        result.name,
        result.title,
        f"{_mark(result)}{_figure(result.figure, result.unit)}",
        "" if result.aim is None else f"{'≥' if result.more_is_better else '≤'} {number(result.aim)}",
        result.peer,
        f"{result.peak_mib:.0f} MiB",
        _spread(result),
        ", ".join(_note(result, name) for name in result.notes),
    )


def _note(result: Result, name: str) -> str:
    bound = f" (≤ {number(result.bounds[name])})" if name in result.bounds else ""
    return f"{name} {number(result.notes[name])}{bound}"


def _mark(result: Result) -> str:
    return "✗ " if result.met is False else ""


def _figure(figure: float | None, unit: str) -> str:
    return "not yet" if figure is None else f"{number(figure)} {unit}"


def _spread(result: Result) -> str:
    if result.best is None or result.worst is None or result.runs == 1:
        return ""
    return f"{number(result.best)} to {number(result.worst)}, {result.runs} runs"


def number(value: float) -> str:
    """Short: three digits, thousands marked."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
