"""GPUs that lie free where the demand seen cannot use them, per node: as it is, and as a task would leave it.

The measure is FGD's: for each class of demand, the free GPUs of a node that class could not use, weighted by how much
of the demand that class is. Asked by `scoring` for every candidate node; what a fleet's report makes of it is
`placing.fragmentation`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gpuyard.brain.engine.nodes.columns import Columns, Ints
from gpuyard.brain.engine.nodes.demand import Demand, DemandClass, Floats, proportion
from gpuyard.model.resources import WHOLE


class Candidates(NamedTuple):
    """Some nodes, and their free CPU and idle GPUs: row 0 as they are, row 1 after one more task. Both are worked out
    in one step, for on few nodes it is the number of NumPy's calls that costs, not their length."""

    nodes: Ints
    cpu: Ints
    gpus: Floats


def look_at(columns: Columns, nodes: Ints, cpu: int, gpus: Floats | float) -> Candidates:
    """The nodes, for a task that takes so much CPU and so many of the idle GPUs."""
    both_cpu = np.empty((2, len(nodes)), dtype=np.int64)
    both_cpu[0] = columns.cpu[nodes]
    np.subtract(both_cpu[0], cpu, out=both_cpu[1])
    both_gpus = np.empty((2, len(nodes)))
    np.divide(columns.idle[nodes], WHOLE, out=both_gpus[0])
    np.subtract(both_gpus[0], gpus, out=both_gpus[1])
    return Candidates(nodes, both_cpu, both_gpus)


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
            changed = self.columns.touched.index_since(self._seen)
            self._seen = version
            if self.demand.count:
                self._refresh(changed)
        found: Floats = self._now[nodes]
        return found

    def _refresh(self, nodes: Ints) -> None:
        columns, demand = self.columns, self.demand
        rows = demand.rows(nodes, columns.cpu[nodes])
        useful = np.add.reduce(demand.useful(rows, columns.shares_of(nodes)), axis=0)
        self._now[nodes] = columns.idle[nodes] / WHOLE - useful - demand.gangs(rows, columns.whole[nodes])

    def saved_by_whole(self, seen: Candidates, gpus: int) -> Floats:
        """How many fewer GPUs are stranded on each of the nodes once a task took `gpus` whole devices."""
        columns, demand, nodes = self.columns, self.demand, seen.nodes
        rows, whole = demand.rows(nodes, seen.cpu), columns.whole[nodes]
        useful = np.add.reduce(demand.useful(rows, columns.shares_of(nodes)), axis=0)
        stranded = seen.gpus - useful
        if gpus:
            stranded[1] += gpus * demand.useful_whole(rows[1])
            whole = np.maximum(whole - ONLY_AFTER * gpus, 0)
        stranded -= demand.gangs(rows, whole)
        saved: Floats = stranded[0] - stranded[1]
        return saved

    def saved_by_share(self, seen: Candidates, shares: Ints, rest: Ints, need: Ints) -> Floats:
        """The same per device and node, for a task that took `need` of that one device; of no meaning where it does not
        fit. `shares`: what is free of each device, as `Columns.shares_of` tells it; `rest`: what would be."""
        columns, demand, nodes = self.columns, self.demand, seen.nodes
        rows, whole = demand.rows(nodes, seen.cpu), columns.whole[nodes]
        useful = demand.useful(rows, shares)
        sums, kept = np.add.reduce(useful, axis=0), demand.gangs(rows, whole)
        now = seen.gpus[0] - sums[0] - kept[0]
        node = (columns.idle[nodes] - need) / WHOLE - sums[1] - kept[1]
        opening = kept[1] - demand.gangs(rows[1], np.maximum(whole - 1, 0))
        stranded: Floats = useful[:, 1] - demand.useful(rows[1], rest)
        stranded += node
        stranded += (shares == WHOLE) * opening
        saved: Floats = now - stranded
        return saved


ONLY_AFTER = np.array([[0], [1]])
"""By the rows of `Candidates`: nothing of it as they are, all of it after one more task."""
