"""What waits is told why on the pod itself, in the words of `yard why`, whatever is missing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.kube.conftest import Scheduling, bound, condition, wait_for, wait_for_words
from tests.support.kube.cluster import Cluster
from tests.support.kube.fake_kubelet import FakeKubelets, FakeNode, indexed_job, pod, pod_spec

pytestmark = pytest.mark.slow

ZONE = "topology.kubernetes.io/zone"
TEAMS = "queues: [{name: a, quota: 4, limit: 4}, {name: b, quota: 4}]"


def deployment(name: str, replicas: int, **spec: Any) -> dict[str, Any]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod_spec(**spec)}
    wish = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": wish}


def of_queue(queue: str, job: dict[str, Any]) -> dict[str, Any]:
    job["metadata"].setdefault("annotations", {})["gpuyard.dev/queue"] = queue
    return job


def test_replicas_that_keep_apart_lie_on_nodes_of_their_own_and_the_one_too_many_is_told_so(
    cluster: Cluster, kubelets: FakeKubelets, scheduling: Scheduling
):
    kubelets.add(*(FakeNode(f"n{index}") for index in range(2)))
    scheduling()
    selector = {"labelSelector": {"matchLabels": {"app": "serve"}}, "topologyKey": "kubernetes.io/hostname"}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [selector]}}
    cluster.create(deployment("serve", 3, affinity=apart))
    wait_for(lambda: len(cluster.pods()) == 3, "its controller has made all three")
    wait_for(lambda: sorted(bound(cluster).values()) == ["n0", "n1"], "two are apart")
    (waits,) = {each["metadata"]["name"] for each in cluster.pods()} - bound(cluster).keys()
    wait_for_words(cluster, waits, f"default/{waits}")
    kubelets.add(FakeNode("n2"))
    wait_for(lambda: sorted(bound(cluster).values()) == ["n0", "n1", "n2"], "the third has its own")


def test_replicas_are_spread_over_zones_however_full_one_is(
    cluster: Cluster, kubelets: FakeKubelets, scheduling: Scheduling
):
    kubelets.add(FakeNode("a0", labels={ZONE: "a"}), FakeNode("b0", gpus=2, labels={ZONE: "b"}))
    scheduling()
    spread = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    spread |= {"labelSelector": {"matchLabels": {"app": "serve"}}}
    cluster.create(deployment("serve", 7, topologySpreadConstraints=[spread]))
    wait_for(lambda: len(cluster.pods()) == 7, "its controller has made all seven")
    wait_for(lambda: sorted(bound(cluster).values()) == ["a0", "a0", "a0", "b0", "b0"], "b is full and a one ahead")
    waiting = [each["metadata"]["name"] for each in cluster.pods() if each["metadata"]["name"] not in bound(cluster)]
    wait_for_words(cluster, waiting[0], f"default/{waiting[0]}")
    kubelets.add(FakeNode("b1", labels={ZONE: "b"}))
    wait_for(lambda: len(bound(cluster)) == 7, "all are bound")
    assert abs(sum(node[0] == "a" for node in bound(cluster).values()) - 3.5) == 0.5


def test_two_teams_have_what_is_theirs_and_who_is_over_its_limit_is_told_so(
    cluster: Cluster, kubelets: FakeKubelets, scheduling: Scheduling
):
    kubelets.add(FakeNode("n0", gpus=8))
    scheduling(TEAMS)
    for index in range(3):
        cluster.create(of_queue("a", indexed_job(f"a{index}", 2)))
    wait_for(lambda: len(bound(cluster)) == 4, "team a has its four")
    cluster.create(of_queue("b", indexed_job("b0", 4)))
    wait_for(lambda: len(bound(cluster)) == 8, "team b has its four")
    wait_for(lambda: len(cluster.pods()) == 10, "the pods of all four Jobs are there")
    (waits,) = {name.split("-")[0] for name in (each["metadata"]["name"] for each in cluster.pods())} - {
        name.split("-")[0] for name in bound(cluster)
    }
    wait_for_words(cluster, waits, f"default/{waits}", "limit", site=TEAMS)
    assert {condition(each)["reason"] for each in cluster.pods() if each["metadata"]["name"].startswith(waits)} == {
        "OverLimit"
    }


def test_what_nobody_here_could_ever_give_is_called_impossible_and_buys_no_nodes(
    cluster: Cluster, kubelets: FakeKubelets, scheduling: Scheduling
):
    kubelets.add(FakeNode("n0", gpus=8), FakeNode("n1", gpus=8))
    scheduling()
    cluster.create(pod("nine", 9))
    cluster.create(pod("fat", 1, memory="2Ti"))
    cluster.create(pod("elsewhere", 1, nodeSelector={"disk": "fast"}))
    for name in ("nine", "fat", "elsewhere"):
        wait_for_words(cluster, name, f"default/{name}")
    reasons = {each["metadata"]["name"]: condition(each)["reason"] for each in cluster.pods()}
    assert reasons == {"nine": "ShapeImpossible", "fat": "NotEnoughMemory", "elsewhere": "Unschedulable"}


def test_who_waits_for_gpus_of_others_is_told_so(cluster: Cluster, kubelets: FakeKubelets, scheduling: Scheduling):
    kubelets.add(FakeNode("n0", gpus=4))
    cluster.create(pod("theirs", 3, scheduler="default-scheduler", nodeName="n0"))
    scheduling()
    cluster.create(pod("two", 2))
    wait_for_words(cluster, "two", "default/two", "1 ")
    cluster.delete("/api/v1/namespaces/default/pods/theirs")
    wait_for(lambda: bound(cluster) == {"two": "n0"}, "what they leave is used")


def test_a_gated_gang_is_held_and_a_suspended_one_has_no_pods_until_it_is_resumed(
    cluster: Cluster, kubelets: FakeKubelets, scheduling: Scheduling
):
    kubelets.add(FakeNode("n0", gpus=4))
    scheduler = scheduling()
    cluster.create(pod("gated", 1, schedulingGates=[{"name": "x/y"}]))
    cluster.create(indexed_job("later", 2, job={"suspend": True}))
    wait_for(lambda: "default/gated" in scheduler.loop.fleet.jobs, "the gated one is seen")
    assert condition(cluster.pods()[0])["reason"] == "SchedulingGated"
    job = "/apis/batch/v1/namespaces/default/jobs/later"
    cluster.merge(job, {"spec": {"suspend": False}})
    wait_for(lambda: len(bound(cluster)) == 2, "the resumed one is bound")
    assert "gated" not in bound(cluster)
    cluster.merge(job, {"spec": {"suspend": True}})
    wait_for(lambda: bound(cluster) == {}, "suspended by its owner, it gives back what it had")
    cluster.merge("/api/v1/namespaces/default/pods/gated", {"spec": {"schedulingGates": None}})
    wait_for(lambda: bound(cluster) == {"gated": "n0"}, "its gate is lifted")
    assert cluster.get(job)["spec"]["suspend"] is True
