"""What goes wrong with a recorded machine, and when: the file of `yard agent --faults`, and how each fault shows.

Used by `replay`. Each fault shows as NVML would show it on a machine that has it, as far as that is known; `set` puts
any reading to any value, so that load can be made up too.
"""

from __future__ import annotations

import pathlib
from typing import Any, Literal

import msgspec
from msgspec import Struct

from gpuyard.agent.nvml.facts import DeviceFacts, Readings, changed, told
from gpuyard.model.errors import Refused

HW_SLOWDOWN, HW_THERMAL = 0x8, 0x40
WRAPPED = 0xFFFFFFFF
"""What -1 looks like where nobody expects it."""


class NvmlFault(Struct, frozen=True, forbid_unknown_fields=True):
    """One fault, from `at` until `until` (never: for good), of one GPU by UUID or recorded index, or of all."""

    fault: Literal[
        "xid", "ecc", "lost", "hang", "crash", "no-driver", "thermal", "clock-drop", "link-down", "nonsense",
        "renumber", "set",
    ]  # fmt: skip
    at: float = 0.0
    until: float | None = None
    gpu: int | str | None = None
    value: int | None = None
    set: dict[str, int | float] = {}

    def stands(self, at: float) -> bool:
        """Whether it is there at that moment."""
        return self.at <= at and (self.until is None or at < self.until)

    def hits(self, gpu: DeviceFacts) -> bool:
        """Whether it is this GPU's."""
        return self.gpu is None or self.gpu in (gpu.uuid, gpu.index)


def read(path: pathlib.Path) -> tuple[NvmlFault, ...]:
    """The faults of a file, YAML or JSON: a list. `Refused` in one sentence if it is none."""
    try:
        if path.suffix == ".json":
            return msgspec.json.decode(path.read_bytes(), type=tuple[NvmlFault, ...])
        return msgspec.yaml.decode(path.read_bytes(), type=tuple[NvmlFault, ...])
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror or error}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        told_ = f"{path} is no list of faults: {' '.join(str(error).split())}"
        raise Refused(f"{told_}; an entry is like `{{fault: xid, gpu: 3, at: 60, value: 79}}`") from error


def shown(readings: Readings, gpu: DeviceFacts, fault: NvmlFault) -> Readings:
    """What NVML tells of a GPU that has this fault."""
    match fault.fault:
        case "ecc":
            count = fault.value or 1
            return changed(readings, ecc_uncorrected=count, ecc_uncorrected_ever=count)
        case "thermal":
            hot = fault.value or (told(gpu.slowdown_c) or 89) + 1
            reasons = (told(readings.clock_reasons) or 0) | HW_THERMAL | HW_SLOWDOWN
            return changed(readings, temperature_c=hot, margin_c=-3, clock_reasons=reasons)
        case "clock-drop":
            slow = fault.value or (told(gpu.sm_clock_max_mhz) or 1980) // 4
            return changed(readings, sm_clock_mhz=slow, clock_reasons=(told(readings.clock_reasons) or 0) | HW_SLOWDOWN)
        case "link-down":
            return changed(readings, links_up=max(0, (told(readings.links_up) or 0) - (fault.value or 1)))
        case "nonsense":
            return changed(readings, **_absurd())
        case "set":
            return changed(readings, **_settable(fault.set))
        case _:
            return readings


def _absurd() -> dict[str, Any]:
    """Values that no GPU has."""
    return {
        "utilization": 400, "memory_used": 1 << 62, "temperature_c": WRAPPED, "power_mw": WRAPPED,
        "sm_clock_mhz": WRAPPED, "tensor_active": 17.0, "ecc_uncorrected": -1,
    }  # fmt: skip


def _settable(values: dict[str, int | float]) -> dict[str, int | float]:
    return {name: value for name, value in values.items() if name in Readings.__struct_fields__}
