"""The page that `yard sim --report` writes: self-contained HTML with plots drawn as SVG, no script and no network.

Called by `sim`. One section a run: use and stranding over time, wait by job size, a Gantt of the fleet.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuyard.runtime.simulation import Run
    from gpuyard.worlds.sim.measuring import Curves

WIDTH, HEIGHT, MARGIN = 900, 220, 46
ROW, MOST_ROWS, MOST_STAYS = 5, 400, 12_000
"""Pixels a GPU in the Gantt, and how much of a large run is drawn."""

STYLE = """
body{font:14px/1.5 system-ui,sans-serif;margin:2em auto;max-width:960px;padding:0 1em;color:#1c2733;background:#fff}
h1{font-size:1.5em}h2{font-size:1.15em;margin-top:2em;border-top:1px solid #d5dde5;padding-top:1em}h3{font-size:1em}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}td,th{padding:.2em .8em;text-align:right}
th:first-child,td:first-child{text-align:left}tr:nth-child(even){background:#f4f7fa}svg{width:100%;height:auto}
.axis{stroke:#9aa7b4}.grid{stroke:#e6ecf1}.tick{fill:#5b6875;font-size:11px}.a{stroke:#0b6bcb;fill:none;stroke-width:1.5}
.b{stroke:#c2410c;fill:none;stroke-width:1.5}.dot{fill:#0b6bcb;fill-opacity:.35}
@media(prefers-color-scheme:dark){body{color:#dbe4ec;background:#12181f}tr:nth-child(even){background:#1a222b}
.grid{stroke:#26313c}.tick{fill:#93a1af}}
"""

COLUMNS = (
    ("wait p50", "wait_p50_s"), ("p95", "wait_p95_s"), ("p99", "wait_p99_s"), ("queue mean", "queue_mean_s"),
    ("JCT mean", "jct_mean_s"), ("use", "utilisation"), ("stranded GPU-h", "stranded_gpu_hours"),
    ("preempted", "preemptions"), ("moved", "moves"), ("dropped", "dropped"),
)  # fmt: skip


def page(title: str, runs: Sequence[Run]) -> str:
    """The whole page."""
    name = escape(title.rsplit("/", 1)[-1])
    sections = "".join(_section(run) for run in runs)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{name}</title><style>{STYLE}</style><h1>{name}</h1>{_table(runs)}{sections}</html>\n"
    )


def _table(runs: Sequence[Run]) -> str:
    head = "".join(f"<th>{title}</th>" for title, _ in COLUMNS)
    rows = "".join(
        f"<tr><td>{escape(run.policy)}, seed {run.seed}</td>"
        + "".join(f"<td>{getattr(run.figures, key):,.4g}</td>" for _, key in COLUMNS)
        + "</tr>"
        for run in runs
    )
    return f"<table><tr><th>policy</th>{head}</tr>{rows}</table>"


def _section(run: Run) -> str:
    curves = run.curves
    return (
        f"<h2>{escape(run.policy)}, seed {run.seed}</h2>"
        f"<h3>GPUs in use (%) over time</h3>{line(curves.time, curves.used, 'a')}"
        f"<h3>GPUs stranded over time</h3>{line(curves.time, curves.stranded, 'b')}"
        f"<h3>Wait (s, square root) by job size (GPUs, square root)</h3>{dots(curves.waits)}"
        f"<h3>Who held which GPU</h3>{gantt(curves)}"
    )


def line(times: Sequence[float], values: Sequence[float], kind: str) -> str:
    """One curve over time, in hours."""
    if len(times) < 2:
        return "<p>Nothing to draw.</p>"
    low, high, most = times[0], times[-1], max(values) or 1.0
    points = " ".join(
        f"{_x((t - low) / max(high - low, 1e-9)):.1f},{_y(v / most):.1f}" for t, v in zip(times, values, strict=True)
    )
    return _frame(f'<polyline class="{kind}" points="{points}"/>', (high - low) / 3600, most, "h")


def dots(waits: Sequence[tuple[float, float]]) -> str:
    """One dot a job."""
    if not waits:
        return "<p>Nothing to draw.</p>"
    wide, tall = max(size for size, _ in waits) or 1.0, max(wait for _, wait in waits) or 1.0
    step = max(1, len(waits) // 4000)
    drawn = "".join(
        f'<circle class="dot" r="2" cx="{_x((size / wide) ** 0.5):.1f}" cy="{_y((wait / tall) ** 0.5):.1f}"/>'
        for size, wait in waits[::step]
    )
    return _frame(drawn, wide, tall, "GPUs")


def gantt(curves: Curves) -> str:
    """One bar a stay, one row a GPU; only the first GPUs of a large fleet are drawn."""
    if not curves.stays:
        return "<p>Nothing to draw.</p>"
    rows = {key: row for row, key in enumerate(sorted({stay[:2] for stay in curves.stays})[:MOST_ROWS])}
    stays = [stay for stay in curves.stays if stay[:2] in rows][:MOST_STAYS]
    low, high = min(stay[2] for stay in stays), max(stay[3] for stay in stays)
    span = max(high - low, 1e-9)
    bars = "".join(
        f'<rect x="{_x((begun - low) / span):.1f}" y="{rows[node, gpu] * ROW}" height="{ROW - 1}" '
        f'width="{max((ended - begun) / span * (WIDTH - 2 * MARGIN), 0.5):.1f}" fill="hsl({_hue(job)} 60% 55%)"/>'
        for node, gpu, begun, ended, job in stays
    )
    return f'<svg viewBox="0 0 {WIDTH} {len(rows) * ROW}" role="img" aria-label="Gantt of the fleet">{bars}</svg>'


def _hue(job: str) -> int:
    return sum(ord(letter) * (7 * place + 1) for place, letter in enumerate(job)) * 47 % 360


def _frame(inside: str, wide: float, tall: float, unit: str) -> str:
    """Axes with four ticks each."""
    ticks = ""
    for part in (0.0, 0.25, 0.5, 0.75, 1.0):
        x, y = _x(part), _y(part)
        ticks += f'<line class="grid" x1="{MARGIN}" x2="{WIDTH - MARGIN}" y1="{y:.1f}" y2="{y:.1f}"/>'
        ticks += f'<text class="tick" x="{MARGIN - 6}" y="{y + 4:.1f}" text-anchor="end">{part * tall:,.3g}</text>'
        ticks += (
            f'<text class="tick" x="{x:.1f}" y="{HEIGHT - 6}" text-anchor="middle">{part * wide:,.3g} {unit}</text>'
        )
    axis = f'<line class="axis" x1="{MARGIN}" x2="{WIDTH - MARGIN}" y1="{_y(0):.1f}" y2="{_y(0):.1f}"/>'
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{ticks}{axis}{inside}</svg>'


def _x(part: float) -> float:
    return MARGIN + part * (WIDTH - 2 * MARGIN)


def _y(part: float) -> float:
    return HEIGHT - 24 - part * (HEIGHT - 40)
