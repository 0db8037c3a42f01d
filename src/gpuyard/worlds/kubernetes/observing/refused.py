"""Gangs that are refused, as people are shown them: each once, and in no queue but its own. The brain is not told so.

Called by `world` where somebody asks for the whole moment; `observe` tells which there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from gpuyard.kube.objects import PodObject
from gpuyard.model.job import Job
from gpuyard.model.snapshot import Snapshot
from gpuyard.worlds.kubernetes import gangs, pods
from gpuyard.worlds.kubernetes.asking.marks import DEFAULTS, QUEUE, ReadingSettings
from gpuyard.worlds.kubernetes.asking.refusals import Refusal


@dataclass(frozen=True, slots=True)
class RefusedGang:
    """One that cannot be had here."""

    name: str
    refusal: Refusal
    pods: list[PodObject]
    left: list[Job]
    """What those of its pods hold that have their nodes all the same, each as a job."""

    def waiting(self) -> list[PodObject]:
        """Its pods that hold nothing."""
        placed = {place.uid for job in self.left for place in job.placements}
        return [pod for pod in self.pods if not pods.is_over(pod) and pod.metadata.uid not in placed]


def shown(moment: Snapshot, refused: Iterable[RefusedGang], settings: ReadingSettings) -> Snapshot:
    """The moment with them: one that runs whole as one job, else what holds its places beside those who wait."""
    jobs = {job.name: job for job in moment.jobs}
    leaves = _leaves(moment)
    for gang in refused:
        if waiting := gang.waiting():
            queue = next((queue for queue in _own(waiting[0], settings) if queue in leaves), "")
            jobs[gang.name] = gangs.refused_job(gang.name, waiting, gang.refusal, queue)
        elif gang.left:
            told = {job.name for job in gang.left}
            jobs = {name: job for name, job in jobs.items() if name not in told}
            jobs[gang.name] = gangs.left_together(gang.name, gang.left, gang.refusal)
    return replace(moment, jobs=tuple(jobs[name] for name in sorted(jobs)))


def _leaves(moment: Snapshot) -> set[str]:
    parents = {queue.parent for queue in moment.queues}
    return {queue.name for queue in moment.queues if queue.name not in parents} or {DEFAULTS.default_queue}


def _own(pod: PodObject, settings: ReadingSettings) -> Iterator[str]:
    """The queue that it names, if it may; that of its namespace; the default."""
    asked, namespace = pod.metadata.annotation(QUEUE) or pod.metadata.label(QUEUE), pod.metadata.namespace
    allowed = settings.queues.get(asked)
    if allowed is not None and (not allowed or namespace in allowed):
        yield asked
    yield settings.namespace_queues.get(namespace, settings.default_queue)
