"""Two schedulers and one Lease: one leads, the other takes over, and nobody acts on a right that has run out."""

from __future__ import annotations

import signal
import time
import urllib.request
from collections import Counter

import pytest

from gpuyard.worlds.kubernetes.acting.remember import unpack
from tests.e2e.kube.conftest import Scheduler, Schedulers, bound, holder, leads, slack, wait_for
from tests.support.kube import truth
from tests.support.kube.cluster import Cluster
from tests.support.kube.fake_kubelet import FakeKubelets, FakeNode, indexed_job, pod
from tests.support.kube.ports import free_ports

pytestmark = pytest.mark.slow

HANDS_OVER_S = 2.0


def probe(port: int) -> str:
    """What is said at /readyz; nothing where nobody listens yet."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://127.0.0.1:{port}/readyz", timeout=10) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


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
    begun = time.monotonic()
    first.process.send_signal(signal.SIGTERM)
    wait_for(lambda: leads(cluster, second), "the other one leads")
    assert time.monotonic() - begun < HANDS_OVER_S * slack()
    assert first.stop() == 0
    cluster.create(pod("after", 1))
    wait_for(lambda: "after" in bound(cluster), "the other one places pods")


def test_what_the_leader_remembers_is_there_for_the_next_one_and_probes_tell_who_leads(
    cluster: Cluster, kubelets: FakeKubelets, schedulers: Schedulers
):
    kubelets.add(FakeNode("n0"))
    ports = free_ports(2)
    first = schedulers("--lease", "--probes", f"127.0.0.1:{ports[0]}")
    wait_for(lambda: probe(ports[0]).startswith("leads: yes\nsynced: yes"), "the first leads and says so")
    second = schedulers("--lease", "--probes", f"127.0.0.1:{ports[1]}")
    cluster.create(pod("once", 1, notes={"run-s": 1}))
    wait_for(lambda: {each["status"]["phase"] for each in cluster.pods()} == {"Succeeded"}, "a pod has run")
    wait_for(lambda: probe(ports[1]).startswith("leads: no\nsynced: yes"), "the second is ready and does not lead")
    assert first.stop() == 0
    kept = cluster.get("/api/v1/namespaces/gpuyard-system/configmaps/gpuyard-memory")["binaryData"]["memory"]
    assert unpack(kept.encode()).memory
    wait_for(lambda: probe(ports[1]).startswith("leads: yes"), "the second leads")
    assert leads(cluster, second)
    assert second.stop() == 0
    assert holder(cluster) == ""


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
