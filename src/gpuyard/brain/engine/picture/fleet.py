"""The brain's picture of the cluster, kept up to date by events.

Built once from a snapshot, then changed by `apply` (what the world reports) and by `shift` (what a plan tries, through
a `Transaction`). Applying events one by one gives the same Fleet as building it afresh.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.brain.engine.picture.node_changes import NodeChanges, is_described_alike, is_same_machine
from gpuyard.brain.engine.picture.standing import Bookings, Standing, in_order, pool_names
from gpuyard.brain.engine.sharing.amounts import Amounts
from gpuyard.model.errors import Unknown
from gpuyard.model.events import (
    ActionFailed,
    BudgetsChanged,
    Event,
    GpuHealthChanged,
    JobGone,
    JobSeen,
    NodeLoaded,
    NodeLost,
    NodeSeen,
    PolicyChanged,
    PoolsChanged,
    QueuesChanged,
    TasksAssigned,
    TasksEnded,
    TasksRunning,
    TasksStopping,
)
from gpuyard.model.job import Bundle, Job, Placement, TaskGroup
from gpuyard.model.node import Node
from gpuyard.model.policy import Policy
from gpuyard.model.queue import ROOT, Queue
from gpuyard.model.snapshot import Snapshot

TaskEvent = TasksAssigned | TasksRunning | TasksStopping | TasksEnded | ActionFailed
"""Somebody takes or leaves places; many come together, once a plan is carried out."""
OF_TASKS = (TasksAssigned, TasksRunning, TasksStopping, TasksEnded, ActionFailed)
OF_NODES = (NodeSeen, NodeLost, GpuHealthChanged, NodeLoaded)

REQUESTS_KEPT = 1024
"""So many requests are kept beyond twice those that jobs have; then the others are let go of, and all is laid anew."""


class Fleet(Standing):
    """The picture that events keep up to date. One writer at a time."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        self._node_changes = NodeChanges()
        self._described_anew = False
        """Whether nodes were described otherwise since costs and demand were last worked out."""
        self._most_requests = REQUESTS_KEPT
        self.fresh = True
        """Whether anything happened since a plan was last made."""

    def apply(self, events: Iterable[Event]) -> list[str]:
        """Take in what the world reports, in order; what speaks of somebody unknown is left out, and said."""
        unknown = []
        self.columns.touched.forget()
        self.tree.changed.clear()  # whoever kept an order by it has ended with its plan
        for event in events:
            self.fresh = True
            try:
                self._apply(event)
            except Unknown as error:
                unknown.append(str(error))
        self._conclude()
        self._lay_anew()
        self._work_out_anew()
        self._let_requests_go()
        return unknown

    def look_around(self) -> None:
        """Get to know now what some later turn may ask about every node and every job; for whoever keeps the picture
        and has nothing to do."""
        self.holders.of_all()
        self.smallest.look()

    def _apply(self, event: Event) -> None:
        if not isinstance(event, OF_NODES):
            self._lay_anew()
        if isinstance(event, OF_TASKS):  # by far the most
            self._apply_tasks(event)
            return
        self._conclude()
        match event:
            case JobSeen(job):
                self._readmit(job)
            case JobGone(name):
                self._unsettle(self._row(name))
            case NodeSeen() | NodeLost() | GpuHealthChanged():
                self._apply_node(event)
            case NodeLoaded(name, taken):
                self._see_node(replace(self._node(name), taken=taken))
            case PolicyChanged(policy):
                self._set_policy(policy)
            case QueuesChanged(queues):
                self._set_queues(queues)
            case PoolsChanged(pools):
                self._set_pools(pools)
            case BudgetsChanged(budgets):
                self.budgets = budgets

    def _row(self, name: str) -> JobRow:
        try:
            return self.jobs[name]
        except KeyError:
            raise Unknown(f"an event speaks of job {name}, which nobody submitted") from None

    def _node(self, name: str) -> Node:
        seen = self._node_changes.of(name)
        if seen is not None:
            return seen
        if name not in self.columns.index or name in self._node_changes.lost:
            raise Unknown(f"an event speaks of node {name}, which nobody has seen")
        return self.columns.nodes[self.columns.index[name]]

    def capacity(self) -> Amounts:
        """What there is to divide: what is neither sick nor closed, and what is in use elsewhere."""
        total = self._capacity.total()
        if not any(self.unowned):
            return total
        return [max(0, amount - held) for amount, held in zip(total, self.unowned, strict=True)]

    @property
    def any_odd(self) -> bool:
        """Whether there are any such nodes as `odd_nodes` are."""
        return self._capacity.any_odd

    def odd_nodes(self) -> Iterator[Node]:
        """Nodes that are closed or have a sick or closed GPU."""
        return (self.columns.nodes[n] for n in self._capacity.odd())

    def _readmit(self, job: Job) -> None:
        self._queue_of(job)
        if job.name in self.jobs:
            self._unsettle(self.jobs[job.name])
        self._settle(self._compiled(job))

    def _set_policy(self, policy: Policy) -> None:
        """What nodes and jobs were compiled by is compiled anew; a mere knob is turned."""
        old, self.policy = self.policy, policy
        parts = ("classes", "weights", "scoring", "demand", "order", "priorities", "critical_priority")
        if any(getattr(old, part) != getattr(policy, part) for part in parts):
            if old.classes != policy.classes:
                self.requests, self._together, self.expected = {}, {}, ()  # both were compiled by class
            self._compile_anew()

    def _set_queues(self, queues: tuple[Queue, ...]) -> None:
        """Jobs whose queue is gone run on as loads that are not ours; all others are booked where they stand."""
        self.queues = in_order(queues)
        names = {ROOT, "", *(queue.name for queue in queues)}
        if all(row.job.queue in names for row in self.jobs.values()):
            self._recount()
        else:
            self._compile_anew()

    def _compile_anew(self) -> None:
        """From what is told of nodes and jobs alone."""
        jobs = [row.described() for row in self.rows()]
        self._lay_nodes(self.columns.nodes)
        self._lay_queues(self.queues)
        self._empty()
        known = {"", *self.tree.index}
        ours = [job if job.queue in known else replace(job, queue="", foreign=True) for job in jobs]
        self._settle_all([self._compiled(job) for job in ours])

    def _let_requests_go(self) -> None:
        """What only jobs asked for that are gone, and all that was worked out about it: each is an answer for every
        node, and a picture may be kept for months."""
        if len(self.requests) <= self._most_requests:
            return
        asked = {request for row in self.jobs.values() for request in row.requests}
        asked.update(request for request, _ in self.expected)
        self._most_requests = 2 * len(asked) + REQUESTS_KEPT
        if len(self.requests) > self._most_requests:
            self.requests = {key: request for key, request in self.requests.items() if request in asked}
            self._together = {}
            self._compile_anew()

    def _apply_tasks(self, event: TaskEvent) -> None:
        row = self._row(event.job)
        if isinstance(event, TasksRunning) and not row.placements:  # as most begin: there is nobody to tell apart
            self._set_placements(row, event.placements, started=event.at)
            return
        if isinstance(event, TasksEnded):
            self._end_tasks(row, event)
            return
        named = _named(event)
        match event:
            case TasksAssigned(placements=placements, at=at):
                assigned = [replace(place, assigned=True) for place in placements]
                self._set_placements(row, (*row.placements, *assigned), started=_first(row.started, at))
            case TasksRunning():
                self._run_tasks(row, named, event)
            case TasksStopping():
                marked = [replace(p, terminating=True) if p.identity in named else p for p in row.placements]
                self._set_placements(row, marked)
            case ActionFailed():
                there = [p for p in row.placements if not (p.assigned and p.identity in named)]
                kept = tuple(replace(p, terminating=False) if p.identity in named else p for p in there)
                if kept != row.placements:  # those who were meant may be gone already
                    self._set_placements(row, kept)

    def _end_tasks(self, row: JobRow, event: TasksEnded) -> None:
        """Those are gone; as a rule they are all that the job had."""
        left: Sequence[Placement] = ()
        if event.placements != row.placements:
            named = _named(event)
            left = [p for p in row.placements if p.identity not in named]
        self._count_ended(row, event)
        self._set_placements(self._row(event.job), left)

    def _run_tasks(self, row: JobRow, named: set[object], event: TasksRunning) -> None:
        """Those assigned run where they were to run; the job has started when its first task has."""
        begins = all(place.assigned for place in row.placements)
        known = {place.identity for place in row.placements}
        new = tuple(place for place in event.placements if place.identity not in known)
        placements = tuple(replace(p, assigned=False) if p.identity in named else p for p in row.placements)
        if not new:  # nothing moves: only what is told of its tasks has changed
            row.placements = placements
            row.started = event.at if begins else row.started
            self.holders.forget(row)
            return
        self._set_placements(row, (*placements, *new), started=event.at if begins else _first(row.started, event.at))

    def _count_ended(self, row: JobRow, event: TasksEnded) -> None:
        if not (event.succeeded or event.failed):
            return
        name = event.placements[0].group if event.placements else row.group.name
        self._conclude()
        gang = _with_ended(row.job.gang, name, event)
        self._readmit(replace(row.described(), gang=gang))

    def _set_placements(self, row: JobRow, placements: Sequence[Placement], started: float | None = None) -> None:
        """The same job on other places: all that was worked out about it stands."""
        row.placements = tuple(sorted(placements, key=_order)) if len(placements) > 1 else tuple(placements)
        if started is not None or not row.placements:
            row.started = started
        self._resettle(row)

    def _apply_node(self, event: NodeSeen | NodeLost | GpuHealthChanged) -> None:
        match event:
            case NodeSeen(node):
                self._see_node(node)
            case NodeLost(name):
                self._node_changes.lose(self._node(name).name)
            case GpuHealthChanged(name, index, health):
                node = self._node(name)
                gpus = tuple(replace(gpu, health=health) if gpu.index == index else gpu for gpu in node.gpus)
                self._see_node(replace(node, gpus=gpus))

    def _see_node(self, node: Node) -> None:
        """In place, if it is a machine that is known; else it is kept until the columns are laid anew."""
        n = self.columns.index.get(node.name)
        changes = self._node_changes
        known = None if n is None or changes.of(node.name) or node.name in changes.lost else self.columns.nodes[n]
        if n is None or known is None or not is_same_machine(known, node):
            changes.see(node)
            return
        alike, suspects = is_described_alike(known, node), self.columns.any_suspect
        self.columns.change(n, node)
        self._capacity.change(n, known, node)
        self.shapes.renew(n, alike)
        if not alike or known.pool != node.pool:
            self._described_anew = True
        if suspects != self.columns.any_suspect:
            self.shapes.revalue()

    def _work_out_anew(self) -> None:
        """Nodes are described otherwise: what costs and demand were worked out by is asked again, once for all."""
        if not self._described_anew:
            return
        self._described_anew = False
        self.pool_names = pool_names(self.columns.nodes)
        self.shapes.gauge.forget()
        self.shapes.revalue()
        self.seen.changed = True
        if self.costs.ask_again():
            self._recount()

    def _lay_anew(self) -> None:
        """Nodes came, went or became others: new columns, on which everybody stands where it stood."""
        if not self._node_changes:
            return
        changes, self._node_changes = self._node_changes, NodeChanges()
        self._lay_nodes(changes.among(self.columns.nodes))
        self._lay_queues(self.queues)
        rows = list(self.rows())
        self._empty()
        for row in rows:
            left = tuple(p for p in row.placements if p.node in self.columns.index and p.node not in changes.lost)
            if len(left) != len(row.placements):
                row.placements, row.started = left, row.started if left else None
            row.line = None  # the lines are formed anew
        self._settle_all(rows)

    def _recount(self) -> None:
        """Queues or costs changed: everybody stands where it stands, and is booked anew."""
        rows = list(self.rows())
        self._empty()
        self._lay_queues(self.queues)
        bookings: Bookings = {}
        for row in rows:
            row.requeue(self._queue_of(row.job))
            self._book_all(row, bookings)
            self._enter(row)
        self._charge_all(bookings)


def _named(event: TaskEvent) -> set[object]:
    """By what the tasks that an event speaks of are known."""
    return {place.identity for place in event.placements}


def _first(*moments: float | None) -> float | None:
    """The first that is known; time may begin at 0."""
    return next((at for at in moments if at is not None), None)


def _order(placement: Placement) -> tuple[str, int, str, str]:
    return placement.group, placement.task, placement.node, placement.uid


def _with_ended(bundle: Bundle, name: str, event: TasksEnded) -> Bundle:
    groups: list[TaskGroup | Bundle] = []
    for group in bundle.groups:
        if isinstance(group, Bundle):
            groups.append(_with_ended(group, name, event))
        elif group.name == name:
            numbers = tuple(sorted({*group.ended, *(place.task for place in event.placements)}))
            counts = (group.succeeded + event.succeeded, group.failed + event.failed)
            ended = replace(group, succeeded=counts[0], failed=counts[1], ended=numbers)
            groups.append(ended)
        else:
            groups.append(group)
    return replace(bundle, groups=tuple(groups))
