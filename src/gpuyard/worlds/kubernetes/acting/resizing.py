"""How large an elastic Job is to be: smaller when its last members are given back, larger where places are kept.

Asked by `taking_back`. Kubernetes takes the highest numbers away when a Job gets smaller, so only who has those can go
so. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from gpuyard.kube.owners import JobObject
from gpuyard.model.job import Placement
from gpuyard.worlds.kubernetes import pods
from gpuyard.worlds.kubernetes.gangs import Gathered
from gpuyard.worlds.kubernetes.gathering.controllers import full_size, is_suspended


def left_after(found: Gathered, going: Collection[str], assumed: Collection[str]) -> int:
    """How many are left when those (uids) go who are the last that have places; 0: others would have to go, too."""
    groups = list(found.job.task_groups()) if found.job is not None else []
    if not found.resizable or len(groups) != 1:
        return 0
    there = [chair for chair in found.chairs if not pods.is_over(chair.pod) and not pods.is_leaving(chair.pod)]
    first = min((chair.task for chair in there if chair.pod.metadata.uid in going), default=0)
    placed = (chair for chair in there if pods.is_bound(chair.pod) or chair.pod.metadata.uid in assumed)
    staying = (chair.task for chair in placed if chair.pod.metadata.uid not in going)
    behind = any(number >= first for number in (*staying, *groups[0].ended))
    return 0 if behind or first < groups[0].min else first


def size_for(owner: object, places: Iterable[Placement]) -> int:
    """How large the Job is to be that was made smaller, so that these have their pods; 0: it is large enough."""
    if not isinstance(owner, JobObject) or is_suspended(owner) or owner.status.completed_indexes:
        return 0
    wanted = min(full_size(owner), max((place.task + 1 for place in places), default=0))
    return wanted if wanted > (owner.spec.parallelism or 0) else 0
