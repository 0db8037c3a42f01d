"""How containers and the kubelet reach the GPUs: toolkit, runtime, CDI, device plugin, labels. Called by `rounds`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

from gpuyard.agent.doctor.examining import Check, Patient
from gpuyard.agent.nvml.facts import told
from gpuyard.files.data import cves
from gpuyard.model.outside.phrases import counted, listed

CDI = ("/etc/cdi", "/var/run/cdi")
CONTAINERD = ("/etc/containerd/config.toml", "/etc/containerd/conf.d")
KUBELET = "/var/lib/kubelet"
CHECKPOINT = f"{KUBELET}/device-plugins/kubelet_internal_checkpoint"
RESOURCE = "nvidia.com/gpu"


def toolkit(patient: Patient) -> Check:
    """The container toolkit against known holes."""
    said = patient.say(["nvidia-ctk", "--version"]) or patient.say(["nvidia-container-cli", "--version"])
    found = re.search(r"(\d+\.\d+\.\d+)", said or "")
    if found is None:
        return Check("container toolkit", "cannot tell", "no nvidia-ctk here that says", "nvidia-ctk --version")
    holes = cves.open_in(cves.TOOLKIT, found[1])
    if holes:
        fixed = max((cve.fixed for cve in holes), key=cves.number)
        why = f"{found[1]} has {listed([f'{cve.name} ({cve.score:g}: {cve.words})' for cve in holes])}"
        return Check("container toolkit", "fail", why, f"install nvidia-container-toolkit {fixed} or newer")
    return Check("container toolkit", "ok", f"{found[1]} has none of the {len(cves.CVES)} holes known here")


def runtime(patient: Patient) -> Check:
    """Whether a container runtime knows of GPUs."""
    texts = {name: text for name in _runtime_files(patient) if (text := patient.text(name)) is not None}
    if not texts:
        return Check("container runtime", "cannot tell", "no containerd or Docker configuration is here", "docker info")
    able = [name for name, text in texts.items() if "nvidia" in text or re.search(r"enable_cdi\s*=\s*true", text)]
    if able:
        return Check("container runtime", "ok", f"{listed(able)} names NVIDIA's runtime or CDI")
    after = "sudo nvidia-ctk runtime configure --runtime=containerd"
    return Check("container runtime", "warn", f"{listed(list(texts))} names neither NVIDIA's runtime nor CDI", after)


def _runtime_files(patient: Patient) -> list[str]:
    more = sorted(path.name for path in patient.path(CONTAINERD[1]).glob("*.toml"))
    return [CONTAINERD[0], *(f"{CONTAINERD[1]}/{name}" for name in more), "/etc/docker/daemon.json"]


def cdi(patient: Patient) -> Check:
    """Whether CDI specifications name these GPUs and this driver."""
    names = [
        f"{folder}/{path.name}"
        for folder in CDI
        for path in sorted(patient.path(folder).glob("*"))
        if path.suffix in (".yaml", ".yml", ".json")
    ]
    text = "\n".join(patient.text(name) or "" for name in names)
    after = "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
    if "nvidia.com/gpu" not in text:
        return Check("CDI", "cannot tell", "no specification of NVIDIA GPUs; needed only where CDI is used", after)
    missing = [
        gpu.facts.uuid
        for gpu in patient.view.gpus
        if gpu.facts.uuid not in text and f"/dev/nvidia{told(gpu.facts.minor)}" not in text
    ]
    if missing:
        return Check("CDI", "fail", f"{listed(names)} leaves out {listed(missing)}", after)
    driver = told(patient.view.machine.driver) if patient.view.machine is not None else None
    others = sorted(set(re.findall(r"libcuda\.so\.(\d+\.\d+(?:\.\d+)?)", text)) - {driver})
    if driver and others:
        return Check("CDI", "fail", f"{listed(names)} is of driver {listed(others)}, {driver} is loaded", after)
    return Check("CDI", "ok", f"{listed(names)} names {counted(len(patient.view.gpus), 'GPU')}")


def plugin(patient: Patient) -> Check:
    """Whether a device plugin has told the kubelet of as many GPUs as NVML has."""
    if not patient.path(KUBELET).exists():
        return Check("device plugin", "cannot tell", "no kubelet has been on this machine", "kubectl get nodes")
    after = "kubectl describe node $(hostname) | grep nvidia.com"
    told_ = _registered(patient)
    if told_ is None:
        return Check("device plugin", "cannot tell", f"{CHECKPOINT} cannot be read", after)
    seen = sum(gpu.state == "seen" for gpu in patient.view.gpus)
    if told_ == 0:
        return Check("device plugin", "fail", f"none has registered {RESOURCE} with the kubelet", after)
    knows = f"the kubelet was told of {counted(told_, 'GPU')}"
    if patient.trouble is None and told_ != seen:
        return Check("device plugin", "warn", f"{knows}, NVML has {seen}", after)
    return Check("device plugin", "ok", knows)


def _registered(patient: Patient) -> int | None:
    try:
        content = json.loads(patient.text(CHECKPOINT) or "")
        return len((content.get("Data", {}).get("RegisteredDevices") or {}).get(RESOURCE) or ())
    except (ValueError, AttributeError, TypeError):
        return None


def labels(patient: Patient) -> Check:
    """What the cluster says of this node is not told to the node."""
    if not patient.path(KUBELET).exists():
        return Check("node labels", "cannot tell", "no kubelet has been on this machine", "kubectl get nodes")
    after = "kubectl get node $(hostname) --show-labels | tr ',' '\\n' | grep nvidia.com"
    return Check("node labels", "cannot tell", "they are the API server's to tell", after)


CHECKS: Sequence[Callable[[Patient], Check]] = (toolkit, runtime, cdi, plugin, labels)
