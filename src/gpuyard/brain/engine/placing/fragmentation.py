"""How much of what is free is of use: stranded GPUs by the demand seen, the ratio, and what fits per shape (rule 25).

`measure` is asked by `yard frag` and the metrics, `follow_demand` by whoever opens a draft. What one node strands is
`nodes.stranding`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from gpuyard.brain.engine.nodes.columns import Bools, Columns, Ints
from gpuyard.brain.engine.nodes.demand import Floats, as_class, demand_known
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.model.answers.outlook import Fragmentation, PoolFragmentation, ShapeFit
from gpuyard.model.resources import WHOLE
from gpuyard.model.topology import NODE, NVLINK


def follow_demand(fleet: Fleet) -> None:
    """Measure by the demand as it is now; scores are thrown away only when it changed noticeably."""
    shapes = fleet.shapes
    if fleet.expected:
        if not shapes.gauge.demand.count:
            shapes.gauge.know(demand_known(shapes, fleet.expected, fleet.policy.demand))
            shapes.revalue()
        return
    if not fleet.seen.changed:
        return
    seen = fleet.seen.outline(shapes)
    if seen != shapes.gauge.outline:
        shapes.gauge.outline = seen
        shapes.gauge.know(tuple(as_class(shapes, each) for each in seen))
        shapes.revalue()


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
    """From the island outwards, without those that no node has: nobody can ask for room there."""
    borne = [name for name in columns.level_names[:-1] if columns.level(name).known.any()]
    return (NVLINK, NODE, *reversed(borne))


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
