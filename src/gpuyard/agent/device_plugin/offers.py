"""What of a machine is offered to a kubelet, by the name of a resource: whole GPUs, parts of their time, MIG slices.

Used by `plugin`. No GPU is offered twice: one that is cut is offered by its slices alone, one whose time is shared is
not offered whole. A slice or a part is as well as its GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpuyard.agent import discovery, verdicts
from gpuyard.agent.nvml.facts import told
from gpuyard.agent.watching import GpuView, MachineView

WHOLE = "nvidia.com/gpu"
SHARED = "nvidia.com/gpu.shared"
MIG_PREFIX = "nvidia.com/mig-"
PART = "::"
"""Stands between a GPU's UUID and the number of a part of its time."""


@dataclass(frozen=True, slots=True)
class PluginDevice:
    """One device as the kubelet is told of it; `grades` are its NVLink island, PCIe switch and NUMA node."""

    uuid: str
    healthy: bool
    numa: int = -1
    grades: tuple[int, ...] = ()

    @property
    def cdi(self) -> str:
        """The name under which a container gets it: a part of a GPU's time is the GPU."""
        return self.uuid.partition(PART)[0]


Offer = Callable[[MachineView, float], tuple[PluginDevice, ...]]


def whole(view: MachineView, now: float) -> tuple[PluginDevice, ...]:
    """GPUs that are not cut."""
    gpus = [gpu for gpu in view.gpus if not told(gpu.facts.mig)]
    return tuple(
        _device(gpu.facts.uuid, gpu, grades, now) for gpu, grades in zip(gpus, _grades(view, gpus), strict=True)
    )


def shared(parts: int) -> Offer:
    """The same, each as so many parts of its time."""

    def offer(view: MachineView, now: float) -> tuple[PluginDevice, ...]:
        return tuple(
            PluginDevice(f"{each.uuid}{PART}{part}", each.healthy, each.numa, each.grades)
            for each in whole(view, now)
            for part in range(parts)
        )

    return offer


def slices(profile: str) -> Offer:
    """MIG slices of one profile, by their own UUIDs."""

    def offer(view: MachineView, now: float) -> tuple[PluginDevice, ...]:
        gpus = [gpu for gpu in view.gpus if told(gpu.facts.mig)]
        return tuple(
            _device(each.uuid, gpu, grades, now)
            for gpu, grades in zip(gpus, _grades(view, gpus), strict=True)
            for each in gpu.facts.slices
            if each.profile == profile and each.uuid
        )

    return offer


def offers(view: MachineView, parts: int, cut: bool) -> dict[str, Offer]:
    """All that was asked for, by resource: whole GPUs unless their time is shared, and slices if they are wanted."""
    found: dict[str, Offer] = {SHARED: shared(parts)} if parts > 1 else {WHOLE: whole}
    profiles = {each.profile for gpu in view.gpus if told(gpu.facts.mig) for each in gpu.facts.slices}
    return found | ({f"{MIG_PREFIX}{profile}": slices(profile) for profile in sorted(profiles)} if cut else {})


def _device(uuid: str, gpu: GpuView, grades: tuple[int, ...], now: float) -> PluginDevice:
    node = told(gpu.facts.numa)
    well = verdicts.health(gpu, now).verdict in ("healthy", "suspect")
    return PluginDevice(uuid, well, -1 if node is None else node, grades)


def _grades(view: MachineView, gpus: list[GpuView]) -> list[tuple[int, ...]]:
    facts = [gpu.facts for gpu in gpus]
    pairs = view.machine.pairs if view.machine is not None else ()
    return list(
        zip(
            discovery.islands_of(facts), discovery.switches_of(facts, pairs), discovery.numa_of(facts, pairs),
            strict=True,
        )
    )  # fmt: skip
