"""A world in a page: virtual time, instant effects. It shows what the seam asks of a world, and that this is all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuyard.model.actions import Evict, Move, Plan, Start, Terminate
from gpuyard.model.events import ActionFailed, Event, JobEvicted, JobGone, JobSeen, NodeLost, NodeSeen, TasksRunning
from gpuyard.model.job import Job, Placement
from gpuyard.model.node import Closure
from gpuyard.model.reasons import Code, Reason
from gpuyard.model.snapshot import Snapshot


@dataclass
class Lifecycle:
    """One job: how much work is left, where it runs since when, and what became of it."""

    job: Job
    left: float
    places: tuple[Placement, ...] = ()
    since: float = 0.0
    attempts: int = 0
    evictions: int = 0
    told: str = ""
    over: str = ""

    def described(self) -> Job:
        return replace(self.job, placements=self.places, started=self.since if self.places else None)


class ToyWorld:
    """Implements `worlds.base.World`."""

    def __init__(self, fleet: Snapshot) -> None:
        self.fleet = fleet
        self.time = 1000.0
        self.jobs: dict[str, Lifecycle] = {}
        self.events: list[Event] = []
        self.looks: list[float] = []
        self.plan = Plan()

    # --- the seam --------------------------------------------------------------------------------

    def open(self) -> Snapshot:
        self.events = []
        return self.snapshot()

    def snapshot(self) -> Snapshot:
        return replace(self.fleet, now=self.time, jobs=tuple(life.described() for life in self.alive()))

    def wait(self, not_before: float = 0.0) -> bool:
        if not self.events:
            due = [life.since + life.left for life in self.alive() if life.places]
            due += [at for at in self.looks if at > self.time]
            if not due:
                return False
            self.time = min(due)
        for life in [life for life in self.alive() if life.places and life.since + life.left <= self.time]:
            self.end(life, "succeeded")
        return True

    def now(self) -> float:
        return self.time

    def observe(self) -> Sequence[Event]:
        events, self.events = self.events, []
        return events

    def apply(self, plan: Plan, turn: int) -> Sequence[Event]:
        self.plan = plan
        self.looks = [at for at in (*self.looks, plan.look_again_at) if at is not None and at > self.time]
        for action in filter(self.is_meant, plan.actions):
            match action:
                case Evict(job=name, placements=places):
                    self.lose(self.jobs[name], places or self.jobs[name].places, evicted=True)
                case Move(job=name, source=source, target=target):
                    self.stop(self.jobs[name])
                    kept = [p for p in self.jobs[name].places if p.identity not in {s.identity for s in source}]
                    self.run(self.jobs[name], (*kept, *target))
                case Start(job=name, placements=places):
                    self.run(self.jobs[name], (*self.jobs[name].places, *places))
                case Terminate(job=name, reason=reason):
                    self.jobs[name].told = str(reason)
                    self.end(self.jobs[name], "failed")
        return self.observe()

    def close(self) -> None:
        self.jobs.clear()

    def is_meant(self, action: Any) -> bool:
        found = not getattr(action, "uids", ()) or any(p.uid in action.uids for p in self.jobs[action.job].places)
        self.events += [] if found else [ActionFailed(action.job, (), Reason(Code.WORLD_CHANGED))]
        return found

    # --- what happens ----------------------------------------------------------------------------

    def alive(self) -> list[Lifecycle]:
        return [life for life in self.jobs.values() if not life.over]

    def submit(self, job: Job, work: float) -> None:
        self.jobs[job.name] = Lifecycle(replace(job, submitted=self.time), work)
        self.events.append(JobSeen(self.jobs[job.name].job))

    def run(self, life: Lifecycle, places: tuple[Placement, ...]) -> None:
        new = [replace(p, uid=f"{life.job.name}/{life.attempts}/{n}") for n, p in enumerate(places)]
        life.attempts += not life.places or life.since != life.since
        life.places = tuple(new)
        if not life.since:
            life.since = self.time
            self.events.append(TasksRunning(life.job.name, life.places, self.time))
        else:
            self.events.append(JobSeen(life.described()))

    def stop(self, life: Lifecycle) -> None:
        life.left -= self.time - life.since
        life.since = 0.0
        life.evictions += 1
        life.attempts += 1

    def lose(self, life: Lifecycle, gone: Sequence[Placement], evicted: bool = False) -> None:
        left = tuple(place for place in life.places if place.identity not in {other.identity for other in gone})
        if not life.job.gang.complete(Counter(place.group for place in left)):
            life.left -= self.time - life.since
            left, life.since = (), 0.0
            life.evictions += evicted
            if evicted:
                self.events.append(JobEvicted(life.job.name, self.time))
        life.places = left
        self.events.append(JobSeen(life.described()))

    def end(self, life: Lifecycle, how: str) -> None:
        life.over, life.places = how, ()
        self.events.append(JobGone(life.job.name))

    def lose_node(self, name: str) -> None:
        for life in self.alive():
            if any(place.node == name for place in life.places):
                self.lose(life, [place for place in life.places if place.node == name])
        self.fleet = replace(self.fleet, nodes=tuple(node for node in self.fleet.nodes if node.name != name))
        self.events.append(NodeLost(name))

    def shut(self, name: str, closure: Closure) -> None:
        nodes = [replace(node, closed=closure) if node.name == name else node for node in self.fleet.nodes]
        self.fleet = replace(self.fleet, nodes=tuple(nodes))
        self.events.append(NodeSeen(next(node for node in nodes if node.name == name)))
