"""What NVML tells of a machine, as frozen values that pass between processes and are kept in files.

A field that could not be had holds a `NotTold` in its place: a card that does not have a sensor, a call that failed and
a value that makes no sense are three things, and none of them is 0. Units are NVML's own and stand in the names.
"""

from __future__ import annotations

from typing import Any, Literal, TypeVar

from msgspec import Struct, structs

NOT_SUPPORTED: Literal["not supported"] = "not supported"
FAILED: Literal["failed"] = "failed"
UNKNOWN: Literal["unknown"] = "unknown"


class NotTold(Struct, frozen=True, forbid_unknown_fields=True):
    """Why a value is not there: this GPU does not have it; asking went wrong; the answer was of no use."""

    why: Literal["not supported", "failed", "unknown"]
    error: str = ""


Count = int | NotTold
Ratio = float | NotTold
Words = str | NotTold
Truth = bool | NotTold

UNASKED = NotTold(UNKNOWN, "not asked")
T = TypeVar("T")


def told(value: T | NotTold) -> T | None:
    """The value, if there is one."""
    return None if isinstance(value, NotTold) else value


class Link(Struct, frozen=True):
    """One NVLink port and where it leads: another GPU by its bus, or a switch behind which all are joined."""

    port: int
    active: bool
    remote: Literal["gpu", "switch", "cpu", "unknown"] = "unknown"
    bus: str = ""
    version: Count = UNASKED


class MigSlice(Struct, frozen=True):
    """One MIG device of a GPU."""

    profile: str
    uuid: str
    gpu_instance: Count = UNASKED
    compute_instance: Count = UNASKED
    memory: Count = UNASKED


class DeviceFacts(Struct, frozen=True):
    """What one GPU is. Known by `uuid`; `index` is only where it stood when it was asked."""

    index: int
    uuid: str
    name: str
    bus: str
    memory: Count = UNASKED
    minor: Count = UNASKED
    architecture: Words = UNASKED
    compute_capability: Words = UNASKED
    pci_device: Words = UNASKED
    numa: Count = UNASKED
    vbios: Words = UNASKED
    ecc: Truth = UNASKED
    ecc_pending: Truth = UNASKED
    mig: Truth = UNASKED
    mig_pending: Truth = UNASKED
    persistence: Truth = UNASKED
    compute_mode: Count = UNASKED
    power_limit_mw: Count = UNASKED
    power_default_mw: Count = UNASKED
    power_min_mw: Count = UNASKED
    power_max_mw: Count = UNASKED
    shutdown_c: Count = UNASKED
    slowdown_c: Count = UNASKED
    gpu_max_c: Count = UNASKED
    memory_max_c: Count = UNASKED
    shutdown_margin_c: Count = UNASKED
    slowdown_margin_c: Count = UNASKED
    pcie_gen_max: Count = UNASKED
    pcie_width_max: Count = UNASKED
    sm_clock_max_mhz: Count = UNASKED
    memory_clock_max_mhz: Count = UNASKED
    links: tuple[Link, ...] = ()
    slices: tuple[MigSlice, ...] = ()
    fabric_state: Words = UNASKED
    """Of a fabric of NVSwitches: `not started`, `in progress`, `completed`."""
    fabric_status: Count = UNASKED
    fabric_cluster: Words = UNASKED
    """With the clique: which GPUs of other nodes it reaches; empty where the fabric ends with the node."""
    fabric_clique: Count = UNASKED
    fabric_health: Count = UNASKED
    pci_path: Words = UNASKED
    """The bridges from the host down to it, as the kernel has them."""


NicClass = Literal["infiniband", "net"]


class Nic(Struct, frozen=True):
    """One network device under one of the names that the kernel gives it; `kind` is whose list it stands in."""

    name: str
    kind: NicClass
    bus: str
    pci_path: str = ""
    numa: Count = UNASKED
    state: Words = UNASKED
    """Of its link, in the kernel's word: `active` of RDMA, `up` of the rest."""
    speed_mbps: Count = UNASKED


class Pair(Struct, frozen=True):
    """Two GPUs and what lies between them: NVML's topology level (10 one PCIe switch ... 50 the whole system), whether
    each may read the other's memory (0: yes), and how many NVLinks join them directly."""

    one: str
    other: str
    ancestor: Count = UNASKED
    p2p: Count = UNASKED
    nvlinks: int = 0


class Unseen(Struct, frozen=True):
    """An index at which NVML counts a GPU and hands none out."""

    index: int
    error: str
    lost: bool = False


class MachineFacts(Struct, frozen=True, tag="machine"):
    """Everything that does not change while the driver stays loaded."""

    driver: Words
    cuda: Words
    nvml: Words
    gpus: tuple[DeviceFacts, ...] = ()
    pairs: tuple[Pair, ...] = ()
    unseen: tuple[Unseen, ...] = ()
    nics: tuple[Nic, ...] = ()


Fault = Literal["", "lost", "reset required"]


class GpuProcess(Struct, frozen=True):
    """A process that has the GPU open."""

    pid: int
    memory: Count = UNASKED


class SliceReadings(Struct, frozen=True):
    """What NVML tells of one MIG device now. Its memory is its GPU instance's, which other devices may share."""

    uuid: str
    memory_used: Count = UNASKED
    memory_free: Count = UNASKED


class Readings(Struct, frozen=True):
    """What one GPU is like now. Counters count since the driver was loaded, unless their name says otherwise."""

    uuid: str
    index: int
    utilization: Count = UNASKED
    memory_utilization: Count = UNASKED
    encoder: Count = UNASKED
    decoder: Count = UNASKED
    memory_used: Count = UNASKED
    memory_free: Count = UNASKED
    temperature_c: Count = UNASKED
    memory_temperature_c: Count = UNASKED
    margin_c: Count = UNASKED
    power_mw: Count = UNASKED
    energy_mj: Count = UNASKED
    sm_clock_mhz: Count = UNASKED
    memory_clock_mhz: Count = UNASKED
    video_clock_mhz: Count = UNASKED
    performance_state: Count = UNASKED
    clock_reasons: Count = UNASKED
    power_violation_ns: Count = UNASKED
    thermal_violation_ns: Count = UNASKED
    ecc_corrected: Count = UNASKED
    ecc_uncorrected: Count = UNASKED
    ecc_corrected_ever: Count = UNASKED
    ecc_uncorrected_ever: Count = UNASKED
    retired_corrected: Count = UNASKED
    retired_uncorrected: Count = UNASKED
    retired_pending: Count = UNASKED
    remapped_corrected: Count = UNASKED
    remapped_uncorrected: Count = UNASKED
    remap_pending: Count = UNASKED
    remap_failure: Count = UNASKED
    pcie_replay: Count = UNASKED
    pcie_gen: Count = UNASKED
    pcie_width: Count = UNASKED
    pcie_sent_bytes: Count = UNASKED
    pcie_received_bytes: Count = UNASKED
    nvlink_flit_errors: Count = UNASKED
    nvlink_data_errors: Count = UNASKED
    nvlink_replays: Count = UNASKED
    nvlink_recoveries: Count = UNASKED
    nvlink_sent_kib: Count = UNASKED
    nvlink_received_kib: Count = UNASKED
    links_up: Count = UNASKED
    recovery_action: Count = UNASKED
    tensor_active: Ratio = UNASKED
    sm_active: Ratio = UNASKED
    sm_occupancy: Ratio = UNASKED
    graphics_active: Ratio = UNASKED
    dram_active: Ratio = UNASKED
    processes: tuple[GpuProcess, ...] | NotTold = UNASKED
    xids: tuple[int, ...] | NotTold = UNASKED
    """Those that came since the last look."""
    fault: Fault = ""
    """What NVML answered instead, if any call was answered so."""
    slices: tuple[SliceReadings, ...] = ()


class Sample(Struct, frozen=True, tag="sample"):
    """All GPUs at one moment."""

    gpus: tuple[Readings, ...] = ()
    unseen: tuple[Unseen, ...] = ()


class Trouble(Struct, frozen=True, tag="trouble"):
    """Why nothing could be asked at all."""

    kind: Literal["no library", "no driver", "mismatch", "failed", "hung", "died", "nonsense"]
    error: str = ""

    def __str__(self) -> str:
        return f"{_TOLD[self.kind]}{f' ({self.error})' if self.error else ''}"


_TOLD = {
    "no library": "there is no NVIDIA management library here",
    "no driver": "the NVIDIA driver is not loaded",
    "mismatch": "the NVIDIA driver and its library are of different versions",
    "failed": "NVML cannot be opened",
    "hung": "NVML does not answer",
    "died": "the process that asks NVML ended",
    "nonsense": "NVML's answer makes no sense",
}

ABSENT = ("no library", "no driver")
"""The kinds of trouble that mean: no GPU of NVIDIA's is in use here."""

Answer = MachineFacts | Sample | Trouble


class Question(Struct, frozen=True):
    """What the child is asked. A replay needs to know how late it is, and when it was last asked in vain or not."""

    ask: Literal["machine", "sample"]
    at: float = 0.0
    since: float = -1.0


S = TypeVar("S", bound=Struct)


def changed(value: S, **fields: Any) -> S:
    """The same facts with some fields replaced."""
    return structs.replace(value, **fields)
