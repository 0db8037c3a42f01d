"""The mark on an owner that we have suspended: why, since when, and what its pods were.

A gang whose owner bears it waits as others do, though it has no pods: the mark has one of each kind, as admission left
them (priority, tolerations and defaults are not in the owner's template). Written with the suspension in one write, so
that whoever leads next knows what this one knew. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec

from gpuyard.kube.objects import Metadata, PodObject, PodStatus, Projection
from gpuyard.worlds.kubernetes.asking.marks import GPUS, JOB, SUSPENDED, TASK

VALUE_MAX = 1024
"""Annotations that are longer are left out: what matters to us is a word."""
LAST = 2.0**32
"""No moment that we have written is later."""
LEFT = "1970-01-01T00:00:00Z"
"""A pod that is only remembered has left long ago."""


class Mark(Projection, frozen=True):
    """What is written."""

    why: str = ""
    at: Annotated[float, msgspec.Meta(ge=0.0, lt=LAST)] = 0.0
    pods: list[PodObject] | None = None


_decoder = msgspec.json.Decoder(Mark)


def mark_of(owner: Metadata | None) -> Mark | None:
    """The mark that it bears; one that cannot be read is none, and the owner is simply suspended."""
    told = owner.annotation(SUSPENDED) if owner is not None else ""
    if not told:
        return None
    try:
        return _decoder.decode(told)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
        return None


def written(why: str, at: float, pods: Iterable[PodObject]) -> str:
    """As an annotation has it; `pods` are one of each kind."""
    unbound = [
        PodObject(_known_by(pod.metadata), msgspec.structs.replace(pod.spec, node_name=""), PodStatus()) for pod in pods
    ]
    return msgspec.json.encode(Mark(why, at, unbound)).decode()


def _known_by(metadata: Metadata) -> Metadata:
    """What tells whose it is and what it wishes; nothing that was its own."""
    notes = {
        key: value
        for key, value in (metadata.annotations or {}).items()
        if key not in (JOB, TASK, GPUS) and len(value) <= VALUE_MAX
    }
    owners = metadata.owner_references
    return Metadata(name=metadata.name, labels=metadata.labels, annotations=notes, owner_references=owners)


def remembered(owner: Metadata, mark: Mark) -> tuple[PodObject, ...]:
    """Its pods as if they were leaving: they tell what they ask for, and hold and start nothing.

    They are of the owner's namespace, whatever is written.
    """
    found = []
    for pod in mark.pods or ():
        metadata = msgspec.structs.replace(pod.metadata, namespace=owner.namespace, uid="", deletion_timestamp=LEFT)
        spec = msgspec.structs.replace(pod.spec, node_name="")
        found.append(PodObject(metadata, spec))
    return tuple(found)
