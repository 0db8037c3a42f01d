"""GPUs that lie free where the demand seen cannot use them, per node: as it is, and as a task would leave it.

The measure is FGD's: for each class of demand, the free GPUs of a node that class could not use, weighted by how much
of the demand that class is. Asked by `scoring` for every candidate node; what a fleet's report makes of it is
`placing.fragmentation`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpuyard.brain.engine.nodes.columns import Columns, Ints
from gpuyard.brain.engine.nodes.demand import Demand, DemandClass, Floats, proportion
from gpuyard.model.resources import WHOLE


class Gauge:
    """Expected stranded GPUs per node, for what is free and for what would be."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.outline: tuple[object, ...] = ()
        self.know(())

    def forget(self) -> None:
        """What the demand was measured by is not true any more; it is taken in anew."""
        self.outline = ()
        self.know(())

    def know(self, classes: Sequence[DemandClass]) -> None:
        """Measure by this demand from now on."""
        self.demand = Demand(classes, self.columns.width)
        gpus = np.array([len(node.gpus) for node in self.columns.nodes], dtype=np.int64)
        self.groups: list[int] = self.demand.group.tolist() if classes else [0] * len(gpus)
        """Which classes each node could serve at all, told by a number: labels reach the scores through it alone."""
        self.scarcity = self.demand.scarcity(classes, gpus)
        self.any_scarce = bool(self.scarcity.any())
        cpu = np.array([node.cpu for node in self.columns.nodes], dtype=np.int64)
        self.proportion = proportion(classes, cpu, gpus)
        self._now = np.zeros(len(gpus))
        self._seen = 0
        if self.demand.count and len(gpus):
            self._refresh(np.arange(len(gpus)))
        self._seen = self.columns.version

    def now(self, nodes: Ints) -> Floats:
        """GPUs stranded on each of `nodes` as they are."""
        version = self.columns.version
        if self._seen < version:
            changed = self.columns.changed_since(self._seen)
            self._seen = version
            if self.demand.count:
                self._refresh(changed)
        found: Floats = self._now[nodes]
        return found

    def _refresh(self, nodes: Ints) -> None:
        columns, demand = self.columns, self.demand
        rows = demand.rows(nodes, columns.cpu[nodes])
        useful = np.add.reduce(demand.useful(rows, columns.shares.take(nodes, axis=0)), axis=1)
        self._now[nodes] = columns.idle[nodes] / WHOLE - useful - demand.gangs(rows, columns.whole[nodes])

    def after_whole(self, nodes: Ints, gpus: int, cpu: Ints) -> Floats:
        """GPUs stranded on each of `nodes` once a task took `gpus` whole devices and left `cpu`."""
        columns, demand = self.columns, self.demand
        rows = demand.rows(nodes, cpu)
        useful = np.add.reduce(demand.useful(rows, columns.shares.take(nodes, axis=0)), axis=1)
        left: Floats = columns.idle[nodes] / WHOLE - gpus - useful
        if gpus:
            left += gpus * demand.useful_whole(rows)
        return left - demand.gangs(rows, np.maximum(columns.whole[nodes] - gpus, 0))

    def after_share(self, nodes: Ints, need: Ints, cpu: Ints) -> Floats:
        """The same per node and device, for a task that took `need` of that one device; inf where it does not fit."""
        columns, demand = self.columns, self.demand
        shares, whole = columns.shares.take(nodes, axis=0), columns.whole[nodes]
        rows = demand.rows(nodes, cpu)
        useful = demand.useful(rows, shares)
        rest = shares - need[:, None]
        kept = demand.gangs(rows, whole)
        node = (columns.idle[nodes] - need) / WHOLE - np.add.reduce(useful, axis=1) - kept
        opening = kept - demand.gangs(rows, np.maximum(whole - 1, 0))
        stranded: Floats = useful - demand.useful(rows, rest)
        stranded += node[:, None]
        stranded += (shares == WHOLE) * opening[:, None]
        np.putmask(stranded, rest < 0, np.inf)
        return stranded
