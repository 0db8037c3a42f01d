"""Benchmarks of who runs where: (a) to (d), and how the cost grows with the fleet."""

from __future__ import annotations

from bench import workloads
from bench.measuring import Case, Sample, worked
from bench.settling import agree, happening, settle, told
from gpuyard.brain.decide import Decision, decide, observe
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.model.actions import Start
from gpuyard.model.events import Event, JobGone, JobSeen, TasksEnded
from gpuyard.model.job import TaskGroup
from gpuyard.model.outside.collector import collector_resting
from gpuyard.model.resources import Request
from gpuyard.model.snapshot import Snapshot


def starts(decision: Decision) -> list[Start]:
    """The starts of a plan."""
    return [action for action in decision.plan.actions if isinstance(action, Start)]


# --- (a), (b): one cycle over a fleet that is built -------------------------------------------------------------------


def many_jobs(snapshot: Snapshot) -> Sample:
    """Decisions a second: every waiting job is either started or told why not."""
    build_s, fleet = worked(lambda: Fleet(snapshot))
    seconds, decision = worked(lambda: decide(fleet, Memory(), snapshot.now))
    started = len(starts(decision))
    notes = {
        "started": started,
        "waiting": len(decision.plan.waiting),
        "starts_per_s": started / seconds,
        "build_ms": build_s * 1e3,
    }
    return Sample(seconds, len(snapshot.jobs) / seconds, notes)


def many_gangs(snapshot: Snapshot) -> Sample:
    """GPUs placed a second."""
    build_s, fleet = worked(lambda: Fleet(snapshot))
    seconds, decision = worked(lambda: decide(fleet, Memory(), snapshot.now))
    gpus = sum(len(place.gpus) for start in starts(decision) for place in start.placements)
    notes = {
        "gangs": len(starts(decision)),
        "waiting": len(decision.plan.waiting),
        "gpus": gpus,
        "build_ms": build_s * 1e3,
    }
    return Sample(seconds, gpus / seconds, notes)


# --- (c): little has changed ------------------------------------------------------------------------------------------


EVERY_S = 10.0
"""So long after another (c) plans: claims refused before are asked again by then."""


class Steady:
    """A full fleet kept in memory; each run ends one task, lets one job arrive, and plans. As in the loop, time goes on
    and what a plan remembers is there for the next."""

    def __init__(self, node_count: int, pods: int = workloads.PODS_PER_NODE) -> None:
        self.node_count = node_count
        self.pods = pods
        self.turn = 0
        self.memory = Memory()
        self._fleet: Fleet | None = None

    @property
    def now(self) -> float:
        """The moment of this run."""
        return workloads.NOW + self.turn * EVERY_S

    def __call__(self) -> Sample:
        fleet = self.fleet()
        ended, seen = self._next(fleet)
        with collector_resting():
            seconds, decision = worked(lambda: self._step(fleet, ended, seen))
        self.memory = decision.memory
        self._observe(fleet, [JobGone(ended.job), *happening(fleet, decision.plan, self.now)])
        notes = {"started": len(starts(decision)), "waiting": len(decision.plan.waiting)}
        return Sample(seconds, seconds * 1e3, notes)

    def fleet(self) -> Fleet:
        """The fleet, built and planned before the first measured step until no plan remembers anything new."""
        if self._fleet is None:
            self._fleet = Fleet(workloads.full_fleet(self.node_count, pods=self.pods))
            before = None
            while before != self.memory:
                before, self.memory = self.memory, decide(self._fleet, self.memory, self.now).memory
            self._fleet.look_around()  # as the loop does once it is at rest
        return self._fleet

    def _step(self, fleet: Fleet, ended: TasksEnded, seen: JobSeen) -> Decision:
        self._observe(fleet, [ended, seen])
        return decide(fleet, self.memory, self.now)

    def _observe(self, fleet: Fleet, events: list[Event]) -> None:
        self.memory, _ = observe(fleet, self.memory, events, self.now)

    def _next(self, fleet: Fleet) -> tuple[TasksEnded, JobSeen]:
        self.turn += 1
        row = fleet.jobs[f"p{self.turn * 37 % self.node_count:05d}-00"]
        group = TaskGroup(request=Request(gpus=1, cpu=4000, memory=32 * workloads.GIB))
        arrived = workloads.job(f"x{self.turn:05d}", "d0t0", group)
        return TasksEnded(row.name, row.placements, succeeded=1), JobSeen(arrived)


# --- (d): from a snapshot in memory to the fixed point ----------------------------------------------------------------


def from_scratch(snapshot: Snapshot) -> Sample:
    """Fleet build and deciding until nothing changes, in ms; `plan_x`: how many times that `yard plan` takes."""
    seconds, settled = worked(lambda: settle(snapshot))
    told_s, outlook = worked(lambda: told(snapshot))
    notes = {"started": settled.count(Start), "turns": len(settled.plans), "plan_ms": told_s * 1e3,
             "plan_x": told_s / seconds}  # fmt: skip
    return Sample(seconds, seconds * 1e3 if agree(settled, outlook) else None, notes)


# --- growth -----------------------------------------------------------------------------------------------------------

SMALL, LARGE = 1_000, 10_000


def growth_per_decision() -> Sample:
    """How many times dearer one decision is on 10,000 nodes than on 1,000, at the same load; 10 would be linear."""
    notes, total = {}, 0.0
    for count in (SMALL, 3_000, LARGE):
        sample = many_jobs(workloads.small_jobs(count, count * 10))
        notes[f"us_at_{count}"] = 1e6 / (sample.figure or 1.0)
        total += sample.seconds
    return Sample(total, notes[f"us_at_{LARGE}"] / notes[f"us_at_{SMALL}"], notes)


class GrowthPerCycle:
    """The same for a cycle in which one task ended and one job arrived."""

    def __init__(self) -> None:
        self.yards = {count: Steady(count, pods=14) for count in (SMALL, LARGE)}

    def __call__(self) -> Sample:
        seconds = {count: yard().seconds for count, yard in self.yards.items()}
        notes = {f"ms_at_{count}": spent * 1e3 for count, spent in seconds.items()}
        return Sample(sum(seconds.values()), seconds[LARGE] / seconds[SMALL], notes)


CASES = (
    Case(
        "a", "50,000 jobs of 1-8 GPUs, 288 shapes, 5,000 × 8", "decisions/s",
        lambda: many_jobs(workloads.small_jobs(5_000, 50_000)), aim=20_000, more_is_better=True, runs=3,
    ),
    Case(
        "a-motley", "the same with thousands of shapes in every queue", "decisions/s",
        lambda: many_jobs(workloads.motley_jobs(5_000, 50_000)), more_is_better=True, runs=3,
    ),
    Case(
        "b", "gangs of 1-512 GPUs with topology, 10,000 × 8", "GPUs/s",
        lambda: many_gangs(workloads.gangs(10_000)), aim=10_000, more_is_better=True, runs=5,
    ),
    Case("c", "1 task ends, 1 job comes; 4,000 × 8, 140,000 pods", "ms", Steady(4_000), aim=10, runs=100,
         bounds={"p95": 20}),
    Case(
        "d", "500 one-GPU jobs, 4 queues, 100 empty nodes", "ms",
        lambda: from_scratch(workloads.allocate()), aim=26, peer="KAI 260 ms", runs=15,
        bounds={"plan_x": 1.5},
    ),
    Case("growth", "cost of a decision, 10,000 nodes ÷ 1,000", "×", growth_per_decision, aim=10, runs=1),
    Case("growth-c", "cost of a small cycle, 10,000 nodes ÷ 1,000", "×", GrowthPerCycle(), aim=10, runs=20),
)  # fmt: skip
