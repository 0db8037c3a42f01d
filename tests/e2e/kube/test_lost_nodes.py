"""A machine that dies under a gang. Kubernetes notices after a while, and waits as long as the pods say they bear it;
what it then takes away is given a place elsewhere, beside those of the gang that go on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.kube.conftest import Scheduling, bound, standing, wait_for, wait_for_words
from tests.support.kube import truth
from tests.support.kube.cluster import Cluster
from tests.support.kube.fake_kubelet import FakeKubelets, FakeNode, indexed_job

pytestmark = pytest.mark.slow

UNREACHABLE = "node.kubernetes.io/unreachable"


def bears(seconds: int) -> list[dict[str, Any]]:
    """Instead of the five minutes that every pod bears it unless it says otherwise."""
    return [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
        for key in (UNREACHABLE, "node.kubernetes.io/not-ready")
    ]


def taints(cluster: Cluster, node: str) -> set[str]:
    return {taint["key"] for taint in cluster.get(f"/api/v1/nodes/{node}")["spec"].get("taints", ())}


def alive_on(cluster: Cluster) -> dict[str, str]:
    there = (each for each in cluster.pods() if truth.is_bound(each) and not truth.is_leaving(each))
    return {each["metadata"]["name"]: each["spec"]["nodeName"] for each in there if not truth.is_over(each)}


def unplaced(cluster: Cluster) -> list[str]:
    return [each["metadata"]["name"] for each in cluster.pods() if not truth.is_bound(each)]


def test_a_gang_whose_node_dies_is_completed_elsewhere_once_its_pods_are_given_up(
    cluster: Cluster, kubelets: FakeKubelets, scheduling: Scheduling
):
    kubelets.add(FakeNode("n0", gpus=4), FakeNode("n1", gpus=2))
    scheduling()
    cluster.create(indexed_job("gang", 6, tolerations=bears(1)))
    wait_for(lambda: len(bound(cluster)) == 6, "it is bound")
    kubelets.die("n1")
    wait_for(lambda: UNREACHABLE in taints(cluster, "n1"), "the node is given up")
    wait_for(lambda: len(alive_on(cluster)) == 4, "its pods are told to go, which nobody there hears")
    wait_for(lambda: len(unplaced(cluster)) == 2, "the Job has made others")
    for name in unplaced(cluster):
        wait_for_words(cluster, name, "default/gang")
    kubelets.add(FakeNode("n2", gpus=2))
    wait_for(lambda: sorted(alive_on(cluster).values()) == ["n0"] * 4 + ["n2"] * 2, "it is whole" + standing(cluster))
    assert truth.wrongs(cluster) == []
