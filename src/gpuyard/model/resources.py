"""Amounts of GPU, CPU and memory, and what one task asks for.

Everybody uses these; nothing here knows a node, a queue or a unit string (units are read in `files`).
GPU amounts are integers in grains, so that sums are exact to the byte of a device's memory: three tasks of 8 GiB fit a
card of 24 GiB, and with one byte more they do not.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuyard.model.outside.phrases import counted

WHOLE = 10**13
"""One whole GPU, in grains: fine enough for single bytes of memory, coarse enough for a million GPUs in 64 bits."""

MILLI = WHOLE // 1000
"""A thousandth of a GPU, the smallest fraction a job may ask for."""

UNLIMITED = 1 << 62
"""An amount that is never reached; prints as "unlimited"."""

MIG_SLICES = 7
"""Compute slices of a GPU: a `1g` slice costs a seventh of it (rule 5)."""


Extras = tuple[tuple[str, int], ...]
"""Things of a node that are counted and mean nothing to us: storage, huge pages, adapters, ports of the host."""

PORT = "port/"
"""Extras that every node has once, whether it lists them or not: `port/TCP/80`."""

ATTACHABLE = "attachable-volumes-csi-"
"""Extras of which a node that does not list them has as many as one likes: volumes that a storage driver attaches."""


@dataclass(frozen=True, slots=True)
class Request:
    """What one task needs. At most one of `gpus`, `share`, `gpu_memory`, `mig` is set; none is a CPU-only task."""

    gpus: int = 0
    """Whole devices."""
    share: int = 0
    """Part of one device, in grains."""
    gpu_memory: int = 0
    """Bytes of one device's memory."""
    mig: tuple[tuple[str, int], ...] = ()
    """MIG profiles with counts, sorted by profile."""
    cpu: int = 0
    """Milli-cores."""
    memory: int = 0
    """Bytes."""
    extras: Extras = ()
    """What else is counted on a node: names with amounts, sorted by name."""

    @property
    def cpu_only(self) -> bool:
        """Whether the task needs no GPU of any kind."""
        return not (self.gpus or self.share or self.gpu_memory or self.mig)

    @property
    def shared(self) -> bool:
        """Whether the task takes a part of one device and can share it."""
        return bool(self.share or self.gpu_memory)


def mig_cost(profile: str) -> int:
    """The share of a GPU that a slice of `profile` costs: g ÷ 7 (rule 5)."""
    head = profile.split("g.", 1)[0]
    return WHOLE * int(head) // MIG_SLICES if head.isdigit() else WHOLE // MIG_SLICES


def as_gpus(amount: float) -> float | int | str:
    """An amount of grains as people read it: `8`, `0.5`, `"unlimited"`."""
    if amount >= UNLIMITED:
        return "unlimited"
    whole = round(amount / WHOLE, 3)
    return int(whole) if whole == int(whole) else whole


def gpu_words(amount: float) -> str:
    """An amount of grains in a sentence: `1 GPU`, `8 GPUs`."""
    return counted(as_gpus(amount), "GPU")
