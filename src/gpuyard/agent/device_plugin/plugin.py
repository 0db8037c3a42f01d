"""Which GPUs a kubelet may give out, in what health, and which of them belong together. Knows nothing of the wire.

Used by `wire` and fed by the agent's looks. A GPU is its UUID. What is sick or not known is unhealthy until it is well
again; one that is unwell takes no other along.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from gpuyard.agent.device_plugin import offers
from gpuyard.agent.device_plugin.offers import Offer, PluginDevice
from gpuyard.agent.watching import MachineView

CDI_KIND = "nvidia.com/gpu"
VISIBLE = "NVIDIA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class Handed:
    """What a container gets: GPUs by their CDI names, and variables if that is wished."""

    cdi: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


class UnknownDevice(Exception):
    """The kubelet asks for what it was never told of."""


class Plugin:
    """The devices of one resource; any thread may ask."""

    def __init__(
        self,
        chosen: Callable[[Collection[str], int], Sequence[str]] | None = None,
        by_variable: bool = False,
        offer: Offer = offers.whole,
    ) -> None:
        self._offer = offer
        self._chosen = chosen
        """Who knows which GPUs a pod was bound to, if anybody does."""
        self._by_variable = by_variable
        self._news = threading.Condition()
        self._devices: tuple[PluginDevice, ...] = ()
        self.version = 0

    @property
    def devices(self) -> tuple[PluginDevice, ...]:
        """As they were last seen."""
        return self._devices

    def see(self, view: MachineView, now: float) -> None:
        """What a look has found."""
        self._tell(tuple(sorted(self._offer(view, now), key=lambda device: device.uuid)))

    def _tell(self, devices: tuple[PluginDevice, ...]) -> None:
        with self._news:
            if devices != self._devices:
                self._devices = devices
                self.version += 1
                self._news.notify_all()

    def wait(self, version: int, seconds: float) -> bool:
        """Until the devices are others than at that version; False on time-out."""
        with self._news:
            return self._news.wait_for(lambda: self.version != version, seconds)

    def preferred(self, available: Collection[str], must: Collection[str], size: int) -> list[str]:
        """The GPUs that the pod was bound to, if that is known and they are free; else such as lie near each other."""
        if self._chosen is not None:
            wanted = list(self._chosen(available, size))
            if len(wanted) == size and set(must) <= set(wanted) <= set(available):
                return sorted(wanted)
        known = {device.uuid: device for device in self._devices if device.uuid in available}
        taken = [uuid for uuid in must if uuid in known]
        rest = _nearest([device for uuid, device in sorted(known.items()) if uuid not in taken], size - len(taken))
        return sorted([*taken, *rest])

    def hand(self, uuids: Sequence[str]) -> Handed:
        """What a container is given that was promised these. Never refused because another choice was better."""
        known = {device.uuid: device.cdi for device in self._devices}
        strange = sorted(set(uuids) - set(known))
        if strange:
            raise UnknownDevice(f"no device {', '.join(strange)} was ever on this machine")
        names = list(dict.fromkeys(known[uuid] for uuid in uuids))
        variables = {VISIBLE: ",".join(names)} if self._by_variable else {}
        return Handed(tuple(f"{CDI_KIND}={name}" for name in names), variables)


def _nearest(devices: Sequence[PluginDevice], size: int) -> list[str]:
    """The tightest part that holds so many, of the first grade that has one; else the fullest parts first."""
    if size <= 0 or not devices:
        return []
    for grade in range(len(devices[0].grades)):
        parts = _parts(devices, grade)
        holding = [part for part in parts if len(part) >= size]
        if holding and len(parts) > 1:
            return _nearest(min(holding, key=len), size)
    for grade in range(len(devices[0].grades)):
        parts = sorted(_parts(devices, grade), key=len, reverse=True)
        if len(parts) > 1 and len(parts[0]) > 1:
            rest = [device for part in parts[1:] for device in part]
            return [device.uuid for device in parts[0]] + _nearest(rest, size - len(parts[0]))
    return [device.uuid for device in devices[:size]]


def _parts(devices: Sequence[PluginDevice], grade: int) -> list[list[PluginDevice]]:
    found: dict[int, list[PluginDevice]] = {}
    for device in devices:
        found.setdefault(device.grades[grade], []).append(device)
    return list(found.values())
