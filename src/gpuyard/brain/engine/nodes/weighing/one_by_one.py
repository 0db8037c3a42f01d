"""How good one node is for the next task, in plain numbers: what `scoring.pack` says, to the bit.

Asked by `feasibility.Shape` where few nodes changed: there NumPy costs what its hundred calls cost, however few nodes
they are about. What is known of a node as it is serves every kind of task, until the node changes.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import count
from math import floor, sqrt

import numpy as np

from gpuyard.brain.engine.nodes.columns import Columns
from gpuyard.brain.engine.nodes.demand import GRAINS_PER_STEP, Demand
from gpuyard.brain.engine.nodes.stranding import Gauge
from gpuyard.brain.engine.nodes.weighing.scoring import Subject, proportion_of
from gpuyard.model.policy import Curve, DeviceChoice, Scoring
from gpuyard.model.resources import UNLIMITED, WHOLE

STATES_KEPT = 1 << 14
"""States of nodes that are remembered; when there are more, all are forgotten."""
_counting = count(1)


class Tables:
    """The demand's tables as lists: a number out of a list costs a tenth of one out of an array."""

    def __init__(self, demand: Demand) -> None:
        self.cpus: list[int] = demand.cpus.tolist()
        self.needs: list[int] = demand.needs.tolist()
        self.first_row: list[int] = demand.first_row.tolist()
        self.part_of_grain: list[float] = demand.part_of_grain.tolist()
        self.whole_of_row: list[float] = demand.whole_of_row.tolist()
        self.gang_worth: list[float] = demand.gang_worth.tolist()
        self.worth: list[float] = demand.remainders.tolist()
        self.sizes = len(self.needs) + 1
        self.wholes: int = demand.gang.shape[2]

    def useful(self, row: int, share: int) -> float:
        """What fractions could use of a device with so much free, weighted."""
        return share * self.part_of_grain[bisect_right(self.needs, share) + row * self.sizes]

    def useful_whole(self, row: int) -> float:
        """The same of a device that is wholly free."""
        return self.whole_of_row[row]

    def gangs(self, row: int, whole: int) -> float:
        """What whole-GPU tasks could use of a node with so many devices wholly free, weighted."""
        return self.gang_worth[row * self.wholes + whole]


class AsItIs:
    """One node as it is, as far as scores depend on it, whichever task is asked about."""

    __slots__ = ("cpu", "gpus", "idle", "row", "shares", "strain", "stranded", "useful", "whole")

    def __init__(self, known: KnownNodes, n: int) -> None:
        columns, tables = known.columns, known.tables
        self.shares: list[int] = columns.shares[n].tolist()
        self.cpu, self.idle, self.whole = int(columns.cpu[n]), int(columns.idle[n]), int(columns.whole[n])
        self.gpus = self.idle / WHOLE
        self.strain = known.strain(self.cpu, self.gpus)
        if known.demand.count:
            self.row = tables.first_row[n]
            self.useful = known.useful(self.row, self.shares)
            """What fractions could use of all its devices, by CPU thresholds met: added up in the order of columns."""
            met = bisect_right(tables.cpus, self.cpu)
            self.stranded: float = self.gpus - self.useful[met] - tables.gangs(self.row + met, self.whole)


class KnownNodes:
    """Nodes as they are. One that changes is forgotten; with the demand all are."""

    def __init__(self, columns: Columns, gauge: Gauge, scoring: Scoring) -> None:
        self.columns = columns
        self.demand = gauge.demand
        self.tables = Tables(gauge.demand)
        self._lean, self._full, self._mix, varies = proportion_of(gauge, scoring)
        self._corner = (scoring.spread * varies) ** 2
        self._groups: list[int] = gauge.demand.group.tolist()
        """Which classes of demand each node could serve at all: labels reach the scores through it alone."""
        self._nodes: dict[int, AsItIs] = {}
        self._states: dict[int, int] = {}
        self._numbers: dict[object, int] = {}
        self._useful: dict[tuple[int, ...], list[float]] = {}
        self._seen = columns.version

    def node(self, n: int) -> AsItIs:
        """The node as it is."""
        self._follow()
        found = self._nodes.get(n)
        if found is None:
            found = self._nodes[n] = AsItIs(self, n)
        return found

    def useful(self, first_row: int, shares: list[int]) -> list[float]:
        """What fractions could use of devices with so much free: the same for nodes used alike, and for one of
        which CPU alone was taken."""
        alike = (first_row, *shares)
        found = self._useful.get(alike)
        if found is None:
            if len(self._useful) >= STATES_KEPT:
                self._useful.clear()
            found = self._useful[alike] = self.demand.useful_by_cpu(first_row, np.array(shares, np.int64)).tolist()
        return found

    def state(self, n: int) -> int:
        """Equal for nodes that are as good as each other for any task, its memory, extras and likes aside: there what
        was worked out for one is true of the other. No number is given twice."""
        self._follow()
        found = self._states.get(n)
        if found is None:
            found = self._states[n] = self._number((self._groups[n] if self.demand.count else 0, self.columns.state(n)))
        return found

    def _number(self, state: object) -> int:
        found = self._numbers.get(state)
        if found is None:
            if len(self._numbers) >= STATES_KEPT:
                self._numbers.clear()
            found = self._numbers[state] = next(_counting)
        return found

    def _follow(self) -> None:
        version = self.columns.version
        if self._seen != version:
            for changed in self.columns.touched.since(self._seen):
                self._nodes.pop(changed, None)
                self._states.pop(changed, None)
            self._seen = version

    def strain(self, cpu: int, idle: float) -> float:
        """`Proportion.strain`; nothing where nobody asks for CPU beside GPUs."""
        if self._lean <= 0:
            return 0.0
        corner, mix = self._corner * abs(idle), self._mix
        lean = full = 0.0
        if mix != 1.0:
            lack = idle - cpu / self._lean
            lean = (1.0 - mix) * sqrt(lack * lack + corner)
        if mix:
            lack = idle - cpu / self._full
            full = mix * sqrt(lack * lack + corner)
        return lean + full


def can_weigh(shape: Subject) -> bool:
    """Whether plain numbers say all that columns would. Not of slices, extras or NUMA nodes, which are rare; nor by the
    one curve whose last bit is NumPy's own."""
    request, columns = shape.request, shape.columns
    rare = request.resources.mig or request.resources.extras or (columns.aligned and request.aligns)
    return not rare and shape.scoring.curve is Curve.LINEAR


def room(shape: Subject, n: int, plenty: int) -> int:
    """How many more such tasks the node has room for; `plenty` where they ask for nothing."""
    columns, resources = shape.columns, shape.request.resources
    found = plenty
    if resources.cpu:
        found = min(found, int(columns.cpu[n]) // resources.cpu)
    if resources.memory:
        found = min(found, int(columns.memory[n]) // resources.memory)
    if found > 0 and resources.gpus:
        free = columns.healthy if shape.careful else columns.whole
        found = min(found, int(free[n]) // resources.gpus)
    elif found > 0 and shape.request.shared:
        shares = columns.shares[n] * columns.trusted[n] if shape.careful else columns.shares[n]
        need = int(shape.need[n])
        found = min(found, sum([share // need for share in shares.tolist()]))
    return max(found, 0)


def pack(shape: Subject, known: KnownNodes, n: int) -> float:
    """The packing score of a node that has room for one more task of the shape; terms and their order are those of
    `scoring.pack`."""
    weights, columns, resources = shape.weights, shape.columns, shape.request.resources
    node, gpus = known.node(n), resources.gpus
    cpu, idle = node.cpu - resources.cpu, node.gpus - _asked(shape, n)
    score = weights.tightness * _tightness(shape, cpu, idle) if weights.tightness else 0.0
    if shape.request.shared:
        score += _best_part(shape, known, n, cpu)
    elif weights.fragmentation and known.demand.count:
        score += weights.fragmentation * _curved(shape, _saved_by_whole(known.tables, node, cpu, idle, gpus))
    if weights.island and gpus > 1:
        best = columns.island_healthy if shape.careful else columns.island
        score += weights.island * min(int(best[n]) / gpus, 1.0)
    if weights.snug and gpus and columns.several_islands:
        left = int(columns.tightest[n, min(gpus, columns.width)]) - gpus
        score += weights.snug * (1.0 - left / columns.breadth)
    if columns.any_suspect and not shape.careful:
        trust = 1.0 if resources.cpu_only else min(int(columns.healthy[n]) / max(gpus, 1), 1.0)
        score += weights.health * trust
    if shape.is_choosy:
        score -= weights.taste * float(shape.dislike[n])
    if weights.cpu_tightness:
        score += weights.cpu_tightness * _cpu_tightness(shape, cpu)
    if weights.balance and shape.gauge.proportion.matters:
        worse = known.strain(cpu, idle) - node.strain if node.cpu < UNLIMITED // 2 else 0.0
        score += weights.balance * (0.5 - worse / (2 * columns.breadth))
    if shape.has_choice and shape.spares is not None:
        score += float(shape.spares[n])
    return _rounded(score, shape.scoring.steps)


def _asked(shape: Subject, n: int) -> float:
    resources = shape.request.resources
    return int(shape.need[n]) / WHOLE if resources.gpu_memory else resources.gpus or resources.share / WHOLE


def _rounded(score: float, steps: int) -> float:
    return floor(score * steps) / steps if steps else score


def _curved(shape: Subject, gain: float) -> float:
    return 0.5 + gain / (2 * shape.columns.breadth)


def _tightness(shape: Subject, cpu: int, idle: float) -> float:
    score = 1.0 - idle / shape.columns.breadth
    if shape.request.resources.cpu_only and not shape.weights.cpu_tightness:
        return 0.5 * score + 0.5 * _cpu_tightness(shape, cpu)
    return score


def _cpu_tightness(shape: Subject, cpu: int) -> float:
    return 1.0 - min(max(cpu / shape.columns.cpu_width, 0.0), 1.0)


def _saved_by_whole(tables: Tables, node: AsItIs, cpu: int, idle: float, gpus: int) -> float:
    met = bisect_right(tables.cpus, cpu)
    row = node.row + met
    stranded = idle - node.useful[met]
    if gpus:
        stranded += gpus * tables.useful_whole(row)
    stranded -= tables.gangs(row, max(node.whole - gpus, 0))
    return node.stranded - stranded


def _best_part(shape: Subject, known: KnownNodes, n: int, cpu: int) -> float:
    """By the device that the policy would take, of those that hold the task's share; the shape notes the best."""
    node, need = known.node(n), int(shape.need[n])
    fitting = [share for share in node.shares if share >= need]
    gains = _gains(shape, known, node, need, cpu, set(fitting))
    if shape.scoring.device is not DeviceChoice.BEST:
        return gains[min(fitting)]
    best = max(fitting, key=lambda share: _rounded(gains[share], shape.scoring.steps))
    shape.device[n] = node.shares.index(best)
    return max(0.0, *gains.values())


def _gains(shape: Subject, known: KnownNodes, node: AsItIs, need: int, cpu: int, shares: set[int]) -> dict[int, float]:
    """What taking the task's share of a device is worth, by how much of that device is free."""
    weights, tables, breadth = shape.weights, known.tables, shape.columns.breadth
    measured = weights.fragmentation and known.demand.count
    met = bisect_right(tables.cpus, cpu) if measured else 0
    row = node.row + met if measured else 0
    kept = tables.gangs(row, node.whole) if measured else 0.0
    rest = (node.idle - need) / WHOLE - node.useful[met] - kept if measured else 0.0
    found = {}
    for share in shares:
        gain = weights.sharing if weights.sharing and share < WHOLE else 0.0
        if measured:
            stranded = tables.useful(row, share) - tables.useful(row, share - need) + rest
            if share == WHOLE:
                stranded += kept - tables.gangs(row, max(node.whole - 1, 0))
            gain += weights.fragmentation * max(_curved(shape, node.stranded - stranded), 0.0)
        if weights.remainders and known.demand.count:
            lost = tables.worth[share // GRAINS_PER_STEP] - tables.worth[(share - need) // GRAINS_PER_STEP]
            gain += weights.remainders * (0.5 - lost / (2 * breadth))
        found[share] = gain
    return found
