"""One job inside the fleet: its description compiled, and what its tasks hold now.

Made by `Fleet` when a job is seen, and by `Fleet.probe` for a job as it might be. Changed only by `Fleet.shift`.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from dataclasses import replace
from functools import lru_cache
from math import inf
from typing import NamedTuple

from gpuyard.brain.engine.nodes.columns import Held
from gpuyard.brain.engine.nodes.requests import TaskRequest
from gpuyard.brain.engine.sharing.amounts import Amounts
from gpuyard.model.job import Bundle, Job, TaskGroup
from gpuyard.model.policy import Policy
from gpuyard.model.topology import ANYWHERE

Rank = tuple[object, ...]
"""Sorts first what comes first."""

NO_QUEUE = -1
"""Foreign loads may stand in no queue; they hold GPUs and are charged to nobody."""


_NUMBERS: dict[object, int] = {}
"""A number for every signature met lately: waiting jobs are sorted by it in every cycle, and numbers hash fast."""
_NUMBERS_KEPT = 1 << 14
_counting = itertools.count(1)


_BACKWARDS = bytes(range(255, -1, -1))
"""Turns a name's bytes into ones that sort the other way round."""
_END = "\0"
"""Below whatever a name may go on with, so that turned round `job-10` comes before `job-1`."""


class Footing(NamedTuple):
    """Queue and priority of a job: whoever shares them may be taken from by the same right."""

    queue: int
    priority: int


@lru_cache(maxsize=1 << 16)
def _footing(queue: int, priority: int) -> Footing:
    """One for all that share it: there are few, and jobs are many."""
    return Footing(queue, priority)


_ALONE = tuple((count,) for count in range(64))
"""Counts of jobs of a single group: one for all that have as many tasks, for most have one and jobs are many."""


class JobRow:
    """One job inside the fleet: its description compiled, and what its tasks hold now."""

    __slots__ = (
        "_signature",
        "_youth",
        "avoids",
        "class_name",
        "firm",
        "footing",
        "group",
        "groups",
        "held",
        "is_stand_in",
        "job",
        "line",
        "live",
        "name",
        "placements",
        "priority",
        "queue",
        "request",
        "requests",
        "rigid",
        "running",
        "single",
        "stand_in",
        "started",
        "takes_alike",
        "turn",
        "wanted",
        "warm_up",
    )  # fmt: skip

    def __init__(self, job: Job, requests: tuple[TaskRequest, ...], queue: int, policy: Policy) -> None:
        self.job = job
        self.name = job.name
        self.requests = requests
        self.groups: tuple[TaskGroup, ...] = job.task_groups()
        self.single = len(self.groups) == 1
        self.request, self.group = requests[0], self.groups[0]
        """Those of a job of a single group, as most are."""
        self.queue = queue
        treatment = policy.of(job)
        self.priority = policy.priority(job)
        self.footing = _footing(queue, self.priority)
        self.firm = not (treatment.preemptible if job.preemptible is None else job.preemptible)
        """Not preemptible: its quota is never a loan (rule 3)."""
        self.class_name = self.request.class_name
        self.warm_up = treatment.warm_up if job.warm_up is None else job.warm_up
        """Seconds that a restart spends before it works again, as it says or as its class is expected to."""
        self.turn = 0.0
        """Sorts it among jobs of its priority, as the policy's order says; 0 where age alone does."""
        self.held: list[Held] = []
        """In order, whoever came first: no plan depends on that."""
        self.live: tuple[int, ...] = self.nobody_live()
        """Tasks per group that run and are not terminating."""
        self.placements = job.placements
        """Where the world says its tasks are; a plan's trial changes `held` only."""
        self.started = job.started
        self.running = False
        """Whether it ran when the plan began (rule 7)."""
        self.avoids = job.avoid
        self.rigid = _is_rigid(job.gang, self.groups)
        """Never has extras to take on or give back."""
        self.takes_alike = self.request.cost is not None and (self.single or all(r.cost is not None for r in requests))
        """Whether its tasks take as much wherever they stand; who asks for memory takes less of a larger card."""
        self.wanted: Amounts = []
        self.is_stand_in = False
        """Whether it only stands for a place that is kept: it keeps others off, and is nobody's company."""
        self.stand_in: JobRow | None = None
        """Holds what is kept free for it while a plan is made; see `reservations`."""
        self.line: WaitingLine | None = None
        """Where it waits, if it does with nothing in hand."""
        self._signature: object = None
        self._youth: tuple[object, ...] = ()

    def nobody_live(self) -> tuple[int, ...]:
        """No tasks in any group."""
        return _ALONE[0] if self.single else (0,) * len(self.groups)

    def count_live(self, leaf: int, sign: int) -> None:
        """One task of the group more, or one fewer."""
        live = self.live
        count = live[leaf] + sign
        if not self.single:
            self.live = (*live[:leaf], count, *live[leaf + 1 :])
        else:
            self.live = _ALONE[count] if count < len(_ALONE) else (count,)

    def described(self) -> Job:
        """The job as the world last told it."""
        if self.placements is self.job.placements and self.started == self.job.started:
            return self.job
        return replace(self.job, placements=self.placements, started=self.started)

    @property
    def age(self) -> tuple[float, str]:
        """Since when it is here, and its name; put together when it is asked for: jobs are many, and few are asked."""
        return self.job.submitted, self.name

    @property
    def wait(self) -> tuple[float, str]:
        """Since when it waits, if it does, and its name."""
        since = self.job.waiting_since
        return self.job.submitted if since is None else since, self.name

    @property
    def work_key(self) -> str:
        """Jobs whose restarts cost alike."""
        return work_key(self.job)

    def cost(self) -> int:
        """GPUs it holds, in grains."""
        return self.held[0].cost if len(self.held) == 1 else sum(held.cost for held in self.held)

    def requeue(self, queue: int) -> None:
        """The queues were numbered anew; it stands in no line until it is told of again."""
        self.queue = queue
        self.footing = _footing(queue, self.priority)
        self.line = None
        self._signature = None

    @property
    def signature(self) -> object:
        """Equal for jobs that the same fleet would answer alike, their queue's quota aside."""
        if self._signature is None:  # running jobs are rarely asked for it
            self._signature = _number(_signature(self))
        return self._signature

    @property
    def youth(self) -> tuple[object, ...]:
        """Sorts the younger first, and among equals the larger name."""
        if not self._youth:  # it never changes, and only possible victims are asked for it
            name = f"{self.name}{_END}".encode()
            self._youth = (-self.job.submitted, name.translate(_BACKWARDS))
        return self._youth

    @property
    def unsaved_since(self) -> float:
        """Since when it has worked without saving that; infinite if it has not begun."""
        saved = self.job.checkpoint.last if self.job.checkpoint is not None else None
        if self.started is None or saved is None:
            return self.started if self.started is not None else saved if saved is not None else inf
        return max(self.started, saved)

    @property
    def likeness(self) -> object:
        """Equal for jobs that are answered alike in every respect, so that one of them is asked for all. A short job
        may use a gap that a long one may not."""
        return (self.queue, self.firm, self.class_name, self.job.time_limit, self.signature)

    def pending(self, leaf: int = 0) -> int:
        """Tasks of a group that could still be started; ended members are not restarted by a plan."""
        group = self.groups[leaf]
        return group.tasks - group.failed - group.succeeded - group.absent - self.live[leaf]

    def open_groups(self) -> list[int]:
        """Groups of which tasks could still be started."""
        return [leaf for leaf in range(len(self.groups)) if self.pending(leaf) > 0]

    def missing(self, leaf: int = 0) -> int:
        """Tasks a group lacks to its minimum; succeeded members count towards it (rule 22)."""
        group = self.groups[leaf]
        return max(0, group.min - group.succeeded - self.live[leaf])

    def complete(self) -> bool:
        """Whether every group that must run has its minimum."""
        if self.single:
            return self.live[0] + self.group.succeeded >= self.group.min
        return self.bundle_complete(self.job.gang, 0)[0]

    def bundle_complete(self, bundle: Bundle, first: int) -> tuple[bool, int]:
        """Whether the bundle has enough complete groups, and the leaf that follows it."""
        done, leaf = 0, first
        for group in bundle.groups:
            if isinstance(group, Bundle):
                complete, leaf = self.bundle_complete(group, leaf)
            else:
                complete, leaf = self.missing(leaf) == 0, leaf + 1
            done += complete
        return done >= bundle.min_groups, leaf

    def is_plain(self) -> bool:
        """Whether it is a job of one group that lies in no other, and neither of them says where."""
        gang = self.job.gang
        return _is_flat(gang, self.groups) and gang.topology is self.group.topology is ANYWHERE

    def alive(self) -> bool:
        """Whether any task runs (terminating ones do not count)."""
        return any(self.live)

    def lowest_free_tasks(self, leaf: int, count: int) -> list[int]:
        """Numbers for new tasks of a group: of those that no live task has and that have not ended, the lowest that
        never ran, then the lowest that did (rule 22)."""
        group = self.groups[leaf]
        if not (self.live[leaf] or group.ended or group.tried):
            return list(range(count))
        taken = {held.task for held in self.held if held.leaf == leaf and not held.terminating} | {*group.ended}
        again = [number for number in group.tried if number not in taken]
        taken.update(again)
        fresh = (number for number in range(group.tasks) if number not in taken)
        numbers = list(itertools.islice(itertools.chain(fresh, again), count))
        return numbers + list(range(group.tasks, group.tasks + count - len(numbers)))


def work_key(job: Job) -> str:
    """Jobs that do like work, whose restarts cost alike and whose steps last alike: same queue, class and shape."""
    shape = "+".join(f"{group.tasks}x{group.request.gpus}" for group in job.task_groups())
    return f"{job.queue}/{job.job_class.value}/{shape}"


def rank_in_queue(row: JobRow) -> Rank:
    """Priority, then what the policy's order says, then those running when the plan began, then age, then name."""
    return (-row.priority, row.turn, not row.running, row.job.submitted, row.name)


MANY = 32
"""So many are sorted together rather than each put in its place."""


class WaitingLine:
    """Jobs of one queue that are answered alike, first come first."""

    __slots__ = ("_come", "_joining", "_leaving", "_left", "_ranks", "_rows", "_seen", "_waits", "key")

    def __init__(self, key: object) -> None:
        self.key = key
        self._rows: list[JobRow] = []
        self._ranks: list[Rank] = []
        """Those of the rows, side by side: a search compares them without asking the rows."""
        self._joining: dict[JobRow, Rank] = {}
        self._leaving: dict[JobRow, Rank] = {}
        """Who joined and who left since somebody last looked; a trial that was undone is in neither."""
        self._seen: tuple[JobRow, ...] | None = None
        self._waits: list[tuple[float, str]] = []
        self._come: list[tuple[float, str]] = []
        self._left: list[tuple[float, str]] = []
        """Who joined and who left since the waits were last asked for; a trial that was undone is in both."""

    @property
    def head(self) -> JobRow:
        """Whose turn it is."""
        return self.rows()[0]

    def waits(self) -> list[tuple[float, str]]:
        """Since when each waits, and its name, the longest first. Costs what has changed since it was last asked."""
        come, left = self._come, self._left
        self._come, self._left = [], []
        if left:
            net: dict[tuple[float, str], int] = {}
            for wait in come:
                net[wait] = net.get(wait, 0) + 1
            for wait in left:
                net[wait] = net.get(wait, 0) - 1
            come, left = [wait for wait, n in net.items() if n > 0], [wait for wait, n in net.items() if n < 0]
        if len(come) > MANY:
            self._waits = sorted((*self._waits, *come))
        else:
            for wait in come:
                insort(self._waits, wait)
        for wait in left:
            del self._waits[bisect_left(self._waits, wait)]
        return self._waits

    def rows(self) -> tuple[JobRow, ...]:
        """The jobs as they stand now; the same tuple until one joins or leaves."""
        if self._joining or self._leaving:
            self._line_up()
        if self._seen is None:
            self._seen = tuple(self._rows)
        return self._seen

    def _line_up(self) -> None:
        """Everybody to where its rank puts it; those who left go."""
        joining, leaving = self._joining, self._leaving
        self._joining, self._leaving, self._seen = {}, {}, None
        if len(joining) + len(leaving) > MANY:
            stay = ((rank, row) for rank, row in zip(self._ranks, self._rows, strict=True) if row not in leaving)
            ranked = sorted((*stay, *((rank, row) for row, rank in joining.items())), key=_its_rank)
            self._ranks, self._rows = [rank for rank, _ in ranked], [row for _, row in ranked]
            return
        for row, rank in leaving.items():
            at = bisect_left(self._ranks, rank)
            assert self._rows[at] is row
            del self._rows[at], self._ranks[at]
        for row, rank in joining.items():
            at = bisect_left(self._ranks, rank)
            self._ranks.insert(at, rank)
            self._rows.insert(at, row)

    def join(self, row: JobRow) -> None:
        """Stand where the job's rank puts it."""
        rank = rank_in_queue(row)
        if self._leaving and self._leaving.get(row) == rank:
            del self._leaving[row]
        else:
            self._joining[row] = rank
        self._come.append(row.wait)

    def leave(self, row: JobRow) -> None:
        """Out of the line; the rest keep their order."""
        if self._joining.pop(row, None) is None:
            self._leaving[row] = rank_in_queue(row)
        self._left.append(row.wait)

    def __bool__(self) -> bool:
        return len(self._rows) + len(self._joining) > len(self._leaving)


def _its_rank(pair: tuple[Rank, JobRow]) -> Rank:
    return pair[0]


def _is_flat(gang: Bundle, groups: tuple[TaskGroup, ...]) -> bool:
    """Whether a job has one group, which lies in no other and must run: by far the most, and told without a look inside
    (see `Job.task_groups`)."""
    return groups is gang.groups and gang.min_groups == 1


def _is_rigid(gang: Bundle, groups: tuple[TaskGroup, ...]) -> bool:
    if _is_flat(gang, groups):
        return groups[0].min == groups[0].tasks
    return all(group.min == group.tasks for group in groups) and not _has_optional_groups(gang)


def _has_optional_groups(bundle: Bundle) -> bool:
    inner = [group for group in bundle.groups if isinstance(group, Bundle)]
    return bundle.min_groups < len(bundle.groups) or any(_has_optional_groups(group) for group in inner)


def _number(signature: object) -> int:
    """Equal numbers are equal signatures, always: none is given twice. When too many are known all are forgotten; then
    jobs that are alike may be asked one by one for a while."""
    known = _NUMBERS.get(signature)
    if known is None:
        if len(_NUMBERS) >= _NUMBERS_KEPT:
            _NUMBERS.clear()
        known = _NUMBERS[signature] = next(_counting)
    return known


def _signature(row: JobRow) -> object:
    pairs = zip(row.requests, row.groups, strict=True) if not row.single else ((row.request, row.group),)
    groups = tuple([(request.id, g.tasks, g.min, g.failed, g.succeeded, g.absent) for request, g in pairs])
    shape = None if row.is_plain() else _outline(row.job.gang)  # most are, and are not outlined each anew
    avoid = (row.job.avoid, row.queue) if row.job.avoid else None
    return (groups, shape, avoid, row.job.on_hold, row.job.held_for, row.job.takes, row.job.family)


def _outline(bundle: Bundle) -> tuple[object, ...]:
    inner = tuple(_outline(g) if isinstance(g, Bundle) else g.topology for g in bundle.groups)
    return (bundle.min_groups, bundle.topology, inner)
