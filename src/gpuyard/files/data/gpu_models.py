"""What is known about GPU models by their name: memory and architecture.

Called by `fleet` where a node does not say. A model matches the longest name that is the whole of it or a prefix that
ends before a `-`; a size in the name itself (`A100-SXM4-80GB`) wins over the table.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from gpuyard.model.queue import model_matches

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class GpuModel:
    """Memory of one device in GiB, of the smaller variant where there are two, and the architecture."""

    memory_gib: int
    architecture: str


GPU_MODELS = {
    "P100": GpuModel(16, "pascal"),
    "P40": GpuModel(24, "pascal"),
    "P4": GpuModel(8, "pascal"),
    "V100": GpuModel(16, "volta"),
    "V100S": GpuModel(32, "volta"),
    "T4": GpuModel(16, "turing"),
    "A2": GpuModel(16, "ampere"),
    "A10": GpuModel(24, "ampere"),
    "A10G": GpuModel(24, "ampere"),
    "A16": GpuModel(16, "ampere"),
    "A30": GpuModel(24, "ampere"),
    "A40": GpuModel(48, "ampere"),
    "A100": GpuModel(40, "ampere"),
    "A800": GpuModel(40, "ampere"),
    "L4": GpuModel(24, "ada"),
    "L20": GpuModel(48, "ada"),
    "L40": GpuModel(48, "ada"),
    "L40S": GpuModel(48, "ada"),
    "H20": GpuModel(96, "hopper"),
    "H100": GpuModel(80, "hopper"),
    "H100-SXM5": GpuModel(80, "hopper"),
    "H100-PCIe": GpuModel(80, "hopper"),
    "H100-NVL": GpuModel(94, "hopper"),
    "H800": GpuModel(80, "hopper"),
    "H200": GpuModel(141, "hopper"),
    "GH200": GpuModel(96, "hopper"),
    "B100": GpuModel(180, "blackwell"),
    "B200": GpuModel(180, "blackwell"),
    "B300": GpuModel(270, "blackwell"),
    "GB200": GpuModel(186, "blackwell"),
    "GB300": GpuModel(279, "blackwell"),
}

_MAKERS = re.compile(r"^(?:NVIDIA[- ])?(?:Tesla[- ])?", re.IGNORECASE)
_SIZE = re.compile(r"-([0-9]{1,4})GB(?=-|$)")


@lru_cache(maxsize=1024)
def memory_of(model: str) -> int:
    """Bytes of one device; 0 if not known."""
    known, size = find(model), _SIZE.search(model)
    if known is None:
        return 0
    return (int(size[1]) if size else known.memory_gib) * GIB


@lru_cache(maxsize=1024)
def architecture_of(model: str) -> str:
    """The architecture's name; empty if not known."""
    known = find(model)
    return known.architecture if known else ""


def find(model: str) -> GpuModel | None:
    """The entry with the longest name that matches."""
    name = _MAKERS.sub("", model).replace(" ", "-")
    matching = [known for known in GPU_MODELS if model_matches(known, name)]
    return GPU_MODELS[max(matching, key=len)] if matching else None
