"""The end of `yard demo`: what was measured, against first come first served on the same jobs. Called by `demo`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuyard.cli.console.terminal import Column, Screen, text
from gpuyard.cli.learning import demo_work, fifo
from gpuyard.cli.rendering.listings import live_tables
from gpuyard.model.outside.phrases import counted

Document = dict[str, Any]

CLASSES = ("inference", "interactive", "training", "batch")
HEADLINE = "Measured, beside FIFO: a replay of these very jobs, strictly in order (nobody overtakes, nobody moves)"
HOURS_A_MONTH, GPUS_A_NODE = 730.0, 8


@dataclass(frozen=True)
class DemoFigures:
    """What came out of one way of running the same jobs. Waits in seconds, by class."""

    waits: dict[str, list[float]]
    utilisation: float
    """The share of all GPU time that was spent on work that counts in the end."""
    seconds: float
    again: int = 0
    """Jobs that had to begin anew."""
    lost_gpu_s: float = 0.0
    """What they had done before, and did once more."""
    lost_money: float = 0.0


@dataclass(frozen=True)
class Stint:
    """One start of a job, to its end."""

    began: float
    ended: float
    model: str


@dataclass(frozen=True)
class Record:
    """A job that has run: as FIFO is to replay it, and every start it really had, the last of which counts."""

    ran: fifo.Ran
    stints: tuple[Stint, ...]
    succeeded: bool

    @property
    def waited(self) -> float:
        """Before its first start, and again after each stop."""
        free = (self.ran.at, *(stint.ended for stint in self.stints))
        return sum(max(0.0, stint.began - since) for since, stint in zip(free, self.stints, strict=False))

    @property
    def gpus(self) -> int:
        """Of the whole gang."""
        return self.ran.tasks * self.ran.gpus


@dataclass(frozen=True)
class MadeRoom:
    """What was done for others, and what was only proposed."""

    evictions: int = 0
    moves: int = 0
    proposed: int = 0
    """Moves that timed defragmentation would have made."""

    def after(self, events: Sequence[Document]) -> MadeRoom:
        """The same with these events."""
        kinds = [event.get("kind") for event in events]
        proposed = sum(int(event.get("moves", 0)) for event in events if event.get("kind") == "proposed")
        return MadeRoom(
            self.evictions + kinds.count("evicted"), self.moves + kinds.count("moved"), self.proposed + proposed
        )


def draw(screen: Screen, jobs: Sequence[Document], nodes: Sequence[Document], room: MadeRoom) -> None:
    """The table, and what happened besides; the jobs come with their history."""
    records = [record for job in jobs if (record := as_recorded(job, nodes)) is not None]
    gpus = sum(int(node.get("gpus", 0)) for node in nodes)
    ours, theirs = measured(records, gpus), baseline(records, nodes, gpus)
    screen.show(text(""), text(HEADLINE, "bold"))
    columns = (Column(""), Column("jobs", right=True), Column("GPUYard", right=True), Column("FIFO", right=True))
    screen.table(columns, rows(ours, theirs))
    screen.show(*(text(line) for line in stories(jobs, nodes, room)))


def stories(jobs: Sequence[Document], nodes: Sequence[Document], room: MadeRoom) -> list[str]:
    """What happened besides waiting and running."""
    done = sum(job["phase"] == "succeeded" for job in jobs)
    told = [
        f"{counted(done, 'job')} succeeded. To make room: evictions {room.evictions}, moves {room.moves}, none of them "
        f"in a job's first {demo_work.SPARED_S:g} s (policy `min_runtime`).",
        f"Moves that timed defragmentation proposed besides, looking every {demo_work.TIDIED_S:g} s "
        f"(policy `defragment`): {room.proposed}.",
    ]
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


def as_recorded(job: Document, nodes: Sequence[Document] = ()) -> Record | None:
    """A job's record, if it has run: how long it takes is what its last start took."""
    came, models = live_tables.seconds(job.get("submitted")), {node["name"]: str(node.get("model")) for node in nodes}
    stints = tuple(stint for attempt in job.get("history", ()) if (stint := _stint(attempt, models)) is not None)
    if came is None or not stints:
        return None
    tasks, gpus = int(job.get("tasks", 1)), int(job.get("gpus", 0))
    kind, asked = str(job.get("class", "training")), tuple(job.get("models", ()))
    ran = fifo.Ran(job["name"], came, tasks, gpus, stints[-1].ended - stints[-1].began, asked, kind)
    return Record(ran, stints, job["phase"] == "succeeded")


def _stint(attempt: Document, models: dict[str, str]) -> Stint | None:
    began, ended = (live_tables.seconds(attempt.get(key)) for key in ("started", "ended"))
    if began is None or ended is None:
        return None
    return Stint(began, max(began, ended), models.get(attempt["tasks"][0]["node"], ""))


def measured(records: Sequence[Record], gpus: int) -> DemoFigures:
    """What really happened."""
    waits = {record.ran.name: record.waited for record in records}
    end = max((record.stints[-1].ended for record in records), default=0.0)
    figures = _figures(records, waits, end, gpus)
    lost = [(record, stint) for record in records for stint in record.stints[:-1]]
    gpu_s = [(record.gpus * (stint.ended - stint.began), stint.model) for record, stint in lost]
    return replace(
        figures,
        again=len({record.ran.name for record, _ in lost}),
        lost_gpu_s=sum(seconds for seconds, _ in gpu_s),
        lost_money=sum(seconds * demo_work.PRICES.get(model, 0) for seconds, model in gpu_s)
        / GPUS_A_NODE
        / (HOURS_A_MONTH * 3600),
    )


def baseline(records: Sequence[Record], nodes: Sequence[Document], gpus: int) -> DemoFigures:
    """What first come, first served would have made of it; it disturbs nobody, so nobody begins anew."""
    machines = [fifo.FifoNode(str(node.get("model", "")), int(node.get("gpus", 0))) for node in nodes]
    waits, end = fifo.replay([record.ran for record in records], machines)
    return _figures(records, waits, end, gpus)


def _figures(records: Sequence[Record], waits: dict[str, float], end: float, gpus: int) -> DemoFigures:
    begin = min((record.ran.at for record in records), default=end)
    by_class = {
        kind: [waits[each.ran.name] for each in records if each.ran.kind == kind and each.ran.name in waits]
        for kind in CLASSES
    }
    useful = sum(each.gpus * each.ran.seconds for each in records if each.succeeded and each.ran.name in waits)
    span = max(end - begin, 0.001)
    return DemoFigures(by_class, useful / (span * max(1, gpus)), span)


def rows(ours: DemoFigures, theirs: DemoFigures) -> list[list[str]]:
    """The lines of the table."""
    lines = []
    for kind in CLASSES:
        if ours.waits[kind]:
            count = str(len(ours.waits[kind]))
            lines.append([f"wait of {kind}, p50 / p95", count, spread(ours.waits[kind]), spread(theirs.waits[kind])])
    lines.append(["GPU time of use in the end", "", f"{ours.utilisation:.0%}", f"{theirs.utilisation:.0%}"])
    lines.append(["jobs that began anew", "", str(ours.again), str(theirs.again)])
    lines.append(["work done twice for that", "", _lost(ours), _lost(theirs)])
    lines.append(["first arrival to last end", "", f"{ours.seconds:.1f} s", f"{theirs.seconds:.1f} s"])
    return lines


def _lost(figures: DemoFigures) -> str:
    return f"{figures.lost_gpu_s:.0f} GPU-s (${figures.lost_money:.2f})"


def spread(waits: Iterable[float]) -> str:
    """Median and 95th percentile."""
    ordered = sorted(waits)
    if not ordered:
        return "-"
    half, most = ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
    return f"{half:.1f} / {most:.1f} s"
