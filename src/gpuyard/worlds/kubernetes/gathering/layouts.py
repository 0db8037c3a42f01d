"""What a gang looks like by its owner: roles, how many of each, how it is taken back. Values only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from gpuyard.kube.objects import Metadata, PodObject, PodTemplate, Projection
from gpuyard.model.job import MAIN
from gpuyard.model.topology import ANYWHERE, TopologyAsk
from gpuyard.worlds.kubernetes.asking.marks import ReadingSettings
from gpuyard.worlds.kubernetes.asking.refusals import Refusal

T = TypeVar("T", bound=Projection)


class Way(Enum):
    """How a gang is taken back so that nobody counts it as a failure."""

    SUSPEND = "suspend"
    """Its owner is suspended, and resumed."""
    DELETE = "delete"
    """Its pods are deleted, and made anew by whoever made them."""
    DELETE_LEADER = "delete the leader"
    """The rest follows."""
    SHRINK = "shrink"
    """Of extras alone: its owner is made smaller, and larger again when there is room."""


@dataclass(frozen=True, slots=True)
class Parked:
    """A pod that came before what it belongs to: to be looked at again when that is known."""

    kind: str
    key: str


@dataclass(frozen=True)
class Owners:
    """What is known of objects that own pods or stand for groups of them."""

    objects: Mapping[tuple[str, str], Projection] = field(default_factory=dict)
    """By kind and group (`Job.batch`) and by `namespace/name`."""
    served: frozenset[str] = frozenset({"Job.batch"})
    """Kinds that this cluster has and that are watched: one of them that is not known yet is worth waiting for."""

    def find(self, kind: str, key: str, shape: type[T]) -> T | Parked | None:
        """The object; parked until it comes; None where its kind is not served."""
        found = self.objects.get((kind, key))
        if isinstance(found, shape):
            return found
        return Parked(kind, key) if kind in self.served else None


@dataclass(frozen=True, slots=True)
class GangRole:
    """Members alike, as their owner describes them. None: as many as there are; all of them."""

    name: str = MAIN
    tasks: int | None = None
    least: int | None = None
    template: PodTemplate | None = None
    topology: TopologyAsk = ANYWHERE
    ended: frozenset[int] = frozenset()
    """Numbers of those that succeeded."""
    failed: frozenset[int] = frozenset()
    """Numbers that their owner has given up: nobody waits for them."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A whole gang."""

    name: str
    """The job's name."""
    owner: Metadata | None = None
    roles: tuple[GangRole, ...] = ()
    least: int | None = None
    """So many of all together, where no role says so for itself."""
    way: Way = Way.DELETE
    owner_kind: str = ""
    hindrance: str = ""
    """Why it cannot be taken back without harm, in words; "": it comes back by itself."""
    suspended: bool = False
    promised: bool = False
    """The first must have its place, or run, before the others are made: those count as there."""
    topology: TopologyAsk = ANYWHERE
    queue: str = ""
    deadline: int | None = None
    preemptible: bool | None = None
    family: str = ""
    resizable: bool = False
    """Whether its owner may be made smaller and larger."""


@dataclass(frozen=True, slots=True)
class Seat:
    """Which gang a pod is in, as what, and as which of them, if that is told."""

    gang: str
    rule: Rule
    role: str = MAIN
    number: int | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table of gangs: tells members, and what their gang looks like."""

    name: str
    seat: Callable[[PodObject, Owners, Rule], Seat | Parked | None]
    layout: Callable[[str, Sequence[PodObject], Owners, ReadingSettings], Layout | Refusal]


def number(text: str) -> int | None:
    """A whole number as labels have it."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None
