"""Whoever makes pods, and which pods are seated by what each of them says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gpuyard.kube.objects import PodObject, Projection
from gpuyard.worlds.kubernetes import gangs
from gpuyard.worlds.kubernetes.asking import marks
from gpuyard.worlds.kubernetes.gathering.controllers import JOB, is_suspended, name_alone
from gpuyard.worlds.kubernetes.gathering.layouts import Owners, Seat
from gpuyard.worlds.kubernetes.keeping.alike import PlainPods


@dataclass(frozen=True)
class _AskedOwners(Owners):
    """Remembers who was asked for."""

    asked: set[tuple[str, str]] = field(default_factory=set)

    def find(self, kind: str, key: str, shape: Any) -> Any:
        """As `Owners.find`."""
        self.asked.add((kind, key))
        return Owners.find(self, kind, key, shape)


class KnownOwners:
    """What makes pods, and which pods depend on each of them: also those that came before it."""

    def __init__(self, plain: PlainPods) -> None:
        self._plain = plain
        self._objects: dict[tuple[str, str], Projection] = {}
        self._dependent: dict[tuple[str, str], set[str]] = {}
        self._asked: dict[str, set[tuple[str, str]]] = {}
        self._gone: set[tuple[str, str]] = set()
        """Owners that are no more and whose pods still are."""
        self.owners = _AskedOwners(self._objects, frozenset())
        self.paths: dict[str, str] = {}
        """Where owners of each kind are kept."""
        self.renames: Callable[[str], None] = lambda _key: None
        """Called with the name of a Job that is there now, or is no more: a pod of that name goes by another one."""

    def serve(self, kind: str) -> None:
        """Objects of that kind are watched from now on, and worth waiting for."""
        self.owners = _AskedOwners(self._objects, self.owners.served | {kind})

    def put(self, kind: str, key: str, seen: Projection | None) -> None:
        """It is so now; None: it is gone, and what is known of its pods stays as it was until they go."""
        if seen is not None:
            self._gone.discard((kind, key))
            is_new = (kind, key) not in self._objects
            self._objects[kind, key] = seen
            if is_new and kind == JOB:
                self.renames(key)
        elif self._dependent.get((kind, key)):
            self._gone.add((kind, key))
        else:
            self._let_go(kind, key)

    def _let_go(self, kind: str, key: str) -> None:
        if self._objects.pop((kind, key), None) is not None and kind == JOB:
            self.renames(key)

    def gang_of(self, pod: PodObject, key: str) -> str:
        """The pod's gang, until its owner is known itself alone; whoever was asked for it is remembered."""
        if self._plain.has(pod):
            self.forget(key)
            return name_alone(pod, key, self.owners)
        self.owners.asked.clear()
        found = gangs.seat_of(pod, self.owners)
        asked, before = set(self.owners.asked), self._asked.get(key, set())
        for owner in asked:
            self._dependent.setdefault(owner, set()).add(key)
        self._asked[key] = before - asked
        self.forget(key)
        if asked:
            self._asked[key] = asked
        return found.gang if isinstance(found, Seat) else name_alone(pod, key, self.owners)

    def forget(self, pod: str) -> None:
        """It depends on nobody any more."""
        for owner in self._asked.pop(pod, ()):
            left = self._dependent[owner]
            left.discard(pod)
            if not left:
                del self._dependent[owner]
                if owner in self._gone:
                    self._gone.discard(owner)
                    self._let_go(*owner)

    def get(self, kind: str, key: str) -> Projection | None:
        """The one of that name, as it was last seen."""
        return self._objects.get((kind, key))

    def bears_mark(self, kind: str, key: str) -> bool:
        """Whether we have suspended it."""
        owner: Any = self._objects.get((kind, key))
        return is_suspended(owner) and bool(owner.metadata.annotation(marks.SUSPENDED))

    def dependent(self, kind: str, key: str) -> list[str]:
        """Keys of pods that were seated by what this one says."""
        return list(self._dependent.get((kind, key), ()))
