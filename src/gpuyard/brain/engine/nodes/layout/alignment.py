"""NUMA nodes that a kubelet insists on: how many tasks fit on such a node, and on which devices.

A kubelet whose topology policy is `single-numa-node` refuses a pod whose GPUs do not lie in one NUMA node, one that is
`restricted` a pod whose GPUs lie in more NUMA nodes than could hold as many at all, were they free. Asked by `columns`,
`feasibility`, `vacancy` and the choice of devices; fleets without such nodes never come here.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate, combinations
from math import comb
from typing import NamedTuple

from gpuyard.brain.engine.nodes.layout import device_masks
from gpuyard.brain.engine.nodes.layout.nearness import Grades, whole_devices
from gpuyard.model.node import Alignment, Node

SETS_MAX = 5000
"""Sets of NUMA nodes that are told apart; no machine has more."""


class Aligned(NamedTuple):
    """A node on which it matters: the whole devices of each of its NUMA nodes, used and sick ones included."""

    masks: tuple[int, ...]
    single: bool
    grades: Grades


def aligned_of(node: Node) -> Aligned | None:
    """None where nothing is insisted on, or all devices are of one NUMA node anyhow."""
    if node.alignment is Alignment.NONE:
        return None
    masks: dict[int, int] = {}
    for gpu in node.gpus:
        if gpu.slices is None:
            masks[gpu.numa] = masks.get(gpu.numa, 0) | 1 << gpu.index
    if len(masks) < 2:
        return None
    grades = device_masks.masks_of((node,))[0].grades
    return Aligned(tuple(mask for _, mask in sorted(masks.items())), node.alignment is Alignment.SINGLE, grades)


@lru_cache(maxsize=1 << 12)
def spans(aligned: Aligned, count: int) -> tuple[int, ...]:
    """Devices among which a task of so many must lie, each set of NUMA nodes on its own; none: it can never lie here.

    In the order in which a kubelet takes them: of sets of one size the one with the lowest numbers.
    """
    size = fewest(aligned, count)
    if not size or (aligned.single and size > 1):
        return ()
    if comb(len(aligned.masks), size) > SETS_MAX:
        return (sum(aligned.masks),)
    sets = sorted(combinations(range(len(aligned.masks)), size), key=lambda some: some[::-1])
    joined = (sum(aligned.masks[number] for number in some) for some in sets)
    return tuple(mask for mask in joined if mask.bit_count() >= count)


def fewest(aligned: Aligned, count: int) -> int:
    """How many NUMA nodes it takes to hold so many devices, were they free; 0 if all of them are too few."""
    sizes = accumulate(sorted((mask.bit_count() for mask in aligned.masks), reverse=True))
    return next((number for number, held in enumerate(sizes, 1) if held >= count), 0)


@lru_cache(maxsize=1 << 16)
def choice(aligned: Aligned, free: int, suspect: int, count: int) -> tuple[int, ...]:
    """The devices that the next task of so many gets out of the `free` bits; none if no place has as many.

    In the first place that has: that is the one which the kubelet will choose, whatever else we would like better.
    Inside it healthy ones come first, and those that are near to each other.
    """
    for span in spans(aligned, count):
        part = span & free
        if part.bit_count() >= count:
            return whole_devices(aligned.grades, part, suspect & part, count)
    return ()


@lru_cache(maxsize=1 << 16)
def room(aligned: Aligned, free: int, suspect: int, count: int) -> int:
    """How many tasks of so many devices each get a place, one after the other, as `choice` gives them out."""
    if count == 1:
        return free.bit_count()
    found = 0
    while taken := choice(aligned, free, suspect, count):
        free &= ~sum(1 << gpu for gpu in taken)
        found += 1
    return found


def emptiest(aligned: Aligned, usable: int, free: int, count: int) -> int:
    """The usable devices of the place for a task of so many where most are free already; 0 if there is no place."""
    places = [part for span in spans(aligned, count) if (part := span & usable).bit_count() >= count]
    return max(places, key=lambda part: (part & free).bit_count(), default=0)


def most_together(aligned: Aligned, free: int, count: int) -> int:
    """The most of these devices that lie where one task of so many may lie; in one NUMA node if it may nowhere."""
    return max((mask & free).bit_count() for mask in spans(aligned, count) or aligned.masks)
