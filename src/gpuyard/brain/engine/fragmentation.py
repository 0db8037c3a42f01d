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

from gpuyard.brain.engine.asks import Ask, has_model
from gpuyard.brain.engine.columns import Bools, Columns, Ints
from gpuyard.model.outlook import Fragmentation, PoolFragmentation, ShapeFit
from gpuyard.model.resources import WHOLE
from gpuyard.model.topology import NVLINK

if TYPE_CHECKING:
    from gpuyard.brain.engine.feasibility import Shapes
    from gpuyard.brain.engine.fleet import Fleet

Floats = npt.NDArray[np.float64]


class DemandClass(NamedTuple):
    """Tasks alike in GPUs, CPU and eligible nodes, and their weight in the demand (any unit)."""

    gpus: int
    share: int
    cpu: int
    eligible: Bools
    weight: float


class Demand:
    """The classes of GPU demand as arrays; popularity sums to 1."""

    def __init__(self, classes: Sequence[DemandClass]) -> None:
        total = sum(c.weight for c in classes) or 1.0
        self.count = len(classes)
        self.gpus = np.array([max(c.gpus, 1) for c in classes], dtype=np.int64)
        self.need = np.array([c.share or WHOLE for c in classes], dtype=np.int64)
        self.cpu = np.array([c.cpu for c in classes], dtype=np.int64)
        self.popularity = np.array([c.weight / total for c in classes])
        self.eligible = (
            np.array([c.eligible for c in classes], dtype=bool).T.copy() if classes else np.zeros((0, 0), bool)
        )
        self.fractional = bool((self.need < WHOLE).any()) if classes else False


COARSE = 32
"""Popularity is rounded to this many parts, so that one job more or less does not make every score stale."""


def demand_seen(shapes: Shapes, asks: Iterable[Ask], counts: Mapping[int, int]) -> tuple[DemandClass, ...]:
    """The demand as classes of tasks with GPUs, weighted by the GPUs they ask for; rare classes fall out."""
    groups: dict[tuple[object, ...], list[tuple[Ask, int]]] = {}
    for ask in asks:
        count = counts.get(ask.id, 0)
        if count > 0 and (ask.gpus or ask.request.shared):
            key = (ask.gpus, ask.request.share, ask.request.gpu_memory, ask.models, ask.min_gpu_memory,
                   ask.min_architecture)  # fmt: skip
            groups.setdefault(key, []).append((ask, count))
    weights = {key: sum(_gpus(shapes, ask) * count for ask, count in members) for key, members in groups.items()}
    total = sum(weights.values())
    classes = [_as_class(shapes, groups[key], round(COARSE * weight / total)) for key, weight in weights.items()]
    return tuple(sorted((c for c in classes if c.weight > 0), key=lambda c: c[:3]))


def _gpus(shapes: Shapes, ask: Ask) -> int:
    return ask.gpus * WHOLE or int(shapes.need(ask).min())


def _as_class(shapes: Shapes, members: Sequence[tuple[Ask, int]], weight: int) -> DemandClass:
    ask = members[0][0]
    tasks = sum(count for _, count in members)
    cores = round(sum(member.request.cpu * count for member, count in members) / tasks / 1000)
    share = 0 if ask.gpus else min(int(shapes.need(ask).min()), WHOLE)
    eligible = shapes.static(ask, (has_model,))
    return DemandClass(ask.gpus, share, cores * 1000, eligible, weight)


def follow_demand(fleet: Fleet) -> None:
    """Measure by the demand as it is now; scores are thrown away only when it changed noticeably."""
    seen = demand_seen(fleet.shapes, fleet.asks.values(), fleet.asked)
    if _outline(seen) != fleet.shapes.gauge.outline:
        fleet.shapes.gauge.outline = _outline(seen)
        fleet.shapes.gauge.demand = Demand(seen)
        fleet.shapes.revalue()


def _outline(classes: Sequence[DemandClass]) -> tuple[object, ...]:
    return tuple((c.gpus, c.share, c.cpu, c.weight, c.eligible.tobytes()) for c in classes)


class Gauge:
    """Expected stranded GPUs per node, for what is free and for what would be."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.demand = Demand(())
        self.outline: tuple[object, ...] = ()

    def stranded(self, nodes: Ints, whole: Ints, cpu: Ints, shares: Ints | None) -> Floats:
        """GPUs on each of `nodes` that the demand could not use if that much were free there.

        `shares` (free part per device) may be None where no device is in part used.
        """
        if not self.demand.count:
            return np.zeros(len(nodes))
        if shares is None:
            return self._of_whole(nodes, whole, cpu)
        return self._of_shares(nodes, shares, cpu)

    def _of_whole(self, nodes: Ints, whole: Ints, cpu: Ints) -> Floats:
        demand = self.demand
        served = (whole[:, None] >= demand.gpus) & (cpu[:, None] >= demand.cpu) & demand.eligible[nodes]
        stranded: Floats = whole * (1.0 - served @ demand.popularity)
        return stranded

    def _of_shares(self, nodes: Ints, shares: Ints, cpu: Ints) -> Floats:
        demand = self.demand
        enough = shares[:, :, None] >= demand.need
        served = (enough.sum(axis=1) >= demand.gpus) & (cpu[:, None] >= demand.cpu) & demand.eligible[nodes]
        idle = shares.sum(axis=1)
        too_small = np.where(enough, 0, shares[:, :, None]).sum(axis=1)
        lost = np.where(served, too_small, idle[:, None])
        stranded: Floats = (lost @ demand.popularity) / WHOLE
        return stranded

    def now(self, nodes: Ints) -> Floats:
        """GPUs stranded on each of `nodes` as they are."""
        columns = self.columns
        shares = columns.shares[nodes]
        return self.stranded(nodes, columns.whole[nodes], columns.cpu[nodes], shares)


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
