"""The page that `yard sim --report` writes: self-contained HTML with plots drawn as SVG, no script and no network.

Called by `sim`. First all runs beside each other; then a section a run: use and stranding over time, wait by job size,
a Gantt of the fleet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING

from gpuyard.cli.console import words
from gpuyard.cli.rendering.simulated import plots

if TYPE_CHECKING:
    from gpuyard.runtime.simulating.simulation import SimulatedRun
    from gpuyard.worlds.sim.measuring import Curves

ROW, MOST_ROWS, MOST_STAYS, MOST_DOTS = 5, 400, 12_000, 4_000
"""Pixels a GPU in the Gantt, and how much of a large run is drawn."""
COLOURS = ("#0b6bcb", "#c2410c", "#15803d", "#7e22ce", "#b45309", "#0e7490")
NOTHING = "<p>Nothing to draw.</p>"

STYLE = """
body{font:14px/1.5 system-ui,sans-serif;margin:2em auto;max-width:1040px;padding:0 1em;color:#1c2733;background:#fff}
h1{font-size:1.5em}h2{font-size:1.15em;margin-top:2em;border-top:1px solid #d5dde5;padding-top:1em}h3{font-size:1em}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}td,th{padding:.2em .7em;text-align:right}
td{white-space:nowrap}th:first-child,td:first-child{text-align:left}tr:nth-child(even){background:#f4f7fa}
.wide{overflow-x:auto}.key{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin:0 .4em 0 1em}
@media(prefers-color-scheme:dark){body{color:#dbe4ec;background:#12181f}tr:nth-child(even){background:#1a222b}
h2{border-color:#2a3642}}
"""


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"


def _number(value: float) -> str:
    return f"{value:,.1f}".removesuffix(".0")


COLUMNS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("wait p50", "wait_p50_s", words.duration), ("p95", "wait_p95_s", words.duration),
    ("p99", "wait_p99_s", words.duration), ("queued, mean", "queue_mean_s", words.duration),
    ("longest", "queue_max_s", words.duration), ("done after, mean", "jct_mean_s", words.duration),
    ("use", "utilisation", _share), ("stranded GPU-h", "stranded_gpu_hours", _number),
    ("preempted", "preemptions", _number), ("moved", "moves", _number), ("dropped", "dropped", _number),
)  # fmt: skip


def page(title: str, runs: Sequence[SimulatedRun]) -> str:
    """The whole page."""
    name = escape(title.rsplit("/", 1)[-1])
    sections = "".join(_section(run) for run in runs)
    beside = _beside(runs) if len(runs) > 1 else ""
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{name}</title><style>{STYLE}{plots.STYLE}</style><h1>{name}</h1>{_table(runs)}{beside}{sections}</html>\n"
    )


def _table(runs: Sequence[SimulatedRun]) -> str:
    head = "".join(f"<th>{title}</th>" for title, _, _ in COLUMNS)
    rows = "".join(
        f"<tr><td>{_name(run)}</td>"
        + "".join(f"<td>{told(getattr(run.figures, key))}</td>" for _, key, told in COLUMNS)
        + "</tr>"
        for run in runs
    )
    return f'<div class="wide"><table><tr><th>policy</th>{head}</tr>{rows}</table></div>'


def _name(run: SimulatedRun) -> str:
    return f"{escape(run.policy)}, seed {run.seed}"


def _beside(runs: Sequence[SimulatedRun]) -> str:
    """The use of the first few runs in one plot."""
    drawn = [(run, colour) for run, colour in zip(runs, COLOURS, strict=False) if len(run.curves.time) > 1]
    if not drawn:
        return ""
    across = plots.times(max(run.curves.time[-1] - run.curves.time[0] for run, _ in drawn))
    up = plots.numbers(100.0, " %")
    lines = "".join(plots.curve(across, up, _since(run.curves, run.curves.used), colour) for run, colour in drawn)
    keys = "".join(f'<span class="key" style="background:{colour}"></span>{_name(run)}' for run, colour in drawn)
    return f"<h3>GPUs in use over time</h3><p>{keys}</p>{plots.frame(across, up, lines, 'GPUs in use, by policy')}"


def _since(curves: Curves, values: Sequence[float]) -> list[tuple[float, float]]:
    return [(moment - curves.time[0], value) for moment, value in zip(curves.time, values, strict=True)]


def _section(run: SimulatedRun) -> str:
    curves = run.curves
    stranded = max(curves.stranded, default=0.0)
    return (
        f"<h2>{_name(run)}</h2>"
        f"<h3>GPUs in use over time</h3>{_line(curves, curves.used, plots.numbers(100.0, ' %'), COLOURS[0])}"
        f"<h3>GPUs stranded over time</h3>{_line(curves, curves.stranded, plots.numbers(stranded), COLOURS[1])}"
        f"<h3>Wait by job size</h3>{waits(curves)}"
        f"<h3>Who held which GPU</h3>{gantt(curves)}"
    )


def _line(curves: Curves, values: Sequence[float], up: plots.Axis, colour: str) -> str:
    if len(curves.time) < 2:
        return NOTHING
    across = plots.times(curves.time[-1] - curves.time[0])
    return plots.frame(across, up, plots.curve(across, up, _since(curves, values), colour), "over time")


def waits(curves: Curves) -> str:
    """One dot a job; both axes are bent, for most jobs are small and wait little."""
    if not curves.waits:
        return NOTHING
    across = plots.sizes(max(size for size, _ in curves.waits), " GPUs", 0.5)
    up = plots.times(max(wait for _, wait in curves.waits), 0.5)
    some = curves.waits[:: max(1, len(curves.waits) // MOST_DOTS)]
    return plots.frame(across, up, plots.dots(across, up, some), "wait by job size")


def gantt(curves: Curves) -> str:
    """One bar a stay, one row a GPU, each told when pointed at; only the first GPUs of a large fleet are drawn."""
    if not curves.stays:
        return NOTHING
    rows = {key: row for row, key in enumerate(sorted({stay[:2] for stay in curves.stays})[:MOST_ROWS])}
    stays = [stay for stay in curves.stays if stay[:2] in rows][:MOST_STAYS]
    low = min(stay[2] for stay in stays)
    across = plots.times(max(stay[3] for stay in stays) - low)
    bars = "".join(_bar(across, rows[stay[:2]], stay, low) for stay in stays)
    names = "".join(
        f'<text class="tick" x="{plots.LEFT - 6}" y="{row * ROW + 9}" text-anchor="end">{escape(node)}</text>'
        for (node, gpu), row in rows.items()
        if gpu == 0
    )
    tall = len(rows) * ROW
    return f'<svg viewBox="0 0 {plots.WIDTH} {tall}" role="img" aria-label="who held which GPU">{names}{bars}</svg>'


def _bar(across: plots.Axis, row: int, stay: tuple[str, int, float, float, str], low: float) -> str:
    node, gpu, begun, ended, job = stay
    left, right = plots.x(across, begun - low), plots.x(across, ended - low)
    told = f"{job} on {node}:{gpu}, {words.duration(ended - begun)}"
    return (
        f'<rect x="{left:.1f}" y="{row * ROW}" height="{ROW - 1}" width="{max(right - left, 0.5):.1f}" '
        f'fill="hsl({_hue(job)} 60% 55%)"><title>{escape(told)}</title></rect>'
    )


def _hue(job: str) -> int:
    return sum(ord(letter) * (7 * place + 1) for place, letter in enumerate(job)) * 47 % 360
