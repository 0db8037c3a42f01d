"""Pods that stand alone and are alike but for their names are read once, under the same settings.

Used by `cache` and `observe`. Reading each of them whole is most of what seeing a new pod costs. Which pods are alike
is told by the parts that they share (`kube.sharing`): what is known of a part is known of all that have it. Parts that
are known are kept here, so that no other can be taken for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Generic, TypeVar

from gpuyard.kube.objects import PodObject, moment
from gpuyard.model.job import Job, Placement
from gpuyard.worlds.kubernetes import gangs, pods
from gpuyard.worlds.kubernetes.asking import volumes
from gpuyard.worlds.kubernetes.asking.marks import ReadingSettings
from gpuyard.worlds.kubernetes.gangs import Gathered
from gpuyard.worlds.kubernetes.gathering.controllers import JOB, SINGLE, hindrance_of_deleting
from gpuyard.worlds.kubernetes.gathering.layouts import Owners, Parked, Seat
from gpuyard.worlds.kubernetes.gathering.members import Chair, Places

T = TypeVar("T")
KNOWN_MAX = 10_000
"""Kinds of pods; then all are read anew."""
_NOBODY = PodObject()
_names = [each.name for each in fields(Job)]
_values = attrgetter(*_names)
_NAME, _SUBMITTED, _STARTED, _PLACEMENTS = map(_names.index, ("name", "submitted", "started", "placements"))


@dataclass(frozen=True)
class _NotingOwners(Owners):
    """Knows nobody, and notes that it was asked."""

    asked: list[str] = field(default_factory=list)

    def find(self, kind: str, key: str, shape: object) -> None:
        """Nobody."""
        self.asked.append(key)


class ByParts(Generic[T]):
    """What was worked out from parts of pods, by those very parts."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], tuple[tuple[object, ...], T]] = {}

    def get(self, parts: tuple[object, ...]) -> T | None:
        """What is known."""
        found = self._known.get(tuple(map(id, parts)))
        return None if found is None else found[1]

    def put(self, parts: tuple[object, ...], value: T) -> T:
        """Known from now on."""
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known[tuple(map(id, parts))] = parts, value
        return value


class PlainPods:
    """Which pods are of no gang, whoever their owners are."""

    def __init__(self) -> None:
        self._known: ByParts[bool] = ByParts()

    def has(self, pod: PodObject) -> bool:
        """Whether its labels, annotations and owners alone say so."""
        if pod.spec.scheduling_group is not None:
            return False
        parts = pod.metadata.labels, pod.metadata.annotations, pod.metadata.owner_references
        known = self._known.get(parts)
        return self._known.put(parts, _is_plain(pod)) if known is None else known


def _is_plain(pod: PodObject) -> bool:
    owners = _NotingOwners()
    seat = gangs.seat_of(pod, owners)
    return isinstance(seat, Seat) and seat.rule is SINGLE and not owners.asked


@dataclass(frozen=True, slots=True)
class _Kind:
    """One of those that are alike."""

    found: Gathered
    values: list[object]
    """Of its job, in order; each pod writes its own into it and makes its job of them."""


class Alike:
    """`gangs.gather` for pods most of which are replicas."""

    def __init__(self, plain: PlainPods | None = None) -> None:
        self._plain = plain or PlainPods()
        self._known: ByParts[_Kind] = ByParts()
        self._settings: ReadingSettings | None = None

    def gather(
        self, gang: Sequence[PodObject], owners: Owners, settings: ReadingSettings, places: Places
    ) -> Gathered | Parked:
        """As `gangs.gather`."""
        if len(gang) != 1 or not self._is_like_others(gang[0], owners):
            return gangs.gather(gang, owners, settings, places)
        pod, place = gang[0], places.get(gang[0].metadata.uid)
        kind = self._kind(pod, owners, settings, place)
        if kind is None:
            return gangs.gather(gang, owners, settings, places)
        found, name = kind.found, pod.metadata.key
        hindrance = found.hindrance and hindrance_of_deleting((pod,), owners)
        if found.job is None:
            return replace(found, name=name, hindrance=hindrance)
        chairs = tuple(Chair(pod, chair.group, chair.task) for chair in found.chairs)
        return replace(found, name=name, job=_job(kind, pod, place), chairs=chairs, hindrance=hindrance)

    def job(self, pod: PodObject, owners: Owners, settings: ReadingSettings, place: Placement | None) -> Job | None:
        """Of the pod alone, if it is like others; None: it is to be gathered, and more may have to be said of it."""
        if not self._is_like_others(pod, owners) or pod.spec.affinity or pod.spec.topology_spread_constraints:
            return None
        kind = self._kind(pod, owners, settings, place)
        return _job(kind, pod, place) if kind is not None and kind.found.job is not None else None

    def _is_like_others(self, pod: PodObject, owners: Owners) -> bool:
        """Whether all that is said of it stands on it, is not about it alone, and nobody else has its name."""
        if not self._plain.has(pod) or pods.is_over(pod) or pods.is_leaving(pod) or pod.spec.resource_claims:
            return False
        return (JOB, pod.metadata.key) not in owners.objects and not any(
            map(volumes.is_claimed, pod.spec.volumes or ())
        )

    def _kind(self, pod: PodObject, owners: Owners, settings: ReadingSettings, place: Placement | None) -> _Kind | None:
        """What is known of all but its name, its age and its place."""
        if settings is not self._settings:
            self._settings, self._known = settings, ByParts()
        metadata = pod.metadata
        whose = metadata.namespace, metadata.labels, metadata.annotations, metadata.owner_references
        parts = pod.spec, pods.is_bound(pod), place is not None, *whose
        if (known := self._known.get(parts)) is not None:
            return known
        found = gangs.gather([pod], owners, settings, {} if place is None else {metadata.uid: place})
        if not isinstance(found, Gathered) or (found.job is None and found.refusal is None):
            return None
        chairs = tuple(replace(chair, pod=_NOBODY) for chair in found.chairs)
        values = [] if found.job is None else list(_values(found.job))
        return self._known.put(parts, _Kind(replace(found, chairs=chairs), values))


def _job(kind: _Kind, pod: PodObject, place: Placement | None) -> Job:
    """The same of another pod."""
    values, [chair] = kind.values, kind.found.chairs
    placed: tuple[Placement, ...] = ()
    if place is not None:
        fits = (place.group, place.task) == (chair.group, chair.task)
        placed = (place if fits else replace(place, group=chair.group, task=chair.task),)
    values[_NAME], values[_SUBMITTED] = pod.metadata.key, pods.submitted(pod)
    values[_STARTED] = moment(pod.start_time) if pod.start_time and placed else None
    values[_PLACEMENTS] = placed
    return Job(*values)  # type: ignore[arg-type]
