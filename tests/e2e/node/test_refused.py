"""What pods may ask for and cannot have, on a cluster that could run them: told by name, and bound nowhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.node.conftest import phases, wait_for, wait_until_told
from tests.support.kube.cluster import Cluster
from tests.support.kube.real_machine import RealMachine
from tests.support.kube.real_node import real_pod

pytestmark = pytest.mark.slow


def pods() -> dict[str, dict[str, Any]]:
    """Each asks for something, by the name of its refusal."""
    claim = [{"name": "devices", "resourceClaimName": "devices"}]
    one_of_ours, one_of_theirs = real_pod("two-kinds", "hold", gpus=1), {"amd.com/gpu": "1"}
    one_of_ours["spec"]["containers"][0]["resources"]["limits"] |= one_of_theirs
    shared = real_pod("shared", "hold")
    shared["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu.shared": "2"}}
    volume = [{"name": "data", "persistentVolumeClaim": {"claimName": "nobody-made-it"}}]
    near = {"topologyKey": "example.com/row", "labelSelector": {"matchLabels": {"app": "db"}}}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}}
    return {
        "ClaimUnsupported": real_pod("claim", "hold", resourceClaims=claim),
        "TwoKindsOfGpu": one_of_ours,
        "SharedCount": shared,
        "SharingNotOffered": noted(real_pod("part", "hold"), "gpu-fraction", "0.5"),
        "VolumeUnbound": real_pod("volume", "hold", gpus=1, volumes=volume),
        "PodAffinity": real_pod("near", "hold", gpus=1, affinity=affinity),
        "QueueUnknown": noted(real_pod("queue", "hold", gpus=1), "gpuyard.dev/queue", "nobodys"),
        "TopologyUnknown": noted(real_pod("rack", "hold", gpus=1), "gpuyard.dev/topology-required", "aisle"),
        "ShapeImpossible": real_pod("large", "hold", gpus=9),
    }


def noted(pod: dict[str, Any], key: str, value: str) -> dict[str, Any]:
    pod["metadata"]["annotations"] = {key: value}
    return pod


def told(cluster: Cluster) -> dict[str, str]:
    """Of each pod that waits, by which name it is refused."""
    found = [(pod["metadata"]["name"], each) for pod in cluster.pods() for each in pod["status"].get("conditions", ())]
    return {name: str(each["reason"]) for name, each in found if is_no(each)}


def is_no(condition: dict[str, Any]) -> bool:
    return (condition["type"], condition["status"]) == ("PodScheduled", "False")


def test_what_cannot_be_had_is_refused_by_name_and_who_asks_for_what_can_runs_beside_it(
    cluster: Cluster, machine: RealMachine, scheduler: Path
):
    asked = pods()
    for pod in asked.values():
        cluster.create(pod)
    cluster.create(real_pod("plain", "hold", gpus=8))
    wait_for(lambda: phases(cluster).get("plain") == "Running", "who asks for what can be had runs")
    names = {pod["metadata"]["name"]: reason for reason, pod in asked.items()}
    wait_until_told(lambda: told(cluster), names, "each is told by name what it cannot have")
    assert [pod["metadata"]["name"] for pod in cluster.pods() if pod["spec"].get("nodeName")] == ["plain"]
