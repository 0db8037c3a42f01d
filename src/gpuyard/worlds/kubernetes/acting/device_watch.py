"""What kubelets tell of the GPUs that pods hold (`allocatedResourcesStatus`), held against what they were granted.

Called by `world` in its loop. Only told, each thing once, as an event of the pod: nothing is taken from anybody because
of it. A kubelet that does not tell (ResourceHealthStatus is off) says nothing, and so does this.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpuyard.kube.gpu_grants import NAME_MAX, OTHER_GPUS, granted_gpus, other_gpus
from gpuyard.kube.objects import DeviceHealth, PodObject
from gpuyard.model.outside.text import shown
from gpuyard.worlds.kubernetes import pods
from gpuyard.worlds.kubernetes.asking.devices import is_device
from gpuyard.worlds.kubernetes.asking.marks import WHOLE_GPUS
from gpuyard.worlds.kubernetes.cache import Cache

UNHEALTHY_GPU = "UnhealthyGpu"
"""The reason of the event that tells of a device that a pod holds and its kubelet calls unhealthy."""

Told = tuple[PodObject, str, str]
"""A pod, the reason of its event and the words."""


class DeviceWatch:
    """Who holds what by their kubelets' word. `look` is called again and again, and looks at what changed since."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._told: dict[str, frozenset[tuple[str, str]]] = {}
        """By uid, what is known to be wrong."""

    def look(self) -> list[Told]:
        """What is to be told now."""
        changed, self._cache.holding_news = self._cache.holding_news, set()
        found = [pod for key in sorted(changed) if (pod := self._cache.pods.get(key)) is not None]
        if changed:
            there = {pod.metadata.uid for pod in self._cache.pods.objects.values()} if self._told else set()
            self._told = {uid: told for uid, told in self._told.items() if uid in there}
        return [each for pod in found for each in self._news(pod)]

    def _news(self, pod: PodObject) -> Iterator[Told]:
        wrong = frozenset(_wrong(pod)) if not pods.is_over(pod) else frozenset()
        before = self._told.pop(pod.metadata.uid, frozenset())
        if wrong:
            self._told[pod.metadata.uid] = wrong
        yield from ((pod, reason, words) for reason, words in sorted(wrong - before))


def _wrong(pod: PodObject) -> Iterator[tuple[str, str]]:
    whole = [device.resource_id for name, device in _devices(pod) if name in WHOLE_GPUS]
    if words := other_gpus(granted_gpus(pod), sorted(dict.fromkeys(whole))):
        yield OTHER_GPUS, words
    for _, device in _devices(pod):
        if device.health == "Unhealthy":
            yield UNHEALTHY_GPU, f"the kubelet calls {shown(device.resource_id, NAME_MAX)}, which it holds, unhealthy"


def _devices(pod: PodObject) -> Iterable[tuple[str, DeviceHealth]]:
    for container in pod.status.container_statuses or ():
        for devices in container.allocated_resources_status or ():
            if is_device(devices.name):
                yield from ((devices.name, device) for device in devices.resources or ())
