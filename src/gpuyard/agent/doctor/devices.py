"""The GPUs themselves: modes that wait for a restart, links, clocks and heat, health, and the kernel's log. Called by
`rounds`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence

from gpuyard.agent import verdicts
from gpuyard.agent.doctor.examining import Check, Patient, Verdict
from gpuyard.agent.nvml.facts import told
from gpuyard.agent.watching import HW_SLOWDOWN, HW_THERMAL, POWER_BRAKE, GpuView
from gpuyard.files.data.xids import XidClass, xid
from gpuyard.model.outside.phrases import are, counted, listed

XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+)")
KMSG_MAX = 8 << 20
HOW: dict[verdicts.Verdict, Verdict] = {"sick": "fail", "suspect": "warn", "unknown": "warn", "healthy": "ok"}


def modes(patient: Patient) -> Check:
    """Whether what was set is what is in force."""
    waiting = [
        f"GPU {gpu.facts.index}: {name} will be {'on' if pending else 'off'}"
        for gpu in patient.view.gpus
        for name, now, pending in (
            ("ECC", told(gpu.facts.ecc), told(gpu.facts.ecc_pending)),
            ("MIG", told(gpu.facts.mig), told(gpu.facts.mig_pending)),
        )
        if now is not None and pending is not None and now != pending
    ]
    if not patient.view.gpus:
        return _no_gpu("modes", "nvidia-smi -q -d ECC")
    if waiting:
        return Check("modes", "warn", f"a reset is awaited: {listed(waiting)}", "sudo nvidia-smi --gpu-reset -i GPU")
    return Check("modes", "ok", "ECC and MIG are as they were set")


def links(patient: Patient) -> Check:
    """NVLink and PCIe at their full width."""
    if not patient.view.gpus:
        return _no_gpu("links", "nvidia-smi nvlink -s")
    down = [f"GPU {gpu.facts.index}: {told_}" for gpu in patient.view.gpus for told_ in _link_troubles(gpu)]
    if down:
        return Check("links", "warn", listed(down), "nvidia-smi nvlink -s; nvidia-smi -q -d PCIE")
    joined = any(gpu.facts.links for gpu in patient.view.gpus)
    nvlink = "every NVLink is up" if joined else "no NVLink here"
    return Check("links", "ok", f"{nvlink}, every PCIe link at its full width")


def _link_troubles(gpu: GpuView) -> Iterator[str]:
    dead = sum(not link.active for link in gpu.facts.links)
    if dead:
        yield f"{dead} of {counted(len(gpu.facts.links), 'NVLink')} {are(dead)} down"
    width, full = told(gpu.readings.pcie_width) if gpu.readings else None, told(gpu.facts.pcie_width_max)
    if width is not None and full is not None and width < full:
        yield f"PCIe x{width} of x{full}"


def clocks(patient: Patient) -> Check:
    """Whether heat or power holds GPUs back."""
    if not any(gpu.readings for gpu in patient.view.gpus):
        return _no_gpu("clocks and heat", "nvidia-smi -q -d PERFORMANCE,TEMPERATURE")
    found = [f"GPU {gpu.facts.index}: {why}" for gpu in patient.view.gpus for why in _held_back(gpu)]
    if found:
        return Check("clocks and heat", "warn", listed(found), "nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER")
    hottest = max((told(gpu.readings.temperature_c) or 0 for gpu in patient.view.gpus if gpu.readings), default=0)
    return Check("clocks and heat", "ok", f"nothing holds clocks back; the hottest GPU has {hottest} °C")


def _held_back(gpu: GpuView) -> Iterator[str]:
    if gpu.readings is None:
        return
    reasons, heat = told(gpu.readings.clock_reasons) or 0, told(gpu.readings.temperature_c)
    if reasons & HW_THERMAL:
        yield f"slowed by its own protection against heat, {heat} °C"
    elif reasons & POWER_BRAKE:
        yield "slowed by the power supply (power brake)"
    elif reasons & HW_SLOWDOWN:
        yield "slowed by the hardware"
    limit = told(gpu.facts.slowdown_c)
    if heat is not None and limit is not None and heat >= limit and not reasons & HW_THERMAL:
        yield f"{heat} °C, where it slows down at {limit} °C"


def health(patient: Patient) -> Check:
    """What the sensors say of each GPU."""
    judged = [(gpu, verdicts.health(gpu, patient.now)) for gpu in patient.view.gpus]
    if not judged:
        return _no_gpu("health", "nvidia-smi -q")
    bad = [f"GPU {gpu.facts.index} is {found.verdict}: {found.evidence}" for gpu, found in judged
           if found.verdict != "healthy"]  # fmt: skip
    worst = min((found.verdict for _, found in judged), key=verdicts.WORST.index)
    after = "nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT"
    if worst == "healthy":
        return Check("health", "ok", "no uncorrected memory errors, no failed rows, no recovery asked for")
    return Check("health", HOW[worst], listed(bad), after)


def kernel_log(patient: Patient) -> Check:
    """Xids since the machine was started, as far as the kernel still has them."""
    text = _kernel_text(patient)
    after = "sudo dmesg | grep -i xid"
    if text is None:
        return Check("kernel log", "cannot tell", "this user may not read it", after)
    found = [(bus, int(code)) for bus, code in XID.findall(text)]
    kinds = {xid(code).kind for _, code in found}
    said = listed([f"{bus}: Xid {code} ({xid(code).meaning})" for bus, code in dict.fromkeys(found)])
    if XidClass.BROKEN in kinds:
        return Check("kernel log", "fail", said, after)
    if XidClass.WEAR in kinds:
        return Check("kernel log", "warn", said, after)
    if found:
        return Check("kernel log", "ok", f"only what programs bring upon themselves: {said}", after)
    return Check("kernel log", "ok", "no Xid in it")


def _kernel_text(patient: Patient) -> str | None:
    """/dev/kmsg a record at a time, without waiting for more."""
    try:
        descriptor = os.open(patient.path("/dev/kmsg"), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    parts: list[bytes] = []
    try:
        while sum(map(len, parts)) < KMSG_MAX and (part := _record(descriptor)):
            parts.append(part)
    except PermissionError:
        return None
    finally:
        os.close(descriptor)
    return b"".join(parts).decode(errors="replace")


def _record(descriptor: int) -> bytes:
    while True:
        try:
            return os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return b""
        except BrokenPipeError:  # what we were about to read has been overwritten: go on with what is there
            continue


def _no_gpu(name: str, after: str) -> Check:
    return Check(name, "cannot tell", "no GPU answers", after)


CHECKS: Sequence[Callable[[Patient], Check]] = (modes, links, clocks, health, kernel_log)
