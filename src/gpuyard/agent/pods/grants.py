"""What a pod was granted: the GPUs that its binding names, shared out among its containers. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpuyard.agent.pods.holding import PodHolding
from gpuyard.kube.gpu_grants import granted_gpus, other_gpus
from gpuyard.kube.objects import Container, PodObject, moment
from gpuyard.kube.quantities import whole

OVER = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Grant:
    """One pod that is bound here with GPUs of its own: containers in the order in which a kubelet serves them."""

    key: str
    uid: str
    made: float
    gpus: tuple[str, ...]
    parts: tuple[tuple[str, tuple[str, ...]], ...]
    """Containers that ask for GPUs, each with its part."""


def granted(pod: PodObject, resource: str) -> Grant | None:
    """None for a pod that has ended, asks for none, or whose binding named none: then nobody minds which it gets."""
    gpus = granted_gpus(pod)
    if not gpus or pod.status.phase in OVER:
        return None
    parts = tuple(_parts(pod.spec.containers or (), gpus, resource))
    about = pod.metadata
    return Grant(about.key, about.uid, moment(about.creation_timestamp), gpus, parts)


def _parts(
    containers: Iterable[Container], gpus: Sequence[str], resource: str
) -> Iterable[tuple[str, tuple[str, ...]]]:
    begin = 0
    for container in containers:
        asked = (container.resources.limits or {}).get(resource) if container.resources is not None else None
        if size := whole(asked):
            yield container.name, tuple(gpus[begin : begin + size])
            begin += size


def chosen(
    grants: Iterable[Grant], held: Mapping[str, PodHolding] | None, available: Collection[str], size: int
) -> tuple[str, ...]:
    """The GPUs that the container was granted for which a kubelet asks now; none if that cannot be told.

    A kubelet asks without saying for whom: it is one of those that it has and that hold nothing yet. Where it does not
    say whom it has, everybody who is bound may be meant, the oldest first.
    """
    free = set(available)
    for grant in sorted(grants, key=lambda each: (each.made, each.key)):
        having = None if held is None else held.get(grant.key)
        if held is not None and having is None:
            continue
        for container, part in grant.parts:
            served = having is not None and having.containers.get(container)
            if not served and len(part) == size and free.issuperset(part):
                return part
    return ()


def differences(grants: Iterable[Grant], held: Iterable[PodHolding]) -> list[tuple[Grant, tuple[str, ...]]]:
    """Pods that hold other GPUs than they were granted, and which."""
    having = {each.key: each.gpus for each in held}
    return [
        (grant, found)
        for grant in sorted(grants, key=lambda each: each.key)
        if other_gpus(grant.gpus, found := having.get(grant.key, ()))
    ]
