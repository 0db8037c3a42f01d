"""The end of a plan, task by task, worked out from the snapshot and the outlook alone.

Used by the invariants and the expectations; knows nothing of the engine, so that both can catch it out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from gpuyard.model.actions import Start
from gpuyard.model.answers.outlook import Outlook
from gpuyard.model.job import Bundle, Job, Placement, TaskGroup
from gpuyard.model.node import Node
from gpuyard.model.resources import MIG_SLICES, WHOLE
from gpuyard.model.snapshot import Snapshot
from gpuyard.model.topology import NODE, NVLINK

Device = tuple[str, int]


@dataclass(frozen=True)
class Task:
    """One task that holds something after the plan; `fresh` if this plan put it there."""

    job: Job
    group: TaskGroup
    placement: Placement
    node: Node
    fresh: bool

    @property
    def devices(self) -> set[Device]:
        """The devices it touches."""
        return {(self.node.name, gpu) for gpu in self.placement.gpus}

    @property
    def cost(self) -> Fraction:
        """What it costs in GPUs (rule 5), exactly."""
        ask = self.group.request
        if ask.gpus:
            return Fraction(ask.gpus)
        if ask.mig:
            return sum((slice_cost(profile) * n for profile, n in ask.mig), Fraction(0))
        return self.share

    @property
    def share(self) -> Fraction:
        """The part of one device that a sharing task holds."""
        ask = self.group.request
        if ask.gpu_memory:
            return Fraction(ask.gpu_memory, self.node.gpu_memory) if self.node.gpu_memory else Fraction(0)
        return Fraction(ask.share, WHOLE)

    def domains(self, level: str) -> set[tuple[str, ...]]:
        """The domains of a level it lies in: one, or one per island. A node that names none is alone."""
        if level == NVLINK:
            islands = {gpu.index: str(gpu.island) for gpu in self.node.gpus}
            return {(self.node.name, islands.get(gpu, "?")) for gpu in self.placement.gpus}
        if level == NODE:
            return {(self.node.name,)}
        return {domain_of(self.node, level)}

    def __str__(self) -> str:
        gpus = ",".join(map(str, self.placement.gpus))
        return f"{self.job.name}/{self.placement.group}/{self.placement.task} on {self.node.name}:{gpus}"


def domain_of(node: Node, level: str) -> tuple[str, ...]:
    """The domain of a node at a level above it."""
    name = dict(node.domains).get(level)
    return (name,) if name is not None else ("", node.name)


def slice_cost(profile: str) -> Fraction:
    """A MIG slice costs g ÷ 7."""
    return Fraction(int(profile.split("g.", 1)[0]), MIG_SLICES)


def key(placement: Placement) -> tuple[str, str, tuple[int, ...], tuple[str, ...]]:
    """What makes two placements the same place; task numbers and order do not matter."""
    return (placement.group, placement.node, tuple(sorted(placement.gpus)), tuple(sorted(placement.mig)))


def tasks_before(snapshot: Snapshot) -> list[Task]:
    """Every task that holds something before the plan, those being terminated too."""
    nodes = {node.name: node for node in snapshot.nodes}
    return [
        Task(job, group_of(job, place.group), place, nodes[place.node], fresh=False)
        for job in snapshot.jobs
        for place in job.placements
    ]


def tasks_mended(snapshot: Snapshot, outlook: Outlook) -> list[Task]:
    """What is held once gangs that had fallen below their minimum are whole: that comes before any claim (rule 22)."""
    jobs = {job.name: job for job in snapshot.jobs}
    fallen = {job.name for job in snapshot.jobs if job.placements and not complete(job, job.placements)}
    mends = [action for action in outlook.actions if isinstance(action, Start) and action.job in fallen]
    new = [task for action in mends for task in of_job(snapshot, jobs[action.job], action.placements)]
    return tasks_before(snapshot) + new


def tasks_after(snapshot: Snapshot, outlook: Outlook) -> list[Task]:
    """Every task that holds something after the plan, those that the snapshot says are going included."""
    jobs = {job.name: job for job in snapshot.jobs}
    found: list[Task] = []
    for running in outlook.running:
        found += of_job(snapshot, jobs[running.job], running.placements)
    seen = {(task.job.name, key(task.placement)) for task in found if task.placement.terminating}
    going = (task for task in tasks_before(snapshot) if task.placement.terminating)
    return found + [task for task in going if (task.job.name, key(task.placement)) not in seen]


def of_job(snapshot: Snapshot, job: Job, placements: Iterable[Placement]) -> Iterator[Task]:
    """The job's tasks in these places; one is fresh unless it ran in the same place before."""
    nodes = {node.name: node for node in snapshot.nodes}
    before = Counter(key(place) for place in job.placements if not place.terminating)
    for place in placements:
        known = place.terminating or before[key(place)] > 0
        before[key(place)] -= not place.terminating
        yield Task(job, group_of(job, place.group), place, nodes[place.node], fresh=not known)


def group_of(job: Job, name: str) -> TaskGroup:
    """The task group of that name."""
    return next(group for group in job.task_groups() if group.name == name)


def complete(job: Job, placements: Iterable[Placement]) -> bool:
    """Whether the gang has its minimum: members that run and members that succeeded count."""
    running = Counter(place.group for place in placements if not place.terminating)
    return bundle_complete(job.gang, running)


def bundle_complete(bundle: Bundle, running: Counter[str]) -> bool:
    """Whether enough of the groups inside are complete."""
    return sum(group_complete(group, running) for group in bundle.groups) >= bundle.min_groups


def group_complete(group: TaskGroup | Bundle, running: Counter[str]) -> bool:
    """Whether a group has its minimum."""
    if isinstance(group, Bundle):
        return bundle_complete(group, running)
    return running[group.name] + group.succeeded >= group.min


def scopes(job: Job) -> Iterator[tuple[str, set[str], str]]:
    """(what, the task groups it binds, level) for every level the job requires, its groups' too."""
    for bundle in bundles(job.gang):
        if bundle.topology.required:
            yield (bundle.name or job.name, leaf_names(bundle), bundle.topology.required)
    for group in job.task_groups():
        if group.topology.required:
            yield (group.name, {group.name}, group.topology.required)


def leaf_names(group: TaskGroup | Bundle) -> set[str]:
    """The task groups inside, itself if it is one."""
    return {leaf.name for leaf in group.leaves()} if isinstance(group, Bundle) else {group.name}


def bundles(bundle: Bundle) -> Iterator[Bundle]:
    """The bundle and every bundle inside it."""
    yield bundle
    for group in bundle.groups:
        if isinstance(group, Bundle):
            yield from bundles(group)
