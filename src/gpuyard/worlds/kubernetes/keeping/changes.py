"""What of a change is worth a look: an echo of our own Binding is not, nor is a word that nothing rests on."""

from __future__ import annotations

from typing import Any

import msgspec

from gpuyard.kube.objects import BudgetObject, Metadata, PodObject, PodSpec
from gpuyard.worlds.kubernetes import pods
from gpuyard.worlds.kubernetes.asking import amounts, marks

BY_BINDING = frozenset((marks.JOB, marks.TASK, marks.GPUS, *marks.STAY))
"""Annotations that come with a Binding."""


def is_evicted(pod: PodObject) -> bool:
    """Whether it leaves because the Eviction API was asked."""
    if not pods.is_leaving(pod):
        return False
    told = (each for each in pod.status.conditions or () if each.type == "DisruptionTarget")
    return any(each.reason == "EvictionByEvictionAPI" for each in told)


def is_refused(pod: PodObject) -> bool:
    """Whether its kubelet would not have it, which no second try on the same node would change soon."""
    reason = pod.status.reason
    return reason in ("UnexpectedAdmissionError", "TopologyAffinityError") or reason.startswith("OutOf")


def is_bound_alone(before: PodObject, now: PodObject) -> bool:
    """Whether nothing is other than it was but what a Binding writes."""
    one, other = before.metadata, now.metadata
    if one.labels != other.labels or (before.spec is not now.spec and _bare(before) != _bare(now)):
        return False
    return one.annotations is other.annotations or _others_notes(one) == _others_notes(other)


def _bare(pod: PodObject) -> PodSpec:
    return msgspec.structs.replace(pod.spec, node_name="")


def _others_notes(metadata: Metadata) -> dict[str, str]:
    return {key: told for key, told in (metadata.annotations or {}).items() if key not in BY_BINDING}


def matters(pod: PodObject) -> tuple[object, ...]:
    """All of a pod that a decision or an account of it could rest on."""
    status, metadata = pod.status, pod.metadata
    told = status.phase, status.reason, pod.start_time, amounts.given_to(pod)
    return pod.spec, pod.node_name, told, metadata.deletion_timestamp, metadata.labels, metadata.annotations


def told_of(budget: BudgetObject) -> tuple[object, ...]:
    """Whom it covers, what its controller said of it, and whether that is still about how it is."""
    return budget.spec, budget.status, budget.metadata.generation


def without_version(owner: Any) -> Any:
    """An owner but for what is another with every write."""
    return msgspec.structs.replace(owner, metadata=msgspec.structs.replace(owner.metadata, resource_version=""))
