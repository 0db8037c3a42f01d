"""The GPUs of one machine as bit masks: which can be used, which are sliced, which are near to each other.

Asked by `columns` when nodes are laid or change their condition; knows nothing of what is in use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from gpuyard.model.node import Gpu, Health, Node


class DeviceMasks(NamedTuple):
    """What follows from a node's GPUs alone."""

    islands: tuple[int, ...]
    grades: tuple[tuple[int, ...], ...]
    """What of a node is near to each other, nearest first: NVLink islands, PCIe switches, NUMA nodes."""
    usable: int
    sliced: int
    suspect: int
    sound: bool
    """Whether none of them is sick or closed."""


def masks_of(nodes: Iterable[Node]) -> list[DeviceMasks]:
    """One for each node; nodes that share one tuple of GPUs, as those of one description do, are looked at once."""
    known: dict[int, DeviceMasks] = {}
    found = []
    for node in nodes:
        masks = known.get(id(node.gpus))
        if masks is None:
            masks = known[id(node.gpus)] = _masks_of(node.gpus)
        found.append(masks)
    return found


def _masks_of(gpus: Sequence[Gpu]) -> DeviceMasks:
    islands = _together(gpus, lambda gpu: gpu.island)
    sliced = sum(1 << gpu.index for gpu in gpus if gpu.slices is not None)
    sound = all(gpu.usable for gpu in gpus)
    return DeviceMasks(islands, _grades(gpus, islands), usable(gpus), sliced, suspect(gpus), sound)


def _together(gpus: Iterable[Gpu], number: Callable[[Gpu], int]) -> tuple[int, ...]:
    masks: dict[int, int] = {}
    for gpu in gpus:
        masks[number(gpu)] = masks.get(number(gpu), 0) | 1 << gpu.index
    return tuple(sorted(masks.values(), key=lambda mask: mask & -mask))


def _grades(gpus: Sequence[Gpu], islands: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """A grade in which all are together tells nobody apart, and is left out."""
    coarser = (_together(gpus, lambda gpu: gpu.switch), _together(gpus, lambda gpu: gpu.numa))
    return (islands, *(masks for masks in coarser if len(masks) > 1 and masks != islands))


def usable(gpus: Iterable[Gpu]) -> int:
    """Whole devices that are neither sick nor closed."""
    return sum(1 << gpu.index for gpu in gpus if gpu.slices is None and gpu.usable)


def suspect(gpus: Iterable[Gpu]) -> int:
    """Whole devices that are used last."""
    return sum(1 << gpu.index for gpu in gpus if gpu.slices is None and gpu.health is Health.SUSPECT)
