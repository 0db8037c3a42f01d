"""Two real nodes: gangs over both, and what makes a gang leave one of them for the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.node.conftest import Scheduler, job_status, running, wait_for, wait_until_told
from tests.support.kube.cluster import Cluster
from tests.support.kube.commands import yard
from tests.support.kube.place import FORGIVING
from tests.support.kube.real_machine import RealMachine
from tests.support.kube.real_node import real_job

pytestmark = pytest.mark.slow

NO_SUCH_IMAGE = "127.0.0.1:1/none:1"


def test_a_gang_over_two_nodes_is_whole_and_has_the_gpus_that_it_was_bound_to(
    cluster: Cluster, machines: list[RealMachine], schedule: Scheduler
):
    schedule()
    cluster.create(real_job("gang", "gpus", "hold", tasks=4, gpus=4))
    wait_for(lambda: len(running(cluster, "gang")) == 4, "it runs")
    assert sorted(running(cluster, "gang").values()) == ["n0", "n0", "n1", "n1"]
    notes = {pod["metadata"]["name"]: pod["metadata"]["annotations"]["gpuyard.dev/gpus"] for pod in cluster.pods()}
    chosen = {name: tuple(sorted(gpus.split(","))) for name, gpus in notes.items()}
    assert machines[0].held() | machines[1].held() == chosen
    said = wait_for(lambda: _lines(cluster, 4), "all have said what they see")
    assert {line.split("gpus ")[1].split()[0] for line in said} == {",".join(gpus) for gpus in chosen.values()}


def _lines(cluster: Cluster, wanted: int) -> list[str]:
    """Of `yard logs`, once all are there."""
    lines = [line for line in yard(cluster.kubeconfig(), "logs", "gang", "--kube").splitlines() if "gpus GPU-" in line]
    return lines if len(lines) == wanted else []


def home_of(cluster: Cluster, job: str, tasks: int) -> str:
    """The one node on which all of it runs."""
    wait_for(lambda: len(running(cluster, job)) == tasks, f"{job} runs")
    (home,) = set(running(cluster, job).values())
    return home


def other(home: str) -> str:
    return "n1" if home == "n0" else "n0"


def ever(cluster: Cluster, job: str) -> int:
    """How many pods of a Job a kubelet has started, by its own events."""
    events = cluster.get("/api/v1/namespaces/default/events?fieldSelector=reason=Started")["items"]
    return len({each["involvedObject"]["uid"] for each in events if each["involvedObject"]["name"].startswith(job)})


def test_a_node_that_is_drained_loses_its_gang_to_the_other_once(
    cluster: Cluster, machines: list[RealMachine], schedule: Scheduler
):
    schedule()
    cluster.create(real_job("drained", "hold", tasks=2, gpus=2))
    home = home_of(cluster, "drained", 2)
    assert "default/drained" in yard(cluster.kubeconfig(), "drain", home, "--kube", "--dry-run")
    yard(cluster.kubeconfig(), "drain", home, "--kube", "--yes", "--reason", "fan is loud")
    wait_for(lambda: list(running(cluster, "drained").values()) == [other(home)] * 2, "it runs on the other")
    wait_for(lambda: ever(cluster, "drained") >= 4, "the kubelets have told of it")
    assert ever(cluster, "drained") == 4
    assert not job_status(cluster, "drained").get("failed")
    yard(cluster.kubeconfig(), "undrain", home, "--kube")
    assert not cluster.get(f"/api/v1/nodes/{home}")["spec"].get("unschedulable")


@pytest.mark.long
@pytest.mark.parametrize(
    ("policy", "failed"),
    [({"podFailurePolicy": FORGIVING}, 0), ({}, 2)],
    ids=["a Job that forgives it", "a Job that counts it"],
)
def test_a_node_that_is_tainted_no_execute_loses_its_gang_to_the_other(
    cluster: Cluster, machines: list[RealMachine], schedule: Scheduler, policy: dict[str, Any], failed: int
):
    schedule()
    cluster.create(real_job("tainted", "hold", tasks=2, gpus=2, job=policy))
    home = home_of(cluster, "tainted", 2)
    taint = {"key": "example.com/broken", "value": "yes", "effect": "NoExecute"}
    cluster.merge(f"/api/v1/nodes/{home}", {"spec": {"taints": [taint]}})
    wait_for(lambda: list(running(cluster, "tainted").values()) == [other(home)] * 2, "it runs on the other")
    wait_until_told(lambda: job_status(cluster, "tainted").get("failed", 0), failed, "the Job has counted")


@pytest.mark.long
def test_a_gang_whose_image_cannot_be_had_is_tried_on_the_other_node_once_and_its_cause_is_named(
    cluster: Cluster, machines: list[RealMachine], schedule: Scheduler
):
    cluster.delete("/apis/events.k8s.io/v1/namespaces/default/events")
    schedule("--start-timeout", "10s")
    job = real_job("gang", "hold", tasks=2, gpus=2)
    job["spec"]["template"]["spec"]["containers"][0]["image"] = NO_SUCH_IMAGE
    cluster.create(job)

    def told() -> list[dict[str, Any]]:
        events = cluster.get("/apis/events.k8s.io/v1/namespaces/default/events")["items"]
        return [each["note"] for each in events if each["reason"] == "StartTimeout"]

    (first,) = wait_for(lambda: places(cluster), "it is bound")
    wait_for(lambda: places(cluster) == {other(first)}, "it is tried on the other")
    wait_for(lambda: len(told()) == 2, "both times the cause is named")
    assert all("ErrImagePull" in note or "ImagePullBackOff" in note for note in told())
    assert not job_status(cluster, "gang").get("failed")


def places(cluster: Cluster) -> set[str]:
    return {each["spec"]["nodeName"] for each in cluster.pods() if each["spec"].get("nodeName")}


@pytest.fixture
def dying(machines: list[RealMachine]) -> Iterator[list[str]]:
    """Kubelets of the nodes whose names are put in are started again."""
    names: list[str] = []
    yield names
    for machine in machines:
        if machine.name in names:
            machine.node.start_kubelet()
            wait_for(machine.node.is_ready, "it is Ready")


@pytest.mark.long
def test_a_node_whose_kubelet_is_heard_no_more_loses_its_gang_to_the_other_and_ends_it_when_it_is_back(
    cluster: Cluster, machines: list[RealMachine], schedule: Scheduler, dying: list[str]
):
    schedule()
    bears = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
        for key in ("unreachable", "not-ready")
    ]
    cluster.create(real_job("gang", "hold", tasks=2, gpus=2, tolerations=bears))
    home = home_of(cluster, "gang", 2)
    (lost,) = (machine for machine in machines if machine.name == home)
    lost.node.end_kubelet()
    dying.append(home)
    wait_for(lambda: list(running(cluster, "gang").values()) == [other(home)] * 2, "it runs on the other")
    assert len(cluster.pods()) == 4, "those on the dead node hold their places: nobody knows that they have ended"
    lost.node.start_kubelet()
    dying.clear()
    wait_for(lost.node.is_ready, "it is Ready again")
    wait_for(lambda: len(cluster.pods()) == 2 and not lost.held(), "what was there has ended")
    assert list(running(cluster, "gang").values()) == [other(home)] * 2
