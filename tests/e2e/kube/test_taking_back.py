"""Gangs that cannot start whole are taken back by a way that costs nobody anything, and nodes that refuse are left."""

from __future__ import annotations

import threading
from http import HTTPStatus

import pytest
from aiohttp import web

from gpuyard.worlds.kubernetes.acting import start_watch
from tests.e2e.kube.conftest import PATIENCE_S, Schedulers, Scheduling, bound, wait_for
from tests.support.kube.cluster import Cluster
from tests.support.kube.fake_kubelet import FakeKubelets, FakeNode, indexed_job, pod
from tests.support.kube.faults import FaultProxy, Refusal, Verdict, is_bind

pytestmark = pytest.mark.slow


def test_a_gang_whose_last_member_cannot_be_bound_is_suspended_and_begins_again_without_a_failure(
    cluster: Cluster, kubelets: FakeKubelets, schedulers: Schedulers, proxy: FaultProxy
):
    kubelets.add(FakeNode("n0"))
    refused, looked = threading.Event(), threading.Event()
    binds: list[str] = []

    def judge(request: web.Request) -> Verdict | Refusal:
        if not is_bind(request) or "/gang-3-" not in request.path or refused.is_set():
            return Verdict.PASS
        refused.set()
        looked.wait(PATIENCE_S)
        return Refusal(403)

    def done(request: web.Request, status: int) -> None:
        if is_bind(request) and status == HTTPStatus.CREATED:
            binds.append(request.path)

    proxy.judge, proxy.done = judge, done
    schedulers("--no-lease", server=proxy.server)
    cluster.create(indexed_job("gang", 4, notes={"image": "missing"}))
    job = "/apis/batch/v1/namespaces/default/jobs/gang"
    assert refused.wait(PATIENCE_S)
    first = uids(cluster)
    looked.set()
    wait_for(lambda: not first & uids(cluster), "all of them were taken back")
    wait_for(lambda: len(bound(cluster)) == 4, "the gang is bound whole")
    assert len(first) == 4
    wait_for(lambda: len(binds) >= 3 + 4, "three of four were bound in vain")  # the last answer is heard after its pod
    status = cluster.get(job)
    assert not status["status"].get("failed")
    assert "gpuyard.dev/suspended" not in status["metadata"].get("annotations", {})


def uids(cluster: Cluster) -> set[str]:
    return {each["metadata"]["uid"] for each in cluster.pods()}


def test_a_node_whose_kubelet_refuses_a_pod_is_left_alone_for_a_while(
    cluster: Cluster, kubelets: FakeKubelets, schedulers: Schedulers
):
    kubelets.add(FakeNode("n0", gpus=8))
    kubelets.nodes["n0"].gpus = 0  # it says eight and has none
    schedulers()
    cluster.create(pod("first", 1))
    wait_for(lambda: cluster.pods()[0]["status"].get("reason") == "UnexpectedAdmissionError", "its kubelet refused it")
    kubelets.add(FakeNode("n1", gpus=1))
    cluster.create(pod("second", 1))
    wait_for(lambda: bound(cluster).get("second") == "n1", "the next one goes elsewhere")


def test_a_gang_that_is_bound_and_does_not_begin_is_tried_elsewhere_once_and_its_cause_is_named(
    cluster: Cluster, kubelets: FakeKubelets, schedulers: Schedulers
):
    kubelets.add(FakeNode("n0", gpus=2), FakeNode("n1", gpus=2))
    schedulers("--no-lease", "--start-timeout", "5s")
    cluster.create(indexed_job("gang", 2, notes={"image": "missing"}))
    first = set(wait_for(lambda: len(bound(cluster)) == 2 and bound(cluster).values(), "it is bound"))

    def told() -> list[str]:
        events = cluster.get("/apis/events.k8s.io/v1/namespaces/default/events")["items"]
        return [each["note"] for each in events if each["reason"] == "StartTimeout"]

    wait_for(lambda: len(bound(cluster)) == 2 and first.isdisjoint(bound(cluster).values()), "it is tried elsewhere")
    wait_for(lambda: len(told()) == 2, "both times the cause is named")
    assert all("ErrImagePull: no such image" in note for note in told())
    assert sum("taken back" in note for note in told()) == 1
    assert not cluster.get("/apis/batch/v1/namespaces/default/jobs/gang")["status"].get("failed")


def test_a_pod_that_was_told_to_go_and_does_not_is_named_and_keeps_its_gpus_until_it_goes(
    cluster: Cluster, kubelets: FakeKubelets, scheduling: Scheduling, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(start_watch, "OVERDUE_S", 1.0)
    kubelets.add(FakeNode("n0", gpus=1))
    scheduling()
    cluster.create(pod("stays", 1, notes={"linger": "until let go"}))
    wait_for(lambda: bound(cluster) == {"stays": "n0"}, "it is bound")
    cluster.create(pod("next", 1))
    cluster.delete("/api/v1/namespaces/default/pods/stays")

    def told() -> list[str]:
        events = cluster.get("/apis/events.k8s.io/v1/namespaces/default/events")["items"]
        return [each["note"] for each in events if each["reason"] == "StopTimeout"]

    wait_for(told, "it is named")
    assert told()[0].startswith("stays was told to go and is still there on n0")
    assert "next" not in bound(cluster)
    kubelets.let_go.set()
    wait_for(lambda: bound(cluster) == {"next": "n0"}, "its GPU is given on once it is gone")
    assert len(told()) == 1
