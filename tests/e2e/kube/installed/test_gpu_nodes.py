"""An agent with its own token, and the account that changes nodes: a GpuNode first, then labels of the Node."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kube.conftest import PATIENCE_S, Scheduler, wait_for
from tests.e2e.kube.installed.conftest import Person
from tests.support.kube.cluster import Cluster, environment
from tests.support.kube.commands import yard
from tests.support.kube.components import HAS_DEFAULTS
from tests.support.kube.fake_kubelet import FakeKubelets, FakeNode, pod

pytestmark = pytest.mark.slow

RECORD = Path(__file__).resolve().parents[3] / "records" / "synthetic-h100x8.json"
TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


class Running:
    """Processes of ours, ended with the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[tuple[subprocess.Popen[bytes], Path]] = []

    def yard(self, *args: str, **env: str) -> None:
        log = self.folder / f"{args[0]}-{len(self.started)}.log"
        with log.open("ab") as output:
            command = [sys.executable, "-m", "gpuyard", *args]
            process = subprocess.Popen(command, stdout=output, stderr=output, env=environment(**env))
        self.started.append((process, log))

    def stop(self) -> None:
        for process, log in self.started:
            assert process.poll() is None, log.read_text()
            process.terminate()
            process.wait(PATIENCE_S)
            assert "Traceback" not in log.read_text(), log.read_text()


@pytest.fixture
def running(installed: Cluster, tmp_path: Path) -> Iterator[Running]:
    """An agent on n0 that replays eight GPUs, and the copier of labels."""
    kubelets = FakeKubelets(installed)
    kubelets.add(FakeNode("n0"))
    document = pod("agent-n0", 0, scheduler="default-scheduler", nodeName="n0", serviceAccountName="gpuyard-agent")
    document["metadata"]["namespace"] = "gpuyard-system"
    token = installed.token_of("gpuyard-system", "gpuyard-agent", installed.create(document))
    (tmp_path / "faults.yaml").write_text("[]")
    started = Running(tmp_path)
    started.yard(
        "agent", "--gpu-node", "--nvml-replay", str(RECORD), "--faults", str(tmp_path / "faults.yaml"),
        "--every", "300ms",
        "--kubeconfig", installed.kubeconfig(token, "agent-n0"), "--node-name", "n0", "--port", "0",
        GPUYARD_STATE=str(tmp_path / "state"),
    )  # fmt: skip
    nodes = installed.kubeconfig(installed.token_of("gpuyard-system", "gpuyard-nodes"), "gpuyard-nodes")
    started.yard("serve", "--role", "nodes", "--kubeconfig", nodes, "--taint", "nvidia.com/gpu=present:NoSchedule")
    yield started
    started.stop()
    installed.delete("/apis/gpuyard.dev/v1/gpunodes")
    installed.delete("/api/v1/namespaces/gpuyard-system/pods/agent-n0", 0)
    installed.delete("/api/v1/namespaces/team-a/pods?gracePeriodSeconds=0", 0)
    installed.no_nodes()
    kubelets.stop()


TOLERATING: dict[str, Any] = {} if HAS_DEFAULTS else {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}
"""Of a pod that is to bear the taint: admission adds it where it can."""


def gpu_node(cluster: Cluster) -> Any:
    found = cluster.get("/apis/gpuyard.dev/v1/gpunodes")["items"]
    return found[0] if found else {}


def node(cluster: Cluster) -> Any:
    return cluster.get("/api/v1/nodes/n0")


def well(cluster: Cluster) -> tuple[str, str]:
    told = [each for each in node(cluster)["status"]["conditions"] if each["type"] == "GpusHealthy"]
    return (told[0]["status"], told[0].get("message", "")) if told else ("", "")


def test_what_an_agent_finds_is_its_nodes_record_and_its_labels_but_for_those_of_others(
    installed: Cluster, running: Running, ann: Person, tmp_path: Path
):
    wait_for(lambda: gpu_node(installed).get("status", {}).get("healthy") == 8, "the agent has told of eight GPUs")
    record = gpu_node(installed)
    assert [owner["kind"] for owner in record["metadata"]["ownerReferences"]] == ["Node"]
    assert len({gpu["uuid"] for gpu in record["spec"]["gpus"]}) == 8
    wait_for(lambda: well(installed)[0] == "True", "the node says that its GPUs are well")
    wait_for(lambda: node(installed)["metadata"]["labels"].get("nvidia.com/gpu.count"), "and how many there are")
    labels = node(installed)["metadata"]["labels"]
    assert labels["nvidia.com/gpu.count"] == "8"
    assert labels["nvidia.com/gpu.product"] == "H100-SXM5-80GB"  # as somebody else has it, who was there before
    assert labels["nvidia.com/gpu.family"] == "hopper"
    wait_for(lambda: TAINT in node(installed)["spec"].get("taints", []), "the node bears the taint")
    version = record["metadata"]["resourceVersion"]
    (tmp_path / "faults.yaml").write_text("- {fault: set, gpu: 0, set: {utilization: 80}}\n")
    scheduler = Scheduler(installed.scheduler_kubeconfig(), tmp_path / "scheduler.log", "--no-lease")
    try:
        ann.create(pod("train", 1, **TOLERATING))
        path = "/api/v1/namespaces/team-a/pods/train"
        wait_for(lambda: installed.get(path)["spec"].get("nodeName"), "it is placed")
        told = json.loads(yard(installed.scheduler_kubeconfig(), "snapshot", "--kube", "-o", "json"))
        assert "GPU-" in json.dumps(told["nodes"])
    finally:
        scheduler.kill()
    assert gpu_node(installed)["metadata"]["resourceVersion"] == version  # a load that changes is no news
    (tmp_path / "faults.yaml").write_text("- {fault: lost, gpu: 3}\n")
    wait_for(lambda: well(installed)[0] == "False", "a GPU that is sick is told on the node")
    assert "is sick: lost" in well(installed)[1]


def test_our_labels_go_when_the_record_goes_and_when_we_are_taken_away(installed: Cluster, running: Running):
    wait_for(lambda: "nvidia.com/gpu.count" in node(installed)["metadata"]["labels"], "the labels are there")
    running.started[0][0].terminate()
    running.started[0][0].wait(PATIENCE_S)
    del running.started[0]
    installed.call("DELETE", "/apis/gpuyard.dev/v1/gpunodes/n0")
    wait_for(lambda: "nvidia.com/gpu.count" not in node(installed)["metadata"]["labels"], "ours are gone")
    assert node(installed)["metadata"]["labels"]["nvidia.com/gpu.product"] == "H100-SXM5-80GB"
