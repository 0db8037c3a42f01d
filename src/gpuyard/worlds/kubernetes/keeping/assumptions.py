"""Where pods will be by our own doing, until the API server tells it or the binding failed. Kept in `cache`."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from gpuyard.model.job import Placement
from gpuyard.worlds.kubernetes.keeping.bags import Bags


class Assumptions:
    """Places by the uid of their pod, and who is on its way to each node."""

    def __init__(self) -> None:
        self._places: dict[str, tuple[Placement, str]] = {}
        self._coming = Bags()
        """Keys of pods, by node."""

    def __contains__(self, uid: object) -> bool:
        return uid in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def get(self, uid: str) -> Placement | None:
        """Where it will be."""
        found = self._places.get(uid)
        return None if found is None else found[0]

    def put(self, place: Placement, pod: str) -> None:
        """The pod of that key, and of the place's uid, is on its way."""
        self.end(place.uid)
        self._places[place.uid] = place, pod
        self._coming.add(place.node, pod)

    def end(self, uid: str) -> Placement | None:
        """It has come, or will not; where it would have been, if anywhere."""
        found = self._places.pop(uid, None)
        if found is None:
            return None
        self._coming.discard(found[0].node, found[1])
        return found[0]

    def coming_to(self, node: str) -> Collection[str]:
        """Keys of pods on their way there."""
        return self._coming.of(node)
