"""The brain's picture of the cluster: nodes as columns, jobs as rows, queues as a tree, kept up to date by events.

Built once from a snapshot, then changed by `apply` (what the world reports) and by `put`/`lift` (what a plan tries,
through a `Transaction`). Applying events one by one gives the same Fleet as building it afresh.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from gpuyard.brain.engine.nodes.columns import Columns, Held
from gpuyard.brain.engine.nodes.demand import Seen
from gpuyard.brain.engine.nodes.feasibility import Shapes
from gpuyard.brain.engine.nodes.requests import Checker, TaskRequest, content_key
from gpuyard.brain.engine.picture import precedence
from gpuyard.brain.engine.picture.costs import Costs
from gpuyard.brain.engine.picture.job_rows import NO_QUEUE, JobRow
from gpuyard.brain.engine.picture.waiting_lines import WaitingLines
from gpuyard.brain.engine.sharing.amounts import Amounts, add, plus, times
from gpuyard.brain.engine.sharing.quota import QueueTree
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
from gpuyard.model.node import Node, Pool
from gpuyard.model.policy import Policy
from gpuyard.model.queue import Queue
from gpuyard.model.resources import UNLIMITED, WHOLE, mig_cost
from gpuyard.model.snapshot import Reservation, Snapshot


class Fleet:
    """Everything a plan is made from. One writer at a time."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.policy = snapshot.policy
        self.topology = snapshot.topology
        self._set_pools(snapshot.pools)
        self.budgets = snapshot.budgets
        self.reservations: tuple[Reservation, ...] = snapshot.reservations
        self.requests: dict[tuple[object, ...], TaskRequest] = {}
        self.seen = Seen()
        """The demand seen."""
        self.expected: tuple[tuple[TaskRequest, float], ...] = ()
        """Demand known beforehand, as tasks per kind; placement is then measured by it and not by what was seen."""
        self.jobs: dict[str, JobRow] = {}
        self.short: dict[str, JobRow] = {}
        """Jobs of ours below their minimum."""
        self.waiting_lines = WaitingLines()
        """Those of them that hold nothing, equals together."""
        self.halves: dict[str, JobRow] = {}
        """Those of them that hold something."""
        self.outside: dict[str, JobRow] = {}
        """Foreign loads below their minimum."""
        self.unowned: Amounts = []
        """Held by foreign loads that stand in no queue."""
        self.limited: dict[str, JobRow] = {}
        """Jobs with a time limit."""
        self._limited = 0
        """How many of them run."""
        self._elastic: dict[str, JobRow] = {}
        self.avoiders: dict[str, JobRow] = {}
        """Jobs that will not share a domain with somebody (rule 14)."""
        self._lay_nodes(snapshot.nodes)
        self._lay_queues(snapshot.queues)
        for job in sorted(snapshot.jobs, key=lambda job: job.name):
            self._admit(job)

    def _set_pools(self, pools: Iterable[Pool]) -> None:
        self.pools = {pool.name: pool for pool in pools}
        self.capped = [pool for pool in self.pools.values() if pool.max_busy]

    def _lay_nodes(self, nodes: Iterable[Node]) -> None:
        self.columns = Columns(nodes, self.topology)
        self.shapes = Shapes(self.columns, self.policy)
        self.pool_names = {node.pool or node.model for node in self.columns.nodes if node.gpus}
        self.tenants: list[dict[JobRow, int]] = [{} for _ in self.columns.nodes]
        """Who holds how many places on each node."""
        self.loose = np.zeros(len(self.columns.nodes), dtype=np.int64)
        """GPUs held by preemptible jobs on each node, in grains."""
        self.priorities: dict[int, dict[int, int]] = {}
        """How many preemptible jobs hold something, per queue and priority."""

    def _lay_queues(self, queues: Iterable[Queue]) -> None:
        self.queues = tuple(sorted(queues, key=lambda queue: queue.name))
        self.tree = QueueTree(self.queues)
        self.costs = Costs(self.columns, self.tree, self.shapes)
        self.demand = [self.costs.nothing() for _ in self.tree.queues]
        """What each queue runs and waits for, every task up to the maximum (rule 6)."""
        self._vectors: dict[tuple[int, int, int, int], Amounts] = {}
        self._lay_capacity()

    # --- jobs -----------------------------------------------------------------------------------------------------

    def _admit(self, job: Job) -> JobRow:
        requests = tuple(self.request(job, group) for group in job.task_groups())
        queue = self._queue_of(job)
        row = JobRow(job, requests, queue, self.policy)
        if job.avoid is not None:
            self.avoiders[job.name] = row
        if not row.rigid and not job.foreign:
            self._elastic[job.name] = row
        self._settle(row)
        return row

    def _queue_of(self, job: Job) -> int:
        if not job.queue:
            return NO_QUEUE
        try:
            return self.tree.index[job.queue]
        except KeyError:
            raise Unknown(f"job {job.name} stands in queue {job.queue}, which does not exist") from None

    def _settle(self, row: JobRow) -> None:
        """The job takes the places the world told of, and is one of the fleet's."""
        for held in self.held_from(row, row.placements):
            self.shift(row, held, 1)
        self.jobs[row.name] = row
        row.running = bool(row.held)
        row.turn = precedence.turn(row.job, self.policy.order)
        if row.job.time_limit is not None:
            self.limited[row.name] = row
            self._limited += row.running
        self._demand(row, 1)
        self._note(row)

    def _unsettle(self, row: JobRow) -> None:
        """The exact inverse."""
        self._demand(row, -1)
        if row.job.time_limit is not None:
            del self.limited[row.name]
            self._limited -= row.running
        del self.jobs[row.name]
        for held in list(row.held):
            self.shift(row, held, -1)
        self.waiting_lines.leave(row)
        self.short.pop(row.name, None)
        self.halves.pop(row.name, None)
        self.outside.pop(row.name, None)

    def _demand(self, row: JobRow, sign: int) -> None:
        if row.queue == NO_QUEUE or (row.job.on_hold and not row.held):
            row.wanted = []
            return
        self._count_demand(row, sign)
        wanted = self.demand[row.queue]
        for r, amount in enumerate(self.wanted(row) if sign > 0 else row.wanted):
            wanted[r] += sign * amount

    def _count_demand(self, row: JobRow, sign: int) -> None:
        for request, group in zip(row.requests, row.groups, strict=True):
            self.seen.count(request, sign * (group.tasks - group.failed - group.succeeded))

    def wanted(self, row: JobRow) -> Amounts:
        """What the job runs and waits for: what it holds, and every task it may still start."""
        total = self.costs.nothing()
        for held in row.held:
            if not held.terminating:
                add(total, self.vector(held.cost, held.cpu, held.memory, held.node))
        for leaf, request in enumerate(row.requests):
            if (waiting := row.pending(leaf)) > 0:
                add(total, self.costs.most(request), waiting)
        row.wanted = total
        return total

    def shortfall(self, row: JobRow) -> Amounts:
        """The least it costs to bring the job to its minimum."""
        if len(row.groups) == 1:
            return times(self.costs.least(row.requests[0]), row.missing(0))
        parts = [
            times(self.costs.least(request), row.missing(leaf))
            if row.pending(leaf) >= row.missing(leaf)
            else [UNLIMITED] * len(self.tree.resources)  # members that ended: this group can no longer be completed
            for leaf, request in enumerate(row.requests)
        ]
        return self.costs.minimum(row.job.gang, parts)

    def _note(self, row: JobRow) -> None:
        """Keep the lists of jobs that wait and of jobs that could grow."""
        if self.jobs.get(row.name) is not row:
            return  # a probe that only asks what would be
        complete = row.complete()
        _keep_if(self.outside if row.job.foreign else self.short, row, not complete)
        if not row.job.foreign:
            _keep_if(self.halves, row, not complete and bool(row.held))
            if complete or row.held:
                self.waiting_lines.leave(row)
            else:
                self.waiting_lines.join(row)

    def probe(self, row: JobRow, job: Job, waived: frozenset[Checker] = frozenset()) -> JobRow:
        """A stand-in for a job as it might be (fewer tasks, another level, checks waived), not part of the fleet."""
        requests = tuple(self.request(job, group, waived) for group in job.task_groups())
        probe = JobRow(job, requests, row.queue, self.policy)
        probe.turn = row.turn
        return probe

    def ending(self) -> list[JobRow]:
        """Jobs of ours or others that run and will end."""
        return [row for row in self.jobs.values() if row.held]

    @property
    def any_limits(self) -> bool:
        """Whether any running job has a time limit."""
        return self._limited > 0

    def elastic_rows(self) -> list[JobRow]:
        """Jobs whose size may change."""
        return list(self._elastic.values())

    def elastic(self) -> list[JobRow]:
        """Jobs that may still grow."""
        return [row for row in self._elastic.values() if any(row.pending(leaf) > 0 for leaf in range(len(row.groups)))]

    def request(self, job: Job, group: TaskGroup, waived: frozenset[Checker] = frozenset()) -> TaskRequest:
        """The one compiled request for tasks like these."""
        key = (*content_key(job, group), waived)
        found = self.requests.get(key)
        if found is None:
            found = self.requests[key] = TaskRequest(len(self.requests), job, group, self.policy.of(job))
            found.waived = waived
        return found

    def expect(self, jobs: Iterable[tuple[Job, float]]) -> None:
        """Somebody knows the demand: so many jobs like each of these."""
        self.expected = tuple((self.request(job, group), count) for job, count in jobs for group in job.task_groups())

    def held_from(self, row: JobRow, placements: Iterable[Placement]) -> Iterator[Held]:
        """What placements of a job hold; placements on nodes that are gone hold nothing."""
        if not placements:
            return
        leaves = {group.name: leaf for leaf, group in enumerate(row.groups)}
        for placement in placements:
            node = self.columns.index.get(placement.node)
            if node is not None:
                yield self.hold(row, leaves[placement.group], node, placement)

    def hold(self, row: JobRow, leaf: int, node: int, place: Placement) -> Held:
        """What one task holds on a node at the given devices."""
        request, where = row.requests[leaf], self.columns.nodes[node]
        share = request.share_on(where) if request.resources.shared else 0
        cost = request.cost_on(where)
        return Held(
            leaf, place.task, node, place.gpus, share, place.mig, cost, request.resources.cpu, request.resources.memory,
            place.terminating,
        )  # fmt: skip

    def placement(self, row: JobRow, held: Held) -> Placement:
        """A held place, in the model's words."""
        return Placement(
            self.columns.nodes[held.node].name, held.gpus, row.groups[held.leaf].name, held.task, held.mig,
            held.terminating,
        )  # fmt: skip

    def rows(self) -> Iterator[JobRow]:
        """Every job, by name."""
        return (self.jobs[name] for name in sorted(self.jobs))

    # --- change; plans go through `Transaction` -------------------------------------------------------------------

    def shift(self, row: JobRow, held: Held, sign: int) -> None:
        """A task takes its place (sign 1) or leaves it (sign -1); the two are exact inverses."""
        if sign > 0:
            self.columns.put(held)
            row.held.append(held)
        else:
            self.columns.lift(held)
            if row.held[-1] is held:
                row.held.pop()  # undoing comes in reverse order; a search would cost the square of a large gang
            else:
                row.held.remove(held)
        if not held.terminating:
            row.live[held.leaf] += sign
        tenants = self.tenants[held.node]
        count = tenants.get(row, 0) + sign
        if count:
            tenants[row] = count
        else:
            del tenants[row]
        if not row.firm:
            if held.cost:
                self.loose[held.node] += sign * held.cost
            if len(row.held) == (1 if sign > 0 else 0):
                self._count_priority(row, sign)
        self.charge(row, held, sign)
        self._note(row)

    def _count_priority(self, row: JobRow, sign: int) -> None:
        """A preemptible job began or ceased to hold anything."""
        counts = self.priorities.setdefault(row.queue, {})
        counts[row.priority] = counts.get(row.priority, 0) + sign
        if not counts[row.priority]:
            del counts[row.priority]

    def charge(self, row: JobRow, held: Held, sign: int) -> None:
        """Book what a place costs to the job's queues (sign -1: take it off their books)."""
        vector = self.vector(held.cost, held.cpu, held.memory, held.node)
        if row.queue != NO_QUEUE:
            self.tree.charge(row.queue, vector, row.firm, sign)
        else:
            self.unowned = plus(self.unowned, times(vector, sign))

    def vector(self, cost: int, cpu: int, memory: int, node: int) -> Amounts:
        """What a hold costs its queue, in the tree's resource order."""
        model = int(self.columns.model[node])
        key = (cost, cpu, memory, model)
        vector = self._vectors.get(key)
        if vector is None:
            vector = self._vectors[key] = self.tree.vector(cost, cpu, memory, self.columns.models[model])
        return vector

    # --- events ---------------------------------------------------------------------------------------------------

    def apply(self, events: Iterable[Event]) -> list[str]:
        """Take in what the world reports, in order; what speaks of somebody unknown is left out, and said."""
        unknown = []
        for event in events:
            try:
                self._apply(event)
            except Unknown as error:
                unknown.append(str(error))
        return unknown

    def _apply(self, event: Event) -> None:
        match event:
            case JobSeen(job):
                self._readmit(job)
            case JobGone(name):
                self._drop(self._row(name))
            case TasksAssigned() | TasksRunning() | TasksStopping() | TasksEnded() | ActionFailed():
                self._apply_tasks(event)
            case NodeSeen() | NodeLost() | GpuHealthChanged():
                self._apply_node(event)
            case NodeLoaded(name, taken):
                n = self._column(name)
                self.columns.load(n, replace(self.columns.nodes[n], taken=taken))
            case PolicyChanged(policy):
                self._set_policy(policy)
            case QueuesChanged(queues):
                self._rebuild(queues=queues)
            case PoolsChanged(pools):
                self._set_pools(pools)
            case BudgetsChanged(budgets):
                self.budgets = budgets

    def _row(self, name: str) -> JobRow:
        try:
            return self.jobs[name]
        except KeyError:
            raise Unknown(f"an event speaks of job {name}, which nobody submitted") from None

    def _column(self, name: str) -> int:
        try:
            return self.columns.index[name]
        except KeyError:
            raise Unknown(f"an event speaks of node {name}, which nobody has seen") from None

    def capacity(self) -> Amounts:
        """What there is to divide: what is neither sick nor closed, and what is in use elsewhere."""
        total = plus(self._capacity, self.stuck())
        return [max(0, amount - held) for amount, held in zip(total, self.unowned, strict=True)]

    def odd_nodes(self) -> Iterator[Node]:
        """Nodes that are closed or have a sick or closed GPU."""
        return (self.columns.nodes[n] for n in self._odd)

    def stuck(self) -> Amounts:
        """In use on closed nodes, closed and sick devices: it counts while it runs, and nothing can follow it."""
        total = self.costs.nothing()
        for n in self._odd:
            node = self.columns.nodes[n]
            kept = sum(
                used
                for g, used in enumerate(self.columns.used[n])
                if node.gpus[g].slices is None and not (node.closed is None and node.gpus[g].usable)
            )
            total = plus(total, self.tree.vector(kept, 0, 0, node.model))
        return total

    def _lay_capacity(self) -> None:
        nodes = self.columns.nodes
        self._odd = [n for n, node in enumerate(nodes) if node.closed or not all(gpu.usable for gpu in node.gpus)]
        total = self.costs.nothing()
        kinds = Counter((_sound_gpus(node), node.cpu, node.memory, node.model) for node in nodes if node.closed is None)
        for (gpu, cpu, memory, model), count in kinds.items():
            total = plus(total, times(self.tree.vector(gpu, cpu, memory, model), count))
        self._capacity = [min(amount, UNLIMITED) for amount in total]
        self.unowned = self.costs.nothing()

    def _readmit(self, job: Job) -> None:
        self._queue_of(job)
        if job.name in self.jobs:
            self._drop(self.jobs[job.name])
        self._admit(job)

    def _set_policy(self, policy: Policy) -> None:
        """What nodes and jobs were compiled by is compiled anew; a mere knob is turned."""
        old, self.policy = self.policy, policy
        parts = ("classes", "weights", "scoring", "demand", "order")
        if any(getattr(old, part) != getattr(policy, part) for part in parts):
            if old.classes != policy.classes:
                self.requests, self.expected = {}, ()  # both were compiled by class
            self._rebuild()

    def _drop(self, row: JobRow) -> None:
        self._unsettle(row)
        self.avoiders.pop(row.name, None)
        self._elastic.pop(row.name, None)

    def _apply_tasks(self, event: TasksAssigned | TasksRunning | TasksStopping | TasksEnded | ActionFailed) -> None:
        row = self._row(event.job)
        named = {place.identity for place in event.placements}
        match event:
            case TasksAssigned(placements=placements, at=at):
                assigned = [replace(place, assigned=True) for place in placements]
                self._set_placements(row, (*row.placements, *assigned), started=row.started or at)
            case TasksRunning():
                self._run_tasks(row, named, event)
            case TasksStopping():
                marked = [replace(p, terminating=True) if p.identity in named else p for p in row.placements]
                self._set_placements(row, marked)
            case ActionFailed():
                kept = [p for p in row.placements if not (p.assigned and p.identity in named)]
                self._set_placements(row, [replace(p, terminating=False) if p.identity in named else p for p in kept])
            case TasksEnded():
                self._count_ended(row, event)
                left = [p for p in row.placements if p.identity not in named]
                self._set_placements(self._row(event.job), left)

    def _run_tasks(self, row: JobRow, named: set[object], event: TasksRunning) -> None:
        """Those assigned run where they were to run; the job has started when its first task has."""
        begins = all(place.assigned for place in row.placements)
        known = {place.identity for place in row.placements}
        new = tuple(place for place in event.placements if place.identity not in known)
        if not new:  # nothing moves: only what is told of its tasks has changed
            row.placements = tuple(replace(p, assigned=False) if p.identity in named else p for p in row.placements)
            row.started = event.at if begins else row.started
            return
        placements = [replace(p, assigned=False) if p.identity in named else p for p in row.placements]
        self._set_placements(row, (*placements, *new), started=event.at if begins else row.started or event.at)

    def _count_ended(self, row: JobRow, event: TasksEnded) -> None:
        if not (event.succeeded or event.failed):
            return
        name = event.placements[0].group if event.placements else row.groups[0].name
        gang = _with_ended(row.job.gang, name, event)
        self._readmit(replace(row.described(), gang=gang))

    def _set_placements(self, row: JobRow, placements: Sequence[Placement], started: float | None = None) -> None:
        """The same job on other places: all that was worked out about it stands."""
        self._unsettle(row)
        row.placements = tuple(sorted(placements, key=_order))
        row.started = started or (row.started if row.placements else None)
        self._settle(row)

    def _apply_node(self, event: NodeSeen | NodeLost | GpuHealthChanged) -> None:
        nodes = {node.name: node for node in self.columns.nodes}
        match event:
            case NodeSeen(node):
                nodes[node.name] = node
            case NodeLost(name):
                nodes.pop(name, None)
            case GpuHealthChanged(name, index, health):
                node = self.columns.nodes[self._column(name)]
                gpus = tuple(replace(gpu, health=health) if gpu.index == index else gpu for gpu in node.gpus)
                nodes[name] = replace(node, gpus=gpus)
        self._rebuild(nodes=nodes.values())

    def _rebuild(self, nodes: Iterable[Node] | None = None, queues: Iterable[Queue] | None = None) -> None:
        # Nodes and queues change rarely; keeping the order of columns and queue ids simple is worth a rebuild then.
        jobs = [row.described() for row in self.jobs.values()]
        self._lay_nodes(self.columns.nodes if nodes is None else nodes)
        self._lay_queues(self.queues if queues is None else queues)
        self.jobs, self.short, self.avoiders, self._elastic = {}, {}, {}, {}
        self.seen = Seen()
        self.limited, self._limited, self.outside, self.halves, self.waiting_lines = {}, 0, {}, {}, WaitingLines()
        for job in sorted(jobs, key=lambda job: job.name):
            names = self.columns.index
            left = tuple(p for p in job.placements if p.node in names)
            job = replace(job, placements=left, started=job.started if left or not job.placements else None)
            self._admit(job if job.queue in self.tree.index else replace(job, queue="", foreign=True))


def _keep_if(rows: dict[str, JobRow], row: JobRow, stays: bool) -> None:
    if stays:
        rows[row.name] = row
    else:
        rows.pop(row.name, None)


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


def _sound_gpus(node: Node) -> int:
    """What the node has to give when empty: whole devices and MIG slices that are sound, in grains."""
    total = 0
    for gpu in node.gpus:
        if gpu.usable:
            total += WHOLE if gpu.slices is None else sum(mig_cost(profile) for profile in gpu.slices)
    return total
