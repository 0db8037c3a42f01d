"""Which processes are on which devices right now: the last check before a GPU is given to somebody.

The brain plans with what it was told; this is what is true. Kept by `lifecycle`, which starts nothing where it says no.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from gpuyard.model.job import Job, Placement
from gpuyard.model.node import Node
from gpuyard.model.resources import WHOLE, mig_cost
from gpuyard.worlds.local.ports import TaskKey

Device = tuple[str, int, str]
"""Node, index, and the MIG profile where it is a slice."""


class Holdings:
    """Shares of devices by the tasks that hold them, in grains; a MIG slice counts as one."""

    def __init__(self) -> None:
        self._held: dict[Device, dict[TaskKey, int]] = {}
        self._by_task: dict[TaskKey, list[Device]] = {}
        self._slices: dict[tuple[str, int, int], TaskKey] = {}
        """Who has which slice of a GPU, by its number there."""
        self._owners: dict[TaskKey, str] = {}
        self._tasks: Counter[str] = Counter()
        """How many tasks each user has here, with GPUs or without."""

    def free(self, wanted: Iterable[tuple[Device, int]], room: dict[Device, int]) -> bool:
        """Whether all of it could be had now; `room` is how much each slice profile has, a device has one whole."""
        asked: dict[Device, int] = {}
        for device, share in wanted:
            asked[device] = asked.get(device, 0) + share
        return all(sum(self._held.get(d, {}).values()) + share <= room.get(d, WHOLE) for d, share in asked.items())

    def take(self, key: TaskKey, wanted: Iterable[tuple[Device, int]], owner: str = "") -> None:
        """A task is about to be on these devices."""
        if key not in self._owners:
            self._owners[key] = owner
            self._tasks[owner] += 1
        devices = self._by_task.setdefault(key, [])
        for device, share in wanted:
            holders = self._held.setdefault(device, {})
            holders[key] = holders.get(key, 0) + share
            devices.append(device)

    def leave(self, key: TaskKey) -> None:
        """A task is gone from all its devices, also from those of a node that is gone."""
        if key in self._owners:
            self._tasks[self._owners.pop(key)] -= 1
        for device in self._by_task.pop(key, ()):
            holders = self._held.get(device, {})
            holders.pop(key, None)
            if not holders:
                self._held.pop(device, None)
        self._slices = {slice_: holder for slice_, holder in self._slices.items() if holder != key}

    def choose_slices(self, place: Placement, node: Node) -> tuple[int, ...]:
        """For each slice that a task asks for one that nobody has; `free` has said that there are enough."""
        chosen: list[int] = []
        for at, profile in zip(place.gpus, place.mig, strict=True):
            gone = {number for gpu, number in zip(place.gpus, chosen, strict=False) if gpu == at}
            numbers = (n for n, each in enumerate(node.gpus[at].slices or ()) if each == profile and n not in gone)
            chosen.append(next(n for n in numbers if (node.name, at, n) not in self._slices))
        return tuple(chosen)

    def take_slices(self, key: TaskKey, place: Placement, numbers: Iterable[int]) -> None:
        """These slices are the task's until it leaves."""
        for gpu, number in zip(place.gpus, numbers, strict=True):
            self._slices[place.node, gpu, number] = key

    def begun(self, key: TaskKey) -> bool:
        """Whether the task was given its devices (none, for one that needs only CPU)."""
        return key in self._by_task

    def tasks(self, owner: str | None = None) -> int:
        """How many tasks are here, of one user or in all."""
        return len(self._owners) if owner is None else self._tasks[owner]

    def by_device(self) -> dict[tuple[str, int], dict[int, int]]:
        """For each device the jobs on it and what they hold of it, in grains."""
        found: dict[tuple[str, int], dict[int, int]] = {}
        for (node, gpu, profile), holders in self._held.items():
            jobs = found.setdefault((node, gpu), {})
            for key, share in holders.items():
                jobs[key.job] = jobs.get(key.job, 0) + (share * mig_cost(profile) if profile else share)
        return found

    def devices(self) -> int:
        """How many devices anybody is on."""
        return len({device[:2] for device in self._held})

    def free_devices(self, nodes: Iterable[Node]) -> int:
        """How many devices nobody is on and something new could go on; one that is sick may still be held."""
        held = {device[:2] for device in self._held}
        return sum(
            gpu.usable and (node.name, gpu.index) not in held
            for node in nodes
            if node.closed is None
            for gpu in node.gpus
        )

    def holders(self, node: str, gpu: int) -> set[TaskKey]:
        """Who is on a device."""
        return {key for device, keys in self._held.items() if device[:2] == (node, gpu) for key in keys}


def shares(job: Job, place: Placement, node: Node) -> list[tuple[Device, int]]:
    """What one task takes where it stands."""
    if place.mig:
        return [((place.node, gpu, profile), 1) for gpu, profile in zip(place.gpus, place.mig, strict=True)]
    request = next(group.request for group in job.task_groups() if group.name == place.group)
    share = request.share or WHOLE
    if request.gpu_memory:
        share = request.gpu_memory * WHOLE // (node.gpu_memory or request.gpu_memory)
    return [((place.node, gpu, ""), share) for gpu in place.gpus]


def slices(node: Node) -> dict[Device, int]:
    """How many slices of each profile a node's devices have."""
    room: dict[Device, int] = {}
    for gpu in node.gpus:
        for profile in gpu.slices or ():
            device = (node.name, gpu.index, profile)
            room[device] = room.get(device, 0) + 1
    return room
