"""What NVML tells, checked before anybody believes it: a driver that is ill answers with numbers no GPU has.

Used by `watching`. A value out of its range becomes a `NotTold` that names it; it never becomes 0, and never stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpuyard.agent.nvml.facts import UNKNOWN, DeviceFacts, NotTold, Readings, Sample, SliceReadings, changed, told

RANGES: Mapping[str, tuple[float, float]] = {
    "utilization": (0, 100), "memory_utilization": (0, 100), "encoder": (0, 100), "decoder": (0, 100),
    "temperature_c": (-20, 150), "memory_temperature_c": (-20, 150), "margin_c": (-100, 150),
    "power_mw": (0, 5_000_000), "sm_clock_mhz": (0, 10_000), "memory_clock_mhz": (0, 50_000),
    "video_clock_mhz": (0, 10_000), "performance_state": (0, 32), "pcie_gen": (0, 10), "pcie_width": (0, 32),
    "links_up": (0, 72), "recovery_action": (0, 16), "retired_pending": (0, 1), "remap_pending": (0, 1),
    "remap_failure": (0, 1), "tensor_active": (0, 1), "sm_active": (0, 1), "sm_occupancy": (0, 1),
    "graphics_active": (0, 1), "dram_active": (0, 1),
}  # fmt: skip
"""Wider than any GPU there is; whatever is not named here counts something, and is at least 0."""
COUNTER_MAX = (1 << 63) - 1
NAMES = ("uuid", "index", "processes", "xids", "fault", "slices")


def believable(sample: Sample, known: Iterable[DeviceFacts]) -> Sample:
    """The same sample without what cannot be: absurd values, GPUs without a name of their own."""
    facts, unique = {gpu.uuid: gpu for gpu in known}, once(gpu.uuid for gpu in sample.gpus)
    gpus = [_checked(gpu, facts.get(gpu.uuid)) for gpu in sample.gpus if gpu.uuid in unique]
    return changed(sample, gpus=tuple(gpus))


def once(uuids: Iterable[str]) -> set[str]:
    """Those that are there exactly once, and are not empty: two GPUs of one name are nobody's facts."""
    given = list(uuids)
    return {uuid for uuid in given if uuid and given.count(uuid) == 1}


def _checked(readings: Readings, facts: DeviceFacts | None) -> Readings:
    bounds = dict(RANGES)
    if facts is not None and (memory := told(facts.memory)):
        bounds["memory_used"] = bounds["memory_free"] = (0, memory)
    wrong = {
        name: NotTold(UNKNOWN, f"it cannot be {value}")
        for name in Readings.__struct_fields__
        if name not in NAMES and not _fits(value := getattr(readings, name), bounds.get(name, (0, COUNTER_MAX)))
    }
    slices = tuple(_checked_slice(each, facts) for each in readings.slices)
    return changed(readings, slices=slices, **wrong) if wrong or slices else readings


def _checked_slice(readings: SliceReadings, facts: DeviceFacts | None) -> SliceReadings:
    """What its own size bounds; where that is not told, its GPU's."""
    own = next((told(each.memory) for each in facts.slices if each.uuid == readings.uuid), None) if facts else None
    most = own or (told(facts.memory) if facts else None) or COUNTER_MAX
    wrong = {
        name: NotTold(UNKNOWN, f"it cannot be {value}")
        for name in ("memory_used", "memory_free")
        if not _fits(value := getattr(readings, name), (0, most))
    }
    return changed(readings, **wrong) if wrong else readings


def _fits(value: Any, bounds: tuple[float, float]) -> bool:
    return isinstance(value, NotTold) or bounds[0] <= value <= bounds[1]
