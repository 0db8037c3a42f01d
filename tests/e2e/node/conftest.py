"""A cluster of its own with real nodes of eight GPUs and our agent on them: whatever is bound there really runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuyard.kube.definitions import gpu_nodes
from tests.support.kube import truth
from tests.support.kube.cluster import Cluster, environment, until, until_told
from tests.support.kube.real_fixtures import RealCluster
from tests.support.kube.real_machine import PATIENCE_S, RealMachine, uuids_of
from tests.support.kube.real_node import RealNode

UUIDS = uuids_of("n0")


@pytest.fixture
def cluster(cluster_of_eights: RealCluster) -> Iterator[Cluster]:
    """No job and no pod is left in it for the next test; nodes stay."""
    yield cluster_of_eights.cluster
    cluster_of_eights.clear()


@pytest.fixture
def machine(cluster: Cluster, cluster_of_eights: RealCluster) -> RealMachine:
    """The only one that is open."""
    return cluster_of_eights.open("n0")[0]


@pytest.fixture
def machines(cluster: Cluster, cluster_of_eights: RealCluster) -> list[RealMachine]:
    """Both of them are open."""
    return cluster_of_eights.open("n0", "n1")


@pytest.fixture
def node(machine: RealMachine) -> RealNode:
    return machine.node


def plugin_ready(node: RealNode) -> str:
    """What the cluster is told of the node's devices."""
    told = node.cluster.get(f"{gpu_nodes.GPU_NODES.path}/{node.name}").get("status", {}).get("conditions", ())
    return next((str(each["status"]) for each in told if each["type"] == gpu_nodes.PLUGIN_READY), "")


Scheduler = Callable[..., Path]


@pytest.fixture
def schedule(cluster: Cluster, tmp_path: Path) -> Iterator[Scheduler]:
    """Starts ours, with the rights that we ship, and tells where it writes."""
    log = tmp_path / "scheduler.log"
    log.write_text("")
    running: list[subprocess.Popen[bytes]] = []
    command = [sys.executable, "-m", "gpuyard", "serve", "--role", "scheduler", "--no-lease", "--kubeconfig"]

    def start(*words: str) -> Path:
        with log.open("ab") as output:
            running.append(
                subprocess.Popen(
                    [*command, cluster.scheduler_kubeconfig(), *words], stdout=output, stderr=output, env=environment()
                )
            )
        return log

    yield start
    for each in running:
        each.terminate()
        each.wait(PATIENCE_S)
    assert "Traceback" not in log.read_text()


@pytest.fixture
def scheduler(machine: RealMachine, schedule: Scheduler) -> Path:
    """Ours, as it is started without a word; what it wrote."""
    return schedule()


def bind(cluster: Cluster, name: str, node: str, gpus: list[str]) -> None:
    """As our scheduler binds: the node, and the GPUs as an annotation."""
    uid = cluster.get(f"/api/v1/namespaces/default/pods/{name}")["metadata"]["uid"]
    about = {"name": name, "uid": uid, "annotations": {"gpuyard.dev/gpus": ",".join(gpus)}}
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": about, "target": target}
    cluster.call("POST", f"/api/v1/namespaces/default/pods/{name}/binding", body)


def wait_for(holds: Callable[[], Any], what: str) -> Any:
    return until(holds, PATIENCE_S, what)


def wait_until_told(told: Callable[[], Any], expected: Any, what: str) -> None:
    until_told(told, expected, PATIENCE_S, what)


def phases(cluster: Cluster) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["status"]["phase"] for pod in cluster.pods()}


def job_status(cluster: Cluster, name: str) -> dict[str, Any]:
    """How a Job stands; `is` says in one word whether it is over."""
    status: dict[str, Any] = cluster.get(f"/apis/batch/v1/namespaces/default/jobs/{name}")["status"]
    over = [each["type"] for each in status.get("conditions", ()) if each["status"] == "True"]
    return {**status, "is": next((each for each in over if each in ("Complete", "Failed")), "")}


def running(cluster: Cluster, job: str) -> dict[str, str]:
    """The node of each pod of a Job that runs and has not been told to go, by its uid."""
    found = cluster.pods(**{"batch.kubernetes.io/job-name": job})
    here = (each for each in found if each["status"]["phase"] == "Running" and not truth.is_leaving(each))
    return {each["metadata"]["uid"]: each["spec"]["nodeName"] for each in here}
