"""The manifests of the guide to migrating, as they stand there, on a real API server with the real job controller.

Kueue's and Volcano's controllers are played: who would resume a Job, and who would make a Job's pods.
"""

from __future__ import annotations

import pytest

from tests.e2e.kube.conftest import Scheduling, bound, condition, wait_for
from tests.support.kube.cluster import Cluster
from tests.support.kube.fake_kubelet import FakeKubelets, FakeNode
from tests.support.kube.foreign_kinds import KAI_GROUP, VOLCANO_GROUP, VOLCANO_JOB, serve
from tests.support.kube.migrating import RESEARCH, made_by_volcano, manifests

pytestmark = pytest.mark.slow

PRETRAIN = "/apis/batch/v1/namespaces/default/jobs/pretrain"


def apply(cluster: Cluster, name: str) -> None:
    """Every object of the file."""
    for document in manifests(name):
        made = cluster.create(document)
        if document["apiVersion"].startswith("batch.volcano.sh"):
            for each in made_by_volcano(made):
                cluster.create(each)


def jobs(cluster: Cluster) -> dict[str, int]:
    """How many pods are bound, by what they are to us."""
    bound = [pod["metadata"] for pod in cluster.pods() if pod["spec"].get("nodeName")]
    told = [each.get("annotations", {}).get("gpuyard.dev/job", f"default/{each['name']}") for each in bound]
    return {name: told.count(name) for name in sorted(set(told))}


def test_workloads_of_kube_scheduler_are_placed_with_schedulername_alone_changed(
    cluster: Cluster, kubelets: FakeKubelets, scheduling: Scheduling
):
    kubelets.add(FakeNode("n0", gpus=3), FakeNode("n1", gpus=3))
    scheduling()
    apply(cluster, "kube-scheduler/after")
    wait_for(lambda: len(bound(cluster)) == 4, "everything is bound")
    assert jobs(cluster)["default/pretrain"] == 2
    answers = {node for name, node in bound(cluster).items() if name.startswith("answers")}
    assert answers == {"n0", "n1"}, "they are spread as they ask"


@pytest.mark.parametrize(("name", "file"), [("gpuyard", "volcano/after"), ("volcano", "volcano/before")])
def test_groups_and_jobs_of_volcano_start_whole_under_our_name_or_under_its_own(
    name: str, file: str, cluster: Cluster, kubelets: FakeKubelets, scheduling: Scheduling
):
    serve(cluster, (VOLCANO_GROUP, VOLCANO_JOB))
    kubelets.add(FakeNode("n0", gpus=8), FakeNode("n1", gpus=8))
    scheduling(RESEARCH, name=name)
    apply(cluster, file)
    wait_for(lambda: len(bound(cluster)) == 5, "everything is bound")
    assert sorted(jobs(cluster).values()) == [2, 3]
    assert "default/podgroup/pretrain" in jobs(cluster)


def test_a_job_of_kueue_starts_whole_when_kueue_lets_it_in(
    cluster: Cluster, kubelets: FakeKubelets, scheduling: Scheduling
):
    kubelets.add(FakeNode("n0", gpus=8))
    scheduling()
    apply(cluster, "kueue/after")
    cluster.merge(PRETRAIN, {"spec": {"suspend": False}})  # as Kueue does when there is quota
    wait_for(lambda: jobs(cluster) == {"default/pretrain": 2}, "it is bound whole")
    assert cluster.get(PRETRAIN)["spec"].get("activeDeadlineSeconds") is None, "Kueue's own limit is not written over"


def test_a_job_of_kueue_starts_without_kueue(cluster: Cluster, kubelets: FakeKubelets, scheduling: Scheduling):
    kubelets.add(FakeNode("n0", gpus=8))
    scheduling()
    apply(cluster, "kueue/without-kueue")
    wait_for(lambda: jobs(cluster) == {"default/pretrain": 2}, "it is bound whole")


@pytest.mark.parametrize(("name", "file"), [("gpuyard", "kai/after"), ("kai-scheduler", "kai/before")])
def test_workloads_of_kai_start_whole_in_their_queue_under_our_name_or_under_its_own(
    name: str, file: str, cluster: Cluster, kubelets: FakeKubelets, scheduling: Scheduling
):
    serve(cluster, (KAI_GROUP,))
    kubelets.add(FakeNode("n0", gpus=8), FakeNode("n1", gpus=8))
    scheduling(RESEARCH, name=name)
    apply(cluster, file)
    wait_for(lambda: jobs(cluster) == {"default/podgroup/answers": 2, "default/pretrain": 2}, "everything is bound")


def test_what_has_no_counterpart_is_refused_by_name_on_the_pod(
    cluster: Cluster, kubelets: FakeKubelets, scheduling: Scheduling
):
    serve(cluster, (VOLCANO_GROUP,))
    kubelets.add(FakeNode("n0", gpus=8))
    scheduling(RESEARCH)
    apply(cluster, "no-counterpart")
    expected = {
        "part-of-a-gpu": "SharingNotOffered",
        "slices": "NoCounterpart",
        "other-topology": "TopologyUnknown",
        "sub-groups": "NoCounterpart",
        "other-queue": "QueueUnknown",
    }

    def told() -> dict[str, str]:
        return {pod["metadata"]["name"]: condition(pod).get("reason", "") for pod in cluster.pods()}

    wait_for(lambda: told() == expected, "each is told by which name it is refused")
    assert bound(cluster) == {}
