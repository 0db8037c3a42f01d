"""Our device plugin under a real kubelet: every container has exactly the GPUs that its pod was bound to."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.e2e.node.conftest import UUIDS, bind, phases, wait_for
from tests.support.kube.cluster import Cluster
from tests.support.kube.real_machine import RealMachine
from tests.support.kube.real_node import RealNode, real_pod

pytestmark = pytest.mark.slow

ROUNDS = ("0257 16 3 4", "07 16 25 3 4", "1346 0257", "7 6 50 41 32", "61 7420 5 3")
"""Of each pod, by index: twenty pods in rounds that fill the machine, none as topology likes it."""


def uuids(digits: str) -> list[str]:
    return [UUIDS[int(digit)] for digit in digits]


@pytest.mark.parametrize("sets", [*ROUNDS[:3], *(pytest.param(each, marks=pytest.mark.long) for each in ROUNDS[3:])])
def test_pods_that_fill_the_node_have_exactly_the_gpus_that_they_were_bound_to(
    cluster: Cluster, machine: RealMachine, sets: str
):
    node = machine.node
    granted = {f"pod-{at}": sorted(uuids(digits)) for at, digits in enumerate(sets.split())}
    for name, gpus in granted.items():
        cluster.create(real_pod(name, "gpus", "hold", gpus=len(gpus)))
    for name in reversed(granted):  # not in the order in which they were made
        bind(cluster, name, node.name, granted[name])
    wait_for(lambda: phases(cluster) == dict.fromkeys(granted, "Running"), "all of them run")
    assert machine.held() == {name: tuple(gpus) for name, gpus in granted.items()}
    said = wait_for(lambda: all_said(node, granted), "all have said what they see")
    for name, gpus in granted.items():
        files = ",".join(sorted(f"nvidia{UUIDS.index(gpu)}" for gpu in gpus))
        assert said[name] == f"gpus {','.join(gpus)} open {files}\n"


def all_said(node: RealNode, names: Iterable[str]) -> dict[str, str]:
    said = {name: node.logs(name) for name in names}
    return said if all(said.values()) else {}


def test_a_sick_gpu_is_not_offered_while_its_neighbours_go_on_and_is_again_when_it_is_well(
    cluster: Cluster, machine: RealMachine
):
    node, agent = machine.node, machine.agent
    cluster.create(real_pod("neighbour", "gpus", "hold", gpus=2))
    bind(cluster, "neighbour", node.name, uuids("24"))
    wait_for(lambda: phases(cluster) == {"neighbour": "Running"}, "it runs")
    agent.faults.write_text("[{fault: ecc, gpu: 3}]")
    wait_for(lambda: node.gpus() == (8, 7), "seven are offered")
    assert phases(cluster) == {"neighbour": "Running"}
    agent.faults.write_text("[]")
    wait_for(lambda: node.gpus() == (8, 8), "eight are offered")
    assert machine.held() == {"neighbour": tuple(sorted(uuids("24")))}
