"""A small yard and what a brain might say of it, made by hand: the command line is tested without one."""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass, field

import pytest

from gpuyard.model.actions import Deadlock, Evict, Move, QueueLine, Running, Start
from gpuyard.model.answers.outlook import Fragmentation, Outlook, PoolFragmentation, ShapeFit
from gpuyard.model.job import Job, JobClass, Placement, TaskGroup, one_group
from gpuyard.model.node import CORDONED, Gpu, Health, Node
from gpuyard.model.queue import Allowance, Queue
from gpuyard.model.reasons import Code, Explanation, Obstacle, Outcome, Reason, Rung, RungCount, Suggestion
from gpuyard.model.resources import UNLIMITED, WHOLE, Request
from gpuyard.model.snapshot import Snapshot

NOW = 1_767_225_600.0
HOUR = 3600.0


def node(name: str, rack: str = "r0", sick: tuple[int, ...] = (), cordoned: bool = False) -> Node:
    return Node(
        name=name,
        pool="h100",
        model="H100-SXM5-80GB",
        gpu_memory=80 << 30,
        gpus=tuple(
            Gpu(index, island=index // 4, health=Health.SICK if index in sick else Health.HEALTHY) for index in range(8)
        ),
        cpu=96_000,
        memory=1 << 40,
        domains=(("rack", rack),),
        closed=CORDONED if cordoned else None,
    )


def job(name: str, gpus: int = 1, tasks: int = 1, queue: str = "research", **more: object) -> Job:
    group = TaskGroup(tasks=tasks, min=tasks, request=Request(gpus=gpus, cpu=8000, memory=64 << 30))
    return Job(name=name, gang=one_group(group), queue=queue, submitted=NOW - HOUR, **more)  # type: ignore[arg-type]


def placed(node: str, *gpus: int, task: int = 0) -> Placement:
    return Placement(node, gpus, task=task)


SNAPSHOT = Snapshot(
    now=NOW,
    topology=("rack",),
    nodes=(node("n0"), node("n1"), node("n2", "r1", sick=(5,)), node("n10", "r1", cordoned=True)),
    queues=(
        Queue("research", quota=Allowance(8 * WHOLE), limit=Allowance(16 * WHOLE)),
        Queue("prod", quota=Allowance(UNLIMITED)),
        Queue("serving", parent="prod", quota=Allowance(4 * WHOLE)),
    ),
    jobs=(
        job("llm", gpus=8, tasks=2, user="ada"),
        job("huge", gpus=16),
        job("wide", gpus=8),
        job("old", gpus=2, placements=(placed("n0", 0, 1),), started=NOW - 2 * HOUR),
        job("prep", gpus=2, placements=(placed("n1", 2, 3),), started=NOW - 60),
        job(
            "api",
            gpus=1,
            tasks=2,
            queue="serving",
            job_class=JobClass.INFERENCE,
            placements=(placed("n2", 0), placed("n2", 1, task=1)),
            started=NOW - HOUR,
        ),
    ),
)

LLM_PLACES = (placed("n0", *range(8)), placed("n1", *range(8), task=1))

FRAGMENTED = Explanation(
    job="wide",
    reason=Reason(
        Code.FRAGMENTED,
        needed=8 * WHOLE,
        free=32 * WHOLE,
        largest_fit=4 * WHOLE,
        where="node",
        message="needs 8 GPUs in one node; 32 are free, but at most 4 together.",
    ),
    ladder=(
        RungCount(Rung.QUOTA, True),
        RungCount(Rung.FRAGMENTATION, False, 3, "at most 4 of 8 GPUs together"),
        RungCount(Rung.HEALTH, True, 1, "1 sick GPU"),
    ),
    suggestions=(Suggestion("it asked for 4 GPUs a task", "size", "3 places open up"),),
    in_the_way=(Obstacle("old", "stop", WHOLE, "research", 50, True, 60.0),),
)
NEVER = Explanation(
    job="huge",
    reason=Reason(Code.SHAPE_IMPOSSIBLE, Outcome.NEVER, needed=16 * WHOLE, message="no node has 16 GPUs."),
)

FRAGMENTATION = Fragmentation(
    ratio=0.25,
    free=32 * WHOLE,
    stranded=int(7.5 * WHOLE),
    largest_gang=(("node", 4), ("rack", 32)),
    shapes=(
        ShapeFit(1, "node", 32, 32),
        ShapeFit(8, "node", 0, 4),
        ShapeFit(16, "rack", 0, 2),
    ),
    pools=(PoolFragmentation("h100", 64 * WHOLE, 32 * WHOLE, 8 * WHOLE, (("node", 4),), ()),),
)

OUTLOOK = Outlook(
    actions=(
        Evict("old", Reason(Code.PREEMPTED, message="llm has a higher priority"), beneficiary="llm"),
        Move(
            "prep",
            (placed("n1", 2, 3),),
            (placed("n2", 2, 3),),
            Reason(Code.CONSOLIDATED, message="makes room"),
            beneficiary="llm",
        ),
        Start("llm", LLM_PLACES, Reason(Code.FITS), after=("old", "prep")),
    ),
    waiting=(FRAGMENTED, NEVER),
    running=(Running("llm", LLM_PLACES), Running("api", SNAPSHOT.jobs[-1].placements)),
    queues=(
        QueueLine("research", 8 * WHOLE, 16 * WHOLE, 16 * WHOLE, 12.5 * WHOLE, waiting=2),
        QueueLine("prod", UNLIMITED, UNLIMITED, 2 * WHOLE, 2.0 * WHOLE),
    ),
    fragmentation=FRAGMENTATION,
    deadlocks=(Deadlock(("a", "b"), "a and b hold 4 GPUs each that the other needs", "b"),),
    cycles=2,
)


@dataclass
class Oracle:
    """Stands in for `brain.foresee`: says what the test wants, and remembers what it was asked."""

    planned: Outlook = OUTLOOK
    asked: list[object] = field(default_factory=list)
    fit: int = 3

    def outlook(self, snapshot: Snapshot, cycles: int | None = None) -> Outlook:
        self.asked.append(cycles)
        return self.planned

    def why(self, snapshot: Snapshot, job: str) -> Explanation | None:
        return next((each for each in self.planned.waiting if each.job == job), None)

    def fragmentation(self, snapshot: Snapshot) -> Fragmentation:
        return self.planned.fragmentation

    def fits(self, snapshot: Snapshot, request: TaskGroup, queue: str = "", models: tuple[str, ...] = ()) -> int:
        self.asked.append((request.request.gpus, request.tasks, request.topology.required, queue, models))
        return min(self.fit, 1) if queue else self.fit


def install(monkeypatch: pytest.MonkeyPatch, oracle: object) -> None:
    """Let commands find this oracle where they look for the brain."""
    module = types.ModuleType("gpuyard.brain.foresee")
    for name in ("outlook", "why", "fragmentation", "fits"):
        setattr(module, name, getattr(oracle, name))
    monkeypatch.setitem(sys.modules, "gpuyard.brain.foresee", module)
    monkeypatch.setattr("gpuyard.brain.foresee", module, raising=False)
