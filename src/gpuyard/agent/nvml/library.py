"""The one door to NVIDIA's management library: its calls become the values of `facts`.

Runs in the child alone, because any of these calls may never return. Every call is made on its own, so that one that a
card does not have costs that value and no other. The library itself is handed in by tests.
"""

from __future__ import annotations

import contextlib
import ctypes
import pathlib
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from typing import Any, Literal

from gpuyard.agent.nvml import gpm, nics
from gpuyard.agent.nvml.facts import (
    FAILED,
    NOT_SUPPORTED,
    Count,
    DeviceFacts,
    Fault,
    GpuProcess,
    Link,
    MachineFacts,
    MigSlice,
    NotTold,
    Pair,
    Readings,
    Sample,
    SliceReadings,
    Trouble,
    Unseen,
    told,
)

LINKS_MAX = 18
"""NVLink ports of the largest GPUs (Hopper, Blackwell)."""

ARCHITECTURES = {
    2: "kepler", 3: "maxwell", 4: "pascal", 5: "volta", 6: "turing", 7: "ampere", 8: "ada", 9: "hopper",
    10: "blackwell", 11: "rubin",
}  # fmt: skip
"""NVML_DEVICE_ARCH_* of nvml.h."""

# Codes of nvml.h.
NO_SUCH_THING = (3, 13, 22, 24, 25, 26)
"""Not supported; a function or version of an argument that this driver does not know; deprecated."""
DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, MISMATCH = 9, 12, 18
LOST, RESET_REQUIRED, GPU_NOT_FOUND = 15, 16, 28
IS_LOST, NEEDS_RESET = "the GPU is lost", "the GPU needs a reset"
"""How the first two of these are told; they condemn the GPU, whichever call was answered so."""
XID_EVENT = 0x8
EVENTS_MAX = 256

REMOTES: Mapping[int, Literal["gpu", "cpu", "switch"]] = {0: "gpu", 1: "cpu", 2: "switch"}
FABRIC_STATES = {1: "not started", 2: "in progress", 3: "completed"}

Asker = Callable[[Any, Any], Any]

FACTS: Mapping[str, Asker] = {
    "memory": lambda n, h: int(n.nvmlDeviceGetMemoryInfo(h).total),
    "minor": lambda n, h: int(n.nvmlDeviceGetMinorNumber(h)),
    "architecture": lambda n, h: ARCHITECTURES.get(int(n.nvmlDeviceGetArchitecture(h)), ""),
    "compute_capability": lambda n, h: ".".join(str(part) for part in n.nvmlDeviceGetCudaComputeCapability(h)),
    "pci_device": lambda n, h: f"{int(n.nvmlDeviceGetPciInfo(h).pciDeviceId):08x}",
    "vbios": lambda n, h: _text(n.nvmlDeviceGetVbiosVersion(h)),
    "ecc": lambda n, h: bool(n.nvmlDeviceGetCurrentEccMode(h)),
    "ecc_pending": lambda n, h: bool(n.nvmlDeviceGetPendingEccMode(h)),
    "mig": lambda n, h: bool(n.nvmlDeviceGetMigMode(h)[0]),
    "mig_pending": lambda n, h: bool(n.nvmlDeviceGetMigMode(h)[1]),
    "persistence": lambda n, h: bool(n.nvmlDeviceGetPersistenceMode(h)),
    "compute_mode": lambda n, h: int(n.nvmlDeviceGetComputeMode(h)),
    "power_limit_mw": lambda n, h: int(n.nvmlDeviceGetEnforcedPowerLimit(h)),
    "power_default_mw": lambda n, h: int(n.nvmlDeviceGetPowerManagementDefaultLimit(h)),
    "power_min_mw": lambda n, h: int(n.nvmlDeviceGetPowerManagementLimitConstraints(h)[0]),
    "power_max_mw": lambda n, h: int(n.nvmlDeviceGetPowerManagementLimitConstraints(h)[1]),
    "shutdown_c": lambda n, h: int(n.nvmlDeviceGetTemperatureThreshold(h, 0)),
    "slowdown_c": lambda n, h: int(n.nvmlDeviceGetTemperatureThreshold(h, 1)),
    "memory_max_c": lambda n, h: int(n.nvmlDeviceGetTemperatureThreshold(h, 2)),
    "gpu_max_c": lambda n, h: int(n.nvmlDeviceGetTemperatureThreshold(h, 3)),
    "pcie_gen_max": lambda n, h: int(n.nvmlDeviceGetMaxPcieLinkGeneration(h)),
    "pcie_width_max": lambda n, h: int(n.nvmlDeviceGetMaxPcieLinkWidth(h)),
    "sm_clock_max_mhz": lambda n, h: int(n.nvmlDeviceGetMaxClockInfo(h, 1)),
    "memory_clock_max_mhz": lambda n, h: int(n.nvmlDeviceGetMaxClockInfo(h, 2)),
    "fabric_state": lambda n, h: FABRIC_STATES.get(int(_fabric(n, h).state), "unknown"),
    "fabric_status": lambda n, h: int(_fabric(n, h).status),
    "fabric_cluster": lambda n, h: _cluster(_fabric(n, h)),
    "fabric_clique": lambda n, h: int(_fabric(n, h).cliqueId),
    "fabric_health": lambda n, h: int(_fabric(n, h).healthMask),
}

READINGS: Mapping[str, Asker] = {
    "utilization": lambda n, h: int(n.nvmlDeviceGetUtilizationRates(h).gpu),
    "memory_utilization": lambda n, h: int(n.nvmlDeviceGetUtilizationRates(h).memory),
    "encoder": lambda n, h: int(n.nvmlDeviceGetEncoderUtilization(h)[0]),
    "decoder": lambda n, h: int(n.nvmlDeviceGetDecoderUtilization(h)[0]),
    "memory_used": lambda n, h: int(_memory(n, h).used),
    "memory_free": lambda n, h: int(_memory(n, h).free),
    "temperature_c": lambda n, h: int(n.nvmlDeviceGetTemperature(h, 0)),
    "margin_c": lambda n, h: int(n.nvmlDeviceGetMarginTemperature(h)),
    "power_mw": lambda n, h: int(n.nvmlDeviceGetPowerUsage(h)),
    "energy_mj": lambda n, h: int(n.nvmlDeviceGetTotalEnergyConsumption(h)),
    "sm_clock_mhz": lambda n, h: int(n.nvmlDeviceGetClockInfo(h, 1)),
    "memory_clock_mhz": lambda n, h: int(n.nvmlDeviceGetClockInfo(h, 2)),
    "video_clock_mhz": lambda n, h: int(n.nvmlDeviceGetClockInfo(h, 3)),
    "performance_state": lambda n, h: int(n.nvmlDeviceGetPerformanceState(h)),
    "clock_reasons": lambda n, h: int(n.nvmlDeviceGetCurrentClocksEventReasons(h)),
    "pcie_gen": lambda n, h: int(n.nvmlDeviceGetCurrPcieLinkGeneration(h)),
    "pcie_width": lambda n, h: int(n.nvmlDeviceGetCurrPcieLinkWidth(h)),
}

FACT_FIELDS = {"shutdown_margin_c": 193, "slowdown_margin_c": 194}
"""NVML_FI_DEV_* of nvml.h, asked in one call; so are the next."""
READING_FIELDS = {
    "ecc_corrected": 3, "ecc_uncorrected": 4, "ecc_corrected_ever": 5, "ecc_uncorrected_ever": 6,
    "retired_corrected": 29, "retired_uncorrected": 30, "retired_pending": 31,
    "nvlink_flit_errors": 38, "nvlink_data_errors": 45, "nvlink_replays": 52, "nvlink_recoveries": 59,
    "power_violation_ns": 74, "thermal_violation_ns": 75, "memory_temperature_c": 82, "pcie_replay": 94,
    "remapped_corrected": 142, "remapped_uncorrected": 143, "remap_pending": 144, "remap_failure": 145,
    "pcie_sent_bytes": 197, "pcie_received_bytes": 198, "recovery_action": 230,
    "nvlink_sent_kib": 138, "nvlink_received_kib": 139,
}  # fmt: skip
ALL_LINKS = 0xFFFFFFFF
OVER_ALL_LINKS = (138, 139)
"""Fields that are asked for each link, or for all together by this scope."""


class Library:
    """NVML, opened. A machine without it has none: `Unopened` says why."""

    def __init__(self, nvml: Any = None, sys: pathlib.Path = nics.SYS) -> None:
        self._sys = sys
        self._nvml = nvml or _driver()
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            raise Unopened(_trouble(error)) from error
        self._gpm = gpm.Activity(self._nvml)
        self._events = self._register()

    def close(self) -> None:
        """Let go of it."""
        self._nvml.nvmlShutdown()

    # --- what does not change --------------------------------------------------------------------

    def machine(self) -> MachineFacts:
        """Every GPU, what it is and how it is joined to the others."""
        nvml = self._nvml
        handles, unseen = self._handles()
        known: list[tuple[DeviceFacts, Any]] = []
        for index, handle in handles:
            try:
                known.append((self._facts(index, handle), handle))
            except nvml.NVMLError as error:  # without a name it is none; the others have theirs
                unseen.append(_unseen(index, error))
        gpus = tuple(facts for facts, _ in known)
        return MachineFacts(
            driver=_ask(nvml, lambda n, _: _text(n.nvmlSystemGetDriverVersion()), None),
            cuda=_ask(nvml, lambda n, _: _cuda(n.nvmlSystemGetCudaDriverVersion_v2()), None),
            nvml=_ask(nvml, lambda n, _: _text(n.nvmlSystemGetNVMLVersion()), None),
            gpus=gpus,
            pairs=tuple(self._pairs(gpus, [handle for _, handle in known])),
            unseen=tuple(unseen),
            nics=nics.nics(self._sys),
        )

    def _facts(self, index: int, handle: Any) -> DeviceFacts:
        nvml, bus = self._nvml, _bus(self._nvml.nvmlDeviceGetPciInfo(handle))
        return DeviceFacts(
            index=index,
            uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
            name=_text(nvml.nvmlDeviceGetName(handle)),
            bus=bus,
            pci_path=nics.pci_path(self._sys, sysfs_name(bus)),
            links=tuple(self._links(handle)),
            slices=tuple(self._slices(handle)),
            numa=_ask(nvml, _numa, handle),
            **{name: _ask(nvml, question, handle) for name, question in FACTS.items()},
            **_fields(nvml, handle, FACT_FIELDS),
        )

    def _links(self, handle: Any) -> Iterator[Link]:
        """Ports that a card does not have are left out; one that is down is told as such."""
        for port in range(LINKS_MAX):
            active = _ask(self._nvml, lambda n, h, port=port: bool(n.nvmlDeviceGetNvLinkState(h, port)), handle)
            if isinstance(active, NotTold):
                continue
            kind = _ask(self._nvml, lambda n, h, port=port: int(n.nvmlDeviceGetNvLinkRemoteDeviceType(h, port)), handle)
            bus = _ask(self._nvml, lambda n, h, port=port: _bus(n.nvmlDeviceGetNvLinkRemotePciInfo(h, port)), handle)
            version = _ask(self._nvml, lambda n, h, port=port: int(n.nvmlDeviceGetNvLinkVersion(h, port)), handle)
            yield Link(port, active, REMOTES.get(told(kind) or 0, "unknown"), told(bus) or "", version)

    def _parts(self, handle: Any) -> Iterator[Any]:
        """The MIG devices of a GPU: as many as could be are asked for, and those that are answer."""
        nvml = self._nvml
        most = _ask(nvml, lambda n, h: int(n.nvmlDeviceGetMaxMigDeviceCount(h)), handle)
        for index in range(told(most) or 0):
            part = _ask(nvml, lambda n, h, index=index: n.nvmlDeviceGetMigDeviceHandleByIndex(h, index), handle)
            if not isinstance(part, NotTold):
                yield part

    def _slices(self, handle: Any) -> Iterator[MigSlice]:
        nvml = self._nvml
        for part in self._parts(handle):
            profile = _text(nvml.nvmlDeviceGetName(part)).rpartition("MIG ")[2]
            yield MigSlice(
                profile,
                _text(nvml.nvmlDeviceGetUUID(part)),
                _ask(nvml, lambda n, h: int(n.nvmlDeviceGetGpuInstanceId(h)), part),
                _ask(nvml, lambda n, h: int(n.nvmlDeviceGetComputeInstanceId(h)), part),
                _ask(nvml, lambda n, h: int(n.nvmlDeviceGetMemoryInfo(h).total), part),
            )

    def _pairs(self, gpus: tuple[DeviceFacts, ...], handles: list[Any]) -> Iterator[Pair]:
        for (one, first), (other, second) in combinations(zip(gpus, handles, strict=True), 2):
            yield Pair(
                one.uuid,
                other.uuid,
                _ask(self._nvml, lambda n, h, to=second: int(n.nvmlDeviceGetTopologyCommonAncestor(h, to)), first),
                _ask(self._nvml, lambda n, h, to=second: _status(n.nvmlDeviceGetP2PStatus(h, to, 0)), first),
                sum(link.active and link.bus == other.bus for link in one.links),
            )

    # --- what does -------------------------------------------------------------------------------

    def sample(self) -> Sample:
        """Every GPU as it is now."""
        handles, unseen = self._handles()
        came = self._xids()
        return Sample(tuple(self._readings(index, handle, came) for index, handle in handles), tuple(unseen))

    def _readings(self, index: int, handle: Any, came: dict[str, tuple[int, ...]] | NotTold) -> Readings:
        nvml = self._nvml
        uuid = _text(nvml.nvmlDeviceGetUUID(handle))
        values = {name: _ask(nvml, question, handle) for name, question in READINGS.items()}
        values |= {"links_up": _ask(nvml, _links_up, handle), "processes": _ask(nvml, _processes, handle)}
        values |= _fields(nvml, handle, READING_FIELDS)
        values |= self._gpm.look(uuid, handle)
        said = {value.error for value in values.values() if isinstance(value, NotTold)}
        fault: Fault = "lost" if IS_LOST in said else "reset required" if NEEDS_RESET in said else ""
        xids = came if isinstance(came, NotTold) else came.get(uuid, ())
        slices = tuple(self._slice_readings(handle))
        return Readings(uuid=uuid, index=index, xids=xids, fault=fault, slices=slices, **values)

    def _slice_readings(self, handle: Any) -> Iterator[SliceReadings]:
        nvml = self._nvml
        for part in self._parts(handle):
            uuid = told(_ask(nvml, lambda n, h: _text(n.nvmlDeviceGetUUID(h)), part))
            if uuid:
                memory = {name: _ask(nvml, READINGS[name], part) for name in ("memory_used", "memory_free")}
                yield SliceReadings(uuid, **memory)

    def _handles(self) -> tuple[list[tuple[int, Any]], list[Unseen]]:
        nvml, found, unseen = self._nvml, [], []
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                nvml.nvmlDeviceGetUUID(handle)
                found.append((index, handle))
            except nvml.NVMLError as error:
                unseen.append(_unseen(index, error))
        return found, unseen

    # --- events ----------------------------------------------------------------------------------

    def _register(self) -> Any:
        """An event set in which Xids of all GPUs gather; or why there is none."""
        nvml = self._nvml
        try:
            events = nvml.nvmlEventSetCreate()
            for _, handle in self._handles()[0]:
                nvml.nvmlDeviceRegisterEvents(handle, XID_EVENT, events)
        except (nvml.NVMLError, AttributeError) as error:
            return _not_told(error)
        return events

    def _xids(self) -> dict[str, tuple[int, ...]] | NotTold:
        if isinstance(self._events, NotTold):
            return self._events
        came: dict[str, tuple[int, ...]] = {}
        with contextlib.suppress(self._nvml.NVMLError):  # a time-out: no more are there
            for _ in range(EVENTS_MAX):
                event = self._nvml.nvmlEventSetWait_v2(self._events, 0)
                uuid = _text(self._nvml.nvmlDeviceGetUUID(event.device))
                came[uuid] = (*came.get(uuid, ()), int(event.eventData))
        return came


class Unsupported(Exception):
    """The card does not have what was asked for, and the library has no code to say so."""


class Unopened(Exception):
    """NVML could not be opened."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(str(trouble))
        self.trouble = trouble


def _driver() -> Any:
    import pynvml

    return pynvml


# --- one call ------------------------------------------------------------------------------------


def _ask(nvml: Any, question: Any, handle: Any) -> Any:
    try:
        return question(nvml, handle)
    except (nvml.NVMLError, Unsupported, AttributeError, ValueError, OSError) as error:
        return _not_told(error)


def _not_told(error: Exception) -> NotTold:
    code = _code(error)
    if isinstance(error, AttributeError | Unsupported) or code in NO_SUCH_THING:
        return NotTold(NOT_SUPPORTED)  # an attribute: these bindings are older than the question
    return NotTold(FAILED, {LOST: IS_LOST, RESET_REQUIRED: NEEDS_RESET}.get(code, str(error)))


def _unseen(index: int, error: Exception) -> Unseen:
    return Unseen(index, str(error), _code(error) in (LOST, GPU_NOT_FOUND))


def _code(error: Exception) -> int:
    value = getattr(error, "value", 0)
    return value if isinstance(value, int) else 0


def _trouble(error: Exception) -> Trouble:
    code = _code(error)
    if code == DRIVER_NOT_LOADED:
        return Trouble("no driver")
    if code == LIBRARY_NOT_FOUND:
        return Trouble("no library")
    return Trouble("mismatch" if code == MISMATCH else "failed", str(error))


def _fields(nvml: Any, handle: Any, wanted: Mapping[str, int]) -> dict[str, Any]:
    """Field values, which come many at a time, each with a return code of its own."""
    ids = [(field, ALL_LINKS) if field in OVER_ALL_LINKS else field for field in wanted.values()]
    values = _ask(nvml, lambda n, h: list(n.nvmlDeviceGetFieldValues(h, ids)), handle)
    if isinstance(values, NotTold):
        return dict.fromkeys(wanted, values)
    return {name: _field(nvml, value) for name, value in zip(wanted, values, strict=True)}


def _field(nvml: Any, value: Any) -> Count:
    if value.nvmlReturn:
        return _not_told(nvml.NVMLError(value.nvmlReturn))
    kinds = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
    return int(getattr(value.value, kinds.get(value.valueType, "ullVal")))


# --- what needs more than one line ---------------------------------------------------------------


def _memory(nvml: Any, handle: Any) -> Any:
    """What programs use: the first version of the call counts as used what the driver keeps for itself, half a GiB and
    more, on a card that nobody uses."""
    try:
        return nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
    except AttributeError:  # bindings that know of one version alone
        return nvml.nvmlDeviceGetMemoryInfo(handle)
    except nvml.NVMLError as error:
        if _code(error) not in NO_SUCH_THING:
            raise
        return nvml.nvmlDeviceGetMemoryInfo(handle)


def _numa(nvml: Any, handle: Any) -> int:
    """The node as the kernel knows it by the PCI device; NVML's own call speaks of GPUs that are NUMA nodes."""
    path = pathlib.Path("/sys/bus/pci/devices") / sysfs_name(_bus(nvml.nvmlDeviceGetPciInfo(handle))) / "numa_node"
    return int(path.read_text(encoding="ascii"))


def sysfs_name(bus: str) -> str:
    """`00000000:1b:00.0` of NVML is `0000:1b:00.0` in /sys."""
    domain, _, rest = bus.partition(":")
    return f"{domain[-4:]}:{rest}"


def _links_up(nvml: Any, handle: Any) -> int:
    states = [_ask(nvml, lambda n, h, p=p: bool(n.nvmlDeviceGetNvLinkState(h, p)), handle) for p in range(LINKS_MAX)]
    if all(isinstance(state, NotTold) for state in states):
        raise Unsupported
    return sum(state is True for state in states)


def _processes(nvml: Any, handle: Any) -> tuple[GpuProcess, ...]:
    """Not all drivers tell how much memory each has."""
    found = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    return tuple(
        GpuProcess(int(one.pid), NotTold(NOT_SUPPORTED) if one.usedGpuMemory is None else int(one.usedGpuMemory))
        for one in found
    )


def _fabric(nvml: Any, handle: Any) -> Any:
    info = nvml.c_nvmlGpuFabricInfoV_t()
    nvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))
    if not info.state:
        raise Unsupported
    return info


def _cluster(info: Any) -> str:
    """Nothing but zeros is no cluster: the fabric ends with the node."""
    cluster = bytes(bytearray(info.clusterUuid)).hex()
    return cluster if cluster.strip("0") else ""


def _status(value: Any) -> int:
    return int(getattr(value, "value", value))


def _cuda(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"


def _bus(info: Any) -> str:
    return _text(info.busId).lower()


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
