"""Borrowing, reclaiming and priorities on a real API server: nobody who gives way is counted as failed."""

from __future__ import annotations

import functools
import threading
import time
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.e2e.kube.conftest import PATIENCE_S, Scheduler, Schedulers, wait_for
from tests.support.kube.cluster import Cluster
from tests.support.kube.fake_kubelet import FakeKubelets, FakeNode, indexed_job, pod_spec
from tests.support.kube.faults import FaultProxy, Refusal, Verdict, is_bind

pytestmark = pytest.mark.slow

MARK = "gpuyard.dev/suspended"
SITE = """
apiVersion: gpuyard.dev/v1
kind: Snapshot
policy: {eviction_grace: 0s, protect_after: 100, stale_grace: 1s}
"""
TEAMS = f"{SITE}queues: [{{name: a, quota: 4}}, {{name: b, quota: 4}}]\n"


@pytest.fixture
def scheduler(schedulers: Schedulers, tmp_path: Path) -> Any:
    """Starts one with a site."""

    def start(site: str = SITE, server: str = "") -> Scheduler:
        (tmp_path / "site.yaml").write_text(site)
        return schedulers("--no-lease", "--site", str(tmp_path / "site.yaml"), server=server)

    return start


def job(cluster: Cluster, name: str) -> dict[str, Any]:
    return dict(cluster.get(f"/apis/batch/v1/namespaces/default/jobs/{name}"))


def is_complete(cluster: Cluster, name: str) -> bool:
    return any(each["type"] == "Complete" for each in job(cluster, name)["status"].get("conditions", ()))


def running(cluster: Cluster, name: str) -> set[str]:
    """The uids of its pods that run."""
    found = cluster.pods(**{"batch.kubernetes.io/job-name": name})
    return {
        each["metadata"]["uid"]
        for each in found
        if each["status"]["phase"] == "Running" and not each["metadata"].get("deletionTimestamp")
    }


def cordon_all(cluster: Cluster, cordoned: bool) -> None:
    for node in cluster.get("/api/v1/nodes")["items"]:
        cluster.merge(f"/api/v1/nodes/{node['metadata']['name']}", {"spec": {"unschedulable": cordoned}})


def of_queue(queue: str, document: dict[str, Any]) -> dict[str, Any]:
    document["spec"]["template"]["metadata"]["annotations"]["gpuyard.dev/queue"] = queue
    return document


def test_a_job_of_64_pods_that_is_rolled_back_once_and_preempted_three_times_completes_without_a_failure(
    cluster: Cluster, kubelets: FakeKubelets, proxy: FaultProxy, scheduler: Any
):
    cluster.prioritise(urgent=1000)
    kubelets.add(*(FakeNode(f"n{index}", gpus=8) for index in range(8)))
    broken, tried, cordoned = True, threading.Event(), threading.Event()

    def judge(request: web.Request) -> Verdict | Refusal:
        """The last member cannot be bound, and meanwhile there is no other place for it."""
        if not (broken and is_bind(request) and "/big-63-" in request.path):
            return Verdict.PASS
        tried.set()
        cordoned.wait(PATIENCE_S)
        return Refusal(500)

    proxy.judge = judge
    scheduler(server=proxy.server)
    cluster.create(indexed_job("big", 64))
    assert tried.wait(PATIENCE_S)
    cordon_all(cluster, True)
    cordoned.set()
    wait_for(lambda: MARK in job(cluster, "big")["metadata"].get("annotations", {}), "it is rolled back")
    broken = False
    cordon_all(cluster, False)
    for urgent in ("urgent-0", "urgent-1", "urgent-2"):
        wait_for(lambda: len(running(cluster, "big")) == 64, "the gang runs whole")
        cluster.create(indexed_job(urgent, 1, gpus=8, priorityClassName="urgent"))
        wait_for(functools.partial(running, cluster, urgent), "the urgent one runs")
        assert job(cluster, "big")["spec"]["suspend"]
        kubelets.finish(urgent)
    wait_for(lambda: len(running(cluster, "big")) == 64, "the gang runs again")
    kubelets.finish("big")
    wait_for(lambda: is_complete(cluster, "big"), "the Job is complete")
    status = job(cluster, "big")["status"]
    assert (status.get("failed", 0), status["succeeded"]) == (0, 64)
    assert {how for _, _, how in kubelets.admissions} == {"admitted"}


def test_two_teams_borrow_reclaim_and_claim_back_and_nobody_else_is_disturbed(
    cluster: Cluster, kubelets: FakeKubelets, scheduler: Any
):
    kubelets.add(FakeNode("n0", gpus=4), FakeNode("n1", gpus=4))
    scheduler(TEAMS)
    cluster.create(of_queue("a", indexed_job("own", 4)))
    wait_for(lambda: len(running(cluster, "own")) == 4, "what team a is entitled to runs")
    wait_for(lambda: age(job(cluster, "own")) > 1, "it is older than what comes next, in seconds")
    cluster.create(of_queue("a", indexed_job("borrowed", 4, job={"activeDeadlineSeconds": 3600})))
    wait_for(lambda: len(running(cluster, "borrowed")) == 4, "team a borrows what team b does not use")
    wait_for(lambda: age(job(cluster, "borrowed")) > 1, "it has used a second of its deadline")
    untouched = running(cluster, "own")
    cluster.create(of_queue("b", indexed_job("claim", 4)))
    wait_for(lambda: len(running(cluster, "claim")) == 4, "team b has its own back")
    assert not running(cluster, "borrowed")
    kubelets.finish("claim")
    wait_for(lambda: len(running(cluster, "borrowed")) == 4, "team a borrows again")
    assert running(cluster, "own") == untouched
    assert all(not job(cluster, name)["status"].get("failed") for name in ("own", "borrowed", "claim"))
    resumed = job(cluster, "borrowed")
    assert MARK not in resumed["metadata"]["annotations"]
    assert resumed["spec"]["activeDeadlineSeconds"] < 3600  # what it used before counts
    assert resumed["metadata"]["annotations"]["gpuyard.dev/active-deadline-seconds"] == "3600"
    wait_for(lambda: "borrowed" in preempted(cluster), "an event tells of it, too")


def age(document: dict[str, Any]) -> float:
    """Seconds since a Job was begun, as far as it says."""
    begun = document["status"].get("startTime")
    return time.time() - datetime.fromisoformat(begun).timestamp() if begun else 0.0


def preempted(cluster: Cluster) -> set[str]:
    """Of whom an event says so."""
    events = cluster.get("/apis/events.k8s.io/v1/namespaces/default/events?fieldSelector=reason=Preempted")["items"]
    return {event["regarding"]["name"] for event in events}


def suspends(request: web.Request) -> bool:
    return request.method == "PATCH" and "/jobs/" in request.path


@pytest.mark.parametrize("happens", [True, False], ids=["it-happened", "it-did-not"])
@pytest.mark.parametrize("write", [1, 2], ids=["suspending", "resuming"])
def test_killed_while_suspending_or_resuming_the_next_one_ends_in_a_right_state(
    cluster: Cluster, kubelets: FakeKubelets, proxy: FaultProxy, scheduler: Any, write: int, happens: bool
):
    cluster.prioritise(urgent=1000)
    kubelets.add(FakeNode("n0", gpus=2))
    happened = 0

    def judge(request: web.Request) -> Verdict:
        if not suspends(request) or happened < write - 1:
            return Verdict.PASS
        if not happens:
            first.process.kill()
        return Verdict.LOSE_REPLY if happens and happened == write - 1 else Verdict.LOSE

    def done(request: web.Request, status: int) -> None:
        """One that meets a write of the job controller does not happen, and is tried again."""
        nonlocal happened
        if suspends(request) and status == HTTPStatus.OK:
            happened += 1
            if happened == write:
                first.process.kill()

    proxy.judge, proxy.done = judge, done
    first = scheduler(server=proxy.server)
    cluster.create(indexed_job("low", 2))
    wait_for(lambda: len(running(cluster, "low")) == 2, "the first gang runs")
    cluster.create(indexed_job("high", 2, priorityClassName="urgent"))
    if write == 2:
        wait_for(lambda: len(running(cluster, "high")) == 2, "the urgent gang runs")
        kubelets.finish("high")
    assert first.process.wait(PATIENCE_S) == -9

    scheduler()
    if write == 1:
        wait_for(lambda: len(running(cluster, "high")) == 2, "the urgent gang runs")
        kubelets.finish("high")
    wait_for(lambda: len(running(cluster, "low")) == 2, "the one that gave way runs again")
    kubelets.finish("low")
    wait_for(lambda: is_complete(cluster, "low"), "and completes")
    assert not job(cluster, "low")["status"].get("failed")
    assert MARK not in job(cluster, "low")["metadata"].get("annotations", {})


def replicas(cluster: Cluster) -> set[str]:
    """Of the Deployment, those that run."""
    return {
        each["metadata"]["uid"]
        for each in cluster.pods(app="web")
        if each["status"]["phase"] == "Running" and not each["metadata"].get("deletionTimestamp")
    }


def test_killed_after_the_first_of_two_replicas_was_deleted_the_gang_goes_whole_and_comes_back_whole(
    cluster: Cluster, kubelets: FakeKubelets, proxy: FaultProxy, scheduler: Any
):
    cluster.prioritise(urgent=1000)
    kubelets.add(FakeNode("n0", gpus=2))
    deleted = 0

    def judge(request: web.Request) -> Verdict:
        nonlocal deleted
        if request.method != "DELETE" or "/pods/web-" not in request.path:
            return Verdict.PASS
        deleted += 1
        return Verdict.LOSE_REPLY if deleted == 1 else Verdict.LOSE

    proxy.judge = judge
    proxy.done = lambda request, _status: first.process.kill() if request.method == "DELETE" and deleted else None
    first = scheduler(server=proxy.server)
    labels = {"app": "web"}
    notes = {"gpuyard.dev/gang": "web", "gpuyard.dev/gang-tasks": "2"}
    template = {"metadata": {"labels": labels, "annotations": notes}, "spec": pod_spec(1)}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    cluster.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec})
    wait_for(lambda: len(replicas(cluster)) == 2, "both replicas run")
    cluster.create(indexed_job("high", 2, priorityClassName="urgent"))
    assert first.process.wait(PATIENCE_S) == -9

    scheduler()
    wait_for(lambda: len(running(cluster, "high")) == 2, "the urgent gang runs")
    kubelets.finish("high")
    wait_for(lambda: len(replicas(cluster)) == 2, "both replicas run again")
    assert {how for _, _, how in kubelets.admissions} == {"admitted"}
