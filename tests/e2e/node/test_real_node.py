"""Pods and Jobs to their end on a real kubelet: bound by us, run by it, and their end is seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.node.conftest import UUIDS, held, phases, wait_for
from tests.support.kube.cluster import Cluster
from tests.support.kube.real_node import RealNode, real_pod

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


def test_a_job_runs_to_its_end(cluster: Cluster, node: RealNode, scheduler: Path):
    template = real_pod("", "say", "done", gpus=2)["spec"]
    cluster.create(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "gang"},
            "spec": {
                "completions": 2,
                "parallelism": 2,
                "completionMode": "Indexed",
                "template": {"spec": template},
            },
        }
    )

    def status() -> dict[str, Any]:
        found: dict[str, Any] = cluster.get("/apis/batch/v1/namespaces/default/jobs/gang")["status"]
        return found

    wait_for(lambda: any(each["type"] == "Complete" for each in status().get("conditions", ())), "it is complete")
    assert (status()["succeeded"], status().get("failed", 0)) == (2, 0)


def test_a_pod_that_is_told_to_stop_is_gone_and_the_node_goes_on(cluster: Cluster, node: RealNode, scheduler: Path):
    cluster.create(real_pod("long", "hold", gpus=8))
    wait_for(lambda: phases(cluster) == {"long": "Running"}, "it runs")
    cluster.delete("/api/v1/namespaces/default/pods/long")
    wait_for(lambda: not cluster.pods(), "it is gone")
    assert node.is_ready()


def test_the_gpus_that_our_scheduler_chose_are_those_that_the_kubelet_gives(
    cluster: Cluster, node: RealNode, scheduler: Path
):
    for name, gpus in (("a", 1), ("b", 3), ("c", 4)):
        cluster.create(real_pod(name, "hold", gpus=gpus))
    wait_for(lambda: phases(cluster) == dict.fromkeys("abc", "Running"), "all of them run")
    notes = {pod["metadata"]["name"]: pod["metadata"]["annotations"] for pod in cluster.pods()}
    chosen = {name: tuple(sorted(about["gpuyard.dev/gpus"].split(","))) for name, about in notes.items()}
    assert held(node) == chosen
    assert sorted(gpu for gpus in chosen.values() for gpu in gpus) == sorted(UUIDS)
