"""Suggestions put into practice: the snapshot as it would be had the owner done what he was told.

The only place that reads a suggestion's sentence back, because a person would have to.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from gpuyard.model.job import Bundle, Job, TaskGroup
from gpuyard.model.queue import Allowance, Queue
from gpuyard.model.reasons import Suggestion
from gpuyard.model.resources import WHOLE
from gpuyard.model.snapshot import Snapshot
from gpuyard.model.topology import TopologyAsk
from tests.support.fleets import on_leaves
from tests.support.tasks import complete

RAISE = re.compile(
    r"the (?:(?P<what>\S+) )?(?P<kind>quota|limit) of queue (?P<queue>\S+) by \S+, from \S+ to (?P<new>[\d.e+]+) "
)

SIZE = re.compile(r"ask for (?:(?P<tasks>\d+) tasks of )?(?P<gpus>\d+) GPUs? instead")


def followed(snapshot: Snapshot, name: str, advice: Suggestion) -> Snapshot | None:
    """The snapshot with the advice followed, everybody else who waits held back; None where the job cannot do it."""
    job = next(job for job in snapshot.jobs if job.name == name)
    if advice.kind == "quota":
        return _patient(_raised(snapshot, advice.change), name)
    change = CHANGES.get(advice.kind)
    if change is None:
        return None
    asked = change(replace(job, placements=(), started=None), advice.change)
    return _patient(replace(snapshot, jobs=tuple(asked if j.name == name else j for j in snapshot.jobs)), name)


def _patient(snapshot: Snapshot, name: str) -> Snapshot:
    """Everybody else who waits is held back, so that nobody takes what was made free."""
    jobs = tuple(
        job if job.name == name or complete(job, job.placements) else replace(job, on_hold=True)
        for job in snapshot.jobs
    )
    return replace(snapshot, jobs=jobs)


# --- the job asks for something else ----------------------------------------------------------------------------------


def _fewer(job: Job, change: str) -> Job:
    tasks = int(change.split()[2])
    return replace(job, gang=on_leaves(job.gang, lambda group: replace(group, tasks=tasks, min=tasks, failed=0)))


def _other_model(job: Job, change: str) -> Job:
    return replace(job, models=(change.removeprefix("allow "),))


def _other_level(job: Job, change: str) -> Job:
    words = change.split()
    if words[0] == "only":
        old, new = words[-1], ""
    else:
        old, new = words[-1], words[3]
    return replace(job, gang=_relevelled(job.gang, old, new))


def _relevelled(bundle: Bundle, old: str, new: str) -> Bundle:
    def ask(topology: TopologyAsk) -> TopologyAsk:
        return replace(topology, required=new) if topology.required == old else topology

    inner = tuple(
        _relevelled(group, old, new) if isinstance(group, Bundle) else replace(group, topology=ask(group.topology))
        for group in bundle.groups
    )
    return replace(bundle, groups=inner, topology=ask(bundle.topology))


def _other_size(job: Job, change: str) -> Job:
    found = SIZE.match(change)
    assert found, f"nobody could follow: {change}"
    tasks, gpus = int(found["tasks"] or 1), int(found["gpus"])

    def ask(group: TaskGroup) -> TaskGroup:
        return replace(group, tasks=tasks, min=tasks, failed=0, request=replace(group.request, gpus=gpus))

    return replace(job, gang=on_leaves(job.gang, ask))


def _preemptible(job: Job, change: str) -> Job:
    return replace(job, preemptible=True)


CHANGES: dict[str, Callable[[Job, str], Job]] = {
    "gang": _fewer,
    "model": _other_model,
    "level": _other_level,
    "size": _other_size,
    "preemptible": _preemptible,
}

# --- the queue gets more ----------------------------------------------------------------------------------------------


def _raised(snapshot: Snapshot, change: str) -> Snapshot:
    queues = {queue.name: queue for queue in snapshot.queues}
    raises = list(RAISE.finditer(change))
    assert raises, f"nobody could follow: {change}"
    for found in raises:
        queue = queues[found["queue"]]
        queues[queue.name] = _with_more(queue, found["kind"], found["what"] or "gpu", float(found["new"]))
    return replace(snapshot, queues=tuple(queues[queue.name] for queue in snapshot.queues))


def _with_more(queue: Queue, kind: str, what: str, new: float) -> Queue:
    old: Allowance = queue.quota if kind == "quota" else queue.limit
    if what == "cpu":
        more = replace(old, cpu=round(new * 1000))
    elif what == "memory":
        more = replace(old, memory=round(new * 2**30))
    elif what == "gpu":
        more = replace(old, gpu=round(new * WHOLE))
    else:
        more = replace(old, models=tuple((m, round(new * WHOLE) if m == what else n) for m, n in old.models))
    return replace(queue, quota=more) if kind == "quota" else replace(queue, limit=more)
