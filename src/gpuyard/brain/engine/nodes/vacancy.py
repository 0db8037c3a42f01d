"""What a node would have free if some tasks left it: plain arithmetic, so that many sets of victims can be weighed
without touching the fleet."""

from __future__ import annotations

from gpuyard.brain.engine.nodes.columns import Columns, Held
from gpuyard.brain.engine.nodes.feasibility import PLENTY
from gpuyard.brain.engine.nodes.layout import alignment
from gpuyard.brain.engine.nodes.requests import TaskRequest
from gpuyard.model.resources import WHOLE


class Vacancy:
    """One node's free devices, slices, CPU and memory, for one kind of task."""

    __slots__ = ("_columns", "_extras", "_slices", "_used", "cpu", "memory", "need", "node", "request", "whole")

    def __init__(self, columns: Columns, request: TaskRequest, node: int) -> None:
        self._columns = columns
        self.request = request
        self.node = node
        self.whole = columns.free_mask[node].bit_count()
        self.cpu = int(columns.cpu[node])
        self.memory = int(columns.memory[node])
        self._extras = {name: int(columns.extras.free(name)[node]) for name, _ in request.resources.extras}
        self._used = list(columns.used[node])
        self._slices = dict(columns.free_slices[node]) if request.resources.mig else {}
        self.need = request.share_on(columns.nodes[node]) if request.shared else 0

    def leave(self, held: Held) -> None:
        """One task leaves the node."""
        self._shift(held, 1)

    def enter(self, held: Held) -> None:
        """It comes back."""
        self._shift(held, -1)

    def _shift(self, held: Held, sign: int) -> None:
        self.cpu += sign * held.cpu
        self.memory += sign * held.memory
        for name, amount in held.extras if self._extras else ():
            if name in self._extras:
                self._extras[name] += sign * amount
        if held.mig:
            for key in zip(held.gpus, held.mig, strict=True):
                self._slices[key] = self._slices.get(key, 0) + sign
            return
        usable = self._columns.usable[self.node]
        for g in held.gpus:
            was_free = self._used[g] == 0
            self._used[g] -= sign * (held.share or WHOLE)
            if usable >> g & 1:
                self.whole += (self._used[g] == 0) - was_free

    def room(self) -> int:
        """How many tasks fit."""
        resources = self.request.resources
        room = self._gpu_room()
        if resources.cpu:
            room = min(room, self.cpu // resources.cpu)
        if resources.memory:
            room = min(room, self.memory // resources.memory)
        for name, amount in resources.extras:
            room = min(room, self._extras[name] // amount)
        return max(room, 0)

    def lacks_devices_only(self) -> bool:
        """Whether CPU and memory are there for one task more than there are devices for."""
        resources, more = self.request.resources, self._gpu_room() + 1
        rest = all(self._extras[name] >= more * amount for name, amount in resources.extras)
        return rest and self.cpu >= more * resources.cpu and self.memory >= more * resources.memory

    def _gpu_room(self) -> int:
        resources = self.request.resources
        if resources.gpus:
            aligned = self._columns.aligned.get(self.node) if self.request.aligns else None
            return self.whole // resources.gpus if aligned is None else self._aligned_room(aligned)
        if resources.mig:
            return min(self._free_slices(profile) // count for profile, count in resources.mig)
        if not resources.shared:
            return PLENTY
        usable = self._columns.usable[self.node]
        return sum((WHOLE - used) // self.need for g, used in enumerate(self._used) if usable >> g & 1)

    def _aligned_room(self, aligned: alignment.Aligned) -> int:
        usable = self._columns.usable[self.node]
        free = sum(1 << g for g, used in enumerate(self._used) if not used and usable >> g & 1)
        return alignment.room(aligned, free, self._columns.suspect[self.node] & free, self.request.gpus)

    def _free_slices(self, profile: str) -> int:
        columns = self._columns
        return sum(
            free for (g, name), free in self._slices.items() if name == profile and columns.usable_slice(self.node, g)
        )
