"""Equal parts of pods and nodes are kept once: pods of one template differ by their names and little else.

Used by the cache of the world. What nothing here reads is left out on the way: volumes without a claim, conditions
that nobody asks about, the copy of itself that kubectl writes on an object, its version.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from gpuyard.kube.objects import Metadata, NodeObject, NodeStatus, PodObject, PodSpec, PodStatus

PARTS_MAX = 50_000
"""So many different parts are known; then all are forgotten, and only what comes afterwards is not shared with them."""
COPY = "kubectl.kubernetes.io/last-applied-configuration"
CONDITIONS = ("PodScheduled", "PodResizePending", "DisruptionTarget")
"""Conditions of pods that somebody reads; of the first only that it is not so."""

P = TypeVar("P")
V = TypeVar("V")
_encode = msgspec.msgpack.Encoder().encode


class SharedParts:
    """The parts that were met."""

    def __init__(self, unread: Iterable[str] = ()) -> None:
        """`unread`: annotations that nobody reads."""
        self._unread = frozenset((COPY, *unread))
        self._known: dict[tuple[type, bytes], Any] = {}
        self._last: dict[str, Any] = {}

    def pod(self, seen: PodObject) -> PodObject:
        """The same pod, of parts that others may have too."""
        spec, status = seen.spec, self._status(seen.status)
        claimed = [each for each in spec.volumes or () if each.persistent_volume_claim or each.ephemeral is not None]
        node, start = sys.intern(spec.node_name), sys.intern(seen.status.start_time or "")
        if claimed or spec.resource_claims:  # what these ask for rests on whether they have their node
            apart = replace(spec, node_name=node, volumes=claimed or None)
            return PodObject(self._metadata(seen.metadata), apart, status, node, start)
        return PodObject(self._metadata(seen.metadata), self._one(_bare(spec), "spec"), status, node, start)

    def node(self, seen: NodeObject) -> NodeObject:
        """The same node, of words that others have too: what it offers, what devices it has, whether it is ready."""
        metadata, status = seen.metadata, seen.status
        ready = [replace(each, last_transition_time=None) for each in status.conditions or () if each.type == "Ready"]
        devices = {name: amount for name, amount in (status.capacity or {}).items() if "/" in name}
        return NodeObject(
            replace(metadata, resource_version="", labels=_in_known_words(metadata.labels)),
            seen.spec,
            NodeStatus(self._one(devices, "devices"), _in_known_words(status.allocatable), self._one(ready, "ready")),
        )

    def _metadata(self, metadata: Metadata) -> Metadata:
        notes = metadata.annotations
        if notes and not self._unread.isdisjoint(notes):
            notes = {key: value for key, value in notes.items() if key not in self._unread}
        return Metadata(
            metadata.name,
            sys.intern(metadata.namespace),
            metadata.uid,
            creation_timestamp=_interned(metadata.creation_timestamp),
            deletion_timestamp=metadata.deletion_timestamp,
            deletion_grace_period_seconds=metadata.deletion_grace_period_seconds,
            labels=self._one(metadata.labels, "labels") if metadata.labels else None,
            annotations=self._one(notes, "annotations") if notes else None,
            owner_references=self._one(metadata.owner_references, "owners") if metadata.owner_references else None,
        )

    def _status(self, status: PodStatus) -> PodStatus:
        told = [
            each
            for each in status.conditions or ()
            if each.type in CONDITIONS and (each.type != "PodScheduled" or each.status == "False")
        ]
        return self._one(replace(status, start_time=None, conditions=told or None), "status")

    def _one(self, part: P, what: str) -> P:
        """The first of its equals that was met. Lists go by name: most often it is the one that was met last."""
        found: P | None = self._last.get(what)
        if found == part and found is not None:
            return found
        if len(self._known) > PARTS_MAX:
            self._known.clear()
        self._last[what] = found = self._known.setdefault((type(part), _encode(part)), part)
        return found


def _bare(spec: PodSpec) -> PodSpec:
    """Without what differs from pod to pod."""
    return replace(spec, node_name="", volumes=None) if spec.node_name or spec.volumes else spec


def _in_known_words(pairs: dict[str, V] | None) -> dict[str, V] | None:
    """Keys and values that are text are kept once; where an amount is a number it stays one."""
    return {sys.intern(key): _word(value) for key, value in pairs.items()} if pairs else None


def _word(value: Any) -> Any:
    return sys.intern(value) if isinstance(value, str) else value


def _interned(text: str | None) -> str | None:
    return sys.intern(text) if text else text
