"""A real node with our agent on it: whatever is bound there really runs, with GPUs of a replayed machine."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

from gpuyard.agent.pods import holding
from gpuyard.kube import manifests
from gpuyard.kube.definitions import gpu_nodes
from tests.support import records
from tests.support.kube.cluster import ApiError, Cluster, environment, until
from tests.support.kube.real_node import RealNode

PATIENCE_S = 180.0
RECORD = "synthetic-h100x8"
RESOURCE = "nvidia.com/gpu"


def machine_of(node: str, gpus: int = 8) -> dict[str, Any]:
    """A record of so many GPUs that no other node has."""
    record: dict[str, Any] = json.loads(records.path(RECORD).read_text())
    kept = {each["uuid"]: f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, node + each['uuid'])}" for each in
            record["machine"]["gpus"][:gpus]}  # fmt: skip
    for part in (record["machine"], record["sample"]):
        part["gpus"] = [each | {"uuid": kept[each["uuid"]]} for each in part["gpus"][:gpus]]
    pairs = record["machine"]["pairs"]
    record["machine"]["pairs"] = [
        pair | {"one": kept[pair["one"]], "other": kept[pair["other"]]}
        for pair in pairs
        if pair["one"] in kept and pair["other"] in kept
    ]
    return record


def uuids_of(node: str, gpus: int = 8) -> list[str]:
    return [str(each["uuid"]) for each in machine_of(node, gpus)["machine"]["gpus"]]


class Agent:
    """`yard agent --device-plugin` on a replayed machine, under the rights that we ship."""

    def __init__(self, node: RealNode, gpus: int) -> None:
        self.node, self.folder = node, node.room.root / "agent"
        self.folder.mkdir(parents=True)
        self.faults, self.record = self.folder / "faults.yaml", self.folder / "machine.json"
        self.faults.write_text("[]")
        self.record.write_text(json.dumps(machine_of(node.name, gpus)))
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        sockets = self.node.room.kubelet_folder() / "device-plugins"
        account = self.node.cluster.kubeconfig(_token(self.node.cluster), "agent")
        command = [sys.executable, "-m", "gpuyard", "--state", str(self.folder / "state"), "agent", "--port", "0"]
        command += ["--nvml-replay", str(self.record), "--faults", str(self.faults), "--every", "0.5s"]
        command += ["--device-plugin", "--gpu-node", "--kubelet-folder", str(sockets), "--kubeconfig", account]
        with (self.folder / "agent.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--node-name", self.node.name], stdout=log, stderr=log, env=environment()
            )

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            assert self.process.wait(PATIENCE_S) == 0
            self.process = None

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(PATIENCE_S)
            self.process = None

    def log(self) -> str:
        return (self.folder / "agent.log").read_text(errors="replace")


class RealMachine:
    """A node and its agent. Everything that is started here is ended by `stop`."""

    def __init__(self, cluster: Cluster, folder: Path, name: str, gpus: int = 8) -> None:
        self.cluster, self.name, self.uuids = cluster, name, uuids_of(name, gpus)
        self.node = RealNode(cluster, folder, name)
        self.agent = Agent(self.node, gpus)
        _write_cdi(folder, self.uuids)

    def start(self) -> RealMachine:
        """Ready by itself, and its GPUs are offered and known by name."""
        self.node.start()
        self.agent.start()
        offered = (len(self.uuids), len(self.uuids))
        until(lambda: self.node.gpus() == offered and self.inventory() == self.uuids, PATIENCE_S, "GPUs are offered")
        return self

    def die(self) -> None:
        """At once, with all that runs on it; nobody says a word."""
        self.agent.kill()
        self.node.stop()

    def stop(self) -> None:
        try:
            self.agent.stop()
        finally:
            self.node.stop()
        assert "Traceback" not in self.agent.log()

    def inventory(self) -> list[str]:
        """The GPUs that its GpuNode names."""
        found = {each["metadata"]["name"]: each for each in self.cluster.get(gpu_nodes.GPU_NODES.path)["items"]}
        return [gpu["uuid"] for gpu in found.get(self.name, {"spec": {}})["spec"].get("gpus", ())]

    def held(self) -> dict[str, tuple[str, ...]]:
        """What each pod that holds any has by the kubelet's word; one that goes is there for a while without."""
        socket = self.node.room.kubelet_folder() / "pod-resources" / "kubelet.sock"
        told = holding.holdings(socket, RESOURCE, PATIENCE_S)
        return {each.key.partition("/")[2]: each.gpus for each in told if each.gpus}

    def close(self, closed: bool) -> None:
        """Cordoned or open; nothing that a test has written on it is left."""
        annotations = {"gpuyard.dev/drain": None}
        self.cluster.merge(
            f"/api/v1/nodes/{self.name}",
            {"metadata": {"annotations": annotations}, "spec": {"unschedulable": closed or None, "taints": None}},
        )


def prepare(cluster: Cluster) -> None:
    """What agents need of a cluster: the kind of their objects, and their account."""
    cluster.create(gpu_nodes.definition())
    for document in manifests.documents("agent.yaml"):
        cluster.create(document)

    def is_served() -> bool:
        with contextlib.suppress(ApiError):
            return bool(cluster.get(gpu_nodes.GPU_NODES.path))
        return False

    until(is_served, PATIENCE_S, "the kind GpuNode is there")


def _token(cluster: Cluster) -> str:
    return cluster.token_of("gpuyard-system", "gpuyard-agent")


def _write_cdi(root: Path, uuids: list[str]) -> None:
    """Each replayed GPU is a real character device (as /dev/null), and a variable that tells its UUID inside."""
    devices = []
    for folder in ("dev", "cdi"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for index, name in enumerate(uuids):
        path = root / "dev" / f"nvidia{index}"
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
        inside = {"path": f"/dev/nvidia{index}", "hostPath": str(path), "permissions": "rw"}
        edits = {"env": [f"YARD_GPU_{index}={name}"], "deviceNodes": [inside]}
        devices.append({"name": name, "containerEdits": edits})
    spec = {"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "devices": devices}
    (root / "cdi" / "gpus.json").write_text(json.dumps(spec))
