"""This machine as nodes of a fleet: its GPUs with model, memory, UUID and islands, its cores and memory.

Called where a yard begins without a fleet file. GPUs of different models on one machine become nodes of their own,
because all GPUs of a node are of one model.
"""

from __future__ import annotations

import os
import pathlib
import platform
from collections.abc import Iterable, Sequence
from typing import Literal

from gpuyard.agent.nvml import plausible
from gpuyard.agent.nvml.facts import DeviceFacts, MachineFacts, Nic, Pair, told
from gpuyard.model.node import Gpu, Node
from gpuyard.model.resources import UNLIMITED

SWITCH_LEVEL, NUMA_LEVEL = 20, 40
"""NVML_TOPOLOGY_MULTIPLE and _NODE of nvml.h: no host bridge lies between the two; no link between CPUs does."""
CLIQUE_LABEL = "nvidia.com/gpu.clique"


def nodes(machine: MachineFacts, host: str = "") -> tuple[Node, ...]:
    """The nodes of this machine; none if it has no GPU. A GPU without a UUID of its own is none that could be given."""
    unique = plausible.once(gpu.uuid for gpu in machine.gpus)
    found = [gpu for gpu in machine.gpus if gpu.uuid in unique]
    models = list(dict.fromkeys(model_name(gpu.name) for gpu in found))
    host = host or platform.node() or "here"
    names = [host if number == 0 else f"{host}-{model}" for number, model in enumerate(models)]
    return tuple(
        _node(name, [gpu for gpu in found if model_name(gpu.name) == model], machine.pairs)
        for name, model in zip(names, models, strict=True)
    )


def _node(name: str, gpus: Sequence[DeviceFacts], pairs: Sequence[Pair]) -> Node:
    islands, switches, numa = islands_of(gpus), switches_of(gpus, pairs), numa_of(gpus, pairs)
    model = model_name(gpus[0].name)
    return Node(
        name=name,
        pool=model,
        model=model,
        architecture=told(gpus[0].architecture) or "",
        gpu_memory=min(told(gpu.memory) or 0 for gpu in gpus),
        gpus=tuple(_gpu(index, gpu, (islands[index], switches[index], numa[index])) for index, gpu in enumerate(gpus)),
        cpu=cores_milli(),
        memory=memory_bytes(),
        labels=_labels(gpus),
    )


def _gpu(index: int, gpu: DeviceFacts, grades: tuple[int, int, int]) -> Gpu:
    slices = sorted((each.profile, each.uuid) for each in gpu.slices)
    return Gpu(
        index,
        island=grades[0],
        switch=grades[1],
        numa=grades[2],
        slices=tuple(profile for profile, _ in slices) if told(gpu.mig) else None,
        uuid=gpu.uuid,
        slice_uuids=tuple(uuid for _, uuid in slices) if told(gpu.mig) else (),
    )


def model_name(name: str) -> str:
    """A driver's name as GPUYard writes models: `NVIDIA H100 80GB HBM3` is `H100-80GB-HBM3`."""
    return name.removeprefix("NVIDIA ").removeprefix("Tesla ").strip().replace(" ", "-")


def _labels(gpus: Sequence[DeviceFacts]) -> tuple[tuple[str, str], ...]:
    return ((CLIQUE_LABEL, clique),) if (clique := clique_of(gpus)) else ()


def clique_of(gpus: Sequence[DeviceFacts]) -> str:
    """Which GPUs of other nodes these reach over NVLink, as the vendor's own label says it; "" where not all agree."""
    fabrics = {(told(gpu.fabric_cluster) or "", told(gpu.fabric_clique)) for gpu in gpus}
    cluster, clique = next(iter(fabrics), ("", None))
    return f"{cluster}.{clique}" if len(fabrics) == 1 and cluster else ""


# --- graded islands ------------------------------------------------------------------------------


def islands_of(gpus: Sequence[DeviceFacts]) -> list[int]:
    """For each GPU the number of its island: those that NVLink joins, over others or over switches."""
    place = {gpu.bus: number for number, gpu in enumerate(gpus)}
    live = [(number, link) for number, gpu in enumerate(gpus) for link in gpu.links if link.active]
    switched = [number for number, link in live if link.remote == "switch"]
    pairs = [(number, place[link.bus]) for number, link in live if link.bus in place]
    return _joined(len(gpus), [*pairs, *((switched[0], number) for number in switched)])


def switches_of(gpus: Sequence[DeviceFacts], pairs: Iterable[Pair]) -> list[int]:
    """For each GPU the number of its PCIe switch, or of several without a host bridge in between."""
    return _near(gpus, pairs, SWITCH_LEVEL)


def numa_of(gpus: Sequence[DeviceFacts], pairs: Iterable[Pair]) -> list[int]:
    """For each GPU the number of its NUMA node, as far as anybody tells; those of whom nobody does stand together."""
    nodes_ = [told(gpu.numa) for gpu in gpus]
    if all(node is not None and node >= 0 for node in nodes_):
        return _ranked([int(node or 0) for node in nodes_])
    return _near(gpus, pairs, NUMA_LEVEL)


def _near(gpus: Sequence[DeviceFacts], pairs: Iterable[Pair], level: int) -> list[int]:
    """Islands by what lies between two GPUs. Where that is not told at all, no grade is claimed: one for all."""
    place = {gpu.uuid: number for number, gpu in enumerate(gpus)}
    known = [(pair, told(pair.ancestor)) for pair in pairs if pair.one in place and pair.other in place]
    if not known or any(ancestor is None for _, ancestor in known):
        return [0] * len(gpus)
    close = [pair for pair, ancestor in known if ancestor is not None and ancestor <= level]
    return _joined(len(gpus), [(place[pair.one], place[pair.other]) for pair in close])


def _joined(count: int, pairs: Iterable[tuple[int, int]]) -> list[int]:
    island = list(range(count))
    for one, other in pairs:
        low, high = sorted((island[one], island[other]))
        island = [low if number == high else number for number in island]
    return _ranked(island)


def _ranked(numbers: Sequence[int]) -> list[int]:
    order = {number: rank for rank, number in enumerate(dict.fromkeys(numbers))}
    return [order[number] for number in numbers]


# --- NICs ----------------------------------------------------------------------------------------

Nearness = Literal["switch", "numa", "node"]


def near(nic: Nic, gpus: Sequence[DeviceFacts]) -> tuple[Nearness, list[DeviceFacts]]:
    """The GPUs that are nearest to a NIC and what they share with it: a PCIe switch, a NUMA node, or the machine."""
    if behind := [gpu for gpu in gpus if _share_a_switch(nic.pci_path, told(gpu.pci_path) or "")]:
        return "switch", behind
    numa = told(nic.numa)
    if numa is not None and numa >= 0 and (beside := [gpu for gpu in gpus if told(gpu.numa) == numa]):
        return "numa", beside
    return "node", list(gpus)


def _share_a_switch(one: str, other: str) -> bool:
    """Whether a bridge lies above both: a port of the host leads to one device, and to two through a switch alone."""
    shared = os.path.commonpath([os.path.dirname(one), os.path.dirname(other)])
    return bool(shared) and not os.path.basename(shared).startswith("pci")


# --- the rest of the machine ---------------------------------------------------------------------


def cores_milli() -> int:
    """Thousandths of cores that this machine has."""
    return (os.cpu_count() or 1) * 1000


def memory_bytes() -> int:
    """What this machine has, whoever uses it."""
    try:
        lines = pathlib.Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return UNLIMITED
    total = next((line.split()[1] for line in lines if line.startswith("MemTotal")), "")
    return int(total) * 1024 if total.isdigit() else UNLIMITED
