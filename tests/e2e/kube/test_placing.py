"""Pods and gangs on a real API server with the real job controller, under the rights that we ship."""

from __future__ import annotations

import pytest

from tests.e2e.kube.conftest import Scheduling, bound, condition, wait_for
from tests.support.kube.cluster import Cluster
from tests.support.kube.fake_kubelet import FakeKubelets, FakeNode, indexed_job, pod

pytestmark = pytest.mark.slow

SAFE, UNDISTURBED = "cluster-autoscaler.kubernetes.io/safe-to-evict", "karpenter.sh/do-not-disrupt"


def phases(cluster: Cluster) -> dict[str, str]:
    return {each["metadata"]["name"]: each["status"]["phase"] for each in cluster.pods()}


def test_a_pod_is_placed_runs_and_succeeds(cluster: Cluster, kubelets: FakeKubelets, scheduling: Scheduling):
    kubelets.add(FakeNode("n0"))
    scheduling()
    cluster.create(pod("train", 2, notes={"run-s": 0.2}))
    wait_for(lambda: phases(cluster) == {"train": "Succeeded"}, "the pod has succeeded")
    (train,) = cluster.pods()
    assert train["spec"]["nodeName"] == "n0"
    assert not {"gpuyard.dev/job", SAFE} & train["metadata"]["annotations"].keys()


def test_an_indexed_job_starts_whole_and_its_job_completes(
    cluster: Cluster, kubelets: FakeKubelets, scheduling: Scheduling
):
    kubelets.add(FakeNode("n0", gpus=4), FakeNode("n1", gpus=4))
    scheduling()
    cluster.create(indexed_job("gang", 8, notes={"run-s": 0.2}))

    def complete() -> bool:
        job = cluster.get("/apis/batch/v1/namespaces/default/jobs/gang")
        return any(each["type"] == "Complete" for each in job["status"].get("conditions", ()))

    wait_for(complete, "the Job is complete")
    assert [how for _, _, how in kubelets.admissions[-8:]] == ["admitted"] * 8
    notes = [each["metadata"]["annotations"] for each in cluster.pods()]
    assert [(each[SAFE], each[UNDISTURBED]) for each in notes] == [("false", "true")] * 8


def test_a_gang_that_does_not_fit_binds_nobody_and_every_member_is_told_why(
    cluster: Cluster, kubelets: FakeKubelets, scheduling: Scheduling
):
    kubelets.add(FakeNode("n0", gpus=4))
    scheduling()
    cluster.create(indexed_job("gang", 6))

    def told() -> bool:
        return len(pods := cluster.pods()) == 6 and all(
            condition(each).get("reason") == "Unschedulable" for each in pods
        )

    wait_for(told, "every member is told why")
    assert bound(cluster) == {}
    assert "needs 6 GPUs" in condition(cluster.pods()[0])["message"]
    kubelets.add(FakeNode("n1", gpus=4))
    wait_for(lambda: len(bound(cluster)) == 6, "the gang is bound whole")


def test_pods_of_others_take_what_they_take(cluster: Cluster, kubelets: FakeKubelets, scheduling: Scheduling):
    kubelets.add(FakeNode("n0", gpus=4))
    cluster.create(pod("theirs", 3, scheduler="default-scheduler", nodeName="n0"))
    scheduling()
    cluster.create(pod("two", 2))
    cluster.create(pod("one", 1))
    wait_for(lambda: bound(cluster) == {"theirs": "n0", "one": "n0"}, "only what fits beside them is bound")
    cluster.delete("/api/v1/namespaces/default/pods/theirs")
    wait_for(lambda: bound(cluster) == {"two": "n0", "one": "n0"}, "what they leave is used")


def test_a_gated_pod_waits_until_its_gate_is_lifted(cluster: Cluster, kubelets: FakeKubelets, scheduling: Scheduling):
    kubelets.add(FakeNode("n0", gpus=4))
    scheduling()
    cluster.create(pod("gated", 1, schedulingGates=[{"name": "x/y"}]))
    cluster.create(pod("free", 1))
    wait_for(lambda: bound(cluster) == {"free": "n0"}, "only the other is bound")
    cluster.call(
        "PATCH",
        "/api/v1/namespaces/default/pods/gated",
        {"spec": {"schedulingGates": None}},
        "application/merge-patch+json",
    )
    wait_for(lambda: len(bound(cluster)) == 2, "it is bound too")


def test_a_closed_node_gets_nothing_new(cluster: Cluster, kubelets: FakeKubelets, scheduling: Scheduling):
    kubelets.add(FakeNode("n0"), FakeNode("n1"))
    cluster.merge("/api/v1/nodes/n0", {"spec": {"unschedulable": True}})
    scheduling()
    cluster.create(pod("one", 1))
    wait_for(lambda: bound(cluster) == {"one": "n1"}, "it lies on the node that is open")
