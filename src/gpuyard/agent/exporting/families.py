"""A machine's GPUs as metric families, under the names and labels of NVIDIA's dcgm-exporter, so that dashboards work.

Used by the agent's own /metrics and by the embedded yard's. What was not told has no series: no 0 stands for it, and no
last value. MIG devices share most sensors with their GPU, so the GPU's series are told once, without a profile; what
NVML tells of GPU instances (`slices`) is told of those, and not of the GPU again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from gpuyard.agent import discovery, verdicts
from gpuyard.agent.job_use import JobUse
from gpuyard.agent.nvml.facts import DeviceFacts, NotTold, Readings, SliceReadings, told
from gpuyard.agent.watching import GpuView, MachineView

Kind = Literal["gauge", "counter"]
Value = Callable[[Readings], int | float | NotTold]
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Family:
    """One metric with its series: labels in a fixed order, and a value."""

    name: str
    words: str
    kind: Kind
    series: tuple[tuple[Mapping[str, str], float], ...] = ()


@dataclass(frozen=True, slots=True)
class GpuHolder:
    """Who has a GPU."""

    job: str = ""
    namespace: str = ""
    pod: str = ""
    container: str = ""


@dataclass(frozen=True, slots=True)
class Export:
    """What is told of, and how labels are written."""

    view: MachineView
    now: float
    hostname: str = ""
    old_hostname_label: bool = False
    """Also as `Hostname`, as dcgm-exporter wrote it before version 4."""
    holders: Mapping[str, Sequence[GpuHolder]] = field(default_factory=dict)
    """By UUID. A GPU that several have is told once for each."""
    jobs: Mapping[str, JobUse] = field(default_factory=dict)


def _per_mib(value: int | NotTold) -> float | NotTold:
    return value if isinstance(value, NotTold) else value // MIB


def _watts(value: int | NotTold) -> float | NotTold:
    return value if isinstance(value, NotTold) else value / 1000


def _nvlink_mib(readings: Readings) -> float | NotTold:
    sent, received = readings.nvlink_sent_kib, readings.nvlink_received_kib
    if isinstance(sent, NotTold) or isinstance(received, NotTold):
        return sent if isinstance(sent, NotTold) else received
    return (sent + received) // 1024


@dataclass(frozen=True, slots=True)
class DcgmField:
    """One DCGM field: its name without the prefix, what it is, and where it is read."""

    name: str
    kind: Kind
    words: str
    value: Value


FIELDS: tuple[DcgmField, ...] = (
    DcgmField("DEV_SM_CLOCK", "gauge", "SM clock (MHz).", lambda r: r.sm_clock_mhz),
    DcgmField("DEV_MEM_CLOCK", "gauge", "Memory clock (MHz).", lambda r: r.memory_clock_mhz),
    DcgmField("DEV_VIDEO_CLOCK", "gauge", "Video clock (MHz).", lambda r: r.video_clock_mhz),
    DcgmField("DEV_GPU_TEMP", "gauge", "GPU temperature (C).", lambda r: r.temperature_c),
    DcgmField("DEV_MEMORY_TEMP", "gauge", "Memory temperature (C).", lambda r: r.memory_temperature_c),
    DcgmField("DEV_POWER_USAGE", "gauge", "Power draw (W).", lambda r: _watts(r.power_mw)),
    DcgmField("DEV_TOTAL_ENERGY_CONSUMPTION", "counter", "Energy since boot (mJ).", lambda r: r.energy_mj),
    DcgmField("DEV_PSTATE", "gauge", "Performance state.", lambda r: r.performance_state),
    DcgmField("DEV_CLOCK_THROTTLE_REASONS", "gauge", "Why clocks are cut (bits).", lambda r: r.clock_reasons),
    DcgmField("DEV_POWER_VIOLATION", "counter", "Time slowed for power (ns).", lambda r: r.power_violation_ns),
    DcgmField("DEV_THERMAL_VIOLATION", "counter", "Time slowed for heat (ns).", lambda r: r.thermal_violation_ns),
    DcgmField("DEV_GPU_UTIL", "gauge", "GPU utilization (%).", lambda r: r.utilization),
    DcgmField("DEV_MEM_COPY_UTIL", "gauge", "Memory utilization (%).", lambda r: r.memory_utilization),
    DcgmField("DEV_ENC_UTIL", "gauge", "Encoder utilization (%).", lambda r: r.encoder),
    DcgmField("DEV_DEC_UTIL", "gauge", "Decoder utilization (%).", lambda r: r.decoder),
    DcgmField("DEV_FB_USED", "gauge", "Framebuffer memory used (MiB).", lambda r: _per_mib(r.memory_used)),
    DcgmField("DEV_FB_FREE", "gauge", "Framebuffer memory free (MiB).", lambda r: _per_mib(r.memory_free)),
    DcgmField("DEV_ECC_SBE_VOL_TOTAL", "counter", "Corrected errors since load.", lambda r: r.ecc_corrected),
    DcgmField("DEV_ECC_DBE_VOL_TOTAL", "counter", "Uncorrected errors since load.", lambda r: r.ecc_uncorrected),
    DcgmField("DEV_ECC_SBE_AGG_TOTAL", "counter", "Corrected errors ever.", lambda r: r.ecc_corrected_ever),
    DcgmField("DEV_ECC_DBE_AGG_TOTAL", "counter", "Uncorrected errors ever.", lambda r: r.ecc_uncorrected_ever),
    DcgmField("DEV_RETIRED_SBE", "counter", "Pages retired for corrected errors.", lambda r: r.retired_corrected),
    DcgmField("DEV_RETIRED_DBE", "counter", "Pages retired for uncorrected errors.", lambda r: r.retired_uncorrected),
    DcgmField("DEV_RETIRED_PENDING", "gauge", "Pages to be retired.", lambda r: r.retired_pending),
    DcgmField("DEV_CORRECTABLE_REMAPPED_ROWS", "counter", "Rows replaced, corrected.", lambda r: r.remapped_corrected),
    DcgmField(
        "DEV_UNCORRECTABLE_REMAPPED_ROWS", "counter", "Rows replaced, uncorrected.", lambda r: r.remapped_uncorrected
    ),
    DcgmField("DEV_ROW_REMAP_PENDING", "gauge", "Whether a row is to be replaced.", lambda r: r.remap_pending),
    DcgmField("DEV_ROW_REMAP_FAILURE", "gauge", "Whether replacing rows failed.", lambda r: r.remap_failure),
    DcgmField("DEV_PCIE_REPLAY_COUNTER", "counter", "PCIe retries.", lambda r: r.pcie_replay),
    DcgmField("DEV_PCIE_LINK_GEN", "gauge", "PCIe generation now.", lambda r: r.pcie_gen),
    DcgmField("DEV_PCIE_LINK_WIDTH", "gauge", "PCIe lanes now.", lambda r: r.pcie_width),
    DcgmField(
        "DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "counter", "NVLink flit errors.", lambda r: r.nvlink_flit_errors
    ),
    DcgmField(
        "DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", "counter", "NVLink data errors.", lambda r: r.nvlink_data_errors
    ),
    DcgmField("DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "counter", "NVLink retries.", lambda r: r.nvlink_replays),
    DcgmField("DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "counter", "NVLink recoveries.", lambda r: r.nvlink_recoveries),
    DcgmField("DEV_NVLINK_BANDWIDTH_TOTAL", "counter", "NVLink data both ways (MiB).", _nvlink_mib),
    DcgmField("PROF_GR_ENGINE_ACTIVE", "gauge", "Share of time any engine was active.", lambda r: r.graphics_active),
    DcgmField("PROF_SM_ACTIVE", "gauge", "Share of SMs that were active.", lambda r: r.sm_active),
    DcgmField("PROF_SM_OCCUPANCY", "gauge", "Share of warps that were resident.", lambda r: r.sm_occupancy),
    DcgmField("PROF_PIPE_TENSOR_ACTIVE", "gauge", "Share of time tensor cores were active.", lambda r: r.tensor_active),
    DcgmField("PROF_DRAM_ACTIVE", "gauge", "Share of memory bandwidth in use.", lambda r: r.dram_active),
)
PREFIX = "DCGM_FI_"
_COMPUTE = re.compile(r"^\d+c\.")
"""What the profile of a part of an instance has before the instance's own: `1c.3g.40gb`."""


def families(export: Export) -> Iterator[Family]:
    """All of them, those without a series included."""
    labelled = [(view, each) for view in export.view.gpus for each in _labels(export, view)]
    instances = [each for view in export.view.gpus for each in _instances(export, view)]
    for field_ in FIELDS:
        yield _family(field_, labelled, instances)
    xids = tuple((labels, float(view.xids[-1][1] if view.xids else 0)) for view, labels in labelled if view.readings)
    yield Family(f"{PREFIX}DEV_XID_ERRORS", "The last Xid that was seen; 0: none.", "gauge", xids)
    yield from _own(export)
    yield _nics(export.view)
    yield from _jobs(export)


def _family(
    field_: DcgmField, labelled: Sequence[tuple[GpuView, Mapping[str, str]]], instances: Sequence[Instance]
) -> Family:
    parts = _divided(OF_INSTANCES[field_.name], instances) if field_.name in OF_INSTANCES else []
    divided = {labels["UUID"] for labels, _ in parts}
    series = []
    for view, labels in labelled:
        value = field_.value(view.readings) if view.readings is not None else None
        if value is not None and not isinstance(value, NotTold) and view.facts.uuid not in divided:
            series.append((labels, float(value)))
    return Family(PREFIX + field_.name, field_.words, field_.kind, (*series, *parts))


def _labels(export: Export, view: GpuView) -> list[dict[str, str]]:
    """Those of dcgm-exporter, all of them on every series, once for each holder."""
    return _held(_device_labels(export, view.facts), export.holders.get(view.facts.uuid, ()))


def _device_labels(export: Export, facts: DeviceFacts) -> dict[str, str]:
    minor = told(facts.minor)
    host = {"Hostname": export.hostname} if export.old_hostname_label else {}
    device = f"nvidia{facts.index if minor is None else minor}"
    return {
        "gpu": str(facts.index), "UUID": facts.uuid, "pci_bus_id": facts.bus.upper(), "device": device,
        "modelName": facts.name, "GPU_I_PROFILE": "", "GPU_I_ID": "", "hostname": export.hostname, **host,
    }  # fmt: skip


def _held(own: Mapping[str, str], holders: Sequence[GpuHolder]) -> list[dict[str, str]]:
    return [
        {**own, "namespace": who.namespace, "pod": who.pod, "container": who.container, "hpc_job": who.job}
        for who in holders or (GpuHolder(),)
    ]


# --- GPU instances -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Instance:
    """One GPU instance of MIG, for one of its holders."""

    labels: Mapping[str, str]
    readings: SliceReadings


OF_INSTANCES: Mapping[str, Callable[[SliceReadings], float | NotTold]] = {
    "DEV_FB_USED": lambda r: _per_mib(r.memory_used),
    "DEV_FB_FREE": lambda r: _per_mib(r.memory_free),
}
"""What NVML tells of them. A GPU of whose instances it is told has no line of its own there, as with dcgm-exporter, or
every sum would be doubled."""


def _divided(
    value: Callable[[SliceReadings], float | NotTold], instances: Sequence[Instance]
) -> list[tuple[Mapping[str, str], float]]:
    found = [(each.labels, value(each.readings)) for each in instances]
    return [(labels, float(told_)) for labels, told_ in found if not isinstance(told_, NotTold)]


def _instances(export: Export, view: GpuView) -> Iterator[Instance]:
    """Each once, by its number: the devices that are cut out of one instance have one memory."""
    read = {each.uuid: each for each in view.readings.slices} if view.readings is not None else {}
    devices = [each for each in view.facts.slices if each.uuid in read and told(each.gpu_instance) is not None]
    own = _device_labels(export, view.facts)
    for number in dict.fromkeys(told(each.gpu_instance) for each in devices):
        mates = [each for each in devices if told(each.gpu_instance) == number]
        holders = dict.fromkeys(who for each in mates for who in export.holders.get(each.uuid, ()))
        profile = _COMPUTE.sub("", mates[0].profile)
        labels = {**own, "GPU_I_PROFILE": profile, "GPU_I_ID": str(number)}
        for each in _held(labels, list(holders) or export.holders.get(view.facts.uuid, ())):
            yield Instance(each, read[mates[0].uuid])


def _own(export: Export) -> Iterator[Family]:
    """What DCGM has no name for: how far any of this can be trusted."""
    view = export.view
    judged = [(gpu, verdicts.health(gpu, export.now).verdict) for gpu in view.gpus]
    series = tuple(
        ({"gpu": str(gpu.facts.index), "UUID": gpu.facts.uuid, "health": each},
         float(each == verdict))
        for gpu, verdict in judged
        for each in verdicts.WORST
    )  # fmt: skip
    yield Family("gpuyard_gpu_health", "1 for the state that a GPU is in.", "gauge", series)
    yield _one("gpuyard_agent_nvml_up", "1 if NVML answered the last look.", "gauge", view.trouble is None)
    yield _one("gpuyard_agent_looks_total", "Looks at the GPUs.", "counter", view.looks)
    yield _one("gpuyard_agent_failed_looks_total", "Looks that NVML did not answer.", "counter", view.failures)
    if view.looks:
        age = max(0.0, export.now - view.at)
        yield _one("gpuyard_agent_look_age_seconds", "Since the last look.", "gauge", age)


def _nics(view: MachineView) -> Family:
    """Where NICs lie. Not whether their link is up: that was read with what does not change, and may be long ago."""
    facts = [gpu.facts for gpu in view.gpus]
    found = [(nic, discovery.near(nic, facts)) for nic in (view.machine.nics if view.machine is not None else ())]
    series = tuple(
        ({"nic": nic.name, "kind": nic.kind, "pci_bus_id": nic.bus, "near": near, "gpu": str(gpu.index),
          "UUID": gpu.uuid}, 1.0)
        for nic, (near, nearest) in found
        for gpu in nearest
    )  # fmt: skip
    return Family("gpuyard_nic_near_gpu", "1 for the GPUs nearest to a NIC: switch, numa or node.", "gauge", series)


def _one(name: str, words: str, kind: Kind, value: float) -> Family:
    return Family(name, words, kind, (({}, float(value)),))


def _jobs(export: Export) -> Iterator[Family]:
    """Only jobs that have GPUs now, so that there are never more than GPUs."""
    jobs = sorted(export.jobs.items())
    held = tuple(({"hpc_job": name}, use.gpu_seconds) for name, use in jobs)
    yield Family("gpuyard_job_gpu_seconds_total", "GPU-seconds a job has had.", "counter", held)
    means = tuple(({"hpc_job": name}, mean) for name, use in jobs if (mean := use.mean) is not None)
    yield Family("gpuyard_job_gpu_utilization_ratio", "Mean utilization of a job's GPUs so far.", "gauge", means)
