"""Which GPUs inside a node: one NVLink island if it can, the tightest; else behind one PCIe switch, else of one NUMA
node; shares on devices already shared (rule 12).

Called by `topology` once the node is chosen; assumes that the task fits there.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpuyard.brain.engine.nodes.columns import Columns, Held
from gpuyard.brain.engine.nodes.layout import alignment
from gpuyard.brain.engine.nodes.layout.nearness import whole_devices
from gpuyard.brain.engine.nodes.requests import TaskRequest
from gpuyard.model.resources import WHOLE

Pick = tuple[tuple[int, ...], tuple[str, ...]]
"""Devices and, for MIG, the profile taken on each."""


def pick(columns: Columns, request: TaskRequest, node: int, island: int) -> Pick | None:
    """The devices the next task takes on the node (inside the island, if one is given); None if it does not fit."""
    inside = columns.islands[node][island] if island >= 0 else -1
    if request.gpus:
        free = columns.free_mask[node] & inside
        if free.bit_count() < request.gpus:
            return None
        aligned = columns.aligned.get(node) if columns.aligned and request.aligns else None
        if aligned is not None:
            chosen = alignment.choice(aligned, free, columns.suspect[node] & free, request.gpus)
            return (chosen, ()) if chosen else None
        return whole_devices(columns.grades[node], free, columns.suspect[node] & free, request.gpus), ()
    if request.shared:
        device = _shared_device(columns, request, node, inside)
        return None if device is None else ((device,), ())
    if request.resources.mig:
        return _slices(columns, request, node, inside)
    return (), ()


def island_for(columns: Columns, node: int, gpus: int) -> int:
    """The tightest island of the node that holds this many healthy devices, so that a gang shares one; -1 if none."""
    free = columns.free_mask[node] & ~columns.suspect[node]
    held = [((mask & free).bit_count(), island) for island, mask in enumerate(columns.islands[node])]
    return min(((count, island) for count, island in held if count >= gpus), default=(0, -1))[1]


def _shared_device(columns: Columns, request: TaskRequest, node: int, inside: int) -> int | None:
    """The tightest device already shared that has room; else a free one, chosen like a whole device."""
    need = request.share_on(columns.nodes[node])
    usable, used, suspect = columns.usable[node] & inside, columns.used[node], columns.suspect[node]
    fitting = [
        ((suspect >> g & 1), WHOLE - amount, g)
        for g, amount in enumerate(used)
        if usable >> g & 1 and 0 < amount <= WHOLE - need
    ]
    free = columns.free_mask[node] & inside
    healthy_free = free & ~suspect
    if fitting and not (min(fitting)[0] and healthy_free):
        return min(fitting)[2]
    if free and need <= WHOLE:
        (device,) = whole_devices(columns.grades[node], free, suspect & free, 1)
        return device
    return None


def _slices(columns: Columns, request: TaskRequest, node: int, inside: int) -> Pick | None:
    free = {key: count for key, count in columns.free_slices[node].items() if columns.usable_slice(node, key[0])}
    gpus: list[int] = []
    profiles: list[str] = []
    for profile, count in request.resources.mig:
        for _ in range(count):
            device = _slice_device(columns, node, free, profile, inside, gpus)
            if device is None:
                return None
            free[device, profile] -= 1
            gpus.append(device)
            profiles.append(profile)
    return tuple(gpus), tuple(profiles)


def _slice_device(
    columns: Columns, node: int, free: dict[tuple[int, str], int], profile: str, inside: int, mine: Sequence[int]
) -> int | None:
    """The device with the fewest free slices that has one of this profile; those in use first, suspects last."""
    gpus, used = columns.nodes[node].gpus, columns.used[node]
    left: dict[int, int] = {}
    for (g, _), count in free.items():
        left[g] = left.get(g, 0) + count
    candidates = [
        (gpus[g].health.value == "suspect", not (used[g] or g in mine), left[g], g)
        for (g, name), count in free.items()
        if name == profile and count > 0 and inside >> g & 1
    ]
    return min(candidates)[3] if candidates else None


def stands_free(columns: Columns, held: Held) -> bool:
    """Whether a place that was left is free again, device by device, with its CPU and memory; a drained one is not."""
    n = held.node
    closed = columns.nodes[n].closed
    if closed is not None and closed.drains:
        return False
    if held.cpu > columns.cpu[n] or held.memory > columns.memory[n] or not columns.extras.suffice(n, held.extras):
        return False
    if held.mig:
        pairs = list(zip(held.gpus, held.mig, strict=True))
        return all(columns.free_slices[n].get(pair, 0) >= pairs.count(pair) for pair in pairs)
    if held.share:
        (device,) = held.gpus
        return bool(columns.shares[n, device] >= held.share)
    return all(columns.free_mask[n] >> g & 1 for g in held.gpus)
