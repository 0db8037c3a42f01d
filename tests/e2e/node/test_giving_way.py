"""Priorities, quotas and budgets, where containers really run: nobody who gives way has failed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.node.conftest import Scheduler, job_status, running, wait_for
from tests.support.kube.cluster import Cluster
from tests.support.kube.commands import yard
from tests.support.kube.real_machine import RealMachine
from tests.support.kube.real_node import real_job, with_clock

pytestmark = pytest.mark.slow

TEAMS = """
apiVersion: gpuyard.dev/v1
kind: Snapshot
policy: {eviction_grace: 0s}
queues: [{name: a, quota: 4}, {name: b, quota: 4}]
"""


@pytest.fixture
def clock(tmp_path: Path) -> Path:
    """Time passes for containers as soon as `passing` lies in it."""
    folder = tmp_path / "clock"
    folder.mkdir()
    return folder


def begun(clock: Path, job: str) -> int:
    """How many containers of it have begun, ever."""
    return len(list(clock.glob(f"{job}-*.begun")))


def test_a_job_gives_way_to_an_urgent_one_and_completes_after_it_without_a_failure(
    cluster: Cluster, machine: RealMachine, schedule: Scheduler, clock: Path
):
    cluster.prioritise(urgent=1000)
    schedule()
    cluster.create(with_clock(real_job("low", "work", "0.1", tasks=2, gpus=4), clock))
    wait_for(lambda: len(running(cluster, "low")) == begun(clock, "low") == 2, "it runs, and its programs have begun")
    cluster.create(with_clock(real_job("high", "work", "0.1", tasks=2, gpus=4, priorityClassName="urgent"), clock))
    wait_for(lambda: len(running(cluster, "high")) == 2, "the urgent one runs")
    assert not running(cluster, "low")
    (clock / "passing").touch()
    wait_for(lambda: {job_status(cluster, name)["is"] for name in ("low", "high")} == {"Complete"}, "both are complete")
    assert [job_status(cluster, name).get("failed", 0) for name in ("low", "high")] == [0, 0]
    assert begun(clock, "low") == 4


def of_queue(queue: str, job: dict[str, Any]) -> dict[str, Any]:
    job["spec"]["template"]["metadata"]["annotations"]["gpuyard.dev/queue"] = queue
    return job


def test_a_team_borrows_gives_back_what_the_other_claims_and_has_it_again_later(
    cluster: Cluster, machine: RealMachine, schedule: Scheduler, clock: Path, tmp_path: Path
):
    (tmp_path / "site.yaml").write_text(TEAMS)
    schedule("--site", str(tmp_path / "site.yaml"))
    cluster.create(of_queue("a", real_job("own", "hold", tasks=2, gpus=2)))
    wait_for(lambda: len(running(cluster, "own")) == 2, "what team a is entitled to runs")
    cluster.create(of_queue("a", real_job("borrowed", "hold", gpus=4)))
    wait_for(lambda: running(cluster, "borrowed"), "team a borrows what team b does not use")
    untouched = running(cluster, "own")
    cluster.create(of_queue("b", with_clock(real_job("claim", "work", "0.1", gpus=4), clock)))
    wait_for(lambda: running(cluster, "claim"), "team b has its own back")
    assert not running(cluster, "borrowed")
    (clock / "passing").touch()
    wait_for(lambda: running(cluster, "borrowed"), "team a borrows again")
    wait_for(lambda: job_status(cluster, "claim")["is"] == "Complete", "team b's job is counted as complete")
    assert running(cluster, "own") == untouched
    assert [job_status(cluster, name).get("failed", 0) for name in ("own", "borrowed", "claim")] == [0, 0, 0]


@pytest.mark.long
def test_a_budget_that_refuses_is_named_and_nothing_is_moved(
    cluster: Cluster, machine: RealMachine, schedule: Scheduler
):
    cluster.prioritise(urgent=1000)
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "keep"}}
    selector = {"matchLabels": {"batch.kubernetes.io/job-name": "low"}}
    cluster.create({**budget, "spec": {"minAvailable": 1, "selector": selector}})
    schedule()
    cluster.create(real_job("low", "hold", tasks=2, gpus=4))
    wait_for(lambda: len(running(cluster, "low")) == 2, "it runs")
    status = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/keep"
    wait_for(lambda: cluster.get(status)["status"].get("disruptionsAllowed") == 1, "one of two may go")
    untouched = running(cluster, "low")
    cluster.create(real_job("high", "hold", tasks=2, gpus=4, priorityClassName="urgent"))
    wait_for(lambda: told(cluster, "high"), "it is told that it waits")

    def says_why() -> bool:
        return "kept by budget default/keep" in yard(cluster.kubeconfig(), "why", "default/high", "--kube")

    wait_for(says_why, "the budget is named, once all of its pods are there")
    assert running(cluster, "low") == untouched
    cluster.delete("/apis/policy/v1/namespaces/default/poddisruptionbudgets/keep")
    wait_for(lambda: len(running(cluster, "high")) == 2, "without it they go")
    assert not job_status(cluster, "low").get("failed")


def told(cluster: Cluster, prefix: str) -> str:
    """What pods whose names begin so are told, if all are told the same."""
    pods = [each for each in cluster.pods() if each["metadata"]["name"].startswith(prefix)]
    conditions = [each for pod in pods for each in pod["status"].get("conditions", ())]
    messages = {str(each.get("message", "")) for each in conditions if each["type"] == "PodScheduled"}
    return messages.pop() if len(messages) == 1 else ""
