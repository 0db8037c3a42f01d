"""Which nodes were touched since when, for those who keep something about nodes and catch up.

Owned by `Columns`, which notes every change of a node, and every undoing of one, as one more version.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

LONG = 1 << 16
"""Changes that are remembered one by one beyond one per node."""
NOT_FAR = 16
"""Up to so many changes behind, reading them one by one is cheaper than looking at every node."""


class TouchLog:
    """The changes in order, and by which version each node was last touched: two tellings of the same, for whoever is a
    little behind and whoever is far behind."""

    __slots__ = ("_forgotten", "_last", "_log", "version")

    def __init__(self, nodes: int) -> None:
        self.version = 0
        """Grows with every change."""
        self._log: list[int] = []
        self._forgotten = 0
        self._last: npt.NDArray[np.int64] = np.zeros(nodes, dtype=np.int64)

    def note(self, n: int) -> None:
        """The node was touched."""
        self._log.append(n)
        self.version += 1
        self._last[n] = self.version

    def note_all(self, nodes: list[int]) -> None:
        """So were these, together."""
        self._log += nodes
        self.version += len(nodes)
        self._last[nodes] = self.version

    def since(self, version: int) -> set[int]:
        """The nodes touched since that version."""
        at = version - self._forgotten
        return set(self._log[at:]) if at >= 0 else set(np.flatnonzero(self._last > version).tolist())

    def among(self, version: int, which: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """Those of these nodes that were touched since, as an index in no particular order."""
        if self.version - version > NOT_FAR:
            return ((self._last > version) & which).nonzero()[0]
        return np.array([n for n in self.since(version) if which[n]], dtype=np.int64)

    def last(self, nodes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """By which version each of these nodes was last touched."""
        return self._last[nodes]

    def index_since(self, version: int) -> npt.NDArray[np.int64]:
        """All that were touched since, as an index in no particular order."""
        touched = self.since(version)
        return np.fromiter(touched, np.int64, len(touched))

    def forget(self) -> None:
        """Let go of the older half of a log that has grown long."""
        most = LONG + len(self._last)
        if len(self._log) > most:
            gone = len(self._log) - most // 2
            self._forgotten += gone
            del self._log[:gone]
