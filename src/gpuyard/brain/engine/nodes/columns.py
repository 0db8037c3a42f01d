"""The nodes of the fleet as NumPy columns: what is free where, and where each node stands in the topology.

Owned by `Fleet`; changed only by `shift`, whose two directions are exact inverses. Nodes are ordered by their path
through the topology, then by name, so that every domain of every level is one contiguous slice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpuyard.brain.engine.nodes.extras import ExtraColumns
from gpuyard.brain.engine.nodes.layout import alignment, device_masks
from gpuyard.brain.engine.nodes.touch_log import TouchLog
from gpuyard.model.node import Gpu, Node
from gpuyard.model.resources import UNLIMITED, WHOLE, Extras
from gpuyard.model.topology import NODE

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


FEW = 8
"""Up to so many nodes are brought up to date one by one: there columns cost more than they save."""


class Held(NamedTuple):
    """What one task holds on a node: whole devices (`share` 0), a share of one, MIG slices, or none."""

    leaf: int
    task: int
    node: int
    gpus: tuple[int, ...]
    share: int = 0
    mig: tuple[str, ...] = ()
    cost: int = 0
    cpu: int = 0
    memory: int = 0
    terminating: bool = False
    extras: Extras = ()


class Region(NamedTuple):
    """A slice of the node order, and the NVLink island inside it if it is narrower than a node (-1: not)."""

    start: int
    stop: int
    island: int = -1


def within(inner: Region, outer: Region) -> Region:
    """The part of `inner` that lies in `outer`; both are domains, so one holds the other or they part."""
    island = inner.island if inner.island >= 0 else outer.island
    return Region(max(inner.start, outer.start), max(min(inner.stop, outer.stop), inner.start, outer.start), island)


class Level:
    """One named level: which domain each node is in, and each domain's slice of the node order."""

    __slots__ = ("domain", "known", "name", "names", "starts", "stops")

    def __init__(self, name: str, paths: Sequence[tuple[str, ...]]) -> None:
        self.name = name
        starts = [i for i, path in enumerate(paths) if i == 0 or path != paths[i - 1]]
        self.starts = np.array(starts, dtype=np.int64)
        self.stops = np.array([*starts[1:], len(paths)], dtype=np.int64)
        self.domain = np.repeat(np.arange(len(starts)), self.stops - self.starts)
        self.names = [paths[i][-1] for i in starts]
        self.known = np.array([bool(name) for name in self.names], dtype=bool)
        """Nodes without a value for the level form a domain nobody can require."""

    def region(self, domain: int) -> Region:
        """The domain's slice of the node order."""
        return Region(int(self.starts[domain]), int(self.stops[domain]))


class GpuFacts(NamedTuple):
    """What a set of free devices amounts to: counts, and the most in one island; `healthy` leaves suspects out."""

    whole: int
    healthy: int
    island: int
    island_healthy: int


class Columns:
    """Free resources and places of all nodes. Integers only, so that undoing is exact."""

    def __init__(self, nodes: Iterable[Node], levels: Sequence[str]) -> None:
        self.nodes = sorted(nodes, key=lambda node: (_path(node, levels), node.name))
        self.index = {node.name: i for i, node in enumerate(self.nodes)}
        self.everywhere = Region(0, len(self.nodes))
        """All nodes."""
        self.levels = _levels(self.nodes, levels)
        self.level_names = (*levels, NODE)
        self.parting = (*(name for name in levels if len(self.levels[name].names) > 1), NODE)
        """Levels of which all nodes together are more than one domain; each node is one."""
        self.touched = TouchLog(len(self.nodes))
        self.kind: list[int] = [0] * len(self.nodes)
        """Nodes alike in all that checkers can see, labels aside; told by `Eligibility`."""
        self._facts: dict[tuple[int, int, int], GpuFacts] = {}
        self._layouts: dict[tuple[int, ...], int] = {}
        self._lay_statics()
        self._lay_free()

    def _lay_statics(self) -> None:
        nodes = self.nodes
        models = sorted({node.model for node in nodes})
        self.models = models
        model_ids = {model: i for i, model in enumerate(models)}
        self.model = np.array([model_ids[node.model] for node in nodes], dtype=np.int64)
        self.width = max((len(node.gpus) for node in nodes), default=0)
        self.breadth = max(self.width, 1)
        """What GPUs of a node are told as a share of."""
        devices = device_masks.masks_of(nodes)
        self.islands = [masks.islands for masks in devices]
        self.grades = [masks.grades for masks in devices]
        """What of a node is near to each other, nearest first: NVLink islands, PCIe switches, NUMA nodes."""
        self.layout = [self._layouts.setdefault(masks, len(self._layouts)) for masks in self.islands]
        self.island_masks = list(self._layouts)
        self.usable = [masks.usable for masks in devices]
        self.sliced = [masks.sliced for masks in devices]
        self.suspect = [masks.suspect for masks in devices]
        self.any_suspect = any(self.suspect)
        self.barred = {n for n, masks in enumerate(devices) if not masks.sound}
        """Nodes with a device that is sick or closed."""
        self.aligned = {n: found for n, node in enumerate(nodes) if (found := alignment.aligned_of(node)) is not None}
        """Nodes whose kubelet insists on NUMA nodes; most fleets have none."""
        self._lay_cpu_width()
        sliced = (node for node, masks in zip(nodes, devices, strict=True) if masks.sliced)
        self.profiles = sorted({p for node in sliced for gpu in node.gpus for p in gpu.slices or ()})

    def _lay_cpu_width(self) -> None:
        self.every_cpu_known = all(node.cpu < UNLIMITED // 2 for node in self.nodes)
        self.cpu_width = max((node.cpu for node in self.nodes if node.cpu < UNLIMITED), default=0) or 1
        """What CPU of a node is told as a share of: the most that any node is known to have."""

    def _lay_free(self) -> None:
        count = len(self.nodes)
        self.busy = [0] * count
        self.used = [[0] * len(node.gpus) for node in self.nodes]
        self.free_mask = list(self.usable)
        self.cpu = np.array([node.cpu - node.taken.cpu for node in self.nodes], dtype=np.int64)
        self.memory = np.array([node.memory - node.taken.memory for node in self.nodes], dtype=np.int64)
        self.extras = ExtraColumns(self.nodes)
        self.shares = np.zeros((count, self.width), dtype=np.int64)
        self.idle = np.zeros(count, dtype=np.int64)
        self.trusted = np.ones((count, self.width), dtype=np.int64)
        self.whole, self.healthy, self.island, self.island_healthy = (np.zeros(count, dtype=np.int64) for _ in range(4))
        self.several_islands = any(len(masks) > 1 for masks in self.islands)
        self.tightest = np.zeros((count, self.width + 1), dtype=np.int64)
        """Free devices in the tightest island that holds k, per node and k; kept only where nodes have several."""
        self.opened = np.zeros(count, dtype=np.int64)
        """Devices in use, shared and sliced ones included."""
        self.slices = {profile: np.zeros(count, dtype=np.int64) for profile in self.profiles}
        self.free_slices = [_free_slices(node) for node in self.nodes]
        self.idle_total = self.whole_total = 0
        """Free GPUs of all nodes in grains, and devices of which nothing is in use."""
        self._derive(list(range(count)))

    def _derive(self, nodes: list[int]) -> None:
        """Everything about these nodes that follows from what is used there, in one step."""
        if not nodes:
            return
        at = np.array(nodes, dtype=np.int64)
        facts = [self._free_up(n) for n in nodes]
        self.whole_total -= int(self.whole[at].sum())
        self.whole[at], self.healthy[at], self.island[at], self.island_healthy[at] = np.array(facts, dtype=np.int64).T
        self.whole_total += int(self.whole[at].sum())
        self.opened[at] = [self.busy[n].bit_count() for n in nodes]
        if self.several_islands:
            self.tightest[at] = [_tightest(self.islands[n], self.free_mask[n], self.width) for n in nodes]
        used = np.array([self.used[n] + [0] * (self.width - len(self.used[n])) for n in nodes], dtype=np.int64)
        used = used.reshape(len(nodes), self.width)
        self.shares[at] = (WHOLE - np.minimum(used, WHOLE)) * self._bits(self.usable, nodes)
        self.trusted[at] = 1 - self._bits(self.suspect, nodes)
        self.idle_total -= int(self.idle[at].sum())
        self.idle[at] = self.shares[at].sum(axis=1)
        self.idle_total += int(self.idle[at].sum())
        for profile, free in self.slices.items():
            free[at] = [self._slices_on(n, profile) for n in nodes]

    def _free_up(self, n: int) -> GpuFacts:
        """Busy and free devices anew, and what they amount to."""
        self.busy[n] = sum(1 << g for g, used in enumerate(self.used[n]) if used)
        free = self.free_mask[n] = self.usable[n] & ~self.busy[n]
        return self._facts_of(n, free)

    def _bits(self, masks: Sequence[int], nodes: Sequence[int]) -> Ints:
        """One column per device: 1 where its bit is set."""
        column = np.array([masks[n] for n in nodes], dtype=np.int64)[:, None]
        bits: Ints = column >> np.arange(self.width) & 1
        return bits

    def _slices_on(self, n: int, profile: str) -> int:
        free = self.free_slices[n].items()
        return sum(count for (g, name), count in free if name == profile and self.usable_slice(n, g))

    def shares_of(self, nodes: Ints) -> Ints:
        """What is free of each device of these nodes: a row per device, for NumPy adds up a few long rows several times
        faster than many short ones."""
        return np.ascontiguousarray(self.shares.take(nodes, axis=0).T)

    # --- change ---------------------------------------------------------------------------------------------------

    def shift(self, held: Held, sign: int) -> None:
        """Take what `held` says from its node (sign 1), or give it back (sign -1); the two are exact inverses."""
        if held.cpu or held.memory or held.extras:
            self._shift_beside(held, sign)
        if held.mig:
            self._shift_slices(held, sign)
        elif held.gpus:
            self._shift_devices(held, sign)
        self.touched.note(held.node)

    def shift_all(self, changes: Iterable[tuple[int, Held]]) -> None:
        """All of them at once: the same columns as one `shift` after the other."""
        changed: set[int] = set()
        for sign, held in changes:
            changed.add(held.node)
            if held.cpu or held.memory or held.extras:
                self._shift_beside(held, sign)
            if held.mig:
                self._shift_slices(held, sign)
            else:
                used, amount = self.used[held.node], _taken(held, sign)
                for g in held.gpus:
                    used[g] = used[g] + amount if used[g] else amount
        nodes = sorted(changed)
        if len(nodes) > FEW or self.profiles:
            self._derive(nodes)
        else:
            for n in nodes:
                self._follow(n)
        self.touched.note_all(nodes)

    def _shift_beside(self, held: Held, sign: int) -> None:
        """What a task takes beside its devices."""
        n = held.node
        if held.cpu:
            self.cpu[n] -= sign * held.cpu
        if held.memory:
            self.memory[n] -= sign * held.memory
        if held.extras:
            self.extras.shift(n, held.extras, sign)

    def _follow(self, n: int) -> None:
        """What `_derive` does, for one node."""
        used, usable = self.used[n], self.usable[n]
        self.busy[n] = sum(1 << g for g, amount in enumerate(used) if amount)
        shares = [left(amount) if usable >> g & 1 else 0 for g, amount in enumerate(used)]
        self.shares[n, : len(shares)] = shares
        idle = sum(shares)
        self.idle_total += idle - int(self.idle[n])
        self.idle[n] = idle
        self._sync(n)

    def change(self, n: int, node: Node) -> None:
        """The same node in another condition: health, closures, labels, taints, CPU and memory; what runs there stays.

        Its name, its place in the topology, its model and its devices are as they were.
        """
        old, self.nodes[n] = self.nodes[n], node
        self.cpu[n] += (node.cpu - node.taken.cpu) - (old.cpu - old.taken.cpu)
        self.memory[n] += (node.memory - node.taken.memory) - (old.memory - old.taken.memory)
        self.extras.change(n, old, node)
        if node.gpus is not old.gpus:
            self.usable[n] = device_masks.usable(node.gpus)
            self.suspect[n] = device_masks.suspect(node.gpus)
            self.any_suspect = bool(self.suspect[n]) or any(self.suspect)
            self._bar(n, node)
            self._derive([n])
        if node.cpu != old.cpu:
            self._lay_cpu_width()
        self.touched.note(n)

    def _bar(self, n: int, node: Node) -> None:
        if all(gpu.usable for gpu in node.gpus):
            self.barred.discard(n)
        else:
            self.barred.add(n)

    def _shift_devices(self, held: Held, sign: int) -> None:
        n, amount = held.node, _taken(held, sign)
        used, busy, usable = self.used[n], self.busy[n], self.usable[n]
        freed = 0
        for g in held.gpus:
            before = used[g]
            used[g] = after = before + amount if before else amount
            busy = busy | 1 << g if after else busy & ~(1 << g)
            if usable >> g & 1:
                given = left(after) - left(before)
                self.shares[n, g] += given
                freed += given
        if freed:
            self.idle[n] += freed
            self.idle_total += freed
        if busy != self.busy[n]:  # who joins others on a device leaves as many free as there were
            self.busy[n] = busy
            self._sync(n)

    def _shift_slices(self, held: Held, sign: int) -> None:
        n, free = held.node, self.free_slices[held.node]
        for g, profile in zip(held.gpus, held.mig, strict=True):
            free[g, profile] -= sign
            if self.usable_slice(n, g):
                self.slices[profile][n] -= sign
            used = self.used[n]
            used[g] += sign
            self.busy[n] = self.busy[n] | 1 << g if used[g] else self.busy[n] & ~(1 << g)
        self.opened[n] = self.busy[n].bit_count()

    def usable_slice(self, n: int, g: int) -> bool:
        """Whether slices of this device may be given out at all."""
        return self.nodes[n].gpus[g].usable

    def _sync_share(self, n: int, g: int) -> None:
        self.shares[n, g] = left(self.used[n][g]) if self.usable[n] >> g & 1 else 0

    def _sync(self, n: int) -> None:
        free = self.usable[n] & ~self.busy[n]
        self.free_mask[n] = free
        facts = self._facts_of(n, free)
        self.whole_total += facts.whole - int(self.whole[n])
        self.whole[n], self.healthy[n], self.island[n], self.island_healthy[n] = facts
        self.opened[n] = self.busy[n].bit_count()
        if self.several_islands:
            self.tightest[n] = _tightest(self.islands[n], free, self.width)

    def _facts_of(self, n: int, free: int) -> GpuFacts:
        suspect = self.suspect[n] & free
        key = (self.layout[n], free, suspect)
        facts = self._facts.get(key)
        if facts is None:
            healthy = free & ~suspect
            masks = self.islands[n]
            facts = self._facts[key] = GpuFacts(
                free.bit_count(),
                healthy.bit_count(),
                max(((mask & free).bit_count() for mask in masks), default=0),
                max(((mask & healthy).bit_count() for mask in masks), default=0),
            )
        return facts

    # --- look -----------------------------------------------------------------------------------------------------

    def slices_of(self, profile: str) -> Ints:
        """Free slices of a profile per node; none where nobody has it."""
        found = self.slices.get(profile)
        return np.zeros(len(self.nodes), dtype=np.int64) if found is None else found

    def idle_with(self, which: Barred) -> Ints:
        """GPUs that would be free per node if those barred devices could be used, in grains."""
        idle = self.idle.copy()
        for n in self.barred:
            for gpu in self.nodes[n].gpus:
                if which(gpu) and gpu.slices is None:
                    idle[n] += left(self.used[n][gpu.index])
        return idle

    def pretend(self, which: Barred, usable: bool) -> None:
        """Count barred devices as usable (or no longer), to learn whether they are what stands in the way."""
        for n in self.barred:
            barred = [gpu.index for gpu in self.nodes[n].gpus if which(gpu) and gpu.slices is None]
            for g in barred:
                self.usable[n] = self.usable[n] | 1 << g if usable else self.usable[n] & ~(1 << g)
                self._sync_share(n, g)
                freed = left(self.used[n][g]) * (1 if usable else -1)
                self.idle[n] += freed
                self.idle_total += freed
            if barred:
                self._sync(n)
                self.touched.note(n)  # who keeps something about the node catches up, and does so again afterwards

    @property
    def version(self) -> int:
        """Grows with every change; those who keep derived columns note it and catch up from there, by `touched`."""
        return self.touched.version

    def state(self, n: int) -> object:
        """All that room of a node and its score can depend on, memory and extras, labels and likes aside."""
        free = self.free_slices[n].values() if self.profiles else ()  # how many are used does not tell which
        return self.kind[n], self.layout[n], self.usable[n], self.suspect[n], int(self.cpu[n]), *self.used[n], *free

    def level(self, name: str) -> Level:
        """The level of that name; `node` is one too."""
        return self.levels[name]


def _taken(held: Held, sign: int) -> int:
    """What is used more of each of its devices; a whole one is the very same number for all, for devices are many."""
    amount = held.share or WHOLE
    return amount if sign > 0 else -amount


def left(used: int) -> int:
    """What is free of a device of which so much is taken: nothing where a world tells of more than there is."""
    return WHOLE - used if used < WHOLE else 0


Barred = Callable[[Gpu], bool]
"""Tells devices that are kept from use for one certain cause."""


def sick(gpu: Gpu) -> bool:
    """Kept from use by its health alone."""
    return gpu.sick and gpu.closed is None


def closed(gpu: Gpu) -> bool:
    """Kept from use because somebody closed it."""
    return gpu.closed is not None


@lru_cache(maxsize=1 << 16)
def _tightest(islands: tuple[int, ...], free: int, width: int) -> tuple[int, ...]:
    """For every k up to width: the fewest free devices an island has that still holds k; all of them if none does."""
    counts = sorted((mask & free).bit_count() for mask in islands)
    return tuple(next((count for count in counts if count >= k), free.bit_count()) for k in range(width + 1))


def _path(node: Node, levels: Sequence[str]) -> tuple[str, ...]:
    domains = dict(node.domains)
    return tuple(domains.get(level, "") for level in levels)


def _levels(nodes: Sequence[Node], names: Sequence[str]) -> dict[str, Level]:
    paths = [_path(node, names) for node in nodes]
    levels = {name: Level(name, [path[: i + 1] for path in paths]) for i, name in enumerate(names)}
    levels[NODE] = Level(NODE, [(node.name,) for node in nodes])
    return levels


def _free_slices(node: Node) -> dict[tuple[int, str], int]:
    free: dict[tuple[int, str], int] = {}
    for gpu in node.gpus:
        for profile in gpu.slices or ():
            free[gpu.index, profile] = free.get((gpu.index, profile), 0) + 1
    return free
