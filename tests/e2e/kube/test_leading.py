"""Two schedulers and one Lease: one leads, the other takes over, and nobody acts on a right that has run out."""

from __future__ import annotations

import signal
from collections import Counter

import pytest

from tests.e2e.kube.conftest import Scheduler, Schedulers, bound, leads, wait_for
from tests.support.kube import truth
from tests.support.kube.cluster import Cluster
from tests.support.kube.fake_kubelet import FakeKubelets, FakeNode, indexed_job, pod

pytestmark = pytest.mark.slow


@pytest.fixture
def both(cluster: Cluster, kubelets: FakeKubelets, schedulers: Schedulers) -> tuple[Scheduler, Scheduler]:
    """The one that leads, and the one that stands by."""
    kubelets.add(FakeNode("n0"), FakeNode("n1"))
    first = schedulers("--lease")
    wait_for(lambda: leads(cluster, first), "the first leads")
    second = schedulers("--lease")
    cluster.create(pod("before", 1))
    wait_for(lambda: "before" in bound(cluster), "the leader places pods")
    wait_for(lambda: "Scheduling" in second.text(), "the other one is up")
    return first, second


def test_when_the_leader_is_killed_the_other_takes_over(cluster: Cluster, both: tuple[Scheduler, Scheduler]):
    first, second = both
    first.kill()
    cluster.create(indexed_job("gang", 15))
    wait_for(lambda: len(bound(cluster)) == 16, "the gang is bound by the other one")
    assert leads(cluster, second)


def test_told_to_stop_the_leader_hands_over_at_once(cluster: Cluster, both: tuple[Scheduler, Scheduler]):
    first, second = both
    assert first.stop() == 0
    assert not leads(cluster, first)
    cluster.create(pod("after", 1))
    wait_for(lambda: "after" in bound(cluster), "the other one places pods")
    assert leads(cluster, second)


def test_a_leader_that_was_frozen_past_its_lease_does_nothing_when_it_thaws(
    cluster: Cluster, kubelets: FakeKubelets, both: tuple[Scheduler, Scheduler]
):
    first, second = both
    first.process.send_signal(signal.SIGSTOP)
    wait_for(lambda: leads(cluster, second), "the other one has taken the Lease")
    cluster.create(indexed_job("gang", 15))
    wait_for(lambda: len(bound(cluster)) == 16, "all GPUs are held")
    cluster.create(pod("beyond", 1))
    first.process.send_signal(signal.SIGCONT)
    for index in range(3):
        cluster.create(pod(f"more{index}", 1))
    cluster.delete("/api/v1/namespaces/default/pods/before")
    wait_for(lambda: len(bound(cluster)) == 16 and "before" not in bound(cluster), "what was left is given again, once")
    assert leads(cluster, second)
    assert set(Counter(bound(cluster).values()).values()) == {8}
    assert {how for _, _, how in kubelets.admissions} == {"admitted"}
    assert truth.wrongs(cluster) == []
