"""This machine as a node of a fleet: its GPUs with model, memory, UUID and islands, its cores and memory.

Called where a yard begins without a fleet file. GPUs of different models on one machine become nodes of their own,
because all GPUs of a node are of one model.
"""

from __future__ import annotations

import os
import pathlib
import platform
from collections.abc import Sequence
from typing import Any

from gpuyard.agent import nvml
from gpuyard.agent.nvml import SWITCH, Device
from gpuyard.model.node import Gpu, Node
from gpuyard.model.resources import UNLIMITED


def nodes(library: Any = None) -> tuple[Node, ...]:
    """The nodes of this machine; none if it has no NVIDIA GPU."""
    found = nvml.devices(library)
    models = list(dict.fromkeys(model_name(device.name) for device in found))
    host = platform.node() or "here"
    return tuple(
        _node(host if number == 0 else f"{host}-{model}", model, [d for d in found if model_name(d.name) == model])
        for number, model in enumerate(models)
    )


def _node(name: str, model: str, devices: Sequence[Device]) -> Node:
    islands = islands_of(devices)
    gpus = tuple(
        Gpu(index, islands[index], slices=d.slices, uuid=d.uuid, slice_uuids=d.slice_uuids)
        for index, d in enumerate(devices)
    )
    return Node(
        name=name,
        pool=model,
        model=model,
        architecture=devices[0].architecture,
        gpu_memory=min(device.memory for device in devices),
        gpus=gpus,
        cpu=cores_milli(),
        memory=memory_bytes(),
    )


def model_name(name: str) -> str:
    """A driver's name as GPUYard writes models: `NVIDIA H100 80GB HBM3` is `H100-80GB-HBM3`."""
    return name.removeprefix("NVIDIA ").removeprefix("Tesla ").strip().replace(" ", "-")


def islands_of(devices: Sequence[Device]) -> list[int]:
    """For each device the number of its island: those that NVLink joins, over others or over a switch."""
    island = list(range(len(devices)))
    place = {device.bus: number for number, device in enumerate(devices)}
    switched = [number for number, device in enumerate(devices) if SWITCH in device.links]
    pairs = [(number, place[bus]) for number, d in enumerate(devices) for bus in d.links if bus in place]
    pairs += [(switched[0], number) for number in switched]
    for one, other in pairs:
        low, high = sorted((island[one], island[other]))
        island = [low if number == high else number for number in island]
    order = {number: rank for rank, number in enumerate(dict.fromkeys(island))}
    return [order[number] for number in island]


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
