"""Pods and Jobs to their end on a real kubelet: bound by us, run by it, and their end is seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.node.conftest import UUIDS, job_status, phases, wait_for
from tests.support.kube import node_components
from tests.support.kube.cluster import Cluster
from tests.support.kube.commands import yard
from tests.support.kube.real_machine import RealMachine
from tests.support.kube.real_node import RealNode, real_job, real_pod

pytestmark = pytest.mark.slow


def test_a_pod_that_we_bind_runs_ends_and_its_words_come_through_the_api_server(
    cluster: Cluster, node: RealNode, scheduler: Path
):
    cluster.create(real_pod("hello", "say", "hello from a real container", "exit", "3", gpus=1))
    wait_for(lambda: phases(cluster) == {"hello": "Failed"}, "its end is seen")
    (pod,) = cluster.pods()
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (pod["spec"]["nodeName"], ended["exitCode"]) == (node.name, 3)
    assert node.logs("hello") == "hello from a real container\n"


@pytest.mark.parametrize(
    "job",
    [
        pytest.param({}, id="all at once"),
        pytest.param({"completionMode": "NonIndexed", "parallelism": 1}, id="one by one", marks=pytest.mark.long),
    ],
)
def test_a_job_runs_to_its_end_and_yard_logs_has_what_it_wrote(
    cluster: Cluster, node: RealNode, scheduler: Path, job: dict[str, Any]
):
    cluster.create(real_job("work", "say", "done", tasks=2, gpus=2, job=job))
    wait_for(lambda: job_status(cluster, "work")["is"] == "Complete", "it is complete")
    status = job_status(cluster, "work")
    assert (status["succeeded"], status.get("failed", 0)) == (2, 0)
    assert yard(cluster.kubeconfig(), "logs", "work", "--kube").count("done") == 2


def test_yard_run_shows_what_the_container_writes_and_ends_as_it_ends(
    cluster: Cluster, node: RealNode, scheduler: Path
):
    words = ("--gpus", "1", "--name", "once", "--image", node_components.IMAGE)
    said = yard(cluster.kubeconfig(), "run", "--kube", *words, "--", "/pod", "say", "hello", "exit", "7", code=7)
    assert "hello" in said.splitlines()
    assert "hello" in yard(cluster.kubeconfig(), "logs", "once", "--kube")


def test_the_gpus_that_our_scheduler_chose_are_those_that_the_kubelet_gives(
    cluster: Cluster, machine: RealMachine, scheduler: Path
):
    for name, gpus in (("a", 1), ("b", 3), ("c", 4)):
        cluster.create(real_pod(name, "hold", gpus=gpus))
    wait_for(lambda: phases(cluster) == dict.fromkeys("abc", "Running"), "all of them run")
    notes = {pod["metadata"]["name"]: pod["metadata"]["annotations"] for pod in cluster.pods()}
    chosen = {name: tuple(sorted(about["gpuyard.dev/gpus"].split(","))) for name, about in notes.items()}
    assert machine.held() == chosen
    assert sorted(gpu for gpus in chosen.values() for gpu in gpus) == sorted(UUIDS)
