"""What there is to divide (rule 6): what is neither sick nor closed, and what is in use on what is.

Kept by `Fleet` as nodes change their condition; knows no jobs.
"""

from __future__ import annotations

from collections import Counter

from gpuyard.brain.engine.nodes.columns import Columns
from gpuyard.brain.engine.sharing.amounts import Amounts, plus, times
from gpuyard.brain.engine.sharing.quota import QueueTree
from gpuyard.model.node import Node
from gpuyard.model.resources import UNLIMITED, WHOLE, mig_cost


class Capacity:
    """The sum over all nodes, in the queue tree's resources."""

    def __init__(self, columns: Columns, tree: QueueTree) -> None:
        self._columns = columns
        self._tree = tree
        self._odd = {n for n, node in enumerate(columns.nodes) if node.closed is not None or n in columns.barred}
        self._sound = [0] * len(tree.resources)
        kinds = Counter(kind for node in columns.nodes if (kind := _kind(node)) is not None)
        for (gpu, cpu, memory, model), count in kinds.items():
            self._sound = plus(self._sound, times(tree.vector(gpu, cpu, memory, model), count))

    def change(self, n: int, old: Node, new: Node) -> None:
        """A node is in another condition now."""
        if _is_odd(new):
            self._odd.add(n)
        else:
            self._odd.discard(n)
        for node, sign in ((old, -1), (new, 1)):
            kind = _kind(node)
            if kind is not None:
                self._sound = plus(self._sound, times(self._tree.vector(*kind), sign))

    @property
    def any_odd(self) -> bool:
        """Whether there is any such node as `odd` tells."""
        return bool(self._odd)

    def odd(self) -> list[int]:
        """Nodes that are closed or have a sick or closed GPU, in order."""
        return sorted(self._odd)

    def total(self) -> Amounts:
        """What is sound, and what is stuck."""
        sound = [min(amount, UNLIMITED) for amount in self._sound]
        return plus(sound, self._stuck()) if self._odd else sound

    def _stuck(self) -> Amounts:
        """In use on closed nodes, closed and sick devices: it counts while it runs, and nothing can follow it."""
        total = [0] * len(self._tree.resources)
        for n in self._odd:
            node = self._columns.nodes[n]
            kept = sum(
                used
                for g, used in enumerate(self._columns.used[n])
                if node.gpus[g].slices is None and not (node.closed is None and node.gpus[g].usable)
            )
            total = plus(total, self._tree.vector(kept, 0, 0, node.model))
        return total


def _is_odd(node: Node) -> bool:
    return node.closed is not None or not all(gpu.usable for gpu in node.gpus)


def _kind(node: Node) -> tuple[int, int, int, str] | None:
    """What a node adds: GPUs in grains, CPU, memory and the model they are counted by; nothing if it is closed."""
    if node.closed is not None:
        return None
    gpus = 0
    for gpu in node.gpus:
        if gpu.usable:
            gpus += WHOLE if gpu.slices is None else sum(mig_cost(profile) for profile in gpu.slices)
    return gpus, node.cpu, node.memory, node.model
