"""Gangs of other projects on a real API server: their kinds are served, and their pods come as their controllers make
them. Until all of a gang is there and fits, nobody is bound, and everybody is told why in the words of `yard why`."""

from __future__ import annotations

import pytest

from gpuyard.worlds.kubernetes import kinds
from gpuyard.worlds.kubernetes.acting import tell
from tests.e2e.kube.conftest import Scheduling, bound, wait_for, wait_for_words
from tests.support.kube.cluster import Cluster
from tests.support.kube.fake_kubelet import FakeKubelets, FakeNode, indexed_job, pod
from tests.support.kube.foreign_kinds import (
    JOBSET,
    KAI_GROUP,
    LEADER_WORKER_SET,
    VOLCANO_GROUP,
    serve,
    serve_no_more,
)

pytestmark = pytest.mark.slow

RESEARCH = "queues: [{name: default}, {name: research, quota: 16}]"


@pytest.fixture
def served(cluster: Cluster) -> Cluster:
    """The kinds are installed, with schemas that say nothing."""
    serve(cluster, (JOBSET, VOLCANO_GROUP, KAI_GROUP))
    return cluster


def test_a_jobset_is_one_gang_of_all_its_jobs(served: Cluster, kubelets: FakeKubelets, scheduling: Scheduling):
    kubelets.add(FakeNode("n0", gpus=4))
    scheduling()
    jobs = {"driver": (1, indexed_job("driver", 1, 0)), "workers": (2, indexed_job("workers", 2, 2))}
    replicated = [
        {"name": name, "replicas": count, "template": {"spec": job["spec"]}} for name, (count, job) in jobs.items()
    ]
    jobset = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "pretrain"}}
    served.create(jobset | {"spec": {"replicatedJobs": replicated}})

    def make(name: str, index: int) -> None:
        """As JobSet's controller makes its Jobs; the pods are the job controller's."""
        job = {**jobs[name][1], "metadata": {"name": f"pretrain-{name}-{index}"}}
        marks = {"jobset-name": "pretrain", "replicatedjob-name": name, "job-index": str(index)}
        labels = {f"jobset.sigs.k8s.io/{key}": value for key, value in marks.items()}
        job["spec"]["template"]["metadata"]["labels"] = labels
        served.create(job)

    make("driver", 0)
    make("workers", 0)
    wait_for_words(served, "pretrain", "default/jobset/pretrain", "members that do not exist yet")
    make("workers", 1)
    wait_for_words(served, "pretrain", "default/jobset/pretrain", "needs 8 GPUs")
    assert bound(served) == {}
    kubelets.add(FakeNode("n1", gpus=4))
    wait_for(lambda: len(bound(served)) == 5, "all of it is bound")


def test_pods_of_a_volcano_group_start_together(served: Cluster, kubelets: FakeKubelets, scheduling: Scheduling):
    kubelets.add(FakeNode("n0", gpus=4))
    scheduling()
    group = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "mpi"}}

    def make(task: str, index: int, gpus: int) -> None:
        document = pod(f"mpi-{task}-{index}", gpus)
        document["metadata"]["annotations"] |= {
            "scheduling.k8s.io/group-name": "mpi", "volcano.sh/task-spec": task, "volcano.sh/task-index": str(index),
        }  # fmt: skip
        served.create(document)

    make("launcher", 0, 0)
    make("worker", 0, 2)
    served.create(group | {"spec": {"minMember": 3, "minTaskMember": {"launcher": 1, "worker": 2}}})
    wait_for_words(served, "mpi", "default/podgroup/mpi", "members that do not exist yet")
    assert bound(served) == {}
    make("worker", 1, 2)
    wait_for(lambda: len(bound(served)) == 3, "all of it is bound")


def test_the_subgroups_of_a_kai_group_start_together_in_its_queue(
    served: Cluster, kubelets: FakeKubelets, scheduling: Scheduling
):
    kubelets.add(FakeNode("n0", gpus=8))
    scheduling(RESEARCH)
    parts = [{"name": "prefill", "minMember": 1}, {"name": "decode", "minMember": 2}]
    group = {"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": {"name": "infer"}}
    served.create(group | {"spec": {"minMember": 3, "queue": "research", "subGroups": parts}})
    for name, role, gpus in (("infer-0", "prefill", 8), ("infer-1", "decode", 4), ("infer-2", "decode", 4)):
        document = pod(name, gpus, labels={"kai.scheduler/subgroup-name": role})
        document["metadata"]["annotations"]["pod-group-name"] = "infer"
        served.create(document)
    wait_for_words(served, "infer", "default/podgroup/infer", "needs 16 GPUs", site=RESEARCH)
    assert bound(served) == {}
    kubelets.add(FakeNode("n1", gpus=8))
    wait_for(lambda: len(bound(served)) == 3, "all of it is bound")


def test_a_kind_that_is_installed_later_is_found_and_says_how_many_belong_to_pods_that_came_before_it(
    cluster: Cluster, kubelets: FakeKubelets, scheduling: Scheduling, monkeypatch: pytest.MonkeyPatch
):
    serve_no_more(cluster, LEADER_WORKER_SET)
    monkeypatch.setattr(kinds, "EVERY_S", 0.2)
    monkeypatch.setattr(tell, "REWORD_S", 0.2)
    kubelets.add(FakeNode("n0", gpus=2))
    cluster.create(pod("theirs", 1, scheduler="default-scheduler", nodeName="n0"))
    scheduling()
    group, version, kind = LEADER_WORKER_SET
    marks = {"name": "serve", "group-index": "0", "worker-index": "0"}
    leader = pod("serve-0", 2, labels={f"leaderworkerset.sigs.k8s.io/{key}": told for key, told in marks.items()})
    cluster.create(leader)
    gang = "default/leaderworkerset/serve-0"
    wait_for_words(cluster, "serve", gang, "needs 2 GPUs together")
    serve(cluster, (LEADER_WORKER_SET,))
    template = {"workerTemplate": {"spec": pod("w", 2)["spec"]}, "size": 2}
    spec = {"replicas": 1, "startupPolicy": "LeaderReady", "leaderWorkerTemplate": template}
    cluster.create({"apiVersion": f"{group}/{version}", "kind": kind, "metadata": {"name": "serve"}, "spec": spec})
    wait_for_words(cluster, "serve", gang, "needs 4 GPUs")
    kubelets.add(FakeNode("n1", gpus=4))
    wait_for(lambda: bound(cluster).get("serve-0") == "n1", "it goes where there is room for both")
