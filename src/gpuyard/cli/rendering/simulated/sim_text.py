"""Draws what `yard sim` found: one row a policy, means over seeds with their spread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from gpuyard.cli.console import words
from gpuyard.cli.console.terminal import Column, Screen, text
from gpuyard.model.outside.phrases import agreeing

if TYPE_CHECKING:
    from gpuyard.runtime.simulating.simulation import SimulatedRun

Get = Callable[["SimulatedRun"], float | None]

ALERTS_SHOWN = 12
LOADS = ("95", "100", "130")


def draw(screen: Screen, runs: Sequence[SimulatedRun]) -> None:
    """The table, and what it was made of."""
    groups: dict[str, list[SimulatedRun]] = {}
    for run in runs:
        groups.setdefault(run.policy, []).append(run)
    static = any(run.figures.allocated_at for run in runs)
    columns, gets = _static_columns() if static else _timed_columns()
    rows = [[name, str(len(group)), *(_cell(group, get) for get in gets)] for name, group in groups.items()]
    screen.table([Column("POLICY"), Column("SEEDS", right=True), *columns], rows)
    if not static:
        _draw_fairness(screen, groups)
        _tell_unfinished(screen, groups)
    for name, group in groups.items():
        _draw_alerts(screen, name, group[0])
    seconds = sum(run.wall_s for run in runs)
    screen.show(text(f"{words.counted(len(runs), 'run')} in {seconds:.1f} s", "dim"))


def _draw_alerts(screen: Screen, name: str, run: SimulatedRun) -> None:
    """What would have been raised, from when to when; of the first seed, for the others are like it."""
    if not run.alerts:
        return
    screen.show(text(""), text(f"{name}: {words.counted(len(run.alerts), 'alert')} (seed {run.seed})", "bold"))
    rows = [
        [words.duration(span.begin), "end" if span.end is None else words.duration(span.end), span.alert.severity.value,
         span.alert.sentence]
        for span in run.alerts[:ALERTS_SHOWN]
    ]  # fmt: skip
    columns = (Column("FROM", right=True), Column("TO", right=True), Column("SEVERITY"), Column("WHAT", wraps=True))
    screen.table(columns, rows)
    if len(run.alerts) > ALERTS_SHOWN:
        screen.show(text(f"... and {len(run.alerts) - ALERTS_SHOWN} more (-o json has them all)", "dim"))


def _tell_unfinished(screen: Screen, groups: dict[str, list[SimulatedRun]]) -> None:
    """Jobs that never ended are in no figure above, so they are named."""
    for name, group in groups.items():
        left = sum(run.figures.jobs - run.figures.finished for run in group)
        if left:
            jobs = sum(run.figures.jobs for run in group)
            them = agreeing(left, "it", "them")
            why = f"the fleet cannot hold {them}, or nothing ends {them}"
            screen.show(text(f"{name}: {left:,} of {words.counted(f'{jobs:,}', 'job')} never ended: {why}", "yellow"))


def _static_columns() -> tuple[list[Column], list[Get]]:
    titles = [f"% ALLOCATED AT {load} %" for load in LOADS]
    gets: list[Get] = [lambda run, load=load: run.figures.allocated_at.get(load) for load in LOADS]  # type: ignore[misc]
    gets += [lambda run: run.figures.dropped, lambda run: run.figures.moves, lambda run: run.decide_s]
    return [Column(title, right=True) for title in (*titles, "DROPPED", "MOVES", "DECIDE (s)")], gets


def _timed_columns() -> tuple[list[Column], list[Get]]:
    titles = (
        "WAIT P50 (s)",
        "P95 (s)",
        "P99 (s)",
        "QUEUED MEAN (s)",
        "QUEUED MAX (s)",
        "JCT MEAN (s)",
        "USE %",
        "STRANDED GPU-H",
        "PREEMPTED",
        "LOST GPU-H",
    )
    gets: list[Get] = [
        lambda run: run.figures.wait_p50_s,
        lambda run: run.figures.wait_p95_s,
        lambda run: run.figures.wait_p99_s,
        lambda run: run.figures.queue_mean_s,
        lambda run: run.figures.queue_max_s,
        lambda run: run.figures.jct_mean_s,
        lambda run: 100 * run.figures.utilisation,
        lambda run: run.figures.stranded_gpu_hours,
        lambda run: run.figures.preemptions,
        lambda run: run.figures.lost_gpu_hours,
    ]
    return [Column(title, right=True) for title in titles], gets


def _cell(runs: Sequence[SimulatedRun], get: Get) -> str:
    values = [value for run in runs if (value := get(run)) is not None]
    if not values:  # nobody arrived at just that load
        return "-"
    shown = number(fmean(values))
    return f"{shown} ± {number(stdev(values))}" if len(values) > 1 and stdev(values) else shown


def number(value: float) -> str:
    """Short: thousands marked, two digits where they tell something."""
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.2f}"


WORST_SHOWN = 20
"""So many queues, those that wait longest; `-o json` has them all."""


def _draw_fairness(screen: Screen, groups: dict[str, list[SimulatedRun]]) -> None:
    """A row for each queue, whoever waits longest first; a column for each policy."""
    queues = {queue for group in groups.values() for run in group for queue in run.figures.fairness}
    if len(queues) < 2:
        return
    waits = {queue: [_mean_wait(group, queue) for group in groups.values()] for queue in queues}
    worst = sorted(queues, key=lambda queue: (-max(waits[queue]), queue))
    more = f"; the worst {WORST_SHOWN} of {len(queues):,}" if len(queues) > WORST_SHOWN else ""
    screen.show(text(f"mean wait per queue, seconds{more}", "bold"))
    rows = [[queue, *map(number, waits[queue])] for queue in worst[:WORST_SHOWN]]
    screen.table([Column("QUEUE"), *(Column(name, right=True) for name in groups)], rows)


def _mean_wait(runs: Sequence[SimulatedRun], queue: str) -> float:
    return fmean(run.figures.fairness.get(queue, 0.0) for run in runs)
