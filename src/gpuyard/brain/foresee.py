"""What a snapshot leads to: plans to a fixed point with effects instant and `now` standing still, and tells the story.

Called by the command line and by what-if. Everything here works on a fleet of its own; nothing outside is changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gpuyard.brain import decide
from gpuyard.brain.controllers import alarms, drain
from gpuyard.brain.controllers.alarms import waits
from gpuyard.brain.engine import cycle
from gpuyard.brain.engine.defrag import asked, defragmentation
from gpuyard.brain.engine.explaining import explain
from gpuyard.brain.engine.explaining.explain import Explainer
from gpuyard.brain.engine.nodes.columns import Held
from gpuyard.brain.engine.nodes.feasibility import free_gpus
from gpuyard.brain.engine.nodes.requests import STATIC_CHECKERS
from gpuyard.brain.engine.picture.draft import Draft, was_released
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.job_rows import JobRow, rank_in_queue
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.brain.engine.placing import gang
from gpuyard.brain.engine.placing.fragmentation import follow_demand, measure
from gpuyard.brain.engine.queueing import admission
from gpuyard.brain.engine.reserving import reservations
from gpuyard.brain.engine.settling import billing, evacuation, keeping_places, stories
from gpuyard.brain.engine.sharing.amounts import GPUS
from gpuyard.model.actions import Action, Deadlock, QueueLine, Running
from gpuyard.model.alerts import Alert
from gpuyard.model.answers.bill import Bill
from gpuyard.model.answers.defrag import DefragPlan
from gpuyard.model.answers.outlook import Fragmentation, Outlook
from gpuyard.model.errors import NotFound
from gpuyard.model.job import Bundle, Job, Placement, TaskGroup, one_group
from gpuyard.model.node import NO_LOAD, Gpu, Health, Node
from gpuyard.model.queue import ROOT
from gpuyard.model.reasons import Explanation, Reason
from gpuyard.model.resources import UNLIMITED
from gpuyard.model.snapshot import Reservation, Snapshot

MOST_CYCLES = 100
"""A plan that has not settled by then contradicts rule 21; it is cut off rather than run for ever."""
FEW = 8
"""One node in so many is few: laying them out costs little beside laying out all."""


class Foresight:
    """One planning run over a snapshot, kept so that questions can be asked about its end."""

    def __init__(self, snapshot: Snapshot, cycles: int | None = None) -> None:
        self.fleet = Fleet(snapshot)
        self.memory = Memory.from_document(snapshot.memory)
        self.now = snapshot.now
        self.origin: dict[str, tuple[Held, ...]] = {}
        self.because: dict[str, Reason] = {}
        self.served: dict[str, str] = {}
        self.deadlocks: list[Deadlock] = []
        self.cycles = 0
        self._told: dict[str, Explanation] = {}
        """Why each waits, once that was asked of all."""
        self.draft = self._run(MOST_CYCLES if cycles is None else cycles)

    def _run(self, most: int) -> Draft:
        draft = Draft(self.fleet, self.memory, self.now)
        seen: set[object] = {()}
        while self.cycles < most:
            draft = decide.plan(self.fleet, self.memory, self.now, began=self.origin)
            draft.tx.commit()
            draft.rest()
            self.cycles += 1
            settled = not self._take_over(draft)
            # whoever may stand where it stood makes other room, so the end is only the end if nobody does
            if keeping_places.keep_places(draft, self.origin):
                draft.tx.commit()
            elif settled:
                break
            if (standing := self._standing()) in seen:
                break  # claims that follow from each other in a circle: nobody is disturbed for that
            seen.add(standing)
        keeping_places.untangle(draft, self.origin)
        draft.tx.commit()
        return draft

    def _standing(self) -> tuple[object, ...]:
        """Where those stand now who have changed, the others being where they were."""
        rows = (self.fleet.jobs[name] for name in sorted(self.origin))
        now = ((row.name, tuple(sorted(row.held))) for row in rows)
        return tuple(pair for pair in now if pair[1] != tuple(sorted(self.origin[pair[0]])))

    def _take_over(self, draft: Draft) -> bool:
        """Note what a cycle changed; whether it changed anything."""
        changed = False
        for name, before in draft.before.items():
            if sorted(before) != sorted(self.fleet.jobs[name].held):
                changed = True
                self.origin.setdefault(name, before)
                self.fleet.note_kept(self.fleet.jobs[name])
        newer = {name: why for name, why in draft.because.items() if not was_released(self.because.get(name))}
        self.because.update(newer)
        self.served.update(draft.served)
        self.deadlocks += [deadlock for deadlock in draft.said.deadlocks if deadlock not in self.deadlocks]
        return changed

    def outlook(self) -> Outlook:
        """The net change and the state it leads to."""
        changes = self.changes()
        told = Outlook(
            actions=(*changes, *self.draft.said.reserves),
            waiting=tuple(self.explanations()),
            running=tuple(self._running()),
            queues=tuple(self._queues()),
            fragmentation=self.fragmentation(),
            deadlocks=tuple(self.deadlocks),
            cycles=self.cycles,
            bill=self.bill(changes),
            alerts=self.alerts(),
        )
        self.draft.rest()
        return told

    def changes(self) -> tuple[Action, ...]:
        """Who starts, stops and moves, in an order that can be applied."""
        return evacuation.net_actions(self.fleet, self.origin, stories.Story(self.because, self.served))

    def bill(self, changes: Iterable[Action]) -> Bill:
        """What those of them cost that disturb somebody."""
        return billing.bill(self.draft, changes, self.origin)

    def fragmentation(self) -> Fragmentation:
        """Rule 25, of the fleet as it stands now."""
        requested = served = 0
        left = int(self.fleet.columns.idle.sum())
        with self.draft.trial():
            for row in sorted(self._waiting(), key=rank_in_queue):
                needed = self.fleet.shortfall(row)[GPUS]
                if not 0 < needed <= left or not self._entitled(row) or needed > self._free_for(row):
                    continue
                requested, left = requested + needed, left - needed
                with self.draft.trial() as trial:
                    if gang.place(self.draft, row):
                        served += needed
                        trial.keep()
        return measure(self.fleet, requested, served)

    def _free_for(self, row: JobRow) -> int:
        """GPUs free on nodes that could ever run the job."""
        suitable = [self.fleet.shapes.static(request, STATIC_CHECKERS) for request in row.requests]
        return free_gpus(self.fleet.columns, np.logical_or.reduce(suitable))

    def _waiting(self) -> list[JobRow]:
        return [self.fleet.rolls.short[name] for name in sorted(self.fleet.rolls.short)]

    def _entitled(self, row: JobRow) -> bool:
        asked = self.fleet.shortfall(row)
        return not row.job.on_hold and self.fleet.tree.refuses(row.queue, asked, row.firm) is None

    def explanations(self) -> list[Explanation]:
        """Why each waiting job waits; jobs that are answered alike are asked once."""
        found = [explain.for_all(self._explainer.explain(next(iter(rows))), rows) for rows in self.alike()]
        self._told = {told.job: told for those in found for told in those}
        self._told |= {row.name: self.explain(row) for row in self.fleet.rolls.outside.values() if _is_kept_out(row)}
        return [self._told[name] for name in sorted(self._told)]

    def alike(self) -> list[list[JobRow]]:
        """Those that wait, by what they are answered; and the explainer is ready for the first of each."""
        alike: dict[object, list[JobRow]] = {}
        for row in self._waiting():
            alike.setdefault(row.name if row.held or row.job.on_hold else row.likeness, []).append(row)
        self._explainer.prepare(next(iter(rows)) for rows in alike.values())
        return list(alike.values())

    def reasons(self, rows: list[JobRow]) -> dict[str, Reason]:
        """The sentence of each of these, who are answered alike; `explain` has the same, and the rest."""
        first = next(iter(rows))
        found = explain.for_all(Explanation(first.name, self._explainer.reason(first)), rows)
        return {told.job: told.reason for told in found}

    def explain(self, row: JobRow) -> Explanation:
        """Why one job waits."""
        if row.job.foreign:
            return Explanation(row.name, admission.held(row))
        return self._told.get(row.name) or self._explainer.explain(row)

    def keeping(self, row: JobRow) -> str:
        """The disruption budget that keeps whoever is in its way; "" if none does."""
        return next((other.budget for other in self._explainer.in_the_way(row) if other.budget), "")

    @cached_property
    def _explainer(self) -> Explainer:
        self.draft.before.update(self.origin)
        started = [self.fleet.jobs[name] for name in sorted(self.origin) if self.fleet.jobs[name].alive()]
        return Explainer(self.draft, started, Emptied(self.draft).could_run)

    def alerts(self, measured: bool = False) -> tuple[Alert, ...]:
        """What somebody should look at once the plan is through; what is free is measured on request, and as it stands
        now, for `now` stands still."""
        kept = replace(self.memory.of(alarms.AlarmsKept), looked_at=0.0 if measured else self.now)
        inquiry = waits.Inquiry(self.explain, len(self.fleet.rolls.short), 0.0)
        alarms.look(self.draft, kept, inquiry, scattered_for=0.0)
        return self.draft.said.alerts

    def _running(self) -> list[Running]:
        return [Running(row.name, self._places_of(row)) for row in self.fleet.rows() if row.held]

    def _places_of(self, row: JobRow) -> tuple[Placement, ...]:
        """Where it runs, as the world told it of a single task that stays: most are such."""
        if len(row.placements) == 1 and row.name not in self.origin:
            (told,) = row.placements
            if told.group == row.group.name and not (told.assigned or told.uid):
                return row.placements
        return tuple(self.fleet.placement(row, held) for held in sorted(row.held))

    def _queues(self) -> list[QueueLine]:
        tree, lines = self.fleet.tree, []
        waiting = [row.queue for row in self._waiting()]
        for q, queue in enumerate(tree.queues):
            if queue.name == ROOT and queue.quota.gpu >= UNLIMITED and queue.limit.gpu >= UNLIMITED:
                continue
            share = self.draft.shares[q][GPUS] if self.draft.shares else 0.0
            line = QueueLine(
                queue.name, tree.quota[q][GPUS], tree.limit[q][GPUS], tree.used[q][GPUS], share, waiting.count(q)
            )
            lines.append(line)
        return sorted(lines, key=lambda line: line.name)


class Emptied:
    """The yard of a draft as if every node were empty, open and well, and its queues held nothing.

    Most who are asked about would run on a few of its nodes: whoever does runs on all of them, and until somebody does
    not, the others are never laid out. Only what is counted by domain can look better on a part than on the whole.
    """

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._part: Draft | None = None
        self._whole: Draft | None = None

    def could_run(self, row: JobRow) -> bool:
        """Whether the job could run there."""
        return (self._whole is None and self._runs_on_few(row)) or _would_run(self._all_of_it(), row)

    def _runs_on_few(self, row: JobRow) -> bool:
        """Whether as many nodes as it has tasks do, each of a kind that might hold one; asked where these are few."""
        fleet, tasks = self._draft.fleet, sum(group.tasks for group in row.job.task_groups())
        nodes = fleet.columns.nodes
        if tasks > len(nodes) // FEW or any(map(fleet.company.concerns, row.requests)):
            return False
        if self._part is None:
            fitting = np.flatnonzero(fleet.shapes.static(row.requests[0], STATIC_CHECKERS))
            self._part = self._empty(nodes[n] for n in fitting[:tasks])
        return _would_run(self._part, row)

    def _all_of_it(self) -> Draft:
        self._whole = self._whole or self._empty(self._draft.fleet.columns.nodes)
        return self._whole

    def _empty(self, nodes: Iterable[Node]) -> Draft:
        fleet, now = self._draft.fleet, self._draft.now
        emptied = tuple(map(restored, nodes))
        bare = Snapshot(now, fleet.topology, fleet.policy, tuple(fleet.pools.values()), emptied, fleet.queues)
        return Draft(Fleet(bare), self._draft.memory, now)


def _would_run(empty: Draft, row: JobRow) -> bool:
    """Whether the job starts on a fleet that holds nobody."""
    fleet = empty.fleet
    job = replace(row.job, placements=(), on_hold=False, gang=afresh(row.job.gang))
    alone = JobRow(job, tuple(fleet.request(job, group) for group in job.task_groups()), row.queue, fleet.policy)
    if fleet.tree.refuses(alone.queue, fleet.shortfall(alone), alone.firm) is not None:
        return False
    with empty.trial():
        return gang.place(empty, alone)


def afresh(bundle: Bundle) -> Bundle:
    """The gang as if all were there and nobody had failed; who succeeded still counts (rule 22)."""
    groups = tuple(afresh(g) if isinstance(g, Bundle) else replace(g, failed=0, absent=0) for g in bundle.groups)
    return replace(bundle, groups=groups)


def _is_well(gpu: Gpu) -> bool:
    return gpu.closed is None and gpu.health is Health.HEALTHY


def restored(node: Node) -> Node:
    """The node as it would be open, well and all ours."""
    if node.closed is None and node.taken == NO_LOAD and all(map(_is_well, node.gpus)):
        return node
    return replace(
        node,
        closed=None,
        taken=NO_LOAD,
        gpus=tuple(replace(gpu, health=Health.HEALTHY, closed=None) for gpu in node.gpus),
    )


def outlook(snapshot: Snapshot, cycles: int | None = None) -> Outlook:
    """Plan to a fixed point (or so many cycles) and tell where it leads."""
    return Foresight(snapshot, cycles).outlook()


def why(snapshot: Snapshot, job: str) -> Explanation | None:
    """Why a job does not run after the plan; None if it runs."""
    foresight = Foresight(snapshot)
    if job not in foresight.fleet.jobs:
        raise NotFound(f"there is no job {job}")
    row = foresight.fleet.jobs[job]
    waits = job in foresight.fleet.rolls.short or _is_kept_out(row)
    return foresight.explain(row) if waits else None


def _is_kept_out(row: JobRow) -> bool:
    """Whether it waits in nobody's queue, because it is refused where it comes from."""
    return row.job.foreign and row.job.on_hold and not row.held


def alerts(snapshot: Snapshot) -> tuple[Alert, ...]:
    """What somebody should look at after the plan."""
    return Foresight(snapshot).alerts(measured=True)


def fragmentation(snapshot: Snapshot) -> Fragmentation:
    """Fragmentation of the snapshot as it stands, before any plan."""
    foresight = Foresight(snapshot, cycles=0)
    follow_demand(foresight.fleet)
    trend = foresight.memory.of(alarms.AlarmsKept).trend
    day = asked.measure(foresight.draft, asked.day_s_demand(foresight.draft))
    told = tuple(replace(pool, trend=trend.get(pool.name, ())) for pool in day)
    return replace(foresight.fragmentation(), day=told)


def defrag(snapshot: Snapshot) -> DefragPlan:
    """What timed defragmentation would move once the ordinary plan is through, with its bill (rule 15)."""
    foresight = Foresight(snapshot)
    fleet = foresight.fleet
    fleet.reservations += tuple(Reservation(r.job, r.placements, r.until) for r in foresight.draft.said.reserves)
    foresight.draft = draft = Draft(fleet, foresight.memory, snapshot.now)
    draft.before.update(foresight.origin)  # what the plan disturbed counts against the same budgets
    reservations.restore(draft)
    before = foresight.fragmentation()
    search = defragmentation.propose(draft, settled=foresight.origin)
    return defragmentation.tell(search, before, foresight.fragmentation(), len(foresight.origin))


@dataclass(frozen=True, slots=True)
class Drainage:
    """What a drain does now, what that costs, and why the others stay for the time being."""

    actions: tuple[Action, ...]
    bill: Bill
    stays: Mapping[str, str]


def drainage(snapshot: Snapshot) -> Drainage:
    """What becomes of those who stand on what is being drained, before anything else is planned."""
    draft = cycle.open_draft(Fleet(snapshot), Memory.from_document(snapshot.memory), snapshot.now)
    stays = drain.clear(draft)
    story = stories.Story(draft.because, draft.served)
    actions = evacuation.net_actions(draft.fleet, draft.before, story)
    return Drainage(actions, billing.bill(draft, actions, draft.before), stays)


MOST_FITS = 100_000
"""Counting stops there; nobody asks for more."""


def fits(snapshot: Snapshot, group: TaskGroup, queue: str = "", models: tuple[str, ...] = ()) -> int:
    """How many gangs of this one group fit now, the queue's quota and limit counted when one is given."""
    foresight = Foresight(snapshot, cycles=0)
    fleet, draft = foresight.fleet, foresight.draft
    follow_demand(fleet)
    name = queue or fleet.tree.queues[-1].name
    job = Job("?", one_group(group), queue=name, models=models, submitted=snapshot.now)
    count = 0
    while count < MOST_FITS:
        row = JobRow(job, (fleet.request(job, group),), fleet.tree.index[name], fleet.policy)
        if queue and fleet.tree.refuses(row.queue, fleet.shortfall(row), row.firm) is not None:
            break
        if not gang.place(draft, row):
            break
        count += 1
    return count
