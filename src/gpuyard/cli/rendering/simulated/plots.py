"""Plots as SVG text: axes with round ticks, curves, dots, bars. No script, no network.

Called by `sim_page`. A plot is drawn to a fixed width and scales with the page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from math import floor, log10

from gpuyard.cli.console import words

WIDTH, HEIGHT, LEFT, RIGHT, BOTTOM, TOP = 900, 220, 62, 14, 24, 10

STYLE = """
svg{width:100%;height:auto}.axis{stroke:#9aa7b4}.grid{stroke:#e6ecf1}.tick{fill:#5b6875;font-size:11px}
.curve{fill:none;stroke-width:1.5}.dot{fill:#0b6bcb;fill-opacity:.35}
@media(prefers-color-scheme:dark){.grid{stroke:#26313c}.tick{fill:#93a1af}.dot{fill:#5aa9f5}}
"""

_CLOCK = (60, 300, 900, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 604800, 1209600, 2592000)
"""Round spans of time between ticks."""


@dataclass(frozen=True, slots=True)
class Axis:
    """What lies along one side: from 0 to `most`, bent by `power`, with ticks at these values."""

    most: float
    ticks: Sequence[float]
    label: Callable[[float], str]
    power: float = 1.0

    def part(self, value: float) -> float:
        """Where a value lies, 0..1."""
        return float((max(value, 0.0) / self.most) ** self.power)


def numbers(most: float, unit: str = "", power: float = 1.0) -> Axis:
    """An axis of plain numbers."""
    most = most or 1.0
    step = _round_step(most / 4)
    return Axis(most, _steps(step, most), lambda value: f"{value:,.4g}{unit}", power)


def sizes(most: float, unit: str, power: float) -> Axis:
    """An axis of sizes that double."""
    ticks = [2.0**i for i in range(20) if 2**i <= most] or [most]
    return Axis(most or 1.0, ticks, lambda value: f"{value:,.4g}{unit}", power)


def times(most: float, power: float = 1.0) -> Axis:
    """An axis of seconds, labelled as people say them."""
    most = most or 1.0
    step = next((span for span in _CLOCK if most / span <= 8), _CLOCK[-1] * _round_step(most / _CLOCK[-1] / 6))
    return Axis(most, _steps(step, most), words.duration, power)


def _round_step(rough: float) -> float:
    scale = 10.0 ** floor(log10(rough))
    return float(next(scale * step for step in (1, 2, 5, 10) if scale * step >= rough))


def _steps(step: float, most: float) -> list[float]:
    return [step * i for i in range(int(most / step + 1e-9) + 1)]


def frame(across: Axis, up: Axis, inside: str, title: str) -> str:
    """The plot around what is drawn inside."""
    lines = [
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(up, tick):.1f}" y2="{y(up, tick):.1f}"/>'
        f'<text class="tick" x="{LEFT - 6}" y="{y(up, tick) + 4:.1f}" text-anchor="end">{up.label(tick)}</text>'
        for tick in up.ticks
    ]
    under = f'y="{HEIGHT - 6}" text-anchor="middle"'
    marks = [
        f'<text class="tick" x="{x(across, tick):.1f}" {under}>{across.label(tick)}</text>' for tick in across.ticks
    ]
    axis = f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM}"/>'
    shown = "".join((*lines, *marks, axis, inside))
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title, quote=True)}">{shown}</svg>'


def x(axis: Axis, value: float) -> float:
    """Where a value lies across."""
    return LEFT + axis.part(value) * (WIDTH - LEFT - RIGHT)


def y(axis: Axis, value: float) -> float:
    """Where a value lies upwards."""
    return HEIGHT - BOTTOM - axis.part(value) * (HEIGHT - BOTTOM - TOP)


def curve(across: Axis, up: Axis, points: Iterable[tuple[float, float]], colour: str) -> str:
    """One line through the points."""
    path = " ".join(f"{x(across, one):.1f},{y(up, other):.1f}" for one, other in points)
    return f'<polyline class="curve" stroke="{colour}" points="{path}"/>'


def dots(across: Axis, up: Axis, points: Iterable[tuple[float, float]]) -> str:
    """One dot a point."""
    return "".join(
        f'<circle class="dot" r="2" cx="{x(across, one):.1f}" cy="{y(up, other):.1f}"/>' for one, other in points
    )
