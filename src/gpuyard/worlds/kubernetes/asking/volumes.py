"""Where a pod's volumes and allocated devices let it run. Pure; what is known of them is `Storage`.

A claim that is bound binds the pod to where its volume can be reached. One that waits for its first consumer leaves the
pod free within its class's topology, and is bound by the world once the node is chosen. The rest is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from gpuyard.kube.objects import (
    AllowedTopologies,
    DeviceClaimObject,
    Metadata,
    NodeTerm,
    NodeTerms,
    PodSpec,
    Requirement,
    StorageClassObject,
    VolumeClaimObject,
    VolumeObject,
)  # fmt: skip
from gpuyard.worlds.kubernetes.asking.refusals import Refusal, RefusalName

WAITS = "WaitForFirstConsumer"
ALONE = "ReadWriteOncePod"


@dataclass(frozen=True)
class Storage:
    """Claims, volumes and classes as far as they were seen."""

    claims: Mapping[str, VolumeClaimObject] = field(default_factory=dict)
    """By `namespace/name`."""
    volumes: Mapping[str, VolumeObject] = field(default_factory=dict)
    classes: Mapping[str, StorageClassObject] = field(default_factory=dict)
    devices: Mapping[str, DeviceClaimObject] = field(default_factory=dict)
    """ResourceClaims, by `namespace/name`."""
    in_use: Mapping[str, str] = field(default_factory=dict)
    """Claims that one pod alone may use and one does: its uid, by the claim's key."""
    watched: bool = True
    """Whether anybody looks at claims at all."""


NOTHING_SEEN = Storage(watched=False)


def reach(spec: PodSpec, metadata: Metadata, storage: Storage) -> list[NodeTerms] | Refusal:
    """What must hold of a node so that it reaches all of the pod's volumes and devices."""
    found: list[NodeTerms] = []
    for key in _claims(spec, metadata):
        terms = _of_claim(key, metadata, storage)
        if isinstance(terms, Refusal):
            return terms
        found += terms
    for asked in spec.resource_claims or ():
        claim = storage.devices.get(f"{metadata.namespace}/{asked.resource_claim_name or ''}")
        if claim is None or claim.status.allocation is None:
            told = f"it claims devices ({asked.name}) that are not allocated, and nobody allocates them here"
            return Refusal(RefusalName.CLAIM_UNSUPPORTED, told)
        if claim.status.allocation.node_selector is not None:
            found.append(claim.status.allocation.node_selector)
    return found


def _claims(spec: PodSpec, metadata: Metadata) -> Iterator[str]:
    """Keys of the claims of its volumes; an ephemeral one's is named after pod and volume."""
    for volume in spec.volumes or ():
        if volume.persistent_volume_claim is not None:
            yield f"{metadata.namespace}/{volume.persistent_volume_claim.claim_name}"
        elif volume.ephemeral is not None:
            yield f"{metadata.namespace}/{metadata.name}-{volume.name}"


def _of_claim(key: str, metadata: Metadata, storage: Storage) -> list[NodeTerms] | Refusal:
    claim = storage.claims.get(key)
    if not storage.watched:
        return Refusal(
            RefusalName.VOLUME_UNBOUND, f"it needs the volume claim {key}, and claims are not looked at here"
        )
    if claim is None:
        return Refusal(RefusalName.VOLUME_UNBOUND, f"its volume claim {key} is not there")
    holder = storage.in_use.get(key, "")
    if ALONE in (claim.spec.access_modes or ()) and holder not in ("", metadata.uid):
        return Refusal(RefusalName.VOLUME_IN_USE, f"its volume claim {key} is for one pod at a time, and one has it")
    if claim.spec.volume_name and claim.status.phase == "Bound":
        volume = storage.volumes.get(claim.spec.volume_name)
        if volume is None:
            return Refusal(RefusalName.VOLUME_UNBOUND, f"the volume of its claim {key} is not there")
        required = volume.spec.node_affinity.required if volume.spec.node_affinity else None
        return [required] if required is not None else []
    made = storage.classes.get(claim.spec.storage_class_name or "")
    if made is None or made.volume_binding_mode != WAITS:
        return Refusal(RefusalName.VOLUME_UNBOUND, f"its volume claim {key} is not bound to a volume yet")
    return [_allowed(made.allowed_topologies)] if made.allowed_topologies else []


def _allowed(topologies: list[AllowedTopologies]) -> NodeTerms:
    return NodeTerms(
        [
            NodeTerm([Requirement(each.key, "In", each.values) for each in topology.match_label_expressions or ()])
            for topology in topologies
        ]
    )
