"""What the local world keeps of each job: its description, its attempts and their tasks, as they stand now.

Filled from the store and written back to it by `world`. Mutable on purpose: one world, one lock, one truth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from gpuyard.files.reading.submissions import After
from gpuyard.model.answers.progress import Progress
from gpuyard.model.job import Bundle, Job, Phase, Placement, TaskGroup
from gpuyard.model.node import Node
from gpuyard.model.ownership import Owner
from gpuyard.model.reasons import Reason
from gpuyard.model.resources import WHOLE, mig_cost

Number = tuple[str, int]
"""A task of a job, whatever attempt: its group, and its number there."""

ENDED = frozenset((Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED))
"""Phases that nothing follows, unless its owner requeues the job."""

ACTIVE = frozenset((Phase.STARTING, Phase.RUNNING, Phase.STOPPING))
"""Phases in which a job holds GPUs."""


FOR_OTHERS = frozenset(("preempted", "moved", "drained"))
"""Stops for somebody or something else than the job itself."""
NOT_TO_FOLLOW = frozenset(("cancelled", "held", "member", "timeout", "node"))
"""Stops after which it is not yet known whether and when the job is tried again: the brain must not plan it anew."""


@dataclass(slots=True)
class Template:
    """What was submitted: one document for all members of an array, so that ten thousand of them are cheap."""

    id: int
    name: str
    text: str
    job: Job
    owner: Owner
    submitted: float
    after: tuple[After, ...] = ()
    members: int = 0
    """How many jobs it stands for; 0: it is no array."""
    at_once: int = 0
    active: int = 0
    """Members the brain knows, while `at_once` counts."""
    flaw: str = ""
    """Why its text cannot be read; then `job` only stands in for it."""
    document: dict[str, Any] | None = None
    """How it is told to people, made once for all members."""

    @property
    def key(self) -> str:
        """Its name among everybody's."""
        return self.owner.key(self.name)


@dataclass(slots=True)
class Task:
    """One process of an attempt. `serial` is never used twice in an attempt, `rank` may be, by an elastic gang."""

    serial: int
    wave: int
    """The first serial of those that start together with it."""
    rank: int
    placement: Placement
    state: str = "starting"
    """starting, ready, running, stopping, ended."""
    outcome: str = ""
    """succeeded, failed, stopped, timeout, lost, unready; set when it ended."""
    exit: int | None = None
    pid: int = 0
    ended: float | None = None
    told: str = ""
    """A sentence where the exit code does not say it all."""
    slices: tuple[int, ...] = ()
    """Which of a GPU's slices it has, one for each of its placement's `mig`; chosen when it gets its devices."""

    @property
    def number(self) -> Number:
        """Which of the job's tasks it is, in whatever attempt."""
        return self.placement.group, self.placement.task


@dataclass(slots=True)
class Attempt:
    """One try at running a job: whole or not at all."""

    number: int
    created: float
    boot: str
    state: str = "promised"
    """promised (its GPUs are not free yet), starting, running, stopping, ended."""
    why: str = ""
    """Why it is being stopped, or was: preempted, moved, cancelled, requeued, held, member, node, timeout."""
    started: float | None = None
    ended: float | None = None
    port: int = 0
    """Where its ranks meet."""
    stopped: float | None = None
    """When it was told to stop."""
    told: str = ""
    """For whom it was stopped and what was lost, in words for its owner."""
    progress: Progress | None = None
    """How far it is by the word of the lowest rank that tells."""
    speaker: int | None = None
    """That rank."""
    tasks: dict[int, Task] = field(default_factory=dict)

    @property
    def unsaved_since(self) -> float | None:
        """Since when it has worked without saving that, by its own word; None if it has not begun."""
        saved = self.progress.saved if self.progress is not None else None
        return self.started if self.started is None or saved is None else max(self.started, saved)

    @property
    def story(self) -> str:
        """Why it was stopped: for whom and at what cost where that was for others, else in a word."""
        if self.told and self.why in FOR_OTHERS:
            return self.told
        return f"stopped: {self.why}"

    def live(self) -> list[Task]:
        """Tasks that are not over."""
        return [task for task in self.tasks.values() if task.state != "ended"]


@dataclass(slots=True)
class Entry:
    """One job as the local world knows it."""

    id: int
    name: str
    template: Template
    member: int | None = None
    phase: Phase = Phase.WAITING
    reason: Reason | None = None
    told: str = ""
    """One sentence on how it came to this phase."""
    held: bool = False
    attempts: int = 0
    failures: int = 0
    losses: int = 0
    evictions: int = 0
    not_before: float = 0.0
    waits: float | None = None
    """Since when it waits, if not since it was submitted."""
    kept_back: bool = False
    """Whether it stands behind a gate: that is no wait for GPUs."""
    started: float | None = None
    ended: float | None = None
    exit: int | None = None
    anew: int = 0
    """The last attempt before its owner let it begin again: what succeeded up to then counts no longer."""
    succeeded: set[Number] = field(default_factory=set)
    """Tasks that succeeded in earlier attempts: none of them is ever run again (rule 22)."""
    spent: set[Number] = field(default_factory=set)
    """Tasks that failed where the gang went on without them."""
    tried: set[Number] = field(default_factory=set)
    """Tasks that began in earlier attempts; those that never did come first."""
    shown: bool = False
    """Whether the brain knows of it."""
    flaw: str = ""
    """Why its rows cannot be read: it is no job to run, only one to tell of."""
    attempt: Attempt | None = None
    following: Attempt | None = None
    """What begins once the attempt is over: a move, whose target is kept free for it."""

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.phase in ENDED

    @property
    def owner(self) -> Owner:
        """Whose it is."""
        return self.template.owner

    @property
    def array(self) -> str:
        """The key of the array that it is a member of; nothing if it is none."""
        return self.template.key if self.member is not None else ""

    @property
    def key(self) -> str:
        """Its name among everybody's, and towards the brain."""
        return self.template.owner.key(self.name)

    def description(self) -> Job:
        """The job as it was asked for, under its key."""
        job = self.template.job
        return job if job.name == self.key else replace(job, name=self.key)

    def job(self) -> Job:
        """The job as the brain should know it: with what runs, what ended and what was evicted, and no secrets."""
        job = replace(self.description(), on_hold=self.held, evictions=self.evictions)
        job = job if job.run is None else replace(job, run=job.run.kept_back())
        job = replace(job, submitted=self.template.submitted)
        attempt = self.attempt
        job = replace(job, gang=_counted(job.gang, self, attempt.tasks.values() if attempt is not None else ()))
        if attempt is None:
            return replace(job, waiting_since=self.waits)
        job = replace(job, on_hold=self.held or attempt.why in NOT_TO_FOLLOW)
        if self.following is not None:
            places = (*self._places(attempt), *self._places(self.following))
            return replace(job, placements=places, started=self.following.created)
        return replace(job, placements=self._places(attempt), started=attempt.started or attempt.created)

    def held_gpus(self) -> float:
        """How many GPUs its tasks hold now, parts included; none while they are only promised."""
        attempt = self.attempt
        if attempt is None or attempt.state == "promised":
            return 0.0
        return sum(gpus_of(self, task, None) for task in attempt.live())

    def uid(self, attempt: Attempt, task: Task) -> str:
        """What tells a task from every other there ever was in this yard."""
        return f"{self.id}.{attempt.number}.{task.serial}"

    def told_place(self, attempt: Attempt, task: Task) -> Placement:
        """Where a task is, for the brain, which knows it by its attempt and serial."""
        return replace(
            task.placement,
            terminating=task.state == "stopping",
            assigned=task.state in ("starting", "ready"),
            uid=self.uid(attempt, task),
        )

    def _places(self, attempt: Attempt) -> tuple[Placement, ...]:
        places = [self.told_place(attempt, task) for task in attempt.live()]
        return tuple(sorted(places, key=lambda place: (place.group, place.task, place.node)))

    def note(self, attempt: Attempt) -> None:
        """What an attempt that is over leaves behind."""
        self.succeeded |= {task.number for task in attempt.tasks.values() if task.outcome == "succeeded"}
        self.tried |= {task.number for task in attempt.tasks.values() if task.pid}

    def left(self) -> set[Number]:
        """Tasks that have not ended by themselves."""
        groups = self.description().task_groups()
        return {(g.name, number) for g in groups for number in range(g.tasks)} - self.succeeded - self.spent

    def begin_anew(self) -> None:
        """It has ended, and its owner wants all of it again."""
        self.anew = self.attempts
        for numbers in (self.succeeded, self.spent, self.tried):
            numbers.clear()


def _counted(bundle: Bundle, entry: Entry, tasks: Collection[Task]) -> Bundle:
    groups = [
        _counted(group, entry, tasks) if isinstance(group, Bundle) else _count(group, entry, tasks)
        for group in bundle.groups
    ]
    return replace(bundle, groups=tuple(groups))


def _count(group: TaskGroup, entry: Entry, tasks: Collection[Task]) -> TaskGroup:
    """What was lost through no fault of its own may come back; what succeeded and what failed stays so."""
    ended = [(task.number, task.outcome) for task in tasks if task.state == "ended"]
    done = _of(group, {*entry.succeeded, *(number for number, how in ended if how == "succeeded")})
    failed = _of(group, {*entry.spent, *(number for number, how in ended if how == "failed")}) - done
    tried = _of(group, {*entry.tried, *(number for number, _ in ended)}) - done - failed
    least = group.min
    if not tasks and done:  # all that it still needs is somebody who does the rest
        least = min(group.tasks, max(least, len(done) + 1))
    return replace(
        group, min=least, succeeded=len(done), failed=len(failed), ended=tuple(sorted(done | failed)),
        tried=tuple(sorted(tried)),
    )  # fmt: skip


def _of(group: TaskGroup, numbers: Iterable[Number]) -> set[int]:
    return {number for name, number in numbers if name == group.name}


def first_rank(job: Job, group: str) -> int:
    """The rank of a group's task 0: groups follow each other in the order of the job."""
    rank = 0
    for leaf in job.task_groups():
        if leaf.name == group:
            return rank
        rank += leaf.tasks
    return rank


def survives(entry: Entry, attempt: Attempt, without: Container[int] = ()) -> bool:
    """Whether the gang still has its minimum: those alive and those that succeeded count (rule 22)."""
    standing = set(entry.succeeded)
    for task in attempt.tasks.values():
        if task.serial in without:
            continue
        if task.state not in ("ended", "stopping") or task.outcome == "succeeded":
            standing.add(task.number)
    return entry.description().gang.complete(Counter(group for group, _ in standing))


def gpus_of(entry: Entry, task: Task, node: Node | None) -> float:
    """How many GPUs a task holds, parts of them included."""
    place = task.placement
    if place.mig:
        return sum(mig_cost(profile) for profile in place.mig) / WHOLE
    request = next(g.request for g in entry.template.job.task_groups() if g.name == place.group)
    if request.gpu_memory and node is not None and node.gpu_memory:
        return request.gpu_memory / node.gpu_memory
    return request.share / WHOLE if request.share else float(len(place.gpus))
