"""An API server that goes away, refuses, loses answers and forgets: everything is placed once, and only once."""

from __future__ import annotations

from collections import Counter

import pytest
from aiohttp import web

from gpuyard.kube import reflector
from tests.e2e.kube.conftest import Schedulers, Scheduling, bound, wait_for
from tests.support.kube import truth
from tests.support.kube.cluster import Cluster
from tests.support.kube.fake_kubelet import FakeKubelets, FakeNode, indexed_job, pod
from tests.support.kube.faults import FaultProxy, Refusal, Verdict, is_bind

pytestmark = pytest.mark.slow


STORM = (
    Verdict.PASS, Refusal(500), Verdict.LOSE_REPLY, Refusal(409), Refusal(429, "1"), Verdict.LOSE, Refusal(503),
)  # fmt: skip


def test_in_a_storm_of_refusals_and_lost_answers_a_gang_is_bound_whole_and_nobody_twice(
    cluster: Cluster, kubelets: FakeKubelets, schedulers: Schedulers, proxy: FaultProxy
):
    kubelets.add(*(FakeNode(f"n{index}") for index in range(4)))
    asked = 0

    def judge(request: web.Request) -> Verdict | Refusal:
        nonlocal asked
        if not is_bind(request):
            return Verdict.PASS
        asked += 1
        return STORM[asked % len(STORM)]

    proxy.judge = judge
    schedulers("--no-lease", server=proxy.server)
    cluster.create(indexed_job("gang", 30))
    cluster.create(pod("one", 1))
    cluster.create(pod("two", 1))
    wait_for(lambda: len(bound(cluster)) == 32, "all are bound")
    assert set(Counter(bound(cluster).values()).values()) == {8}

    def seen() -> bool:
        return {f"default/{name}" for name in bound(cluster)} <= {key for key, _, _ in kubelets.admissions}

    wait_for(seen, "the kubelets have seen them")
    assert {how for _, _, how in kubelets.admissions} == {"admitted"}
    assert truth.wrongs(cluster) == []


def test_watches_that_are_cut_miss_nothing(
    cluster: Cluster, kubelets: FakeKubelets, schedulers: Schedulers, proxy: FaultProxy
):
    kubelets.add(FakeNode("n0"))
    schedulers("--no-lease", server=proxy.server)
    for index in range(8):
        cluster.create(pod(f"p{index}", 1))
        proxy.cut_watches()
    wait_for(lambda: len(bound(cluster)) == 8, "all are bound")


def test_an_api_server_that_was_restarted_finds_its_scheduler_again(
    cluster: Cluster, kubelets: FakeKubelets, schedulers: Schedulers
):
    kubelets.add(FakeNode("n0"))
    scheduler = schedulers()
    cluster.create(pod("before", 1))
    wait_for(lambda: "before" in bound(cluster), "it places pods")
    cluster.end("kube-apiserver")
    cluster.start_server()
    cluster.create(pod("after", 1))
    wait_for(lambda: "after" in bound(cluster), "it places pods again")
    assert scheduler.process.poll() is None


def test_what_was_forgotten_by_the_store_is_listed_anew(
    cluster: Cluster, kubelets: FakeKubelets, schedulers: Schedulers, proxy: FaultProxy
):
    kubelets.add(FakeNode("n0"))
    schedulers("--no-lease", server=proxy.server)
    cluster.create(pod("gone", 8))
    wait_for(lambda: "gone" in bound(cluster), "it places pods")
    refused = 0

    def judge(request: web.Request) -> Verdict | Refusal:
        """Every watch that would go on from where it was is told that this is too long ago."""
        nonlocal refused
        refused += "resourceVersion" in request.query
        return Refusal(410) if "resourceVersion" in request.query else Verdict.PASS

    proxy.judge = judge
    proxy.silent = True
    cluster.delete("/api/v1/namespaces/default/pods/gone", 0)
    cluster.create(pod("next", 8))
    proxy.cut_watches()
    proxy.silent = False
    wait_for(lambda: "next" in bound(cluster), "who went while nobody looked is not counted any more")
    wait_for(lambda: refused, "a watch was told that it would go on from too long ago")


def test_a_watch_that_says_nothing_is_given_up_and_what_was_missed_is_heard(
    cluster: Cluster, kubelets: FakeKubelets, scheduling: Scheduling, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(reflector, "SILENT_S", 3.0)
    kubelets.add(FakeNode("n0"))
    scheduling(server=proxy.server)
    cluster.create(pod("before", 8))
    wait_for(lambda: "before" in bound(cluster), "it places pods")
    proxy.mute_open_watches()
    cluster.delete("/api/v1/namespaces/default/pods/before", 0)
    cluster.create(pod("after", 8))
    wait_for(lambda: "after" in bound(cluster), "it has noticed that nobody spoke to it any more")
    assert truth.wrongs(cluster) == []


def test_what_the_store_has_really_forgotten_is_listed_anew_and_who_went_meanwhile_is_gone(
    cluster: Cluster, kubelets: FakeKubelets, scheduling: Scheduling, proxy: FaultProxy
):
    kubelets.add(FakeNode("n0"), FakeNode("n1", gpus=4))
    scheduler = scheduling(server=proxy.server)
    cluster.create(pod("gone", 8))
    cluster.create(pod("stays", 2))
    wait_for(lambda: len(bound(cluster)) == 2, "it places pods")
    listed = sum(each.relists for each in scheduler.world.following.reflectors)
    proxy.mute_open_watches()
    cluster.delete("/api/v1/namespaces/default/pods/gone", 0)
    cluster.create(pod("next", 8))
    cluster.delete("/api/v1/nodes/n1")
    cluster.end("kube-apiserver")
    cluster.compact_store()
    cluster.start_server()
    proxy.cut_watches()
    wait_for(lambda: bound(cluster).get("next") == "n0", "who went while nobody looked is not counted any more")
    wait_for(lambda: "n1" not in scheduler.loop.fleet.columns.index, "nor is a node that went")
    assert sum(each.relists for each in scheduler.world.following.reflectors) > listed
    assert truth.wrongs(cluster) == []
