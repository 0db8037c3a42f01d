"""How much of what is free is of use: stranded GPUs by the demand seen, the ratio, and what fits per shape (rule 25).

`Gauge` is asked by scoring for every candidate node, `measure` by `yard frag` and the metrics.
The measure is FGD's: for each class of demand, the free GPUs of a node that class could not use, weighted by how
much of the demand that class is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from gpuyard.brain.engine.asks import Ask, has_labels, has_model
from gpuyard.brain.engine.columns import Bools, Columns, Ints
from gpuyard.model.outlook import Fragmentation, PoolFragmentation, ShapeFit
from gpuyard.model.policy import DemandView, Weigh
from gpuyard.model.resources import WHOLE
from gpuyard.model.topology import NVLINK

if TYPE_CHECKING:
    from gpuyard.brain.engine.feasibility import Shapes
    from gpuyard.brain.engine.fleet import Fleet

Floats = npt.NDArray[np.float64]


class DemandClass(NamedTuple):
    """Tasks alike in GPUs, CPU and eligible nodes, their weight in the demand and their number (any unit)."""

    gpus: int
    share: int
    cpu: int
    eligible: Bools
    weight: float
    tasks: float

    @property
    def asked(self) -> float:
        """GPUs that all its tasks ask for."""
        return self.tasks * (self.gpus or self.share / WHOLE)


class Demand:
    """The classes of demand as tables that answer, for any free part of a device, how much of the demand can use it.

    F = idle - sum of r * part[r] over devices - whole * gang[whole]: a fraction needs one device that is large enough,
    a task of k GPUs needs k whole ones, and both need the CPU. So a node is looked up, not compared with each class.
    Classes without GPUs use no device: they only make the others count for less, as FGD has it.
    """

    def __init__(self, classes: Sequence[DemandClass], width: int = 8) -> None:
        self.count = len(classes)
        self.fractional = any(c.share for c in classes)
        self.needs = np.array(sorted({c.share for c in classes if c.share}), dtype=np.int64)
        self.cpus = np.array(sorted({c.cpu for c in classes}), dtype=np.int64)
        self.cores_per_gpu = _cores_per_gpu(classes)
        eligible = np.array([c.eligible for c in classes], dtype=bool).T if classes else np.zeros((1, 0), bool)
        kinds: dict[bytes, int] = {}  # np.unique would do, but loads modules worth a hundred decisions
        self.group: Ints = np.array([kinds.setdefault(line.tobytes(), len(kinds)) for line in eligible], dtype=np.int64)
        """Which classes a node could serve at all: nodes of one group are alike in that."""
        patterns = np.array([np.frombuffer(kind, dtype=bool) for kind in kinds], dtype=bool).reshape(
            len(kinds), len(classes)
        )
        self._lay_tables(classes, patterns, width)
        self.part_of_grain = self.part / WHOLE

    def _lay_tables(self, classes: Sequence[DemandClass], patterns: Bools, width: int) -> None:
        total = sum(c.weight for c in classes) or 1.0
        self.part = np.zeros((len(patterns), len(self.cpus) + 1, len(self.needs) + 1))
        """Popularity of fractions served, by group, CPU thresholds met, sizes met."""
        self.gang = np.zeros((len(patterns), len(self.cpus) + 1, width + 1))
        """Popularity of whole-GPU tasks served, by group, CPU thresholds met, free devices."""
        for m, each in enumerate(classes):
            enough = 1 + int(np.searchsorted(self.cpus, each.cpu))
            groups = patterns[:, m]
            if each.share:
                self.part[groups, enough:, 1 + int(np.searchsorted(self.needs, each.share)) :] += each.weight / total
            elif each.gpus:
                self.gang[groups, enough:, each.gpus :] += each.weight / total

    def scarcity(self, classes: Sequence[DemandClass], gpus: Ints) -> Floats:
        """How much of each node's GPUs demand that cannot go everywhere would take, were the fleet full of demand."""
        everything, total = float(gpus.sum()), sum(c.asked for c in classes) or 1.0
        found = np.zeros(len(gpus))
        for each in classes:
            reach = float(gpus[each.eligible].sum())
            if 0 < reach < everything:
                found[each.eligible] += each.asked / total * everything / reach
        return found


def _cores_per_gpu(classes: Sequence[DemandClass]) -> float:
    gpus = sum(c.asked for c in classes)
    return sum(c.tasks * c.cpu for c in classes) / 1000 / gpus if gpus else 0.0


COARSE = 32
"""Popularity is rounded to this many parts, so that one job more or less does not make every score stale."""


Kind = tuple[object, ...]
"""What makes tasks one class of demand seen: their GPUs and the models they accept."""


class Outline(NamedTuple):
    """The demand seen, coarse: per kind an example, its weight in parts of COARSE, its tasks and their mean CPU."""

    kind: Kind
    ask: Ask
    weight: int
    cpu: int


def demand_seen(shapes: Shapes, asks: Iterable[Ask], counts: Mapping[int, int]) -> tuple[Outline, ...]:
    """The demand as classes of tasks with GPUs, weighted by the GPUs they ask for; rare classes fall out."""
    groups: dict[Kind, list[tuple[Ask, int]]] = {}
    for ask in asks:
        count = counts.get(ask.id, 0)
        if count > 0 and (ask.gpus or ask.request.shared):
            key = (ask.gpus, ask.request.share, ask.request.gpu_memory, ask.models, ask.min_gpu_memory,
                   ask.min_architecture, ask.node_selector, ask.affinity)  # fmt: skip
            groups.setdefault(key, []).append((ask, count))
    weights = {key: sum(_gpus(shapes, ask) * count for ask, count in members) for key, members in groups.items()}
    total = sum(weights.values())
    seen = [_outline(key, groups[key], round(COARSE * weight / total)) for key, weight in weights.items()]
    return tuple(each for each in seen if each.weight > 0)


def _outline(key: Kind, members: Sequence[tuple[Ask, int]], weight: int) -> Outline:
    tasks = sum(count for _, count in members)
    cores = round(sum(member.request.cpu * count for member, count in members) / tasks / 1000)
    return Outline(key, min((ask for ask, _ in members), key=lambda ask: ask.id), weight, cores * 1000)


def _gpus(shapes: Shapes, ask: Ask) -> int:
    return ask.gpus * WHOLE or int(shapes.need(ask).min())


def _as_class(shapes: Shapes, seen: Outline) -> DemandClass:
    return _class(shapes, seen.ask, seen.cpu, seen.weight, seen.weight / max(_gpus(shapes, seen.ask) / WHOLE, 1e-9))


def _class(shapes: Shapes, ask: Ask, cpu: int, weight: float, tasks: float) -> DemandClass:
    share = min(int(shapes.need(ask).min()), WHOLE) if ask.request.shared else 0
    return DemandClass(ask.gpus, share, cpu, shapes.static(ask, (has_model, has_labels)), weight, tasks)


def demand_known(shapes: Shapes, kinds: Sequence[tuple[Ask, float]], view: DemandView) -> tuple[DemandClass, ...]:
    """The demand somebody knows beforehand, as numbers of tasks per kind: the commonest kinds, CPU-only ones too."""
    total, seen, classes = sum(count for _, count in kinds), 0.0, []
    for ask, count in sorted(kinds, key=lambda kind: -kind[1]):
        if seen >= view.cover * total:
            break
        seen += count
        by_gpus = view.weigh is Weigh.GPUS and not ask.request.cpu_only
        weight = count * _gpus(shapes, ask) / WHOLE if by_gpus else count
        classes.append(_class(shapes, ask, ask.request.cpu, weight, count))
    return tuple(classes)


def follow_demand(fleet: Fleet) -> None:
    """Measure by the demand as it is now; scores are thrown away only when it changed noticeably."""
    shapes = fleet.shapes
    if fleet.expected:
        if not shapes.gauge.demand.count:
            shapes.gauge.know(demand_known(shapes, fleet.expected, fleet.policy.demand))
            shapes.revalue()
        return
    seen = demand_seen(shapes, fleet.asks.values(), fleet.asked)
    if seen != shapes.gauge.outline:
        shapes.gauge.outline = seen
        shapes.gauge.know(tuple(_as_class(shapes, each) for each in seen))
        shapes.revalue()


class Gauge:
    """Expected stranded GPUs per node, for what is free and for what would be."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.outline: tuple[object, ...] = ()
        self.know(())

    def know(self, classes: Sequence[DemandClass]) -> None:
        """Measure by this demand from now on."""
        self.demand = Demand(classes, self.columns.width)
        gpus = np.array([len(node.gpus) for node in self.columns.nodes], dtype=np.int64)
        self.scarcity = self.demand.scarcity(classes, gpus)
        self._now = np.zeros(len(gpus))
        self._seen = 0
        if self.demand.count and len(gpus):
            self._refresh(np.arange(len(gpus)))
        self._seen = len(self.columns.touched)

    def now(self, nodes: Ints) -> Floats:
        """GPUs stranded on each of `nodes` as they are."""
        touched = self.columns.touched
        if self._seen < len(touched):
            changed = self.columns.changed_since(self._seen)
            self._seen = len(touched)
            if self.demand.count:
                self._refresh(changed)
        found: Floats = self._now[nodes]
        return found

    def _refresh(self, nodes: Ints) -> None:
        columns = self.columns
        level = self._level(nodes, columns.cpu[nodes])
        useful = self._useful(level, columns.shares[nodes]).sum(axis=1)
        self._now[nodes] = columns.idle[nodes] / WHOLE - useful - self._gangs(level, columns.whole[nodes])

    def after_whole(self, nodes: Ints, gpus: int, cpu: Ints) -> Floats:
        """GPUs stranded on each of `nodes` once a task took `gpus` whole devices and left `cpu`."""
        columns = self.columns
        level = self._level(nodes, cpu)
        useful = self._useful(level, columns.shares[nodes]).sum(axis=1) - gpus * self.demand.part[(*level, -1)]
        left: Floats = columns.idle[nodes] / WHOLE - gpus - useful
        return left - self._gangs(level, np.maximum(columns.whole[nodes] - gpus, 0))

    def after_share(self, nodes: Ints, need: Ints, cpu: Ints) -> Floats:
        """The same per node and device, for a task that took `need` of that one device; inf where it does not fit."""
        columns, shares = self.columns, self.columns.shares[nodes]
        level = self._level(nodes, cpu)
        useful = self._useful(level, shares)
        rest = shares - need[:, None]
        useful = useful.sum(axis=1)[:, None] - useful + self._useful(level, np.maximum(rest, 0))
        whole = columns.whole[nodes]
        kept, opened = self._gangs(level, whole), self._gangs(level, np.maximum(whole - 1, 0))
        gangs = np.where(shares == WHOLE, opened[:, None], kept[:, None])
        left = ((columns.idle[nodes] - need) / WHOLE)[:, None] - useful - gangs
        stranded: Floats = np.where(rest >= 0, left, np.inf)
        return stranded

    def _level(self, nodes: Ints, cpu: Ints) -> tuple[Ints, Ints]:
        return self.demand.group[nodes], self.demand.cpus.searchsorted(cpu, side="right")

    def _useful(self, level: tuple[Ints, Ints], shares: Ints) -> Floats:
        """Per device, what fractions of the demand could use of it, weighted."""
        demand = self.demand
        if not demand.fractional:
            return np.zeros(shares.shape)
        sizes = demand.needs.searchsorted(shares, side="right")
        useful: Floats = shares * demand.part_of_grain[level[0][:, None], level[1][:, None], sizes]
        return useful

    def _gangs(self, level: tuple[Ints, Ints], whole: Ints) -> Floats:
        """Per node, what whole-GPU tasks of the demand could use of it, weighted."""
        useful: Floats = whole * self.demand.gang[level[0], level[1], whole]
        return useful


def stranded_now(fleet: Fleet) -> float:
    """GPUs that lie free where the demand cannot use them."""
    return float(fleet.shapes.gauge.now(np.arange(len(fleet.columns.nodes))).sum())


# --- rule 25: the report ----------------------------------------------------------------------------------------------


def measure(fleet: Fleet, requested: int, served: int) -> Fragmentation:
    """The report. `requested`: GPUs that entitled jobs wait for and the free count could serve; `served`: those of
    them that some placement can serve."""
    columns = fleet.columns
    everyone = np.arange(len(columns.nodes))
    stranded = fleet.shapes.gauge.now(everyone) * WHOLE if len(everyone) else np.zeros(0)
    pools = tuple(_pool(columns, name, members, stranded) for name, members in _pools(columns))
    return Fragmentation(
        ratio=round(1 - served / requested, 6) if requested else 0.0,
        free=int(columns.idle.sum()),
        stranded=round(stranded.sum()),
        largest_gang=_largest(columns, np.ones(len(everyone), dtype=bool)),
        shapes=_total(pools),
        pools=pools,
    )


def _pools(columns: Columns) -> list[tuple[str, Bools]]:
    """Pools by name; nodes without one go by their model, for hardware is never mixed."""
    names = np.array([node.pool or node.model for node in columns.nodes if node.gpus], dtype=object)
    with_gpus = np.array([bool(node.gpus) for node in columns.nodes], dtype=bool)
    found = []
    for name in sorted(set(names)):
        members = np.zeros(len(columns.nodes), dtype=bool)
        members[np.flatnonzero(with_gpus)] = names == name
        found.append((name, members))
    return found


def _pool(columns: Columns, name: str, members: Bools, stranded: Floats) -> PoolFragmentation:
    gpus = sum(len(columns.nodes[i].gpus) for i in np.flatnonzero(members))
    return PoolFragmentation(
        name=name,
        gpus=gpus * WHOLE,
        free=int(columns.idle[members].sum()),
        stranded=round(stranded[members].sum()),
        largest_gang=_largest(columns, members),
        shapes=_shapes(columns, members),
    )


def _levels(columns: Columns) -> tuple[str, ...]:
    """From the island outwards."""
    return (NVLINK, *reversed(columns.level_names))


def _largest(columns: Columns, members: Bools) -> tuple[tuple[str, int], ...]:
    return tuple((level, int(_free_per(columns, members, level).max(initial=0))) for level in _levels(columns))


def _free_per(columns: Columns, members: Bools, level: str) -> Ints:
    """Free whole GPUs per domain of the level, among the members."""
    whole = np.where(members, columns.whole, 0)
    if level == NVLINK:
        return _per_island(columns, members, columns.free_mask)
    domains = columns.level(level)
    return np.bincount(domains.domain, weights=whole, minlength=len(domains.names)).astype(np.int64)


def _capacity_per(columns: Columns, members: Bools, level: str) -> Ints:
    """Usable GPUs per domain of the level, free or not."""
    if level == NVLINK:
        return _per_island(columns, members, columns.usable)
    usable = np.array([mask.bit_count() for mask in columns.usable], dtype=np.int64)
    domains = columns.level(level)
    return np.bincount(domains.domain, weights=np.where(members, usable, 0), minlength=len(domains.names)).astype(
        np.int64
    )


def _per_island(columns: Columns, members: Bools, masks: Sequence[int]) -> Ints:
    nodes = np.flatnonzero(members)
    counts = [(mask & masks[int(n)]).bit_count() for n in nodes for mask in columns.islands[int(n)]]
    return np.array(counts, dtype=np.int64)


def _shapes(columns: Columns, members: Bools) -> tuple[ShapeFit, ...]:
    found = []
    for level in _levels(columns):
        free, capacity = _free_per(columns, members, level), _capacity_per(columns, members, level)
        size = 1
        while size <= capacity.max(initial=0):
            now = int((free // size).sum())
            found.append(ShapeFit(size, level, now, max(now, if_packed(int(free.sum()), capacity, size))))
            size *= 2
    return tuple(found)


def if_packed(free: int, capacity: Iterable[int], size: int) -> int:
    """How many would fit if what runs were pushed together so that the largest domains fall free first."""
    count = 0
    for room in sorted((int(c) for c in capacity), reverse=True):
        take = min(room, free)
        count += take // size
        free -= take
    return count


def _total(pools: Sequence[PoolFragmentation]) -> tuple[ShapeFit, ...]:
    total: dict[tuple[str, int], tuple[int, int]] = {}
    for fit in (fit for pool in pools for fit in pool.shapes):
        now, packed = total.get((fit.level, fit.gpus), (0, 0))
        total[fit.level, fit.gpus] = (now + fit.now, packed + fit.packed)
    return tuple(ShapeFit(gpus, level, now, packed) for (level, gpus), (now, packed) in total.items())
