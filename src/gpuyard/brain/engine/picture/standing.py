"""Who stands where: nodes as columns, jobs as rows, queues as a tree, and every booking between them.

The lower half of `Fleet`, which adds what the world reports. Plans change it through a `Transaction` by `shift`, whose
two directions are exact inverses.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import count

import numpy as np

from gpuyard.brain.engine.nodes.columns import Columns, Held
from gpuyard.brain.engine.nodes.company import Company
from gpuyard.brain.engine.nodes.demand import Seen
from gpuyard.brain.engine.nodes.feasibility import Shapes
from gpuyard.brain.engine.nodes.requests import Checker, TaskRequest, can_align, content_key
from gpuyard.brain.engine.picture import precedence
from gpuyard.brain.engine.picture.job_rows import NO_QUEUE, JobRow
from gpuyard.brain.engine.picture.known.holders import DeviceHolders
from gpuyard.brain.engine.picture.known.rolls import JobRolls
from gpuyard.brain.engine.picture.known.smallest import SmallestJobs
from gpuyard.brain.engine.sharing.amounts import GPUS, Amounts, add, plus, times
from gpuyard.brain.engine.sharing.capacity import Capacity
from gpuyard.brain.engine.sharing.costs import Costs
from gpuyard.brain.engine.sharing.quota import QueueTree
from gpuyard.model.errors import Unknown
from gpuyard.model.job import Job, Placement, TaskGroup
from gpuyard.model.node import Budget, Node, Pool
from gpuyard.model.queue import Queue
from gpuyard.model.resources import UNLIMITED
from gpuyard.model.snapshot import Reservation, Snapshot

Bookings = dict[tuple[int, bool], Amounts]
"""What is held more than the books say (below 0: less), per queue and whether by jobs that may not be preempted."""

FEW_CHANGES = 8
"""Places that are booked one by one rather than together: what is done for all of a node at once costs more."""


class Standing:
    """Everything a plan is made from. One writer at a time."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.policy = snapshot.policy
        self.topology = snapshot.topology
        self._set_pools(snapshot.pools)
        self.budgets = snapshot.budgets
        self._by_job: tuple[tuple[Budget, ...], dict[str, list[Budget]]] = ((), {})
        """The budgets that were indexed, and those over each job."""
        self.reservations: tuple[Reservation, ...] = snapshot.reservations
        self.requests: dict[tuple[object, ...], TaskRequest] = {}
        self._numbers = count()
        """Each compiled request has a number of its own, also among those that were let go of."""
        self._together: dict[tuple[TaskRequest, ...], tuple[TaskRequest, ...]] = {}
        """Those of one job: jobs alike have the very same."""
        self.seen = Seen()
        """The demand seen."""
        self.expected: tuple[tuple[TaskRequest, float], ...] = ()
        """Demand known beforehand, as tasks per kind; placement is then measured by it and not by what was seen."""
        self.jobs: dict[str, JobRow] = {}
        self.smallest = SmallestJobs(self.jobs)
        self.rolls = JobRolls()
        self.unowned: Amounts = []
        """Held by foreign loads that stand in no queue."""
        self.avoiders: dict[str, JobRow] = {}
        """Jobs that will not share a domain with somebody (rule 14)."""
        self.company = Company()
        self._resettled: list[tuple[int, JobRow, Held]] = []
        """Places taken and left of which nodes and queues have yet to learn; none but while events are taken in."""
        self._lay_nodes(snapshot.nodes)
        self._lay_queues(snapshot.queues)
        self._settle_all([self._compiled(job) for job in sorted(snapshot.jobs, key=lambda job: job.name)])

    def _empty(self) -> None:
        """Nobody is there; those who were are told of again."""
        self.jobs, self.avoiders, self.rolls = {}, {}, JobRolls()
        self.smallest = SmallestJobs(self.jobs)
        self.company = Company()
        self.company.lay(self.columns, self.tenants)
        self.seen = Seen()

    def _set_pools(self, pools: Iterable[Pool]) -> None:
        self.pools = {pool.name: pool for pool in pools}
        self.capped = [pool for pool in self.pools.values() if pool.max_busy]

    def _lay_nodes(self, nodes: Iterable[Node]) -> None:
        self.columns = Columns(nodes, self.topology)
        self.shapes = Shapes(self.columns, self.policy)
        self.pool_names = pool_names(self.columns.nodes)
        self.tenants: list[dict[JobRow, int]] = [{} for _ in self.columns.nodes]
        """Who holds how many places on each node."""
        self.company.lay(self.columns, self.tenants)
        self.loose = np.zeros(len(self.columns.nodes), dtype=np.int64)
        """GPUs held by preemptible jobs on each node, in grains."""
        self.closed_last: tuple[object, object] = ((), None)
        """The last question about neighbours and caps, and its answer; `neighbours` knows what they are."""

    def _lay_queues(self, queues: Iterable[Queue]) -> None:
        self.queues = in_order(queues)
        self.tree = QueueTree(self.queues)
        self.costs = Costs(self.columns, self.tree, self.shapes)
        self.demand = [self.costs.nothing() for _ in self.tree.queues]
        """What each queue runs and waits for, every task up to the maximum (rule 6)."""
        self._prices: dict[object, Amounts] = {}
        """What places cost that are alike in GPUs, CPU, memory and the model they are counted by; in GPUs, where queues
        count nothing else."""
        self._gpus_alone = len(self.tree.resources) == 1
        self._capacity = Capacity(self.columns, self.tree)
        self.unowned = self.costs.nothing()
        self._sizes: dict[int, dict[int, int]] = {}
        """How many jobs hold so much, per queue and amount; as the world has it, trials aside."""
        self.priorities: defaultdict[int, dict[int, int]] = defaultdict(dict)
        """How many preemptible jobs hold something, per queue and priority."""
        self.holders = DeviceHolders(self.columns, self.tenants)

    # --- jobs -----------------------------------------------------------------------------------------------------

    def _compiled(self, job: Job) -> JobRow:
        requests = tuple([self.request(job, group) for group in job.task_groups()])
        requests = self._together.setdefault(requests, requests)
        return JobRow(job, requests, self._queue_of(job), self.policy)

    def _settle_all(self, rows: Iterable[JobRow]) -> None:
        """All of them at once, on columns where nobody stands yet: the same as one `_settle` after the other."""
        places: list[Held] = []
        bookings: Bookings = {}
        for row in rows:
            if row.held:  # where nodes were laid anew
                row.held, row.live = [], row.nobody_live()
            if row.placements:
                row.held = sorted(self.held_from(row, row.placements))
                for held in row.held:
                    self._tenant(row, held, 1)
                places += row.held
                self._book_all(row, bookings)
            self._enter(row)
        self._charge_all(bookings)
        self.columns.shift_all((1, held) for held in places)

    def _book_all(self, row: JobRow, bookings: Bookings) -> None:
        """Add all that the job holds to what its queue is charged in the end."""
        if row.held and not row.firm:
            self._count_priority(row, 1)
        for held in row.held:
            self.count_in(bookings, row, held, 1)

    def count_in(self, bookings: Bookings, row: JobRow, held: Held, sign: int) -> None:
        """A place of the job's is to be booked, or taken off the books, together with others."""
        account = (row.queue, row.firm)
        amounts = bookings.get(account)
        if amounts is None:
            amounts = bookings[account] = self.costs.nothing()
        if self._gpus_alone:
            amounts[GPUS] += sign * held.cost
        else:
            add(amounts, self.price(held), sign)

    def _charge_all(self, bookings: Bookings) -> None:
        for (queue, firm), amounts in bookings.items():
            if any(amounts):
                self._charge(queue, firm, amounts, 1)

    def _queue_of(self, job: Job) -> int:
        if not job.queue:
            return NO_QUEUE
        try:
            return self.tree.index[job.queue]
        except KeyError:
            raise Unknown(f"job {job.name} stands in queue {job.queue}, which does not exist") from None

    def budgets_over(self, job: str) -> Sequence[Budget]:
        """The disruption budgets that a job is under."""
        if self._by_job[0] is not self.budgets:
            found: dict[str, list[Budget]] = {}
            for budget in self.budgets:
                for name in budget.jobs:
                    found.setdefault(name, []).append(budget)
            self._by_job = (self.budgets, found)
        return self._by_job[1].get(job, ())

    def _settle(self, row: JobRow) -> None:
        """The job takes the places the world told of, and is one of the fleet's."""
        for held in self.held_from(row, row.placements):
            self.shift(row, held, 1)
        row.held = row.held[:]  # of its size: one that grew has room for more, and jobs are many
        self._enter(row)

    def _resettle(self, row: JobRow) -> None:
        """A job of the fleet's takes the places the world tells of now; all that is not about places stands. So does
        what it asks for, unless that counts only while it runs; what it costs may be another amount elsewhere."""
        counts_always = row.queue != NO_QUEUE and not row.job.on_hold
        if not counts_always:
            self._demand(row, -1)
        self._count_size(row, -1)
        self.smallest.note(row)
        self.rolls.waiting_lines.leave(row)  # in a line it stands by what it was
        for held in row.held[::-1]:
            self._resettled.append((-1, row, held))
            self._hand_over(row, held, -1)
        for held in self.held_from(row, row.placements):
            self._resettled.append((1, row, held))
            self._hand_over(row, held, 1)
        row.running = bool(row.held)
        self.rolls.note_run(row)
        if counts_always:
            self._count_wanted_anew(row)
        else:
            self._demand(row, 1)
        self._count_size(row, 1)
        self._note(row)

    def _conclude(self) -> None:
        """Nodes and queues learn, once for all, of those who took other places since."""
        if not self._resettled:
            return
        changes, self._resettled = self._resettled, []
        if len(changes) > FEW_CHANGES:
            self._book_changes(changes)
            return
        for sign, row, held in changes:
            self._book(row, held, sign)

    def _enter(self, row: JobRow) -> None:
        """It stands where it stands; now it counts."""
        self.jobs[row.name] = row
        row.running = bool(row.held)
        row.turn = precedence.turn(row.job, self.policy.order)
        if row.job.avoid is not None:
            self.avoiders[row.name] = row
        if row.request.apart or not row.single:
            self.company.enter(row.requests, 1)
        self.rolls.enter(row)
        self._demand(row, 1)
        self._count_size(row, 1)
        self.smallest.note(row)
        if not row.complete():
            self._note(row)  # who has all it needs stands in no list, and was in none before

    def _unsettle(self, row: JobRow) -> None:
        """The exact inverse."""
        self.smallest.note(row)
        self._demand(row, -1)
        self._count_size(row, -1)
        del self.jobs[row.name]
        for held in list(row.held):
            self.shift(row, held, -1)
        self.avoiders.pop(row.name, None)
        self.company.enter(row.requests, -1)
        self.rolls.leave(row)

    def _count_size(self, row: JobRow, sign: int) -> None:
        if row.held and row.queue != NO_QUEUE:
            sizes, cost = self._sizes.setdefault(row.queue, {}), row.cost()
            sizes[cost] = sizes.get(cost, 0) + sign
            if not sizes[cost]:
                del sizes[cost]

    def note_kept(self, row: JobRow) -> None:
        """A plan that is kept has given the job what it holds now; for pictures that no world speaks to any more. There
        a part of a GPU may cost another share of it, and the job's queue then asks for another amount."""
        if row.held and row.queue != NO_QUEUE:
            self._sizes.setdefault(row.queue, {}).setdefault(row.cost(), 1)
        self._demand(row, -1)
        self._demand(row, 1)

    def largest_gangs(self) -> list[tuple[int, int]]:
        """Queues that hold something, and the most that one job of each held when the world last spoke, in grains."""
        return [(queue, max(sizes)) for queue, sizes in self._sizes.items() if sizes]

    def _demand(self, row: JobRow, sign: int) -> None:
        if row.queue == NO_QUEUE or (row.job.on_hold and not row.held):
            row.wanted = []
            return
        self._count_demand(row, sign)
        self._count_wanted(row, sign)

    def _count_wanted(self, row: JobRow, sign: int) -> None:
        add(self.demand[row.queue], self.wanted(row) if sign == 1 else row.wanted, sign)

    def _count_wanted_anew(self, row: JobRow) -> None:
        before, wanted = row.wanted, self.demand[row.queue]
        if self.wanted(row) != before:  # elsewhere most cost what they did
            add(wanted, before, -1)
            add(wanted, row.wanted)

    def _count_demand(self, row: JobRow, sign: int) -> None:
        if row.single:
            group = row.group
            self.seen.count(row.request, sign * (group.tasks - group.failed - group.succeeded))
            return
        for request, group in zip(row.requests, row.groups, strict=True):
            self.seen.count(request, sign * (group.tasks - group.failed - group.succeeded))

    def wanted(self, row: JobRow) -> Amounts:
        """What the job runs and waits for: what it holds, and every task it may still start."""
        if row.single and row.pending() + row.live[0] == 1 and len(row.held) == row.live[0] <= 1:  # one task, as most
            row.wanted = self.price(row.held[0]) if row.held else self.costs.most(row.request)
            return row.wanted
        parts = [self.price(held) for held in row.held if not held.terminating]
        for leaf, request in enumerate(row.requests):
            if (waiting := row.pending(leaf)) > 0:
                most = self.costs.most(request)
                parts.append(most if waiting == 1 else times(most, waiting))
        row.wanted = parts[0] if len(parts) == 1 else self.costs.total(parts)
        return row.wanted

    @property
    def moving_may_free(self) -> bool:
        """Whether more may be free once somebody was moved: slices are laid anew, and as much memory is a smaller part
        of a larger card. Else what is needed must be free already, only elsewhere."""
        return bool(self.columns.profiles) or any(map(self.costs.varies, self.rolls.by_memory))

    def shortfall(self, row: JobRow) -> Amounts:
        """The least it costs to bring the job to its minimum."""
        if row.single:
            return times(self.costs.least(row.request), row.missing())
        parts = [
            times(self.costs.least(request), row.missing(leaf))
            if row.pending(leaf) >= row.missing(leaf)
            else [UNLIMITED] * len(self.tree.resources)  # members that ended: this group can no longer be completed
            for leaf, request in enumerate(row.requests)
        ]
        return self.costs.minimum(row.job.gang, parts)

    def _note(self, row: JobRow) -> None:
        """Keep the rolls true."""
        if self.jobs.get(row.name) is row:  # and is not a probe that only asks what would be
            self.rolls.note(row)

    def probe(self, row: JobRow, job: Job, waived: frozenset[Checker] = frozenset()) -> JobRow:
        """A stand-in for a job as it might be (fewer tasks, another level, checks waived), not part of the fleet."""
        requests = tuple(self.request(job, group, waived) for group in job.task_groups())
        probe = JobRow(job, requests, row.queue, self.policy)
        probe.turn = row.turn
        return probe

    def ending(self) -> list[JobRow]:
        """Jobs of ours or others that run and will end."""
        return [row for row in self.jobs.values() if row.held]

    def request(self, job: Job, group: TaskGroup, waived: frozenset[Checker] = frozenset()) -> TaskRequest:
        """The one compiled request for tasks like these."""
        key = content_key(job, group, waived)
        found = self.requests.get(key)
        if found is None:
            found = self.requests[key] = TaskRequest(next(self._numbers), job, group, self.policy.of(job))
            found.waived = waived
            found.aligns = found.aligns and can_align not in waived
        return found

    def expect(self, jobs: Iterable[tuple[Job, float]]) -> None:
        """Somebody knows the demand: so many jobs like each of these."""
        self.expected = tuple((self.request(job, group), count) for job, count in jobs for group in job.task_groups())

    def held_from(self, row: JobRow, placements: Iterable[Placement]) -> list[Held]:
        """What placements of a job hold; placements on nodes that are gone hold nothing."""
        index = self.columns.index
        if row.single:
            return [self.hold(row, 0, index[place.node], place) for place in placements if place.node in index]
        leaves = {group.name: leaf for leaf, group in enumerate(row.groups)}
        return [
            self.hold(row, leaves[place.group], index[place.node], place) for place in placements if place.node in index
        ]

    def hold(self, row: JobRow, leaf: int, node: int, place: Placement) -> Held:
        """What one task holds on a node at the given devices."""
        request, where = row.requests[leaf], self.columns.nodes[node]
        resources, share = request.resources, request.share_on(where) if request.shared else 0
        return Held(
            leaf, place.task, node, place.gpus, share, place.mig, request.cost_on(where), resources.cpu,
            resources.memory, place.terminating, resources.extras,
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
        self._hand_over(row, held, sign)
        self._book(row, held, sign)
        self._note(row)

    def _book(self, row: JobRow, held: Held, sign: int) -> None:
        """On its node, and in the books of its queues."""
        self.columns.shift(held, sign)
        self._charge(row.queue, row.firm, self.price(held), sign)

    def shift_all(self, changes: Sequence[tuple[int, JobRow, Held]]) -> None:
        """The same as one `shift` after the other: nodes, queues and lists are brought up to date once for all."""
        for sign, row, held in changes:
            self._hand_over(row, held, sign)
        self._book_changes(changes)
        for row in dict.fromkeys(row for _, row, _ in changes):
            self._note(row)

    def _book_changes(self, changes: Sequence[tuple[int, JobRow, Held]]) -> None:
        """On the nodes, and in the books of queues."""
        bookings: Bookings = {}
        for sign, row, held in changes:
            self.count_in(bookings, row, held, sign)
        self.columns.shift_all((sign, held) for sign, _, held in changes)
        self._charge_all(bookings)

    def _hand_over(self, row: JobRow, held: Held, sign: int) -> None:
        """The job has one place more or fewer."""
        if sign > 0:
            insort(row.held, held)
        elif row.held[-1] is held:
            row.held.pop()  # undoing comes in reverse order; a search would cost the square of a large gang
        else:
            row.held.remove(held)
        self._tenant(row, held, sign)
        if not row.firm and len(row.held) == (1 if sign > 0 else 0):
            self._count_priority(row, sign)

    def _tenant(self, row: JobRow, held: Held, sign: int) -> None:
        """One task more or fewer of the job on the node."""
        if not held.terminating:
            row.count_live(held.leaf, sign)
        tenants = self.tenants[held.node]
        count = tenants.get(row, 0) + sign
        if count:
            tenants[row] = count
        else:
            del tenants[row]
        if held.cost and not row.firm:
            self.loose[held.node] += sign * held.cost

    def _count_priority(self, row: JobRow, sign: int) -> None:
        """A preemptible job began or ceased to hold anything."""
        counts = self.priorities[row.queue]
        count = counts.get(row.priority, 0) + sign
        if count:
            counts[row.priority] = count
        else:
            del counts[row.priority]

    def _charge(self, queue: int, firm: bool, amounts: Amounts, count: int) -> None:
        """Book so many places that cost so much each (fewer than none: take them off the books)."""
        if queue != NO_QUEUE:
            self.tree.charge(queue, amounts, firm, count)
        else:
            self.unowned = plus(self.unowned, times(amounts, count))

    def price(self, held: Held) -> Amounts:
        """What a place costs its queue; the same list for all that cost alike: nobody changes it."""
        nodes = self.columns.nodes
        alike = held.cost if self._gpus_alone else (held.cost, held.cpu, held.memory, nodes[held.node].model)
        price = self._prices.get(alike)
        if price is None:
            price = self.tree.vector(held.cost, held.cpu, held.memory, nodes[held.node].model)
            self._prices[alike] = price
        return price


def pool_names(nodes: Iterable[Node]) -> set[str]:
    """Pools with GPUs; nodes without one go by their model."""
    return {node.pool or node.model for node in nodes if node.gpus}


def in_order(queues: Iterable[Queue]) -> tuple[Queue, ...]:
    """By name, as the tree has them."""
    return tuple(sorted(queues, key=lambda queue: queue.name))
