"""The end of `yard demo`: what was measured, against first come first served on the same jobs. Called by `demo`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gpuyard.cli.console.terminal import Column, Screen, text
from gpuyard.cli.learning import fifo
from gpuyard.cli.rendering.listings import live_tables

Document = dict[str, Any]

CLASSES = ("inference", "interactive", "training", "batch")
HEADLINE = "Measured, beside FIFO: a replay of these very jobs, strictly in order (nobody overtakes, nobody moves)"


@dataclass(frozen=True)
class DemoFigures:
    """What came out of one way of running the same jobs. Waits in seconds, by class."""

    waits: dict[str, list[float]]
    utilisation: float
    seconds: float


def draw(screen: Screen, jobs: Sequence[Document], nodes: Sequence[Document], evictions: int) -> None:
    """The table, and what happened besides."""
    ran = [recorded for job in jobs if (recorded := as_recorded(job)) is not None]
    gpus = sum(int(node.get("gpus", 0)) for node in nodes)
    ours, theirs = measured(ran, jobs, gpus), baseline(ran, nodes, gpus)
    screen.show(text(""), text(HEADLINE, "bold"))
    columns = (Column(""), Column("jobs", right=True), Column("GPUYard", right=True), Column("FIFO", right=True))
    screen.table(columns, rows(ours, theirs))
    screen.show(*(text(line) for line in stories(jobs, nodes, evictions)))


def stories(jobs: Sequence[Document], nodes: Sequence[Document], evictions: int) -> list[str]:
    """What happened besides waiting and running."""
    again = sum(int(job.get("attempts") or 0) > 1 for job in jobs)
    done = sum(job["phase"] == "succeeded" for job in jobs)
    told = [f"{done} jobs succeeded; {evictions} evictions and moves made room; {again} jobs were started again."]
    told += [
        f"{job['name']} failed: {job.get('message', 'no reason is known')}." for job in jobs if job["phase"] == "failed"
    ]
    sick = [
        f"{node['name']}:{gpu['index']}"
        for node in nodes
        for gpu in live_tables.devices(node)
        if gpu["health"] == "sick"
    ]
    return told + [f"GPU {name} fell sick; what ran there was started elsewhere." for name in sick]


def as_recorded(job: Document) -> fifo.Ran | None:
    """A job's record, if it has run."""
    began, ended, came = (live_tables.seconds(job.get(key)) for key in ("started", "ended", "submitted"))
    if began is None or ended is None or came is None:
        return None
    models = tuple(job.get("models", ()))
    tasks, gpus = int(job.get("tasks", 1)), int(job.get("gpus", 0))
    return fifo.Ran(job["name"], came, tasks, gpus, max(0.0, ended - began), models, str(job.get("class", "training")))


def measured(ran: Sequence[fifo.Ran], jobs: Sequence[Document], gpus: int) -> DemoFigures:
    """What really happened."""
    first = {job["name"]: live_tables.seconds(job.get("first_started", job.get("started"))) for job in jobs}
    waits = {each.name: max(0.0, (first[each.name] or each.at) - each.at) for each in ran}
    ends = [ended for job in jobs if (ended := live_tables.seconds(job.get("ended"))) is not None]
    return _measured(ran, waits, max(ends, default=0.0), gpus)


def baseline(ran: Sequence[fifo.Ran], nodes: Sequence[Document], gpus: int) -> DemoFigures:
    """What first come, first served would have made of it."""
    machines = [fifo.FifoNode(str(node.get("model", "")), int(node.get("gpus", 0))) for node in nodes]
    waits, end = fifo.replay(ran, machines)
    return _measured(ran, waits, end, gpus)


def _measured(ran: Sequence[fifo.Ran], waits: dict[str, float], end: float, gpus: int) -> DemoFigures:
    begin = min((each.at for each in ran), default=end)
    by_class = {
        kind: [waits[each.name] for each in ran if each.kind == kind and each.name in waits] for kind in CLASSES
    }
    used = sum(each.tasks * each.gpus * each.seconds for each in ran)
    span = max(end - begin, 0.001)
    return DemoFigures(by_class, used / (span * max(1, gpus)), span)


def rows(ours: DemoFigures, theirs: DemoFigures) -> list[list[str]]:
    """The lines of the table."""
    lines = []
    for kind in CLASSES:
        if ours.waits[kind]:
            count = str(len(ours.waits[kind]))
            lines.append([f"wait of {kind}, p50 / p95", count, spread(ours.waits[kind]), spread(theirs.waits[kind])])
    lines.append(["GPU time in use", "", f"{ours.utilisation:.0%}", f"{theirs.utilisation:.0%}"])
    lines.append(["first arrival to last end", "", f"{ours.seconds:.1f} s", f"{theirs.seconds:.1f} s"])
    return lines


def spread(waits: Iterable[float]) -> str:
    """Median and 95th percentile."""
    ordered = sorted(waits)
    if not ordered:
        return "-"
    half, most = ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
    return f"{half:.1f} / {most:.1f} s"
