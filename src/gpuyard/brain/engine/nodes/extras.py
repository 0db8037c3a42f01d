"""Columns of whatever else is counted on nodes: storage, huge pages, adapters, ports of the host.

Owned by `Columns`. A name gets its column when somebody first asks for it or holds it; until then it costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from gpuyard.model.node import Node
    from gpuyard.model.resources import Extras

Ints = npt.NDArray[np.int64]


class ExtraColumns:
    """Free amounts by name and node."""

    __slots__ = ("_columns", "_nodes")

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._columns: dict[str, Ints] = {}

    def free(self, name: str) -> Ints:
        """What is left of it on each node."""
        found = self._columns.get(name)
        if found is None:
            found = self._columns[name] = np.array([_spare(node, name) for node in self._nodes], dtype=np.int64)
        return found

    def shift(self, n: int, extras: Extras, sign: int) -> None:
        """Somebody takes them on the node (1), or gives them back (-1)."""
        for name, amount in extras:
            self.free(name)[n] -= sign * amount

    def change(self, n: int, old: Node, node: Node) -> None:
        """The node has others, or others are taken from it."""
        if (old.extras, old.taken.extras) != (node.extras, node.taken.extras):
            for name, column in self._columns.items():
                column[n] += _spare(node, name) - _spare(old, name)

    def cut(self, room: Ints, extras: Extras, nodes: Ints) -> Ints:
        """No more tasks than these suffice for."""
        for name, amount in extras:
            room = np.minimum(room, np.maximum(self.free(name)[nodes], 0) // amount)
        return room

    def suffice(self, n: int, extras: Extras) -> bool:
        """Whether the node has so many of all of them left."""
        return all(self.free(name)[n] >= amount for name, amount in extras)

    def __len__(self) -> int:
        """How many names there are columns of so far."""
        return len(self._columns)

    def copies(self) -> dict[str, Ints]:
        """As they are now."""
        return {name: column.copy() for name, column in self._columns.items()}


def _spare(node: Node, name: str) -> int:
    return node.extra(name) - sum(amount for taken, amount in node.taken.extras if taken == name)
