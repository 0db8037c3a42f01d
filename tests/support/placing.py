"""A plain placer for random snapshots: puts tasks where there is room, one device at a time, without the engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from gpuyard.model.job import Job, Placement, TaskGroup
from gpuyard.model.node import Node
from gpuyard.model.resources import WHOLE
from gpuyard.model.snapshot import Snapshot
from tests.support.tasks import bundles

Spot = tuple[tuple[int, ...], tuple[str, ...]]
"""Devices and MIG profiles."""


class Places:
    """Who holds what while a snapshot is put together. Sick devices may be held: what ran there runs on."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes
        self._used: Counter[tuple[str, int]] = Counter()
        self._slices: Counter[tuple[str, int, str]] = Counter()

    @classmethod
    def of(cls, snapshot: Snapshot) -> Places:
        """What is held in a snapshot already."""
        places = cls(snapshot.nodes)
        nodes = {node.name: node for node in snapshot.nodes}
        for job in snapshot.jobs:
            groups = {group.name: group for group in job.task_groups()}
            for place in job.placements:
                places._hold(groups[place.group], nodes[place.node], (place.gpus, place.mig))
        return places

    def take(self, job: Job, offset: int, most: int | None = None) -> tuple[Placement, ...]:
        """Places for the job's tasks, `most` per group; as many as there is room for.

        A job that must stay together anywhere stays in one island of one node, which meets every level; a group stays
        on one model. CPU and memory are not looked at: a world may have promised more than it has.
        """
        together = any(b.topology.required for b in bundles(job.gang)) or any(
            group.topology.required for group in job.task_groups()
        )
        found: list[Placement] = []
        for group in job.task_groups():
            found += self._take_group(group, offset, most, found if together else None)
        return tuple(found)

    def _take_group(
        self, group: TaskGroup, offset: int, most: int | None, bound: list[Placement] | None
    ) -> list[Placement]:
        found: list[Placement] = []
        alive = group.tasks - group.failed - group.succeeded
        for task in range(alive if most is None else min(alive, most)):
            for node in self._in_turn(offset):
                if found and node.model != self._model(found[0]):
                    continue
                spot = self._spot(group, node, None if bound is None else [*bound, *found])
                if spot is not None:
                    self._hold(group, node, spot)
                    found.append(Placement(node.name, spot[0], group.name, task, spot[1]))
                    break
        return found

    def _in_turn(self, offset: int) -> Iterator[Node]:
        yield from (*self.nodes[offset:], *self.nodes[:offset])

    def _model(self, place: Placement) -> str:
        return next(node.model for node in self.nodes if node.name == place.node)

    def _spot(self, group: TaskGroup, node: Node, bound: list[Placement] | None) -> Spot | None:
        """Where one task fits on the node now; inside the island of those it is bound to."""
        devices = [gpu.index for gpu in node.gpus]
        if bound is not None:
            if any(place.node != node.name for place in bound):
                return None
            home = {node.gpus[index].island for place in bound for index in place.gpus} or {0}
            devices = [index for index in devices if node.gpus[index].island in home]
        if group.request.mig:
            return self._slice_spot(group, node, devices)
        whole = [index for index in devices if node.gpus[index].slices is None]
        if group.request.shared:
            need = _share(group, node)
            fitting = [index for index in whole if self._used[node.name, index] + need <= WHOLE]
            return ((fitting[0],), ()) if fitting and need <= WHOLE else None
        free = [index for index in whole if not self._used[node.name, index]]
        wanted = group.request.gpus
        return (tuple(free[:wanted]), ()) if len(free) >= wanted else None

    def _slice_spot(self, group: TaskGroup, node: Node, devices: list[int]) -> Spot | None:
        taken: Counter[tuple[int, str]] = Counter()
        gpus: list[int] = []
        profiles = [profile for profile, count in group.request.mig for _ in range(count)]
        for profile in profiles:
            for index in devices:
                there = (node.gpus[index].slices or ()).count(profile)
                if self._slices[node.name, index, profile] + taken[index, profile] < there:
                    taken[index, profile] += 1
                    gpus.append(index)
                    break
            else:
                return None
        return tuple(gpus), tuple(profiles)

    def _hold(self, group: TaskGroup, node: Node, spot: Spot) -> None:
        gpus, profiles = spot
        for index, profile in zip(gpus, profiles, strict=False):
            self._slices[node.name, index, profile] += 1
        if not profiles:
            for index in gpus:
                self._used[node.name, index] += _share(group, node) or WHOLE


def _share(group: TaskGroup, node: Node) -> int:
    if group.request.gpu_memory:
        return group.request.gpu_memory * WHOLE // node.gpu_memory if node.gpu_memory else WHOLE + 1
    return group.request.share
