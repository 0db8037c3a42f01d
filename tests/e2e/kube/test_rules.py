"""Quotas, refusals and marks on a real API server: what is told is told on the pods."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.kube.conftest import Schedulers, bound, condition, wait_for
from tests.support.kube.cluster import Cluster
from tests.support.kube.fake_kubelet import FakeKubelets, FakeNode, pod

pytestmark = pytest.mark.slow

SITE = """
apiVersion: gpuyard.dev/v1
kind: Snapshot
queues: [{name: a, quota: 2, limit: 2}, {name: b, quota: 2}]
"""


def of_queue(name: str, queue: str, gpus: int) -> dict:
    document = pod(name, gpus)
    document["metadata"]["annotations"]["gpuyard.dev/queue"] = queue
    return document


def told(cluster: Cluster, name: str) -> str:
    reasons = {each["metadata"]["name"]: condition(each).get("reason", "") for each in cluster.pods()}
    return str(reasons.get(name, ""))


def test_a_team_over_its_limit_waits_and_no_autoscaler_is_told_to_buy_nodes(
    cluster: Cluster, kubelets: FakeKubelets, schedulers: Schedulers, tmp_path: Path
):
    (tmp_path / "site.yaml").write_text(SITE)
    kubelets.add(FakeNode("n0"))
    schedulers("--no-lease", "--site", str(tmp_path / "site.yaml"))
    cluster.create(of_queue("one", "a", 2))
    wait_for(lambda: "one" in bound(cluster), "the first is bound")
    cluster.create(of_queue("two", "a", 1))
    cluster.create(of_queue("other", "b", 2))
    wait_for(lambda: "other" in bound(cluster), "the other team is not in its way")
    wait_for(lambda: told(cluster, "two") == "OverLimit", "it is told why")
    cluster.create(of_queue("nowhere", "c", 1))
    wait_for(lambda: told(cluster, "nowhere") == "QueueUnknown", "a queue that is not there is named")


def test_what_cannot_be_promised_is_refused_by_name(cluster: Cluster, kubelets: FakeKubelets, schedulers: Schedulers):
    kubelets.add(FakeNode("n0"))
    schedulers()
    claims = [{"name": "gpu", "resourceClaimName": "mine"}]
    cluster.create(pod("claims", 0, resourceClaims=claims))
    wait_for(lambda: told(cluster, "claims") == "ClaimUnsupported", "it is told why")
    assert bound(cluster) == {}


def test_a_claim_on_devices_that_somebody_has_allocated_is_met_where_they_are(
    cluster: Cluster, kubelets: FakeKubelets, schedulers: Schedulers
):
    kubelets.add(FakeNode("n0"), FakeNode("n1"))
    schedulers()
    claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpus.example.com"}}
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "mine"}}
    cluster.call("POST", claims, claim | {"spec": {"devices": {"requests": [request]}}})
    try:
        cluster.create(pod("claims", 0, resourceClaims=[{"name": "gpu", "resourceClaimName": "mine"}]))
        wait_for(lambda: told(cluster, "claims") == "ClaimUnsupported", "nobody has allocated it")
        here = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}
        had = {"request": "gpu", "driver": "gpus.example.com", "pool": "n1", "device": "gpu-0"}
        status = {"allocation": {"devices": {"results": [had]}, "nodeSelector": here}}
        cluster.merge(f"{claims}/mine/status", {"status": status})
        wait_for(lambda: bound(cluster) == {"claims": "n1"}, "it is bound where its devices are")
    finally:
        cluster.delete("/api/v1/namespaces/default/pods/claims", 0)
        cluster.delete(f"{claims}/mine")


def test_pods_with_one_mark_are_one_gang_though_they_come_one_by_one(
    cluster: Cluster, kubelets: FakeKubelets, schedulers: Schedulers
):
    kubelets.add(FakeNode("n0"))
    schedulers()
    for index in range(3):
        document = pod(f"m{index}", 1)
        document["metadata"]["annotations"] |= {"gpuyard.dev/gang": "ours", "gpuyard.dev/gang-tasks": "3"}
        cluster.create(document)
        if index == 1:
            wait_for(lambda: told(cluster, "m0") == "MembersAbsent", "the two wait for the third")
            assert bound(cluster) == {}
    wait_for(lambda: len(bound(cluster)) == 3, "all three are bound")
