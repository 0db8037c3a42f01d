"""Disruption budgets and drains on a real API server: nothing is broken, and a gang moves once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.kube.conftest import Schedulers, bound, message, wait_for
from tests.e2e.kube.test_giving_way import job, running
from tests.support.kube import commands
from tests.support.kube.cluster import Cluster
from tests.support.kube.fake_kubelet import FakeKubelets, FakeNode, indexed_job, pod

pytestmark = pytest.mark.slow
KEPT = "the disruption budget default/keep keeps those who would give way to it"


def yard(cluster: Cluster, *args: str) -> str:
    """As somebody who may cordon nodes."""
    return commands.yard(cluster.kubeconfig(), *args)


def node(cluster: Cluster, name: str) -> dict[str, Any]:
    return dict(cluster.get(f"/api/v1/nodes/{name}"))


def where(cluster: Cluster, prefix: str) -> set[str]:
    return {place for name, place in bound(cluster).items() if name.startswith(prefix)}


def test_a_budget_that_refuses_is_named_and_nothing_is_moved(
    cluster: Cluster, kubelets: FakeKubelets, schedulers: Schedulers
):
    cluster.prioritise(urgent=1000)
    kubelets.add(FakeNode("n0", gpus=2))
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "keep"}}
    selector = {"matchLabels": {"batch.kubernetes.io/job-name": "low"}}
    cluster.create({**budget, "spec": {"minAvailable": 1, "selector": selector}})
    schedulers()
    cluster.create(indexed_job("low", 2))
    wait_for(lambda: len(running(cluster, "low")) == 2, "the gang runs")
    status = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/keep"
    wait_for(lambda: cluster.get(status)["status"].get("disruptionsAllowed") == 1, "one of two may go")
    untouched = running(cluster, "low")
    cluster.create(indexed_job("high", 2, priorityClassName="urgent"))
    wait_for(lambda: len(cluster.pods()) == 4, "the urgent gang is there")
    wait_for(lambda: "kept by budget default/keep" in yard(cluster, "why", "default/high", "--kube"), "it is named")
    assert "budget default/keep allows no more now" in yard(cluster, "drain", "n0", "--kube", "--dry-run")
    wait_for(lambda: message(cluster, "high-").endswith(KEPT), "its pods are told, too")
    assert running(cluster, "low") == untouched
    assert not job(cluster, "low")["spec"]["suspend"]
    cluster.merge(status, {"spec": {"minAvailable": 0}})
    wait_for(lambda: len(running(cluster, "high")) == 2, "as soon as it allows all to go, they go")
    assert not job(cluster, "low")["status"].get("failed")


def test_a_node_that_is_drained_shows_whom_it_hits_and_its_gang_moves_once(
    cluster: Cluster, kubelets: FakeKubelets, schedulers: Schedulers
):
    kubelets.add(FakeNode("n0", gpus=4), FakeNode("n1", gpus=4))
    schedulers()
    cluster.create(indexed_job("gang", 2, gpus=2))
    wait_for(lambda: len(running(cluster, "gang")) == 2, "the gang runs")
    (home,) = where(cluster, "gang")
    assert "default/gang" in yard(cluster, "drain", home, "--kube", "--dry-run")
    assert not node(cluster, home)["spec"].get("unschedulable")
    yard(cluster, "drain", home, "--kube", "--yes", "--reason", "fan is loud")
    wait_for(lambda: len(running(cluster, "gang")) == 2 and home not in where(cluster, "gang"), "it runs elsewhere")
    assert len([key for key, _, _ in kubelets.admissions if key.startswith("default/gang-")]) == 4
    assert not job(cluster, "gang")["status"].get("failed")
    assert "fan is loud" in yard(cluster, "nodes", "--kube", "-o", "json")
    yard(cluster, "undrain", home, "--kube")
    assert not node(cluster, home)["spec"].get("unschedulable")


def test_a_drain_by_somebody_else_is_seen_and_helped(cluster: Cluster, kubelets: FakeKubelets, schedulers: Schedulers):
    kubelets.add(FakeNode("n0", gpus=3))
    schedulers()
    cluster.create(pod("alone", 1))
    cluster.create(indexed_job("gang", 2))
    wait_for(lambda: len(running(cluster, "gang")) == 2 and len(bound(cluster)) == 3, "all of them run")
    kubelets.add(FakeNode("n1", gpus=3))
    cluster.merge("/api/v1/nodes/n0", {"spec": {"unschedulable": True}})
    metadata = {"name": "alone", "namespace": "default"}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    cluster.call("POST", "/api/v1/namespaces/default/pods/alone/eviction", eviction)
    wait_for(lambda: len(running(cluster, "gang")) == 2 and where(cluster, "gang") == {"n1"}, "the gang moves too")
    assert not job(cluster, "gang")["status"].get("failed")
