"""Equal parts of pods are kept once: pods of one template differ by their names and little else.

Used by the cache of the world. What nothing here reads is left out on the way: volumes without a claim, conditions
that nobody asks about, the copy of itself that kubectl writes on an object.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from gpuyard.kube.objects import Metadata, PodObject, PodSpec, PodStatus

PARTS_MAX = 50_000
"""So many different parts are known; then all are forgotten, and only what comes afterwards is not shared with them."""
COPY = "kubectl.kubernetes.io/last-applied-configuration"
CONDITIONS = ("PodScheduled", "PodResizePending", "DisruptionTarget")
"""Conditions of pods that somebody reads; of the first only that it is not so."""

P = TypeVar("P")
_encode = msgspec.msgpack.Encoder().encode


class SharedParts:
    """The parts that were met."""

    def __init__(self, unread: Iterable[str] = ()) -> None:
        """`unread`: annotations that nobody reads."""
        self._unread = frozenset((COPY, *unread))
        self._known: dict[tuple[type, bytes], Any] = {}

    def pod(self, seen: PodObject) -> PodObject:
        """The same pod, of parts that others may have too."""
        return PodObject(self._metadata(seen.metadata), self._spec(seen.spec), self._status(seen.status))

    def _spec(self, spec: PodSpec) -> PodSpec:
        claimed = [each for each in spec.volumes or () if each.persistent_volume_claim or each.ephemeral is not None]
        shared = self._one(replace(spec, node_name="", volumes=claimed or None))
        return replace(shared, node_name=sys.intern(spec.node_name)) if spec.node_name else shared

    def _metadata(self, metadata: Metadata) -> Metadata:
        notes = metadata.annotations
        if notes and not self._unread.isdisjoint(notes):
            notes = {key: value for key, value in notes.items() if key not in self._unread}
        return replace(
            metadata,
            namespace=sys.intern(metadata.namespace),
            creation_timestamp=_interned(metadata.creation_timestamp),
            labels=self._one(metadata.labels) if metadata.labels else None,
            annotations=self._one(notes) if notes else None,
            owner_references=self._one(metadata.owner_references) if metadata.owner_references else None,
        )

    def _status(self, status: PodStatus) -> PodStatus:
        told = [
            each
            for each in status.conditions or ()
            if each.type in CONDITIONS and (each.type != "PodScheduled" or each.status == "False")
        ]
        shared = self._one(replace(status, start_time=None, conditions=told or None))
        return replace(shared, start_time=sys.intern(status.start_time)) if status.start_time else shared

    def _one(self, part: P) -> P:
        """The first of its equals that was met."""
        if len(self._known) > PARTS_MAX:
            self._known.clear()
        found: P = self._known.setdefault((type(part), _encode(part)), part)
        return found


def _interned(text: str | None) -> str | None:
    return sys.intern(text) if text else text
