"""What was free on each node when nothing more fitted: whoever waits is asked again only once some node has more.

Kept by `Draft`. Between two claims a node or two have changed, so what is compared and noted anew are those.
"""

from __future__ import annotations

import numpy as np

from gpuyard.brain.engine.nodes.columns import Columns, Ints

MANY = 16
"""From so many changed nodes on columns are compared instead of numbers."""


class FreeBefore:
    """GPUs, CPU, memory, slices and the rest, as they were."""

    __slots__ = ("_at", "_columns", "_cpu", "_extras", "_idle", "_memory", "_slices")

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._note_all()

    def _note_all(self) -> None:
        columns = self._columns
        self._idle, self._cpu, self._memory = columns.idle.copy(), columns.cpu.copy(), columns.memory.copy()
        self._slices = {profile: free.copy() for profile, free in columns.slices.items()}
        self._extras = columns.extras.copies()
        self._at = columns.version

    def _pairs(self) -> list[tuple[Ints, Ints]]:
        """What is free now, beside what was."""
        columns = self._columns
        extras = [(columns.extras.free(name), was) for name, was in self._extras.items()]
        return [(columns.idle, self._idle), (columns.cpu, self._cpu), (columns.memory, self._memory), *extras]

    def grew(self) -> bool:
        """Whether some node has more free now."""
        nodes = self._columns.touched.since(self._at)
        if len(nodes) > MANY or self._slices:
            return self._grew_on(np.fromiter(nodes, np.int64, len(nodes)))
        pairs = self._pairs()
        return any(now[n] > was[n] for n in nodes for now, was in pairs)

    def _grew_on(self, nodes: Ints) -> bool:
        if any((now[nodes] > was[nodes]).any() for now, was in self._pairs()):
            return True
        if not self._slices:
            return False
        now, was = self._columns.slices.values(), self._slices.values()
        return bool((sum(free[nodes] for free in now) > sum(free[nodes] for free in was)).any())  # type: ignore[union-attr]

    def note(self) -> None:
        """Nothing more fits now either."""
        nodes = self._columns.touched.since(self._at)
        if len(nodes) > MANY or self._slices or len(self._columns.extras) != len(self._extras):
            self._note_all()
            return
        for now, was in self._pairs():
            for n in nodes:
                was[n] = now[n]
        self._at = self._columns.version
