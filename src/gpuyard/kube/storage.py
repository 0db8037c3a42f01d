"""Projections of storage: claims, volumes, their classes, and what nodes can attach. See `objects`."""

from __future__ import annotations

from gpuyard.kube.objects import Amounts, LabelSelector, Metadata, NodeTerms, Projection, Resources


class ClaimSpec(Projection, frozen=True):
    """What a PersistentVolumeClaim asks for."""

    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: list[str] | None = None
    resources: Resources | None = None
    volume_mode: str | None = None
    selector: LabelSelector | None = None


class ClaimPhase(Projection, frozen=True):
    """Whether it is bound."""

    phase: str = ""


class VolumeClaimObject(Projection, frozen=True):
    """A PersistentVolumeClaim."""

    metadata: Metadata = Metadata()
    spec: ClaimSpec = ClaimSpec()
    status: ClaimPhase = ClaimPhase()


class VolumeAffinity(Projection, frozen=True):
    """Where a volume can be reached."""

    required: NodeTerms | None = None


class CsiSource(Projection, frozen=True):
    """The driver that attaches it."""

    driver: str = ""


class ClaimReference(Projection, frozen=True):
    """The claim that a volume is for."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class VolumeSpec(Projection, frozen=True):
    """The volume itself."""

    node_affinity: VolumeAffinity | None = None
    csi: CsiSource | None = None
    storage_class_name: str = ""
    capacity: Amounts | None = None
    access_modes: list[str] | None = None
    volume_mode: str | None = None
    claim_ref: ClaimReference | None = None


class VolumePhase(Projection, frozen=True):
    """Whether it can be had."""

    phase: str = ""


class VolumeObject(Projection, frozen=True):
    """A PersistentVolume."""

    metadata: Metadata = Metadata()
    spec: VolumeSpec = VolumeSpec()
    status: VolumePhase = VolumePhase()


class AllowedTopology(Projection, frozen=True):
    """One requirement on labels of nodes."""

    key: str = ""
    values: list[str] | None = None


class AllowedTopologies(Projection, frozen=True):
    """All must hold."""

    match_label_expressions: list[AllowedTopology] | None = None


class StorageClassObject(Projection, frozen=True):
    """When and where its volumes are made."""

    metadata: Metadata = Metadata()
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: list[AllowedTopologies] | None = None


class AttachLimit(Projection, frozen=True):
    """How many volumes a node attaches; None: as many as one likes."""

    count: int | None = None


class CsiDriver(Projection, frozen=True):
    """A driver on a node."""

    name: str = ""
    allocatable: AttachLimit | None = None


class CsiNodeSpec(Projection, frozen=True):
    """Its drivers."""

    drivers: list[CsiDriver] | None = None


class CsiNodeObject(Projection, frozen=True):
    """A node as its storage drivers see it."""

    metadata: Metadata = Metadata()
    spec: CsiNodeSpec = CsiNodeSpec()
