"""What `yard doctor` says of machines that are well, ill, half set up, or not to be seen: a folder stands for each."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuyard.agent.doctor.examining import Check, Patient
from gpuyard.agent.doctor.rounds import examined
from gpuyard.agent.nvml.facts import Trouble, changed
from gpuyard.agent.nvml.faults import NvmlFault
from gpuyard.agent.watching import GpuView
from gpuyard.cli.main import run
from gpuyard.files.data import cves
from tests.support import records

NAME = "synthetic-h100x8"
DRIVER = "580.95.05"
WELL = {
    "proc/driver/nvidia/version": f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {DRIVER}  Tue Sep 16\n",
    "etc/containerd/config.toml": "[plugins]\n  enable_cdi = true\n",
    "etc/cdi/nvidia.yaml": "kind: nvidia.com/gpu\n"
    + "".join(f"- path: /dev/nvidia{n}\n" for n in range(8))
    + f"libcuda.so.{DRIVER}\n",
    "var/lib/kubelet/device-plugins/kubelet_internal_checkpoint": json.dumps(
        {"Data": {"RegisteredDevices": {"nvidia.com/gpu": [f"GPU-{n}" for n in range(8)]}}}
    ),
    "dev/kmsg": "",
    **{f"dev/{name}": "" for name in ("nvidiactl", "nvidia-uvm", *(f"nvidia{n}" for n in range(8)))},
    **{
        f"sys/bus/pci/devices/0000:{n:02x}:00.0/{what}": text
        for n in range(8)
        for what, text in (("vendor", "0x10de\n"), ("class", "0x030200\n"))
    },
}


def machine(
    root: Path, *faults: NvmlFault, toolkit: str = "1.19.1", files: dict[str, str | None] | None = None
) -> Patient:
    for name, text in (WELL | (files or {})).items():
        if text is not None:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
    asked, watch = records.watched(NAME, *faults)
    watch.look()
    asked.at = 1.0
    said = {"nvidia-ctk": f"NVIDIA Container Toolkit CLI version {toolkit}\n" if toolkit else None}
    return Patient(watch.look(), root, lambda command: said.get(command[0]), now=1.0)


def checks(patient: Patient) -> dict[str, Check]:
    return {check.name: check for check in examined(patient)}


def test_a_machine_that_is_well_passes_every_check_that_can_be_made_on_it(tmp_path: Path):
    found = checks(machine(tmp_path))
    assert {name: check.verdict for name, check in found.items() if check.verdict != "ok"} == {
        "node labels": "cannot tell"
    }


@pytest.mark.parametrize(
    ("fault", "name", "verdict", "words"),
    [
        (NvmlFault("lost", at=1, gpu=3), "gpus", "fail", "7 of 8 GPUs answer"),
        (NvmlFault("lost", at=1, gpu=3), "health", "fail", "GPU 3 is sick: lost"),
        (NvmlFault("thermal", gpu=2), "clocks and heat", "warn", "GPU 2: slowed by its own protection against heat"),
        (NvmlFault("clock-drop", gpu=2), "clocks and heat", "warn", "GPU 2: slowed by the hardware"),
        (NvmlFault("set", gpu=1, set={"clock_reasons": 0x80}), "clocks and heat", "warn", "power brake"),
        (NvmlFault("set", gpu=1, set={"pcie_width": 8}), "links", "warn", "GPU 1: PCIe x8 of x16"),
        (NvmlFault("ecc", gpu=5), "health", "fail", "GPU 5 is sick: 1 uncorrected memory errors"),
        (NvmlFault("nonsense", gpu=5), "health", "warn", "GPU 5 is unknown: no believable temperature_c"),
    ],
)
def test_a_fault_is_named_with_its_gpu_and_a_next_command(tmp_path: Path, fault, name: str, verdict: str, words: str):
    check = checks(machine(tmp_path, fault))[name]
    assert check.verdict == verdict
    assert words in check.why
    assert check.next


@pytest.mark.parametrize(
    ("files", "name", "verdict", "words"),
    [
        ({"dev/nvidia3": None}, "device nodes", "fail", "/dev lacks nvidia3"),
        ({"dev/nvidia-uvm": None}, "device nodes", "fail", "nvidia-uvm"),
        ({"proc/driver/nvidia/version": "Kernel Module  570.1.1  x"}, "library", "fail", "570.1.1"),
        ({"etc/cdi/nvidia.yaml": "nvidia.com/gpu /dev/nvidia0"}, "CDI", "fail", "leaves out GPU-"),
        ({"etc/cdi/nvidia.yaml": f"{WELL['etc/cdi/nvidia.yaml']}libcuda.so.570.1.1"}, "CDI", "fail", "570.1.1"),
        ({"etc/cdi/nvidia.yaml": None}, "CDI", "cannot tell", "needed only where CDI is used"),
        ({"etc/containerd/config.toml": "version = 3"}, "container runtime", "warn", "neither"),
        ({"etc/containerd/config.toml": None}, "container runtime", "cannot tell", "no containerd"),
        ({"dev/kmsg": "4,1,2,-;NVRM: Xid (PCI:0000:1b:00): 79, pid=1\n"}, "kernel log", "fail", "Xid 79 (the GPU fell"),
        ({"dev/kmsg": "NVRM: Xid (PCI:0000:1b:00): 63, x\n"}, "kernel log", "warn", "Xid 63"),
        ({"dev/kmsg": "NVRM: Xid (PCI:0000:1b:00): 13, x\n"}, "kernel log", "ok", "only what programs bring"),
        ({"dev/kmsg": None}, "kernel log", "cannot tell", "may not read"),
        ({"var/lib/kubelet/device-plugins/kubelet_internal_checkpoint": "{}"}, "device plugin", "fail", "none has"),
        ({"var/lib/kubelet/device-plugins/kubelet_internal_checkpoint": "?"}, "device plugin", "cannot tell", "read"),
        (
            {"var/lib/kubelet/device-plugins/kubelet_internal_checkpoint":
             '{"Data": {"RegisteredDevices": {"nvidia.com/gpu": ["a"]}}}'},
            "device plugin", "warn", "told of 1 GPU, NVML has 8",
        ),
        ({"sys/bus/pci/devices/0000:09:00.0/vendor": "0x10de", "sys/bus/pci/devices/0000:09:00.0/class": "0x030000"},
         "gpus", "fail", "8 of 9 GPUs answer"),
    ],
)  # fmt: skip
def test_what_is_set_up_wrong_is_told(
    tmp_path: Path, files: dict[str, str | None], name: str, verdict: str, words: str
):
    check = checks(machine(tmp_path, files=files))[name]
    assert (check.verdict, words in check.why) == (verdict, True), check


@pytest.mark.parametrize(
    "said",
    [
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (nixbld@)  \n"
        "GCC version:  gcc version 15.3.0 (GCC) \n",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Thu May  1 00:00:00 UTC 2026\n"
        "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n",
        "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.159.04  Release Build\n",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04",
    ],
)
def test_the_drivers_number_is_read_from_what_open_and_closed_modules_say(tmp_path: Path, said: str):
    found = checks(machine(tmp_path, files={"proc/driver/nvidia/version": said}))
    assert found["driver"] == Check("driver", "ok", "NVIDIA driver 580.159.04 is loaded")


@pytest.mark.parametrize(
    ("facts", "name", "verdict", "words"),
    [
        ({"persistence": False}, "persistence", "warn", "off on 8 of 8"),
        ({"fabric_state": "in progress"}, "fabric", "warn", "in progress"),
        ({"fabric_state": "not started"}, "fabric", "fail", "not started"),
        ({"links": ()}, "fabric", "ok", "no NVSwitch"),
        ({"links": ()}, "links", "ok", "no NVLink here, every PCIe link"),
        ({"ecc_pending": False}, "modes", "warn", "ECC will be off"),
        ({"mig_pending": True}, "modes", "warn", "MIG will be on"),
    ],
)
def test_what_nvml_tells_of_its_modes_is_judged(tmp_path: Path, facts: dict[str, Any], name: str, verdict, words: str):
    patient = machine(tmp_path)

    def other(gpu: GpuView) -> GpuView:
        return replace(gpu, facts=changed(gpu.facts, **facts))

    view = replace(patient.view, gpus=tuple(other(gpu) for gpu in patient.view.gpus))
    check = checks(replace(patient, view=view))[name]
    assert (check.verdict, words in check.why) == (verdict, True), check


@pytest.mark.parametrize(
    ("kind", "verdict"),
    [("hung", "fail"), ("mismatch", "fail"), ("died", "fail"), ("no driver", "fail"), ("nonsense", "fail")],
)
def test_gpus_on_the_bus_that_nvml_does_not_speak_of_are_a_failure_and_nothing_is_said_to_be_well(
    tmp_path, kind, verdict
):
    patient = machine(tmp_path, files={"proc/driver/nvidia/version": None})
    silent = replace(patient.view, machine=None, gpus=(), trouble=Trouble(kind))
    found = checks(replace(patient, view=silent))
    assert found["library"].verdict == verdict
    for name in ("gpus", "device nodes", "fabric", "modes", "links", "clocks and heat", "health"):
        assert found[name].verdict == "cannot tell", name
    assert found["driver"].verdict == "fail"


def test_a_toolkit_with_known_holes_fails_and_names_the_version_that_has_none(tmp_path: Path):
    check = checks(machine(tmp_path, toolkit="1.16.1"))["container toolkit"]
    assert check.verdict == "fail"
    assert "CVE-2024-0132" in check.why
    assert "1.19.1" in check.next
    assert checks(machine(tmp_path, toolkit=""))["container toolkit"].verdict == "cannot tell"


def test_versions_are_compared_by_number():
    assert [cve.name for cve in cves.open_in(cves.TOOLKIT, "1.17.10")] == ["CVE-2026-24260"]
    assert cves.open_in(cves.TOOLKIT, "1.19.1") == []
    assert len(cves.open_in(cves.TOOLKIT, "1.9.0")) == len(cves.CVES)


def test_the_command_tells_all_and_its_exit_code_says_how_it_went(capsys):
    assert run(["doctor", "-o", "json", "--nvml-replay", str(records.path(NAME))]) == 1  # this machine has no such GPUs
    told = json.loads(capsys.readouterr().out)
    assert {check["name"] for check in told} >= {"driver", "device nodes", "kernel log", "CDI", "device plugin"}
    assert {check["verdict"] for check in told} <= {"ok", "warn", "fail", "cannot tell"}
    assert all(check["why"] for check in told)
    assert all(check["next"] for check in told if check["verdict"] != "ok")
