"""Who holds devices of a node and might be asked to leave, in numbers, for whoever looks at hundreds of nodes at once.

Owned by `Fleet` and kept between plans: a node is looked at anew only after somebody came, went, or began to run there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from gpuyard.brain.engine.nodes.columns import Columns, Floats, Held, Ints
from gpuyard.brain.engine.picture.job_rows import Footing, JobRow

NEVER = -1
"""A version before the first."""


PARTS, COST, FOOTING, UNSAVED_SINCE, WARM_UP, RIGID = range(6)
"""The lines of a node's numbers: how many parts of devices a job has there, what they cost, where it stands by its
place among the footings met so far, and what its row says."""

TOGETHER = 256
"""Nodes that are looked at in one go: what is made for it and thrown away is to be small beside what is kept."""

DEVICE = 720_720
"""Parts of a device: all that share one have as many of them each, of up to sixteen without a rest. A device falls free
only when all of them leave, so whoever frees so many devices has so many times these parts together."""


class NodeHolders(NamedTuple):
    """Those who hold devices of one node, the younger first; their numbers side by side, in lines."""

    rows: tuple[JobRow, ...]
    numbers: Floats


Sharers = Mapping[int, int]
"""How many tasks share each of a node's devices."""


def is_on_devices(held: Held) -> bool:
    """Whether the place has devices, or a share of one, that fall free when its task leaves."""
    return bool(held.gpus) and not held.mig and not held.terminating


def sharers_of(tenants: Iterable[JobRow], node: int) -> Sharers:
    """Of the devices that are shared; whoever may not leave shares them too."""
    places = (held for row in tenants for held in row.held if held.share and held.node == node)
    return Counter(g for held in places for g in held.gpus)


def parts_of(row: JobRow, node: int, sharers: Sharers) -> tuple[int, int]:
    """How many parts of the node's devices the job has, and what they cost."""
    parts = cost = 0
    for held in row.held:
        if held.node == node and is_on_devices(held):  # of a large gang most are elsewhere
            parts += -(-DEVICE // sharers[held.gpus[0]]) if held.share else DEVICE * len(held.gpus)
            cost += held.cost
    return parts, cost


class DeviceHolders:
    """The holders of every node that was asked for, as they are now."""

    def __init__(self, columns: Columns, tenants: list[dict[JobRow, int]]) -> None:
        self._touched = columns.touched
        self._tenants = tenants
        self._known: dict[int, NodeHolders] = {}
        self._seen: Ints = np.full(len(tenants), NEVER, dtype=np.int64)
        """As of which version each node is known."""
        self._footings: dict[Footing, int] = {}

    @property
    def footings(self) -> list[Footing]:
        """Where those stand who are known, in the order of their numbers."""
        return list(self._footings)

    def of(self, nodes: Ints) -> list[NodeHolders]:
        """Those of each of these nodes."""
        stale = nodes[self._touched.last(nodes) > self._seen[nodes]]
        for first in range(0, len(stale), TOGETHER):
            self._look(stale[first : first + TOGETHER].tolist())
        self._seen[nodes] = self._touched.version
        return [self._known[node] for node in nodes.tolist()]

    def of_all(self) -> list[NodeHolders]:
        """Those of every node."""
        return self.of(np.arange(len(self._tenants)))

    def forget(self, row: JobRow) -> None:
        """What is told of the job has changed, and not where it stands."""
        for held in row.held:
            self._seen[held.node] = NEVER

    def _look(self, nodes: list[int]) -> None:
        """At all of them together: to make an array costs more than the few numbers of a node."""
        found = [self._holding(node) for node in nodes]
        numbers = [self._numbers(*holding) for there in found for holding in there]
        lines, begin = np.array(numbers, dtype=np.float64).reshape(len(numbers), RIGID + 1).T, 0
        for node, there in zip(nodes, found, strict=True):
            end = begin + len(there)
            own = lines[:, begin:end].copy()  # else the numbers of all would stay as long as those of one
            self._known[node] = NodeHolders(tuple([row for row, _, _ in there]), own)
            begin = end

    def _holding(self, node: int) -> list[tuple[JobRow, int, int]]:
        """Those who hold devices of the node, how many, and what they cost; the younger first."""
        found: list[tuple[JobRow, int, int]] = []
        tenants = self._tenants[node]
        sharers = sharers_of(tenants, node)
        for row in tenants:
            parts, cost = parts_of(row, node, sharers)
            if parts and not row.firm and not row.job.foreign:
                found.append((row, parts, cost))
        found.sort(key=lambda holding: holding[0].age, reverse=True)
        return found

    def _numbers(self, row: JobRow, parts: int, cost: int) -> tuple[float, ...]:
        footing = self._footings.setdefault(row.footing, len(self._footings))
        return parts, cost, footing, row.unsaved_since, row.warm_up, row.rigid


def side_by_side(holders: Iterable[NodeHolders]) -> Floats:
    """The numbers of all of them, one node after the other."""
    return np.concatenate([each.numbers for each in holders], axis=1)
