"""Objects of one kind as the API server has them: what a reflector fills, and who is told of each change."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from gpuyard.kube.objects import Metadata


class Named(Protocol):
    """Whatever has a name and a uid."""

    @property
    def metadata(self) -> Metadata:
        """These."""


S = TypeVar("S", bound=Named)


class Objects(Generic[S]):
    """Objects of one kind by their key; a `Sink` that tells of every change, and of what was there before."""

    def __init__(self, changed: Callable[[S | None, S | None], None], slim: Callable[[S], S] | None = None) -> None:
        self.objects: dict[str, S] = {}
        self._changed = changed
        self._slim = slim

    def put(self, seen: S) -> None:
        """Another uid under a known name: the one before is gone."""
        seen = self._slim(seen) if self._slim is not None else seen
        key = seen.metadata.key
        before = self.objects.get(key)
        if before is not None and before.metadata.uid != seen.metadata.uid:
            self.drop(key)
            before = None
        self.objects[key] = seen
        try:
            self._changed(before, seen)
        except Exception:
            self._take_back(key, before)
            raise

    def drop(self, key: str) -> None:
        """Gone."""
        before = self.objects.pop(key, None)
        if before is not None:
            self._changed(before, None)

    def _take_back(self, key: str, before: S | None) -> None:
        """It was not taken in: whatever is told of it next is told as if it had not been seen."""
        if before is None:
            del self.objects[key]
        else:
            self.objects[key] = before

    def keys(self) -> Iterable[str]:
        """All there are."""
        return self.objects

    def get(self, key: str) -> S | None:
        """The one of that name."""
        return self.objects.get(key)
