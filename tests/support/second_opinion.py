"""Whether a job that waits could have started, worked out from the end state alone: plain counting, no engine.

Only where counting is enough: jobs of one task group that asks for whole GPUs, a part of one, or none, whose queues
have no bounds, where nobody avoids anybody and no cap or reservation stands in between.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from gpuyard.model.answers.outlook import Outlook
from gpuyard.model.job import Job, TaskGroup
from gpuyard.model.node import Health, Node
from gpuyard.model.queue import ROOT, Queue
from gpuyard.model.resources import UNLIMITED, WHOLE
from gpuyard.model.snapshot import Snapshot
from gpuyard.model.topology import NODE, NVLINK
from tests.support.eligibility import unfit
from tests.support.tasks import Task, domain_of, tasks_after


def left_out(snapshot: Snapshot, outlook: Outlook) -> list[str]:
    """Jobs that wait although they fit, each with the place."""
    if any(job.avoid for job in snapshot.jobs) or any(pool.max_busy for pool in snapshot.pools):
        return []
    waiting = {told.job for told in outlook.waiting}
    found = (job for job in snapshot.jobs if job.name in waiting and countable(job) and unbounded(snapshot, job))
    return [sentence for job in found for sentence in fitting(snapshot, outlook, job)]


def countable(job: Job) -> bool:
    """One group that holds nothing yet, no slices, and its members are there to be started."""
    groups = job.task_groups()
    group = groups[0]
    able = len(groups) == 1 and not job.placements and not job.on_hold and not job.foreign and not group.request.mig
    return able and group.tasks - group.failed - group.succeeded >= group.min - group.succeeded > 0


def unbounded(snapshot: Snapshot, job: Job) -> bool:
    """Whether no queue above the job bounds anything."""
    queues = {queue.name: queue for queue in snapshot.queues}
    name = job.queue
    while name and name in queues:
        if not _free(queues[name]):
            return False
        name = queues[name].parent if name != ROOT else ""
    return True


def _free(queue: Queue) -> bool:
    bounds = (queue.quota, queue.limit)
    return all(b.gpu >= UNLIMITED and not b.models and b.cpu is None and b.memory is None for b in bounds)


def fitting(snapshot: Snapshot, outlook: Outlook, job: Job) -> Iterator[str]:
    """The domain and model where the whole minimum fits, if there is one."""
    group = job.task_groups()[0]
    levels = [job.gang.topology.required, group.topology.required]
    room: Counter[tuple[object, ...]] = Counter()
    tasks = tasks_after(snapshot, outlook)
    for node in snapshot.nodes:
        if next(unfit(job, group, node), None) is None:
            for island, count in _room(node, group, [t for t in tasks if t.node.name == node.name], NVLINK in levels):
                model = "" if group.request.cpu_only else node.model
                room[model, *(_domain(node, level, island) for level in levels)] += count
    needed = group.min - group.succeeded
    for where, count in room.items():
        if count >= needed and not any(part == ("",) for part in where[1:]):
            yield f"{job.name} waits, and {count} of its {needed} tasks fit in {where}"


def _domain(node: Node, level: str, island: int) -> object:
    if not level:
        return None
    if level in (NODE, NVLINK):
        return (node.name, island)
    named = domain_of(node, level)
    return named if named[0] else ("",)


def _room(node: Node, group: TaskGroup, here: list[Task], by_island: bool) -> Iterator[tuple[int, int]]:
    """(island, tasks that fit there): by free devices, and by what CPU and memory are left."""
    used: dict[int, int] = defaultdict(int)
    for task in here:
        for gpu in task.placement.gpus:
            used[gpu] += _taken(task)
    most = min(_left(node, group, here, "cpu"), _left(node, group, here, "memory"))
    well = [gpu for gpu in node.gpus if gpu.slices is None and gpu.health is not Health.SICK]
    islands = sorted({gpu.island for gpu in node.gpus}) if by_island else [0]
    for island in islands:
        devices = [WHOLE - used[gpu.index] for gpu in well if not by_island or gpu.island == island]
        yield island, max(0, min(most, _gpu_room(node, group, devices)))


def _taken(task: Task) -> int:
    ask = task.group.request
    if ask.gpu_memory:
        return ask.gpu_memory * WHOLE // task.node.gpu_memory
    return ask.share or WHOLE


def _gpu_room(node: Node, group: TaskGroup, devices: list[int]) -> int:
    ask = group.request
    if ask.gpus:
        return sum(free == WHOLE for free in devices) // ask.gpus
    if ask.gpu_memory:
        need = ask.gpu_memory * WHOLE // node.gpu_memory if ask.gpu_memory <= node.gpu_memory else WHOLE + 1
        return sum(free // need for free in devices)
    return sum(free // ask.share for free in devices) if ask.share else UNLIMITED


def _left(node: Node, group: TaskGroup, here: list[Task], what: str) -> int:
    each, there = getattr(group.request, what), getattr(node, what)
    if not each or there >= UNLIMITED:
        return UNLIMITED
    return int((there - sum(getattr(task.group.request, what) for task in here)) // each)
