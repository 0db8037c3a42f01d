"""The driver, its library, its device nodes and its daemons. Called by `rounds`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from gpuyard.agent.doctor.examining import Check, Patient, Verdict
from gpuyard.agent.nvml.facts import ABSENT, told
from gpuyard.model.outside.phrases import agreeing, counted, listed

VERSION = "/proc/driver/nvidia/version"
NVIDIA, DISPLAY = "0x10de", "0x03"
NODES = ("nvidiactl", "nvidia-uvm")


def gpus_on_the_bus(patient: Patient) -> list[str]:
    """NVIDIA's GPUs as the kernel finds them on PCI, whatever the driver says."""
    found = []
    for path in sorted(patient.path("/sys/bus/pci/devices").glob("*")):
        device = f"/sys/bus/pci/devices/{path.name}"
        vendor, kind = patient.text(f"{device}/vendor"), patient.text(f"{device}/class")
        if (vendor or "").strip() == NVIDIA and (kind or "").startswith(DISPLAY):
            found.append(path.name)
    return found


def loaded(patient: Patient) -> Check:
    """Whether the driver is loaded where there is something to drive."""
    version = _kernel_version(patient)
    if version:
        return Check("driver", "ok", f"NVIDIA driver {version} is loaded")
    if told_driver := _nvml_version(patient):
        return Check("driver", "ok", f"NVIDIA driver {told_driver} answers, though {VERSION} is not there")
    on_bus = gpus_on_the_bus(patient)
    if on_bus:
        why = f"{counted(len(on_bus), 'NVIDIA GPU')} on the bus and no driver loaded"
        return Check("driver", "fail", why, "sudo modprobe nvidia; dmesg | grep -i nvrm")
    return Check("driver", "cannot tell", "no NVIDIA GPU is on the bus as far as it can be seen", "lspci -d 10de:")


def _kernel_version(patient: Patient) -> str:
    """The closed module says `NVIDIA UNIX x86_64 Kernel Module  580.95.05`, the open one `… Open Kernel Module for
    x86_64  580.95.05`: only the driver's number stands alone."""
    found = re.search(r"Kernel Module\b.*?\s(\d+(?:\.\d+)+)(?:\s|$)", patient.text(VERSION) or "")
    return found[1] if found else ""


def _nvml_version(patient: Patient) -> str:
    return told(patient.view.machine.driver) or "" if patient.view.machine is not None else ""


def library(patient: Patient) -> Check:
    """Whether NVML answers, and is of the driver's version."""
    trouble = patient.trouble
    if trouble is None:
        kernel, nvml = _kernel_version(patient), _nvml_version(patient)
        if kernel and nvml and kernel != nvml:
            return _mismatch(f"the kernel has driver {kernel}, the library is of {nvml}")
        return Check("library", "ok", f"NVML answers{f' for driver {nvml}' if nvml else ''}")
    if trouble.kind == "mismatch":
        return _mismatch(str(trouble))
    if trouble.kind in ABSENT and not gpus_on_the_bus(patient):
        return Check("library", "cannot tell", str(trouble), "nvidia-smi")
    return Check("library", "fail", str(trouble), "nvidia-smi; dmesg | grep -i nvrm")


def _mismatch(why: str) -> Check:
    return Check("library", "fail", why, "unload and load the nvidia modules, or restart the machine")


def all_there(patient: Patient) -> Check:
    """Whether NVML has every GPU that the bus has."""
    on_bus, seen = gpus_on_the_bus(patient), [gpu for gpu in patient.view.gpus if gpu.state == "seen"]
    if patient.trouble is not None:
        return Check("gpus", "cannot tell", f"NVML says nothing: {patient.trouble}", "nvidia-smi -L")
    missing = [gpu.facts.uuid for gpu in patient.view.gpus if gpu.state != "seen"]
    if missing or len(seen) < len(on_bus):
        there = counted(max(len(on_bus), len(patient.view.gpus)), "GPU")
        why = f"{len(seen)} of {there} {agreeing(len(seen), 'answers', 'answer')}"
        return Check("gpus", "fail", f"{why}{f'; missing: {listed(missing)}' if missing else ''}", "nvidia-smi -L")
    return Check("gpus", "ok", f"{counted(len(seen), 'GPU')}: {listed(sorted({gpu.facts.name for gpu in seen}))}")


def device_nodes(patient: Patient) -> Check:
    """Whether the files through which programs reach GPUs are there and open to this user."""
    minors = [told(gpu.facts.minor) for gpu in patient.view.gpus]
    if not minors:
        return Check("device nodes", "cannot tell", "no GPU answers", "ls -l /dev/nvidia*")
    wanted = [*NODES, *(f"nvidia{minor}" for minor in minors if minor is not None)]
    missing = [name for name in wanted if not patient.path(f"/dev/{name}").exists()]
    if missing:
        return Check("device nodes", "fail", f"/dev lacks {listed(missing)}", "sudo nvidia-modprobe -c 0 -u")
    shut = [name for name in wanted if not os.access(patient.path(f"/dev/{name}"), os.R_OK | os.W_OK)]
    if shut:
        why = f"this user may not open {listed([f'/dev/{name}' for name in shut])}"
        return Check("device nodes", "warn", why, "ls -l /dev/nvidia*; id")
    return Check("device nodes", "ok", f"{counted(len(wanted), 'file')}, open to this user")


def persistence(patient: Patient) -> Check:
    """Whether the driver stays awake when nobody uses a GPU."""
    states = [told(gpu.facts.persistence) for gpu in patient.view.gpus]
    if patient.runs("nvidia-persistenced"):
        return Check("persistence", "ok", "nvidia-persistenced runs")
    if not states or None in states:
        return Check("persistence", "cannot tell", "no GPU says whether it is on", "nvidia-smi -q -d PERFORMANCE")
    if all(states):
        return Check("persistence", "ok", "persistence mode is on")
    off = f"{states.count(False)} of {counted(len(states), 'GPU')}"
    why = f"it is off on {off}: each first start waits seconds for the driver"
    return Check("persistence", "warn", why, "sudo systemctl enable --now nvidia-persistenced")


def fabric(patient: Patient) -> Check:
    """Whether NVSwitches are set up, where there are any."""
    switched = [gpu for gpu in patient.view.gpus if any(link.remote == "switch" for link in gpu.facts.links)]
    if not patient.view.gpus:
        return Check("fabric", "cannot tell", "no GPU answers", "nvidia-smi topo -m")
    if not switched:
        return Check("fabric", "ok", "no NVSwitch here, so no fabric manager is needed")
    states = {told(gpu.facts.fabric_state) for gpu in switched}
    if states == {"completed"}:
        return Check("fabric", "ok", f"{counted(len(switched), 'GPU')} registered with the fabric")
    after = "systemctl status nvidia-fabricmanager; nvidia-smi -q | grep -A4 Fabric"
    if None in states:
        runs = patient.runs("nv-fabricmanager")
        return Check("fabric", "ok" if runs else "warn", f"nv-fabricmanager {'runs' if runs else 'is not seen'}", after)
    verdict: Verdict = "warn" if states <= {"completed", "in progress"} else "fail"
    return Check("fabric", verdict, f"registration is {listed(sorted(str(state) for state in states))}", after)


CHECKS: tuple[Callable[[Patient], Check], ...] = (loaded, library, all_there, device_nodes, persistence, fabric)
