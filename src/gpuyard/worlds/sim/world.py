"""The simulated world: virtual time, jobs that work as long as their trace says, effects that are instant.

Driven by `runtime.driving` like every other world. It decides nothing: it says what happened and carries out what it is
told. What happened is also told to an `Observer`, which keeps the figures and the placement file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from math import inf

from gpuyard.model.actions import Action, Evict, Move, Plan, Start, Terminate
from gpuyard.model.events import (
    ActionFailed,
    Event,
    GpuHealthChanged,
    JobEvicted,
    JobGone,
    JobSeen,
    NodeLost,
    NodeSeen,
    TasksRunning,
)
from gpuyard.model.job import Job, JobClass, Placement
from gpuyard.model.reasons import Code, Reason
from gpuyard.model.snapshot import Snapshot
from gpuyard.worlds.sim.fleets import Contention
from gpuyard.worlds.sim.lives import Live, Observer
from gpuyard.worlds.sim.traces.trace import Arrival, Trace


@dataclass(frozen=True, slots=True)
class Rules:
    """How this world treats time; what a published simulator did differently is an option here, never in the engine."""

    overhead: float | None = None
    """Seconds every start costs; None: as the trace says of each job."""
    overhead_every_event: bool = False
    """Muri's simulator charges a running job its start again at every arrival and every end."""
    most_moves: float = 0.0
    """The share of placed tasks that may be moved, where tasks are tried once."""
    contention: Contention | None = None
    """How neighbours, slow GPUs and thin links slow jobs down; None: they do not."""


Happening = Callable[[], None]
NO_FLEET = Snapshot()


class SimWorld:
    """A `World` with a virtual clock."""

    def __init__(self, trace: Trace, rules: Rules, listener: Observer, fleet: Snapshot = NO_FLEET) -> None:
        self.trace = trace
        self.fleet = fleet
        """As it was given; nodes as they are now are in `nodes`."""
        self.nodes = {node.name: node for node in fleet.nodes}
        self.rules = rules
        self.listener = listener
        self.jobs: dict[str, Live] = {}
        self.waiting: dict[str, Live] = {}
        self._now = trace.arrivals[0].at if trace.arrivals else 0.0
        self._coming = 0
        self._events: list[Event] = []
        self._agenda: list[tuple[float, int, Happening]] = []
        self._ends: list[tuple[float, int, int, Live]] = []
        """Ends foreseen: when, in which order foreseen, in which epoch of whom."""
        self._entries = 0
        self._at_once = False
        """Whether a plan ended somebody, so that there is more to plan in the same moment."""
        self.busy = 0
        """Jobs that run."""
        self._kept: dict[str, tuple[Placement, ...]] = {}
        """What jobs that stopped so that others could pass them will take again."""
        self.placed = self.moved = 0
        """Starts and moves so far."""

    # --- the loop's side ------------------------------------------------------------------------------------------

    def now(self) -> float:
        """Virtual time."""
        return self._now

    def open(self) -> Snapshot:
        """The moment as it is; effects are instant, so nothing is under way."""
        self._events = []
        return self.snapshot()

    def snapshot(self) -> Snapshot:
        """Everything there is."""
        jobs = tuple(self.described(live) for live in self.jobs.values())
        return replace(self.fleet, now=self._now, nodes=tuple(self.nodes.values()), jobs=jobs)

    def close(self) -> None:
        """It never was."""

    def wait(self, not_before: float = 0.0) -> bool:
        """Go to the next moment at which something happens; False when nothing is left to happen.

        Virtual time needs no rest: `not_before` is somebody's real time.
        """
        if self._at_once:
            self._at_once = False
            return True
        moment = self._next_moment()
        if moment is None:
            return False
        self._now = moment
        if self.rules.overhead_every_event:
            self._charge_everyone()
        while (end := self._next_end()) is not None and end <= moment:
            self._finish(heappop(self._ends)[3])
        while self._agenda and self._agenda[0][0] <= moment:
            heappop(self._agenda)[2]()
        while self._coming < len(self.trace.arrivals) and self.trace.arrivals[self._coming].at <= moment:
            self._arrive()
        return True

    def observe(self) -> Sequence[Event]:
        """What happened since the last call."""
        events, self._events = self._events, []
        return events

    def apply(self, plan: Plan, turn: int) -> Sequence[Event]:
        """Carry out the plan at once: evictions and moves before starts, as the plan has them."""
        actions = [action for action in plan.actions if isinstance(action, Start) or self._is_meant(action)]
        for action in actions:
            if isinstance(action, Evict):
                self._evict(self.jobs[action.job], action.placements)
            elif isinstance(action, Terminate):
                self._expire(self.jobs[action.job])
        self._move_all([action for action in actions if isinstance(action, Move)])
        for action in actions:  # reservations and cordons bind the brain, not the jobs
            if isinstance(action, Start):
                self._start(self.jobs[action.job], action.placements)
        self.listener.settled(self._now, len(self.waiting))
        if plan.look_again_at is not None:
            self.at(plan.look_again_at, lambda: None)
        return self.observe()

    def _is_meant(self, action: Action) -> bool:
        """Whether those whom an action names are there; tasks of this world have no uids, so nobody else can be."""
        if not isinstance(action, Evict | Move | Terminate) or not action.uids:
            return True
        live = self.jobs.get(action.job)
        if live is not None and not {place.uid for place in live.placements}.isdisjoint(action.uids):
            return True
        if live is not None:
            told = f"{action.uids[0]} is not there any more"
            self.tell(ActionFailed(action.job, (), Reason(Code.WORLD_CHANGED, where=action.job, message=told)))
        return False

    @property
    def come(self) -> int:
        """How many jobs have arrived."""
        return self._coming

    # --- time -----------------------------------------------------------------------------------------------------

    def at(self, moment: float, happening: Happening) -> None:
        """Let something happen later; faults come in this way too."""
        self._entries += 1
        heappush(self._agenda, (moment, self._entries, happening))

    def tell(self, event: Event) -> None:
        """Report something to the brain at its next look."""
        self._events.append(event)
        match event:
            case NodeSeen(node):
                self.nodes[node.name] = node
            case NodeLost(name):
                self.nodes.pop(name, None)
            case GpuHealthChanged(name, index, health):
                node = self.nodes[name]
                gpus = tuple(replace(gpu, health=health) if gpu.index == index else gpu for gpu in node.gpus)
                self.nodes[name] = replace(node, gpus=gpus)

    def _next_moment(self) -> float | None:
        moments = [self._agenda[0][0]] if self._agenda else []
        if (end := self._next_end()) is not None:
            moments.append(end)
        if self._coming < len(self.trace.arrivals):
            moments.append(self.trace.arrivals[self._coming].at)
        elif not self.waiting and not self.busy:
            return None  # looks and repairs alone keep nobody waiting
        return min(moments, default=None)

    def _next_end(self) -> float | None:
        """The next end that still holds; those that a stop or a charge has overtaken fall out."""
        ends = self._ends
        while ends and ends[0][2] != ends[0][3].epoch:
            heappop(ends)
        return ends[0][0] if ends else None

    # --- the lives of jobs ----------------------------------------------------------------------------------------

    def _arrive(self) -> None:
        self._coming += 1
        self.submit(self.trace.arrivals[self._coming - 1])

    def submit(self, arrival: Arrival) -> None:
        """A job comes now, whether the trace knew of it or not."""
        self.listener.arrived(self._now, self._come(arrival))

    def _come(self, arrival: Arrival) -> Live:
        overhead = arrival.overhead if self.rules.overhead is None else self.rules.overhead
        live = self.jobs[arrival.job.name] = self.waiting[arrival.job.name] = Live(arrival, overhead)
        self.tell(JobSeen(arrival.job))
        return live

    def _start(self, live: Live, placements: tuple[Placement, ...]) -> None:
        self.placed += 1
        if live.running:
            self._resize(live, (*live.placements, *placements))
            return
        self._begin(live, placements)
        self.tell(TasksRunning(live.arrival.job.name, placements, live.checked))
        self.listener.placed(self._now, live, moved=False)

    def _begin(self, live: Live, placements: tuple[Placement, ...]) -> None:
        self.busy += not live.running
        self.waiting.pop(live.arrival.job.name, None)
        live.placements = placements
        live.slow = self._slowness(live)
        live.attempts += 1
        live.started = live.checked = self._now
        if live.first_start is None:
            live.first_start = self._now
        if not self.rules.overhead_every_event:
            live.checked += live.overhead
        self._foresee_end(live)

    def _slowness(self, live: Live) -> float:
        model = self.rules.contention
        if model is None:
            return 1.0
        here = {place.node for place in live.placements}
        others = {node: sum(other is not live for other in self.tenants(node)) for node in here}
        talks = live.arrival.job.job_class is not JobClass.INFERENCE
        return model.factor(live.placements, self.nodes, others, talks)

    def _foresee_end(self, live: Live) -> None:
        live.epoch += 1
        end = _done(live)
        if end < inf:
            self._entries += 1
            heappush(self._ends, (end, self._entries, live.epoch, live))

    def _finish(self, live: Live) -> None:
        live.left = 0.0
        self._over(live)

    def _expire(self, live: Live) -> None:
        """Ended by its time limit; those who waited for its places are to hear of it at once."""
        live.expired = True
        self._count_work(live)
        self._over(live)
        self._at_once = True

    def _over(self, live: Live) -> None:
        live.held += self._now - live.started
        self.listener.finished(self._now, live)
        self._gone(live)

    def _gone(self, live: Live) -> None:
        name = live.arrival.job.name
        self.busy -= live.running
        live.epoch += 1
        live.placements = ()
        del self.jobs[name]
        self.waiting.pop(name, None)
        self.tell(JobGone(name))

    def _evict(self, live: Live, places: tuple[Placement, ...]) -> None:
        self.lose_tasks(live, places or live.placements)
        live.evictions += not live.running
        if not live.running:
            self.tell(JobEvicted(live.arrival.job.name, self._now))

    def lose_node(self, name: str, lost: Callable[[Live], float] = lambda live: 0.0) -> None:
        """A node is gone, and every task on it; `lost` says how much work a gang has lost that stops by that."""
        for live in self.tenants(name):
            self.fail_tasks(live, [place for place in live.placements if place.node == name], lost(live))
        self.tell(NodeLost(name))

    def fail_tasks(self, live: Live, gone: Container[Placement], lost: float = 0.0) -> None:
        """A failure takes tasks; whoever looks on is told what it did."""
        self.lose_tasks(live, gone, lost)
        self.listener.failed(self._now, live, lost)

    def tenants(self, node: str) -> list[Live]:
        """Who has tasks on a node, by name."""
        found = [live for live in self.jobs.values() if any(place.node == node for place in live.placements)]
        return sorted(found, key=lambda live: live.arrival.job.name)

    def lose_tasks(self, live: Live, gone: Container[Placement], lost: float = 0.0) -> None:
        """Tasks are gone: a gang that still has its minimum goes on without them, any other stops (rule 22)."""
        kept = tuple(place for place in live.placements if place not in gone)
        if kept and live.arrival.job.gang.complete(Counter(place.group for place in kept)):
            self._resize(live, kept)
        else:
            self.stop(live, lost)

    def _resize(self, live: Live, placements: tuple[Placement, ...]) -> None:
        live.placements = placements
        self.tell(JobSeen(self.described(live)))
        self.listener.resized(self._now, live)

    def stop(self, live: Live, lost: float = 0.0) -> None:
        """Take a job off its place; it waits again, with `lost` seconds of its work undone."""
        self._count_work(live)
        if live.left is not None and live.arrival.work is not None:
            live.left = min(live.left + lost, live.arrival.work)
        self.busy -= live.running
        live.held += self._now - live.started
        live.epoch += 1
        live.stops += 1
        live.waits = self._now
        self.listener.stopped(self._now, live, lost)
        live.placements = ()
        self.waiting[live.arrival.job.name] = live
        self.tell(JobSeen(self.described(live)))

    def _move_all(self, moves: list[Move]) -> None:
        """Each once those are gone whose devices it takes; where they wait in a ring, one stops first."""
        waiting = {move.job: move for move in moves}
        stopped: list[Move] = []
        while waiting:
            ready = [move for move in waiting.values() if not waiting.keys() & (set(move.after) - {move.job})]
            for move in ready:
                self._move(self.jobs[move.job], move.source, move.target)
                del waiting[move.job]
            if not ready:
                name = min(waiting)
                stopped.append(waiting.pop(name))
                self._stop_for_a_moment(self.jobs[name], stopped[-1])
        for move in stopped:
            live = self.jobs[move.job]
            self._start(live, (*self._kept.pop(move.job), *move.target))

    def _stop_for_a_moment(self, live: Live, move: Move) -> None:
        self._kept[move.job] = tuple(place for place in live.placements if place not in move.source)
        live.evictions += 1
        self.stop(live)

    def _move(self, live: Live, source: tuple[Placement, ...], target: tuple[Placement, ...]) -> None:
        """Tasks run elsewhere from now on; the whole gang pays for the restart."""
        self._count_work(live)
        live.held += self._now - live.started
        self.moved += len(source)
        live.evictions += 1
        kept = tuple(place for place in live.placements if place not in source)
        self._begin(live, (*kept, *target))
        self.tell(JobSeen(self.described(live)))
        self.listener.placed(self._now, live, moved=True)

    def _count_work(self, live: Live) -> None:
        """Take off what it has worked since it was last looked at."""
        if live.left is not None:
            live.left -= max(0.0, self._now - live.checked) / live.slow
        live.checked = self._now

    def _charge_everyone(self) -> None:
        for live in self._running():
            if live.left is not None and self._now > live.checked:
                if live.checked + live.left <= self._now:
                    continue  # it ends now, and no event in between disturbed it
                live.left -= max(0.0, self._now - live.checked - live.overhead)
                live.checked = self._now
                self._foresee_end(live)
                self.tell(JobSeen(self.described(live)))

    def _running(self) -> Iterator[Live]:
        return (live for live in list(self.jobs.values()) if live.running)

    def described(self, live: Live) -> Job:
        """The job as it is now: where it runs, and how much of its work is done."""
        work = live.arrival.work
        done = work - live.left if work is not None and live.left is not None else 0.0
        started = live.checked if live.running else None
        since = None if live.running else live.waits
        return replace(
            live.arrival.job, placements=live.placements, started=started, attained=done, waiting_since=since
        )


def _done(live: Live) -> float:
    """When its work is done if nothing stops it."""
    return inf if live.left is None else live.checked + live.left * live.slow
