"""Which devices bound pods hold, where nobody has told: the vendor's plugin chooses them, and counts are all we know.

`seats_on(node, holders)` gives every bound pod of a node its devices: those told by its Binding first, then the lowest
free, the oldest pod first. Pure and the same every time, so that a restarted scheduler sees what it saw before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gpuyard.kube.objects import PodObject
from gpuyard.model.node import Node
from gpuyard.model.resources import WHOLE, Request
from gpuyard.worlds.kubernetes import pods
from gpuyard.worlds.kubernetes.asking.marks import GPUS
from gpuyard.worlds.kubernetes.gathering.holdings import Held, parted, slices_held, together
from gpuyard.worlds.kubernetes.gathering.layouts import number

NO_DEVICES: Held = ((), ())


NOBODY: Mapping[str, Held] = {}


def seats_on(
    node: Node, holders: Iterable[tuple[PodObject, Sequence[Request]]], known: Mapping[str, Held] = NOBODY
) -> dict[str, Held]:
    """The devices of each by uid; one that asks for none holds none. More pods than devices: the last go without.

    Those whose devices are `known` keep them.
    """
    free = _Free(node)
    holders = list(holders)
    for pod, requests in holders:
        if pod.metadata.uid in known:
            for request, held in parted(known[pod.metadata.uid], requests):
                free.keep(request, held)
    asking = [
        (pod, requests, _told(node, pod))
        for pod, requests in holders
        if not all(each.cpu_only for each in requests) and pod.metadata.uid not in known
    ]
    asking.sort(key=lambda each: (not each[2], pods.submitted(each[0]), each[0].metadata.key))
    return {pod.metadata.uid: together([free.take(each, told) for each in requests]) for pod, requests, told in asking}


def _told(node: Node, pod: PodObject) -> tuple[int, ...]:
    """The devices that its Binding names, or that its kubelet says it has."""
    noted = pod.metadata.annotation(GPUS)
    named = [each.strip() for each in noted.split(",") if each.strip()] if noted else []
    for status in pod.status.container_statuses or ():
        for devices in status.allocated_resources_status or ():
            named += [device.resource_id for device in devices.resources or ()]
    if not named:
        return ()
    by_uuid = {gpu.uuid: gpu.index for gpu in node.gpus if gpu.uuid}
    there = {gpu.index for gpu in node.gpus}
    found = [by_uuid.get(name, number(name)) for name in dict.fromkeys(named)]
    return tuple(dict.fromkeys(index for index in found if index is not None and index in there))


class _Free:
    """What is left of a node's devices while they are given out."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._share = {gpu.index: WHOLE for gpu in node.gpus if gpu.slices is None}
        sick = {gpu.index for gpu in node.gpus if not gpu.usable}
        self._order = sorted(self._share, key=lambda index: (index in sick, index))
        """As whole devices are given: sound ones first."""
        self._slices = {gpu.index: list(gpu.slices) for gpu in node.gpus if gpu.slices is not None}

    def keep(self, request: Request, held: Held) -> None:
        """These are somebody's already."""
        for index, profile in zip(*held, strict=False):
            if profile in self._slices.get(index, ()):
                self._slices[index].remove(profile)
        for index in held[0] if not request.mig else ():
            self._share[index] = max(0, self._share.get(index, 0) - self._part(request))

    def _part(self, request: Request) -> int:
        """What it takes of one device."""
        if not request.shared:
            return WHOLE
        memory = self._node.gpu_memory
        return request.share or (request.gpu_memory * WHOLE // memory if memory else WHOLE)

    def take(self, request: Request, told: Sequence[int]) -> Held:
        """Whole devices, a part of one, or slices."""
        if request.mig:
            return self._take_slices(request)
        if request.shared:
            return self._take_share(request, told), ()
        return self._take_whole(request.gpus, told), ()

    def _take_whole(self, count: int, told: Sequence[int]) -> tuple[int, ...]:
        idle = [index for index in self._order if self._share[index] == WHOLE]
        named = [index for index in told if index in idle]
        taken = (named + [index for index in idle if index not in named])[:count]
        self._share.update(dict.fromkeys(taken, 0))
        return tuple(sorted(taken))

    def _take_share(self, request: Request, told: Sequence[int]) -> tuple[int, ...]:
        part = self._part(request)
        fitting = [index for index in (*told, *self._share) if self._share.get(index, 0) >= part]
        opened = [index for index in fitting if self._share[index] < WHOLE]
        for index in (told and fitting) or opened or fitting:
            self._share[index] -= part
            return (index,)
        return ()

    def _take_slices(self, request: Request) -> Held:
        taken: list[tuple[int, str]] = []
        for profile, count in request.mig:
            for _ in range(count):
                index = next((index for index, left in self._slices.items() if profile in left), None)
                if index is not None:
                    self._slices[index].remove(profile)
                    taken.append((index, profile))
        return slices_held(sorted(taken))
