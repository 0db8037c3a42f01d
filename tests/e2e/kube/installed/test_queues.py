"""Queues as objects of the cluster: teams stand in theirs, changes hold at once, mistakes are told on the Queue."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kube.conftest import Scheduler, condition, wait_for
from tests.e2e.kube.installed.conftest import TEAMS, Person
from tests.support.kube.cluster import ApiError, Cluster
from tests.support.kube.commands import yard
from tests.support.kube.fake_kubelet import FakeKubelets, FakeNode, pod

pytestmark = pytest.mark.slow

QUEUES = "/apis/gpuyard.dev/v1/queues"


@pytest.fixture
def nodes(installed: Cluster) -> Iterator[FakeKubelets]:
    for namespace in TEAMS:
        installed.empty(namespace)
    kubelets = FakeKubelets(installed)
    yield kubelets
    installed.no_nodes()
    for namespace in TEAMS:
        installed.empty(namespace)
    installed.delete(QUEUES)
    kubelets.stop()


@pytest.fixture
def scheduler(installed: Cluster, tmp_path: Path) -> Iterator[Scheduler]:
    running = Scheduler(installed.scheduler_kubeconfig(), tmp_path / "scheduler.log", "--no-lease")
    yield running
    running.kill()
    assert "Traceback" not in running.text(), running.text()


def queue(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "gpuyard.dev/v1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def place(person: Person, name: str) -> str:
    return str(seen(person, name)["spec"].get("nodeName", ""))


def seen(person: Person, name: str) -> Any:
    return person.call("GET", f"/api/v1/namespaces/{person.namespace}/pods/{name}")


def why(person: Person, name: str) -> str:
    return str(condition(seen(person, name)).get("reason", ""))


def ready(cluster: Cluster, name: str) -> tuple[str, str]:
    told = cluster.get(f"{QUEUES}/{name}").get("status", {}).get("conditions", [{}])
    return told[0].get("status", ""), told[0].get("message", "")


def test_a_team_stands_in_its_queue_without_naming_it_and_a_change_of_the_queue_holds_at_once(
    installed: Cluster, nodes: FakeKubelets, scheduler: Scheduler, ann: Person, bob: Person
):
    nodes.add(FakeNode("n0", gpus=8))
    ann.create(pod("early", 1))
    wait_for(lambda: place(ann, "early"), "without any queue there is one for all")
    installed.create(queue("a", quota={"gpu": 2}, limit={"gpu": 2}, namespaces=["team-a"]))
    installed.create(queue("b", quota={"gpu": 2}, namespaces=["team-b"]))
    wait_for(lambda: ready(installed, "b") == ("True", ""), "the queue says that it stands")
    ann.create(pod("second", 1))
    ann.create(pod("third", 1))
    bob.create(pod("other", 2))
    wait_for(lambda: place(ann, "second") and place(bob, "other"), "both teams have what is theirs")
    wait_for(lambda: why(ann, "third") == "OverLimit", "the third is told")
    told = json.loads(yard(installed.scheduler_kubeconfig(), "jobs", "--kube", "-o", "json"))
    assert {job["name"]: job["queue"] for job in told} == {
        "team-a/early": "a", "team-a/second": "a", "team-a/third": "a", "team-b/other": "b",
    }  # fmt: skip
    installed.merge(f"{QUEUES}/a", {"spec": {"quota": {"gpu": 4}, "limit": {"gpu": 4}}})
    wait_for(lambda: place(ann, "third"), "a greater limit holds at once")


def test_a_queue_that_hangs_on_nothing_says_so_and_its_jobs_wait(
    installed: Cluster, nodes: FakeKubelets, scheduler: Scheduler, ann: Person
):
    nodes.add(FakeNode("n0", gpus=2))
    installed.create(queue("a", parent="nobody", quota={"gpu": 1}, namespaces=["team-a"]))
    wait_for(lambda: ready(installed, "a") == ("False", "its parent nobody does not exist"), "it is told why")
    ann.create(pod("mine", 1))
    wait_for(lambda: why(ann, "mine") == "QueueUnknown", "its jobs are told")
    installed.create(queue("nobody", quota={"gpu": 1}))
    wait_for(lambda: ready(installed, "a")[0] == "True", "with its parent it stands")
    wait_for(lambda: place(ann, "mine"), "and its jobs run")


def test_what_runs_in_a_queue_that_is_deleted_keeps_its_gpus(
    installed: Cluster, nodes: FakeKubelets, scheduler: Scheduler, ann: Person, bob: Person
):
    nodes.add(FakeNode("n0", gpus=2))
    installed.create(queue("a", quota={"gpu": 2}, namespaces=["team-a"]))
    installed.create(queue("b", quota={"gpu": 2}, namespaces=["team-b"]))
    wait_for(lambda: ready(installed, "b")[0] == "True", "both stand")
    ann.create(pod("mine", 2))
    wait_for(lambda: place(ann, "mine"), "it runs")
    installed.call("DELETE", f"{QUEUES}/a")
    bob.create(pod("other", 1))
    wait_for(lambda: why(bob, "other") == "Unschedulable", "nothing is free")
    assert not place(bob, "other")
    ann.call("DELETE", "/api/v1/namespaces/team-a/pods/mine")
    wait_for(lambda: place(bob, "other"), "what it held is free when it is gone")


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"parent": "odd"}, "not its own parent"),
        ({"quota": {"gpu": 5}, "limit": {"gpu": 4}}, "not above the limit"),
        ({"quota": {"gpu": "many"}}, "should match"),
        ({"quota": {"gpu": -1}}, "greater than or equal to 0"),
        ({"weight": -1}, "greater than or equal to 0"),
        ({"maxGrace": "soon"}, "should match"),
        ({"quota": 5}, "must be of type object"),
    ],
)
def test_a_queue_that_cannot_be_is_refused_by_the_api_server(installed: Cluster, spec: dict[str, Any], told: str):
    with pytest.raises(ApiError) as refused:
        installed.create(queue("odd", **spec))
    assert refused.value.code == 422
    assert told in str(refused.value)
