"""Whatever happens at once on a cluster, no GPU is given twice, no gang stays half bound, and nobody waits in vain."""

from __future__ import annotations

import os
import random

import pytest

from tests.e2e.kube.conftest import Scheduler, Schedulers, leads, wait_for
from tests.support.kube.cluster import Cluster
from tests.support.kube.fake_kubelet import FakeKubelets
from tests.support.kube.faults import FaultProxy
from tests.support.kube.storm import Storm

pytestmark = pytest.mark.slow

LONG = os.environ.get("HYPOTHESIS_PROFILE") == "proof"
SEED = int(os.environ.get("SEED", "0")) or (random.SystemRandom().randrange(1 << 30) if LONG else 1)
ROUNDS, STEPS = (20, 25) if LONG else (1, 10)


@pytest.fixture
def storm(cluster: Cluster, kubelets: FakeKubelets, schedulers: Schedulers, proxy: FaultProxy) -> Storm[Scheduler]:
    storm = Storm(
        SEED, cluster, kubelets, proxy, lambda: schedulers("--lease", server=proxy.server), lambda s: leads(cluster, s)
    )
    wait_for(lambda: any(leads(cluster, each) for each in storm.schedulers), "one leads")
    return storm


def test_in_a_storm_nothing_is_given_twice_and_when_it_is_over_nobody_is_left_half_bound_or_waiting_in_vain(
    storm: Storm[Scheduler],
):
    for _ in range(ROUNDS):
        for what in (storm.add_gang, storm.add_gang, storm.kill_leader):
            storm.do(what)
        for _ in range(STEPS):
            storm.step()
        storm.settle()
