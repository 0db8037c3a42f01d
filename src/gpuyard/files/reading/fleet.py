"""Pools, nodes and queues: from entries to the model's values, with the checks that need more than one key.

Called by `snapshots`. Whether a name refers to something is checked here for what the fleet and the tree know
themselves: levels, islands, parents.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from gpuyard.files.data.gpu_models import architecture_of, memory_of
from gpuyard.files.format.entries import ClosureEntry, LoadEntry, NodeEntry, PoolEntry, QueueEntry
from gpuyard.files.problems import Path, Problems
from gpuyard.model.node import CORDONED, NO_LOAD, Closure, Gpu, Health, Load, Node, Pool, Taint
from gpuyard.model.outside.phrases import counted
from gpuyard.model.queue import DEFAULT, NO_LIMIT, ROOT, Queue
from gpuyard.model.resources import MIG_SLICES
from gpuyard.model.topology import IMPLIED_LEVELS, NODE

ONLY_QUEUE = Queue(name=DEFAULT, quota=NO_LIMIT)
"""The queue of a file that has none."""


def check_levels(levels: tuple[str, ...], problems: Problems) -> None:
    """The levels of the topology are those above the node."""
    for place, level in enumerate(levels):
        if level in IMPLIED_LEVELS:
            problems.add(("topology", place), f"topology names {level}, which is implied: leave it out")


def check_level(level: str, levels: Iterable[str], at: Path, problems: Problems) -> None:
    """A level that is named must exist; the empty one is no wish."""
    if level and level not in levels:
        known = ", ".join(levels)
        problems.add(at, f"there is no topology level {level} (there are: {known})", level, levels)


# --- pools and nodes -----------------------------------------------------------------------------


def pool_of(entry: PoolEntry, at: Path, levels: tuple[str, ...], problems: Problems) -> Pool:
    """A pool as the model holds it."""
    for level, _ in entry.max_busy:
        check_level(level, (*levels, NODE), (*at, "max_busy", level), problems)
    if entry.max_nodes and entry.min_nodes > entry.max_nodes:
        problems.add((*at, "min_nodes"), f"min_nodes is {entry.min_nodes}, more than max_nodes ({entry.max_nodes})")
    return Pool(entry.name, entry.price, entry.max_busy, entry.min_nodes, entry.max_nodes)


def node_of(entry: NodeEntry, at: Path, levels: tuple[str, ...], problems: Problems) -> Node:
    """A node as the model holds it; memory and architecture of a known model are filled in."""
    for level, _ in entry.domains:
        check_level(level, levels, (*at, "domains", level), problems)
    domains = dict(entry.domains)
    return Node(
        name=entry.name,
        pool=entry.pool,
        model=entry.model,
        architecture=entry.architecture or architecture_of(entry.model),
        gpu_memory=entry.gpu_memory or memory_of(entry.model),
        gpus=_gpus(entry, at, problems),
        cpu=entry.cpu,
        memory=entry.memory,
        domains=tuple((level, domains[level]) for level in levels if level in domains),
        labels=entry.labels,
        taints=tuple(Taint(taint.key, taint.value, taint.effect) for taint in entry.taints),
        closed=_closure(entry.closed) or (CORDONED if entry.cordoned is True else None),
        taken=_load(entry.taken) if entry.taken is not None else NO_LOAD,
        extras=tuple(sorted(entry.extras)),
        workloads=tuple(each.value for each in entry.workloads),
        alignment=entry.alignment,
    )


def in_pool(node: Node, pool: PoolEntry | None) -> Node:
    """The node with what it has from its pool; what it says itself stands."""
    if pool is None or not (pool.labels or pool.workloads):
        return node
    labels = tuple(sorted({**dict(pool.labels), **dict(node.labels)}.items()))
    return replace(node, labels=labels, workloads=node.workloads or tuple(each.value for each in pool.workloads))


def _closure(entry: ClosureEntry | None) -> Closure | None:
    return None if entry is None else Closure(entry.reason, entry.by, entry.drains, entry.force, entry.since)


def _closed_gpus(entry: NodeEntry, at: Path, problems: Problems) -> dict[int, Closure | None]:
    plain = entry.cordoned if isinstance(entry.cordoned, tuple) else ()
    for index in plain:
        _exists(index, entry, (*at, "cordoned"), problems)
    for index, _ in entry.closed_gpus:
        _exists(index, entry, (*at, "closed_gpus"), problems)
    return dict.fromkeys(plain, CORDONED) | {index: _closure(each) for index, each in entry.closed_gpus}


_PLAIN: dict[int, tuple[Gpu, ...]] = {}


def _gpus(entry: NodeEntry, at: Path, problems: Problems) -> tuple[Gpu, ...]:
    barred = entry.health or entry.unhealthy or entry.closed_gpus or isinstance(entry.cordoned, tuple)
    if not (entry.islands or entry.switches or entry.numa or barred or entry.mig or entry.uuids):
        # Most nodes are like this, and equal tuples need not be made ten thousand times.
        return _PLAIN.setdefault(entry.gpus, tuple(Gpu(index) for index in range(entry.gpus)))
    before = problems.count
    health, slices = _health(entry, at, problems), _slices(entry, at, problems)
    islands, switches, numa = (_parted(entry, key, at, problems) for key in ("islands", "switches", "numa"))
    closed = _closed_gpus(entry, at, problems)
    if entry.uuids and len(entry.uuids) != entry.gpus:
        problems.blame((*at, "uuids"), f"has {counted(entry.gpus, 'GPU')} but {counted(len(entry.uuids), 'uuid')}")
    known = [uuid for uuid in entry.uuids if uuid]
    if len(set(known)) < len(known):
        doubled = next(uuid for place, uuid in enumerate(known) if uuid in known[:place])
        problems.tell((*at, "uuids"), f"names {doubled} twice")
    if problems.count > before:
        return ()
    uuids = entry.uuids or ("",) * entry.gpus
    return tuple(
        Gpu(
            index,
            islands[index],
            health.get(index, Health.HEALTHY),
            slices.get(index),
            uuids[index],
            closed=closed.get(index),
            switch=switches[index],
            numa=numa[index],
        )
        for index in range(entry.gpus)
    )


def _load(entry: LoadEntry) -> Load:
    return Load(entry.cpu, entry.memory, tuple(sorted(entry.extras)))


def _exists(index: int, entry: NodeEntry, at: Path, problems: Problems) -> None:
    if index >= entry.gpus:
        problems.add(at, f"{at[2]} names GPU {index}, which does not exist: {gpus_there(entry.gpus)}")


def gpus_there(gpus: int) -> str:
    """The numbers that a node's GPUs have, in words."""
    return f"its GPUs are 0 to {gpus - 1}" if gpus > 1 else "its only GPU is 0" if gpus else "it has no GPUs"


def _parted(entry: NodeEntry, key: str, at: Path, problems: Problems) -> dict[int, int]:
    """GPU to island, or what else parts them; every GPU is in exactly one."""
    parts: tuple[tuple[int, ...], ...] = getattr(entry, key)
    if not parts:
        return dict.fromkeys(range(entry.gpus), 0)
    found: dict[int, int] = {}
    for number, part in enumerate(parts):
        for index in part:
            _exists(index, entry, (*at, key, number), problems)
            if index in found:
                problems.add((*at, key, number), f"{key} names GPU {index} twice")
            found[index] = number
    missing = [str(index) for index in range(entry.gpus) if index not in found]
    if missing:
        problems.add((*at, key), f"{key} leaves out GPU {', '.join(missing)}")
    return found


def _health(entry: NodeEntry, at: Path, problems: Problems) -> dict[int, Health]:
    health = dict(entry.health)
    for index in health:
        _exists(index, entry, (*at, "health"), problems)
    for index in entry.unhealthy:
        _exists(index, entry, (*at, "unhealthy"), problems)
        if health.setdefault(index, Health.SICK) is not Health.SICK:
            problems.add((*at, "unhealthy"), f"GPU {index} is both unhealthy and {health[index].value}")
    return health


def _slices(entry: NodeEntry, at: Path, problems: Problems) -> dict[int, tuple[str, ...]]:
    slices = {index: tuple(sorted(profiles)) for index, profiles in entry.mig}
    for index, profiles in slices.items():
        _exists(index, entry, (*at, "mig"), problems)
        cut = sum(int(profile[0]) for profile in profiles)
        if cut > MIG_SLICES:
            problems.add((*at, "mig"), f"mig cuts GPU {index} into {cut} parts, and a GPU has {MIG_SLICES}")
    return slices


# --- queues --------------------------------------------------------------------------------------


def queue_of(entry: QueueEntry, at: Path, problems: Problems) -> Queue:
    """A queue as the model holds it; the root, if the file gives it, has no parent."""
    parent = entry.parent
    if entry.name == ROOT:
        if parent != ROOT:
            problems.add((*at, "parent"), f"the root of the tree has no parent, and this one names {parent}")
        parent = ""
    return Queue(
        entry.name, parent, entry.quota, entry.limit, entry.weight, entry.priority, entry.users, entry.groups,
        entry.max_grace, entry.max_min_runtime, entry.max_time_limit,
    )  # fmt: skip


def check_tree(parents: Mapping[str, tuple[str, Path]], problems: Problems) -> None:
    """Every parent exists, and going up from anywhere ends at the root. `parents`: queue to (parent, its place)."""
    known = {*parents, ROOT}
    for parent, at in parents.values():
        if parent and parent not in known:
            problems.add((*at, "parent"), f"its parent {parent} does not exist", parent, known)
    settled = {ROOT, ""}
    for name, (_, at) in parents.items():
        trail = _upwards(name, parents, settled)
        if trail and trail[-1] in trail[:-1]:
            circle = trail[trail.index(trail[-1]) :]
            problems.add((*at, "parent"), f"the queue tree has a cycle: {' > '.join(circle)}")
        settled.update(trail)


def _upwards(name: str, parents: Mapping[str, tuple[str, Path]], settled: set[str]) -> list[str]:
    """The queues from here up to one already looked at, or round to one already passed."""
    trail: list[str] = []
    while name in parents and name not in settled:
        if name in trail:
            return [*trail, name]
        trail.append(name)
        name = parents[name][0]
    return trail
