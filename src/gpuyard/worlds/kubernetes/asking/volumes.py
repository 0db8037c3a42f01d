"""Where a pod's volumes and allocated devices let it run. Pure; what is known of them is `Storage`.

A claim that is bound binds the pod to where its volume can be reached. One that waits for its first consumer leaves the
pod free where a volume is free or can be made, and is bound by the world once the node is chosen. The rest is refused
by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from gpuyard.kube.objects import (
    DeviceClaimObject,
    Metadata,
    NodeTerm,
    NodeTerms,
    PodClaim,
    PodSpec,
    Requirement,
    Volume,
)
from gpuyard.kube.quantities import whole
from gpuyard.kube.storage import AllowedTopologies, CsiNodeObject, StorageClassObject, VolumeClaimObject, VolumeObject
from gpuyard.model.resources import ATTACHABLE
from gpuyard.worlds.kubernetes.asking import zones
from gpuyard.worlds.kubernetes.asking.refusals import Refusal, RefusalName
from gpuyard.worlds.kubernetes.asking.selectors import NODE_NAME, meets, selects

WAITS = "WaitForFirstConsumer"
ALONE = "ReadWriteOncePod"
NOBODY_MAKES = "kubernetes.io/no-provisioner"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""On a claim: the node for which its volume is to be made. Whoever makes it takes this away when it cannot."""
ANYWHERE: list[NodeTerms] = []


@dataclass(frozen=True)
class Storage:
    """Claims, volumes and classes as far as they were seen."""

    claims: Mapping[str, VolumeClaimObject] = field(default_factory=dict)
    """By `namespace/name`."""
    volumes: Mapping[str, VolumeObject] = field(default_factory=dict)
    classes: Mapping[str, StorageClassObject] = field(default_factory=dict)
    devices: Mapping[str, DeviceClaimObject] = field(default_factory=dict)
    """ResourceClaims, by `namespace/name`."""
    nodes: Mapping[str, CsiNodeObject] = field(default_factory=dict)
    """Nodes as their storage drivers see them, by name."""
    limited: Mapping[str, int] = field(default_factory=dict)
    """Drivers of which some node attaches only so many volumes, and how many such nodes there are."""
    in_use: Mapping[str, str] = field(default_factory=dict)
    """Claims that a pod has: its uid, by the claim's key."""
    watched: bool = True
    """Whether anybody looks at claims, and all of them are known."""


NOTHING_SEEN = Storage(watched=False)


def is_claimed(volume: Volume) -> bool:
    """Whether it is one that a claim stands for."""
    return volume.persistent_volume_claim is not None or volume.ephemeral is not None


def reach(spec: PodSpec, metadata: Metadata, storage: Storage) -> list[NodeTerms] | Refusal:
    """What must hold of a node that reaches all of the pod's volumes and devices; of one that has its node nothing."""
    found: list[NodeTerms] = []
    if spec.node_name:
        return found
    for key in claims_of(spec, metadata):
        terms = _of_claim(key, metadata, storage)
        if isinstance(terms, Refusal):
            return terms
        found += terms
    for asked in spec.resource_claims or ():
        claim = storage.devices.get(_device_claim(asked, metadata))
        if claim is None or claim.status.allocation is None:
            told = f"it claims devices ({asked.name}) that are not allocated, and nobody allocates them here"
            return Refusal(RefusalName.CLAIM_UNSUPPORTED, told)
        if claim.status.allocation.node_selector is not None:
            found.append(claim.status.allocation.node_selector)
    return found


def device_claims_of(spec: PodSpec, metadata: Metadata) -> list[str]:
    """Keys of the claims on devices that it names; one made of a template is its own, and nobody allocates it."""
    return [_device_claim(asked, metadata) for asked in spec.resource_claims or () if asked.resource_claim_name]


def _device_claim(asked: PodClaim, metadata: Metadata) -> str:
    return f"{metadata.namespace}/{asked.resource_claim_name or ''}"


def claims_of(spec: PodSpec, metadata: Metadata) -> Iterator[str]:
    """Keys of the claims of its volumes; an ephemeral one's is named after pod and volume.

    Of a template none: which claims its pods have is told when they come.
    """
    for volume in (spec.volumes or ()) if metadata.uid else ():
        if volume.persistent_volume_claim is not None:
            yield f"{metadata.namespace}/{volume.persistent_volume_claim.claim_name}"
        elif volume.ephemeral is not None:
            yield f"{metadata.namespace}/{metadata.name}-{volume.name}"


# --- how many a node attaches -----------------------------------------------------------------------


def attached_by(spec: PodSpec, metadata: Metadata, storage: Storage) -> dict[str, int]:
    """Volumes that a node must attach for it, by driver, as far as there is a limit anywhere.

    Each is counted for each pod: one that two pods of a node share is attached there once, which is not looked for.
    """
    if not storage.limited or not spec.volumes:
        return {}
    drivers = (_driver_of(key, storage) for key in dict.fromkeys(claims_of(spec, metadata)))
    return dict(Counter(ATTACHABLE + driver for driver in drivers if driver in storage.limited))


def _driver_of(key: str, storage: Storage) -> str:
    """Who attaches the claim's volume, or makes it; "" if nobody does."""
    claim = storage.claims.get(key)
    if claim is None:
        return ""
    made = storage.classes.get(claim.spec.storage_class_name or "")
    if not claim.spec.volume_name and made is not None and is_made(made):
        return made.provisioner
    had = storage.volumes.get(claim.spec.volume_name) or next(iter(fitting(claim, storage)), None)
    return had.spec.csi.driver if had is not None and had.spec.csi is not None else ""


def attachable_on(node: str, storage: Storage) -> Iterator[tuple[str, int]]:
    """How many volumes it attaches, by driver, where that is limited."""
    seen = storage.nodes.get(node)
    for driver, count in limits_of(seen).items() if seen is not None else ():
        yield ATTACHABLE + driver, count


def limits_of(node: CsiNodeObject) -> dict[str, int]:
    """How many volumes each of its drivers attaches, of those that tell."""
    told = ((driver.name, driver.allocatable) for driver in node.spec.drivers or ())
    return {name: max(0, limit.count) for name, limit in told if limit is not None and limit.count is not None}


# --- claims -------------------------------------------------------------------------------------------


def is_bound(claim: VolumeClaimObject) -> bool:
    """Whether it has its volume."""
    return bool(claim.spec.volume_name) and claim.status.phase == "Bound"


def unbound_of(spec: PodSpec, metadata: Metadata, storage: Storage) -> list[VolumeClaimObject]:
    """Claims of a pod that are to be bound before it is; those that nobody knows are not among them."""
    found = (storage.claims.get(key) for key in claims_of(spec, metadata))
    return [claim for claim in found if claim is not None and not is_bound(claim)]


def _of_claim(key: str, metadata: Metadata, storage: Storage) -> list[NodeTerms] | Refusal:
    claim = storage.claims.get(key)
    if not storage.watched:
        return _unbound(f"it needs the volume claim {key}, and claims are not known yet")
    if claim is None:
        return _unbound(f"its volume claim {key} is not there")
    if claim.metadata.deletion_timestamp is not None:
        return _unbound(f"its volume claim {key} is being deleted")
    owner = claim.metadata.controller
    if owner is not None and owner.kind == "Pod" and owner.uid != metadata.uid:
        return _unbound(f"the volume claim {key} was made for another pod")
    if ALONE in (claim.spec.access_modes or ()) and storage.in_use.get(key, "") not in ("", metadata.uid):
        return Refusal(RefusalName.VOLUME_IN_USE, f"its volume claim {key} is for one pod at a time, and one has it")
    if is_bound(claim):
        volume = storage.volumes.get(claim.spec.volume_name)
        if volume is None:
            return _unbound(f"the volume of its claim {key} is not there")
        return _where([volume])
    return _of_waiting(key, claim, storage)


def _unbound(told: str) -> Refusal:
    return Refusal(RefusalName.VOLUME_UNBOUND, told)


def _of_waiting(key: str, claim: VolumeClaimObject, storage: Storage) -> list[NodeTerms] | Refusal:
    """Where a volume could be had for a claim that waits for its pod."""
    made = storage.classes.get(claim.spec.storage_class_name or "")
    if made is None or made.volume_binding_mode != WAITS or claim.spec.volume_name:
        return _unbound(f"its volume claim {key} is not bound to a volume yet")
    if chosen := claim.metadata.annotation(SELECTED_NODE):
        return [NodeTerms([NodeTerm(match_fields=[Requirement(NODE_NAME, "In", [chosen])])])]
    free = fitting(claim, storage)
    if not is_made(made) or any(_is_for(volume, claim) for volume in free):
        return _where(free) if free else _unbound(f"no free volume of the class {made.metadata.name} suits {key}")
    if not made.allowed_topologies or _is_anywhere(free):
        return ANYWHERE
    return [_any_of([_allowed(made.allowed_topologies), *_where(free)])]


def is_made(storage_class: StorageClassObject) -> bool:
    """Whether somebody makes its volumes when they are asked for."""
    return storage_class.provisioner != NOBODY_MAKES


def fitting(claim: VolumeClaimObject, storage: Storage, node: Metadata | None = None) -> list[VolumeObject]:
    """Volumes that the claim could have, the smallest first; one that is meant for it, and no other, if there is one.

    With a node, those that can be reached from it.
    """
    meant = [volume for volume in storage.volumes.values() if _is_for(volume, claim)]
    found = meant or [volume for volume in storage.volumes.values() if _suits(volume, claim)]
    near = [volume for volume in found if node is None or meets(affinity_of(volume), node)]
    return sorted(near, key=lambda volume: (_size(volume), volume.metadata.name))


def affinity_of(volume: VolumeObject) -> NodeTerms | None:
    """From where it can be reached; None: from everywhere."""
    return zones.within(volume.spec.node_affinity.required if volume.spec.node_affinity else None, volume.metadata)


def _is_for(volume: VolumeObject, claim: VolumeClaimObject) -> bool:
    meant = volume.spec.claim_ref
    if meant is None or (meant.namespace, meant.name) != (claim.metadata.namespace, claim.metadata.name):
        return False
    return meant.uid in ("", claim.metadata.uid)


def _suits(volume: VolumeObject, claim: VolumeClaimObject) -> bool:
    """As the controller that binds them has it."""
    asked, has = claim.spec, volume.spec
    if has.claim_ref is not None or volume.metadata.deletion_timestamp or volume.status.phase not in ("", "Available"):
        return False
    if has.storage_class_name != (asked.storage_class_name or ""):
        return False
    if (has.volume_mode or "Filesystem") != (asked.volume_mode or "Filesystem"):
        return False
    if asked.selector is not None and not selects(asked.selector, volume.metadata.labels or {}):
        return False
    wanted = (asked.resources.requests or {}).get("storage") if asked.resources else None
    return set(asked.access_modes or ()) <= set(has.access_modes or ()) and _size(volume) >= whole(wanted)


def _size(volume: VolumeObject) -> int:
    return whole((volume.spec.capacity or {}).get("storage"))


# --- terms -------------------------------------------------------------------------------------------


def _is_anywhere(volumes: Iterable[VolumeObject]) -> bool:
    return any(affinity_of(volume) is None for volume in volumes)


def _where(volumes: list[VolumeObject]) -> list[NodeTerms]:
    """Where any of these volumes can be reached."""
    if not volumes or _is_anywhere(volumes):
        return ANYWHERE
    return [_any_of(filter(None, map(affinity_of, volumes)))]


def _any_of(alternatives: Iterable[NodeTerms]) -> NodeTerms:
    """One of them must hold. Those that only name values of one label, as volumes of single nodes do, are one."""
    values: dict[str, list[str]] = {}
    rest: list[NodeTerm] = []
    for terms in alternatives:
        for term in terms.node_selector_terms or ():
            only = (term.match_expressions or [])[0] if len(term.match_expressions or ()) == 1 else None
            if only is None or only.operator != "In" or term.match_fields:
                rest.append(term)
            else:
                values.setdefault(only.key, []).extend(only.values or ())
    merged = [NodeTerm([Requirement(key, "In", sorted(set(named)))]) for key, named in sorted(values.items())]
    return NodeTerms([*merged, *rest])


def _allowed(topologies: list[AllowedTopologies]) -> NodeTerms:
    return NodeTerms(
        [
            NodeTerm([Requirement(each.key, "In", each.values) for each in topology.match_label_expressions or ()])
            for topology in topologies
        ]
    )
