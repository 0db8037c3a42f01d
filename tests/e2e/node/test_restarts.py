"""Kubelet and plugin start anew while pods run: those keep their GPUs, and nobody is bound who would be refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.node.conftest import UUIDS, bind, phases, plugin_ready, wait_for
from tests.support.kube.cluster import Cluster
from tests.support.kube.real_machine import RealMachine
from tests.support.kube.real_node import real_pod

pytestmark = pytest.mark.slow


Outage = tuple[Callable[[], None], Callable[[], None]]


@pytest.fixture(
    params=["the kubelet", pytest.param("the plugin", marks=pytest.mark.long), "the plugin, killed"],
)
def outage(request: pytest.FixtureRequest, machine: RealMachine) -> Outage:
    """How it ends and how it begins again."""
    node, agent = machine.node, machine.agent
    ways = {
        "the kubelet": (node.end_kubelet, node.start_kubelet),
        "the plugin": (agent.stop, agent.start),
        "the plugin, killed": (agent.kill, agent.start),
    }
    end, begin = ways[request.param]
    return end, begin


def test_who_runs_keeps_its_gpus_and_who_comes_meanwhile_is_bound_when_devices_are_there_again(
    cluster: Cluster, machine: RealMachine, scheduler: Path, outage: Outage
):
    node, (end, begin) = machine.node, outage
    cluster.create(real_pod("running", "hold", gpus=2))
    bind(cluster, "running", node.name, sorted([UUIDS[1], UUIDS[6]]))
    wait_for(lambda: phases(cluster) == {"running": "Running"}, "it runs")
    end()
    wait_for(
        lambda: plugin_ready(node) == "False" or node.gpus()[1] == 0, "the cluster knows that no device can be had"
    )
    cluster.create(real_pod("asking", "hold", gpus=7))  # it never fits beside the other, but hears what is missing
    wait_for(lambda: is_told(cluster, "asking"), "the scheduler knows that, too")
    cluster.create(real_pod("late", "hold", gpus=4))
    wait_for(lambda: is_told(cluster, "late"), "the scheduler has looked at it")
    cluster.delete("/api/v1/namespaces/default/pods/asking", 0)
    begin()
    wait_for(lambda: phases(cluster) == {"running": "Running", "late": "Running"}, "both run")
    having = machine.held()
    assert having["running"] == tuple(sorted([UUIDS[1], UUIDS[6]]))
    assert len(having["late"]) == 4
    assert not set(having["late"]) & set(having["running"])
    wait_for(lambda: (plugin_ready(node), node.gpus()) == ("True", (8, 8)), "it is known that all can be had")


def is_told(cluster: Cluster, name: str) -> bool:
    """That no device can be had; a kubelet that is away for long is missed more than its plugin."""
    said = said_of(cluster, name)
    return "device plugin is away" in said or "not reachable" in said


def said_of(cluster: Cluster, name: str) -> str:
    (pod,) = (each for each in cluster.pods() if each["metadata"]["name"] == name)
    assert not pod["spec"].get("nodeName"), pod
    told = (each for each in pod["status"].get("conditions", ()) if each["type"] == "PodScheduled")
    return next((str(each["message"]) for each in told), "")
