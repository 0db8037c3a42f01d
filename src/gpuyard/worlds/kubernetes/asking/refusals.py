"""What a cluster may ask for and cannot have here, each by its name: told on the pod, never passed over."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class RefusalName(Enum):
    """The reason of `PodScheduled=False` and of the event. Closed: a new one is a promise to users."""

    TWO_KINDS_OF_GPU = "TwoKindsOfGpu"
    SHARED_COUNT = "SharedCount"
    SHARING_NOT_OFFERED = "SharingNotOffered"
    CLAIM_UNSUPPORTED = "ClaimUnsupported"
    TOLERATION = "Toleration"
    POD_AFFINITY = "PodAffinity"
    VOLUME_UNBOUND = "VolumeUnbound"
    VOLUME_IN_USE = "VolumeInUse"
    TOPOLOGY_UNKNOWN = "TopologyUnknown"
    QUEUE_UNKNOWN = "QueueUnknown"
    QUEUE_FORBIDDEN = "QueueForbidden"
    OWNER_UNKNOWN = "OwnerUnknown"
    """What it belongs to is not there, and without it nobody knows how many they are."""
    NO_COUNTERPART = "NoCounterpart"
    """Another scheduler's field that is a condition, and for which there is nothing here."""
    SET_APART = "SetApart"
    """It cannot be read, by a mistake of ours."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A "never" before the brain is asked: what was asked for, why not, what next."""

    reason: RefusalName
    message: str

    def __str__(self) -> str:
        return f"{self.reason.value}: {self.message}"


def unread(error: Exception) -> Refusal:
    """Of what nobody here foresaw: everybody else goes on, and its owner is told whose fault it is."""
    told = f"reading it fails ({type(error).__name__}: {error}); this is a bug of GPUYard: please report it"
    return Refusal(RefusalName.SET_APART, told)


@dataclass(frozen=True, slots=True)
class Remark:
    """Something asked for that is left out or replaced, while the pod is scheduled all the same: an event says so."""

    about: str
    message: str
