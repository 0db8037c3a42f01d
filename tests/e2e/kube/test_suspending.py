"""JobSets, RayClusters and Kubeflow jobs give way by being suspended, and are resumed, on a real API server whose
schemas have the suspension where those projects have it. Their controllers are played: pods go with it, and come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from tests.e2e.kube.conftest import Scheduling, bound, wait_for
from tests.support.kube.cluster import Cluster
from tests.support.kube.fake_kubelet import FakeKubelets, FakeNode, indexed_job, pod, pod_spec
from tests.support.kube.foreign_kinds import JOBSET, PYTORCH_JOB, RAY_CLUSTER, Kind, serve

pytestmark = pytest.mark.slow

MARK = "gpuyard.dev/suspended"
POLICY = "policy: {eviction_grace: 0s, protect_after: 100}"
TEMPLATE = {"spec": pod_spec(2)}


@dataclass(frozen=True)
class Owner:
    """A kind, a spec of it, and by which labels its two pods are known."""

    kind: Kind
    spec: dict[str, Any]
    labels: tuple[dict[str, str], ...]
    inside: tuple[str, ...] = ()
    """Where in the spec the suspension stands."""
    made: list[str] = field(default_factory=list)

    @property
    def path(self) -> str:
        group, version, kind = self.kind
        return f"/apis/{group}/{version}/namespaces/default/{kind.lower()}s/train"

    def is_suspended(self, cluster: Cluster) -> tuple[bool, bool]:
        """Whether it is, and whether it bears our mark."""
        found = cluster.get(self.path)
        spec = found["spec"]
        for key in self.inside:
            spec = spec.get(key, {})
        return bool(spec.get("suspend")), MARK in found["metadata"].get("annotations", {})


def pods_of(owner: Owner, cluster: Cluster) -> None:
    """As its controller makes them."""
    group, version, kind = owner.kind
    uid = cluster.get(owner.path)["metadata"]["uid"]
    above = {"apiVersion": f"{group}/{version}", "kind": kind, "name": "train", "uid": uid, "controller": True}
    for index, labels in enumerate(owner.labels):
        document = pod(f"train-{len(owner.made)}-{index}", 2, labels=labels)
        document["metadata"]["ownerReferences"] = [above]
        cluster.create(document)
    owner.made.append("once more")


def no_pods(owner: Owner, cluster: Cluster) -> None:
    for each in cluster.pods():
        if each["metadata"]["name"].startswith("train"):
            cluster.delete(f"/api/v1/namespaces/default/pods/{each['metadata']['name']}")


def jobs_of(owner: Owner, cluster: Cluster) -> None:
    """A JobSet's Jobs are made once, and resumed; the pods are the job controller's."""
    if owner.made:
        cluster.merge("/apis/batch/v1/namespaces/default/jobs/train-workers-0", {"spec": {"suspend": False}})
        return
    job = indexed_job("train-workers-0", 2, 2)
    job["spec"]["template"]["metadata"]["labels"] = owner.labels[0]
    cluster.create(job)
    owner.made.append("once")


def no_jobs(owner: Owner, cluster: Cluster) -> None:
    cluster.merge("/apis/batch/v1/namespaces/default/jobs/train-workers-0", {"spec": {"suspend": True}})


SET = {"jobset-name": "train", "replicatedjob-name": "workers", "job-index": "0"}
Act = Callable[[Owner, Cluster], None]
OWNERS: dict[str, tuple[Callable[[], Owner], Act, Act]] = {
    "JobSet": (
        lambda: Owner(
            JOBSET,
            {
                "replicatedJobs": [
                    {"name": "workers", "replicas": 1, "template": {"spec": indexed_job("w", 2, 2)["spec"]}}
                ]
            },
            ({f"jobset.sigs.k8s.io/{key}": told for key, told in SET.items()},),
        ),
        jobs_of,
        no_jobs,
    ),
    "RayCluster": (
        lambda: Owner(
            RAY_CLUSTER,
            {
                "headGroupSpec": {"template": TEMPLATE},
                "workerGroupSpecs": [{"groupName": "w", "replicas": 1, "minReplicas": 1, "template": TEMPLATE}],
            },
            (
                {"ray.io/cluster": "train", "ray.io/node-type": "head"},
                {"ray.io/cluster": "train", "ray.io/node-type": "worker", "ray.io/group": "w"},
            ),
        ),
        pods_of,
        no_pods,
    ),
    "PyTorchJob": (
        lambda: Owner(
            PYTORCH_JOB,
            {"pytorchReplicaSpecs": {role: {"replicas": 1, "template": TEMPLATE} for role in ("Master", "Worker")}},
            tuple(
                {"training.kubeflow.org/job-name": "train", "training.kubeflow.org/replica-type": role}
                for role in ("master", "worker")
            ),
            ("runPolicy",),
        ),
        pods_of,
        no_pods,
    ),
}


@pytest.mark.parametrize("name", OWNERS)
def test_it_is_suspended_for_another_and_resumed_when_there_is_room_again(
    name: str, cluster: Cluster, kubelets: FakeKubelets, scheduling: Scheduling
):
    make, come, go = OWNERS[name]
    owner = make()
    serve(cluster, (owner.kind,))
    cluster.prioritise(urgent=1000)
    kubelets.add(FakeNode("n0", gpus=4))
    group, version, kind = owner.kind
    cluster.create(
        {"apiVersion": f"{group}/{version}", "kind": kind, "metadata": {"name": "train"}, "spec": owner.spec}
    )
    scheduling(POLICY)
    come(owner, cluster)
    wait_for(partial(are_bound, cluster, "train", 2), "all of it is bound")
    cluster.create(indexed_job("urgent", 1, 4, priorityClassName="urgent"))
    wait_for(lambda: owner.is_suspended(cluster) == (True, True), "it is suspended, with our mark")
    go(owner, cluster)
    wait_for(partial(are_bound, cluster, "urgent", 1), "the urgent one is bound")
    wait_for(
        lambda: cluster.pods(**{"batch.kubernetes.io/job-name": "urgent"})[0]["status"]["phase"] == "Running", "runs"
    )
    kubelets.finish("urgent")
    wait_for(lambda: owner.is_suspended(cluster) == (False, False), "it is resumed, and bears no mark")
    come(owner, cluster)
    wait_for(partial(are_bound, cluster, "train", 2), "all of it is bound again")
    if name == "JobSet":
        assert not cluster.get("/apis/batch/v1/namespaces/default/jobs/train-workers-0")["status"].get("failed")
    cluster.delete(owner.path)


def are_bound(cluster: Cluster, name: str, count: int) -> bool:
    leaving = {each["metadata"]["name"] for each in cluster.pods() if each["metadata"].get("deletionTimestamp")}
    return len([each for each in bound(cluster) if each.startswith(name) and each not in leaving]) == count
