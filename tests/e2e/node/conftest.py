"""A cluster of its own with one real node and our agent on it: whatever is bound there really runs."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuyard.agent.pods import holding
from gpuyard.kube import manifests
from gpuyard.kube.definitions import gpu_nodes
from tests.support import records
from tests.support.kube import node_components
from tests.support.kube.cluster import ApiError, Cluster, environment, until
from tests.support.kube.real_node import RealNode

PATIENCE_S = 180.0
MACHINE = "synthetic-h100x8"
UUIDS = [gpu.uuid for gpu in records.machine(MACHINE).machine.gpus]
RESOURCE = "nvidia.com/gpu"


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    node_components.required()
    made = Cluster(tmp_path_factory.mktemp("kube"))
    try:
        yield made.start()
    finally:
        made.stop()


@pytest.fixture(scope="session")
def node(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealNode]:
    made = RealNode(cluster, tmp_path_factory.mktemp("node"))
    try:
        yield made.start()
    finally:
        made.stop()


class Agent:
    """`yard agent --device-plugin` on a replayed machine of eight GPUs, under the rights that we ship."""

    def __init__(self, node: RealNode, folder: Path) -> None:
        self.node, self.folder = node, folder
        self.faults = folder / "faults.yaml"
        self.faults.write_text("[]")
        self.account = node.cluster.kubeconfig(_token(node.cluster), "agent")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        sockets = self.node.room.kubelet_folder() / "device-plugins"
        command = [sys.executable, "-m", "gpuyard", "--state", str(self.folder / "state"), "agent", "--port", "0"]
        command += ["--nvml-replay", str(records.path(MACHINE)), "--faults", str(self.faults), "--every", "0.5s"]
        command += ["--device-plugin", "--gpu-node", "--kubelet-folder", str(sockets), "--kubeconfig", self.account]
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
        assert self.process is not None
        self.process.kill()
        self.process.wait(PATIENCE_S)
        self.process = None

    def log(self) -> str:
        return (self.folder / "agent.log").read_text(errors="replace")


@pytest.fixture(scope="session")
def agent(node: RealNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    write_cdi(node.room.root)
    node.cluster.create(gpu_nodes.definition())
    wait_for(lambda: is_served(node.cluster, gpu_nodes.GPU_NODES.path), "the kind GpuNode is there")
    made = Agent(node, tmp_path_factory.mktemp("agent"))
    made.start()
    try:
        wait_for(lambda: node.gpus() == (8, 8) and inventory(node) == UUIDS, "eight GPUs are offered and known by name")
        yield made
    finally:
        made.stop()
        assert "Traceback" not in made.log()


def is_served(cluster: Cluster, path: str) -> bool:
    try:
        cluster.get(path)
    except ApiError:
        return False
    return True


def inventory(node: RealNode) -> list[str]:
    """The GPUs that its GpuNode names."""
    found = {each["metadata"]["name"]: each for each in node.cluster.get(gpu_nodes.GPU_NODES.path)["items"]}
    return [gpu["uuid"] for gpu in found.get(node.name, {"spec": {}})["spec"].get("gpus", ())]


def plugin_ready(node: RealNode) -> str:
    """What the cluster is told of the node's devices."""
    conditions = node.cluster.get(f"{gpu_nodes.GPU_NODES.path}/{node.name}")["status"]["conditions"]
    return next(str(each["status"]) for each in conditions if each["type"] == gpu_nodes.PLUGIN_READY)


def _token(cluster: Cluster) -> str:
    for document in manifests.documents("agent.yaml"):
        cluster.create(document)
    wish = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 36000}}
    path = "/api/v1/namespaces/gpuyard-system/serviceaccounts/gpuyard-agent/token"
    token: str = cluster.call("POST", path, wish)["status"]["token"]
    return token


def write_cdi(root: Path) -> None:
    """Each replayed GPU is a real character device (as /dev/null), and a variable that tells its UUID inside."""
    devices = []
    for index, uuid in enumerate(UUIDS):
        path = root / "dev" / f"nvidia{index}"
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
        inside = {"path": f"/dev/nvidia{index}", "hostPath": str(path), "permissions": "rw"}
        edits = {"env": [f"YARD_GPU_{index}={uuid}"], "deviceNodes": [inside]}
        devices.append({"name": uuid, "containerEdits": edits})
    spec = {"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "devices": devices}
    (root / "cdi" / "gpus.json").write_text(json.dumps(spec))


@pytest.fixture(autouse=True)
def nothing_runs(cluster: Cluster, node: RealNode) -> Iterator[None]:
    """No job and no pod is left for the next test, nor does any hold a GPU; nodes stay."""
    yield
    clear(cluster, node)


def clear(cluster: Cluster, node: RealNode) -> None:
    cluster.delete("/apis/batch/v1/namespaces/default/jobs?propagationPolicy=Background")

    def empty() -> bool:
        cluster.delete("/api/v1/namespaces/default/pods", 1)
        return not cluster.pods() and not any(held(node).values())

    wait_for(empty, "every pod is gone")


@pytest.fixture
def scheduler(cluster: Cluster, agent: Agent, tmp_path: Path) -> Iterator[Path]:
    """Ours, with the rights that we ship; what it wrote."""
    log = tmp_path / "scheduler.log"
    command = [sys.executable, "-m", "gpuyard", "serve", "--role", "scheduler", "--no-lease", "--kubeconfig"]
    with log.open("ab") as output:
        running = subprocess.Popen(
            [*command, cluster.scheduler_kubeconfig()], stdout=output, stderr=output, env=environment()
        )
    try:
        yield log
    finally:
        running.terminate()
        running.wait(PATIENCE_S)
    assert "Traceback" not in log.read_text()


def held(node: RealNode) -> dict[str, tuple[str, ...]]:
    """What each pod holds by the kubelet's word."""
    socket = node.room.kubelet_folder() / "pod-resources" / "kubelet.sock"
    return {each.key.partition("/")[2]: each.gpus for each in holding.holdings(socket, RESOURCE)}


def bind(cluster: Cluster, name: str, node: str, gpus: list[str]) -> None:
    """As our scheduler binds: the node, and the GPUs as an annotation."""
    uid = cluster.get(f"/api/v1/namespaces/default/pods/{name}")["metadata"]["uid"]
    about = {"name": name, "uid": uid, "annotations": {"gpuyard.dev/gpus": ",".join(gpus)}}
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": about, "target": target}
    cluster.call("POST", f"/api/v1/namespaces/default/pods/{name}/binding", body)


def wait_for(holds: Callable[[], Any], what: str) -> Any:
    return until(holds, PATIENCE_S, what)


def phases(cluster: Cluster) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["status"]["phase"] for pod in cluster.pods()}
