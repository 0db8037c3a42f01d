"""Pods and Jobs made to break the scheduler, or to mislead whoever reads of them: everybody else is placed as ever."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from tests.e2e.kube.conftest import Scheduling, bound, condition, wait_for
from tests.e2e.kube.test_reading import yard
from tests.support.kube.cluster import ApiError, Cluster
from tests.support.kube.fake_kubelet import FakeKubelets, FakeNode, indexed_job, pod

pytestmark = pytest.mark.slow

MOST = 2**31 - 1
DIGITS = "9" * 5000
MARKS: list[dict[str, str]] = [
    {"gang": "wide", "gang-tasks": "2000000000"},
    {"gang": "wider", "gang-tasks": DIGITS, "gang-min": DIGITS},
    {"gang": "none", "gang-tasks": "-3", "gang-min": "0"},
    {"gang": "\x1b[2J\x1b]0;owned\x07\nteam-b/fake  running", "gang-tasks": "1"},
    {"gang": "../../gpuyard-system/memory", "gang-tasks": "1"},
    {"queue": "\x1b[31mred", "class": "\x00\x01"},
    {"limit": "nan", "class": "nobody-knows", "models": "," * 500, "topology": "{" * 900},
    {"gpu-memory": DIGITS, "gpu-fraction": "1e-400"},
    {"time-limit": f"{DIGITS}d", "priority": DIGITS},
]
KUEUE = {"kueue.x-k8s.io/pod-group-name": "theirs"}


def marked(name: str, marks: dict[str, str]) -> dict[str, Any]:
    document = pod(name, 1)
    document["metadata"]["annotations"] = {f"gpuyard.dev/{key}": value for key, value in marks.items()}
    return document


def odd_pods() -> list[dict[str, Any]]:
    found = [marked(f"odd-{number}", marks) for number, marks in enumerate(MARKS)]
    grouped = pod("grouped", 1, labels=KUEUE)
    grouped["metadata"]["annotations"] = {"kueue.x-k8s.io/pod-group-total-count": "9" * 60}
    stolen = pod("stolen", 1)
    stolen["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "x", "uid": "not-a-uid", "controller": True}
    ]
    greedy = pod("greedy", 1, cpu="9223372036854775807", memory="9223372036854775807")
    choosy = pod("choosy", 1, tolerations=[{"key": f"k{k}", "operator": "Exists"} for k in range(300)])
    return [*found, grouped, stolen, greedy, choosy]


def test_absurd_marks_and_numbers_keep_nobody_else_from_being_placed_and_write_nothing_to_a_terminal(
    cluster: Cluster, kubelets: FakeKubelets, scheduling: Scheduling
):
    kubelets.add(FakeNode("n0", gpus=32))
    scheduler = scheduling()
    for document in odd_pods():
        with contextlib.suppress(ApiError):  # what the API server does not take is no matter
            cluster.create(document)
    absurd = {"parallelism": MOST, "completions": MOST, "completionMode": "NonIndexed", "suspend": True}
    cluster.create(indexed_job("absurd", 1, job=absurd))
    assert len(cluster.pods()) >= len(MARKS)
    cluster.create(pod("honest", 1))
    wait_for(lambda: "honest" in bound(cluster), "who asks for what can be had is placed" + scheduler.trouble())
    cluster.create(indexed_job("gang", 2))
    wait_for(lambda: sum(name.startswith("gang-") for name in bound(cluster)) == 2, "gangs are, too")
    unplaced = [each["metadata"]["name"] for each in cluster.pods() if not each["spec"].get("nodeName")]

    def told(name: str) -> bool:
        return bool(condition(cluster.get(f"/api/v1/namespaces/default/pods/{name}")).get("message"))

    wait_for(lambda: all(map(told, unplaced)), f"each of {unplaced} is told why it waits")
    assert not scheduler.loop.set_apart
    assert scheduler.trouble() == ""
    for command in ("jobs", "plan"):
        said = yard(cluster, command, "--kube")
        assert not {letter for letter in said if ord(letter) < 32 and letter not in "\n\t"}
        assert not [line for line in said.splitlines() if line.startswith("team-b/fake")]
