"""A scheduler killed or frozen in the middle of binding a gang: who stands by completes it, no GPU is given twice."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import pytest
from aiohttp import web

from tests.e2e.kube.conftest import PATIENCE_S, Schedulers, bound, leads, slack, standing, wait_for
from tests.support.kube import truth
from tests.support.kube.cluster import Cluster
from tests.support.kube.fake_kubelet import FakeKubelets, FakeNode, indexed_job, pod
from tests.support.kube.faults import FaultProxy, Verdict, is_bind

pytestmark = pytest.mark.slow

GANG = 64
TAKES_OVER_S = 15.0


def notes(pod: dict[str, Any]) -> dict[str, str]:
    return {
        key: value for key, value in pod["metadata"].get("annotations", {}).items() if key.startswith("gpuyard.dev/")
    }


def judge_of(proxy: FaultProxy, after: int, then: Callable[[], None]) -> None:
    """So many bindings happen, the reply to the last is lost, no other happens; `then` is done at that moment.

    One that is asked for twice, because its answer took long, happens once.
    """
    happened = 0

    def judge(request: web.Request) -> Verdict:
        if not is_bind(request) or happened < after - 1:
            return Verdict.PASS
        return Verdict.LOSE_REPLY if happened == after - 1 else Verdict.LOSE

    def done(request: web.Request, status: int) -> None:
        nonlocal happened
        if is_bind(request) and status == HTTPStatus.CREATED:
            happened += 1
            if happened == after:
                then()

    proxy.judge, proxy.done = judge, done


@pytest.mark.parametrize("after", [1, 20, 63])
def test_killed_after_so_many_binds_with_the_reply_lost_who_stands_by_completes_the_gang(
    cluster: Cluster, kubelets: FakeKubelets, schedulers: Schedulers, proxy: FaultProxy, after: int
):
    kubelets.add(*(FakeNode(f"n{index}", gpus=8) for index in range(GANG // 8)))
    first = schedulers("--lease", server=proxy.server)
    judge_of(proxy, after, first.process.kill)
    wait_for(lambda: leads(cluster, first), "the first leads")
    second = schedulers("--lease")
    wait_for(lambda: "Scheduling" in second.text(), "the other one is up")
    cluster.create(indexed_job("gang", GANG))
    assert first.process.wait(PATIENCE_S) == -9
    killed = time.monotonic()
    assert len(bound(cluster)) == after
    # It would fit where the rest of the gang is to go.
    cluster.create(pod("alone", 1))

    wait_for(lambda: len(bound(cluster)) > after, "the other one binds")
    assert time.monotonic() - killed < TAKES_OVER_S * slack()
    wait_for(lambda: len(bound(cluster)) == GANG, "the gang is bound whole")
    assert leads(cluster, second)
    assert "alone" not in bound(cluster)
    assert set(Counter(bound(cluster).values()).values()) == {8}
    assert {notes(each)["gpuyard.dev/job"] for each in cluster.pods() if notes(each)} == {"default/gang"}
    assert truth.wrongs(cluster) == []
    wait_for(lambda: len(kubelets.nodes["n0"].admitted) == 8, "the kubelets have admitted them")
    assert {how for key, _, how in kubelets.admissions if key.startswith("default/gang")} == {"admitted"}


def test_frozen_with_half_a_gang_bound_and_thawed_past_its_lease_it_adds_nothing_to_what_the_next_one_did(
    cluster: Cluster, kubelets: FakeKubelets, schedulers: Schedulers, proxy: FaultProxy
):
    kubelets.add(FakeNode("n0"), FakeNode("n1"), FakeNode("n2"))
    first = schedulers("--lease", server=proxy.server)
    judge_of(proxy, 5, lambda: first.process.send_signal(signal.SIGSTOP))
    wait_for(lambda: leads(cluster, first), "the first leads")
    second = schedulers("--lease")
    cluster.create(indexed_job("gang", 12))
    cluster.create(indexed_job("other", 12))
    wait_for(lambda: len(bound(cluster)) == 24, "the other one completes both")
    where = bound(cluster)
    proxy.judge = lambda _request: Verdict.PASS
    first.process.send_signal(signal.SIGCONT)
    cluster.create(pod("beyond", 1))
    cluster.delete("/api/v1/namespaces/default/pods/" + next(name for name in where if name.startswith("gang-0-")))

    def replaced() -> bool:
        now = bound(cluster)
        return len(now) == 24 and now != where

    wait_for(replaced, "what was left is given again, once" + standing(cluster))
    assert leads(cluster, second)
    assert truth.wrongs(cluster) == []
    assert {how for _, _, how in kubelets.admissions} == {"admitted"}
