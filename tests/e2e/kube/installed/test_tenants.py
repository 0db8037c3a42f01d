"""Two teams with tokens of their own and the rights that are shipped: each sees and explains its own jobs alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kube.conftest import PATIENCE_S, Scheduler, condition, wait_for
from tests.e2e.kube.installed.conftest import TEAMS, Person
from tests.support.kube.cluster import ApiError, Cluster, environment
from tests.support.kube.commands import yard
from tests.support.kube.fake_kubelet import FakeKubelets, FakeNode, indexed_job
from tests.support.kube.ports import free_ports

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def busy(installed: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One node, held by bob; ann's job waits for it. Where the yard's API is."""
    for namespace in TEAMS:
        installed.empty(namespace)  # of what other modules have left there
    kubelets = FakeKubelets(installed)
    kubelets.add(FakeNode("n0", gpus=4))
    log = tmp_path_factory.mktemp("tenants") / "scheduler.log"
    port = free_ports(1)[0]
    running = Scheduler(installed.scheduler_kubeconfig(), log, "--no-lease", "--listen", f"127.0.0.1:{port}")
    people = {name: Person(installed, name, "", installed.token) for name in ("team-a", "team-b")}
    people["team-b"].create(indexed_job("secret-plan", 4))
    wait_for(lambda: all(pod["spec"].get("nodeName") for pod in pods(installed, "team-b", 4)), "bob's runs")
    people["team-a"].create(indexed_job("train", 2))
    wait_for(lambda: condition(pods(installed, "team-a", 2)[0]).get("message"), "ann's is told why it waits")
    wait_for(lambda: "Callers are answered" in running.text(), "its door is open")
    yield f"http://127.0.0.1:{port}"
    running.kill()
    assert "Traceback" not in running.text(), running.text()
    for namespace in people:
        installed.delete(f"/apis/batch/v1/namespaces/{namespace}/jobs?propagationPolicy=Background")
        installed.delete(f"/api/v1/namespaces/{namespace}/pods?gracePeriodSeconds=0", 0)
    installed.no_nodes()
    kubelets.stop()


def pods(cluster: Cluster, namespace: str, count: int) -> Any:
    return wait_for(lambda: len(found := cluster.pods(namespace)) == count and found, "its pods are there")


def asked(person: Person, url: str, *args: str, code: int = 0) -> str:
    return yard(person.kubeconfig, *args, code=code, GPUYARD_URL=url)


def test_a_team_sees_and_explains_its_own_jobs_and_of_others_only_that_they_hold_gpus(
    busy: str, ann: Person, bob: Person
):
    listed = {job["name"]: job for job in json.loads(asked(ann, busy, "jobs", "--kube", "-o", "json"))}
    assert "team-a/train" in listed
    others = [job for name, job in listed.items() if name != "team-a/train"]
    assert [job["held_gpus"] for job in others] == [4]
    why = asked(ann, busy, "why", "team-a/train", "--kube")
    assert "needs 2 GPUs" in why
    assert "0 are free" in why or "not enough" in why
    assert "n0" in asked(ann, busy, "nodes", "--kube")
    for said in (
        why,
        json.dumps(listed),
        asked(ann, busy, "plan", "--kube"),
        asked(ann, busy, "nodes", "--kube", "-o", "json"),
    ):
        assert "secret-plan" not in said
        assert "team-b" not in said
    assert "There is no job" in asked(ann, busy, "why", "team-b/secret-plan", "--kube", code=3)
    assert "team-b/secret-plan" in asked(bob, busy, "jobs", "--kube")
    assert "train" not in asked(bob, busy, "jobs", "--kube")


def test_whoever_may_list_all_pods_sees_all_jobs(busy: str, installed: Cluster):
    operator = Person(installed, "", "operator", installed.token)
    said = asked(operator, busy, "jobs", "--kube")
    assert "team-a/train" in said
    assert "team-b/secret-plan" in said


def test_without_a_token_that_the_cluster_knows_nothing_is_told(busy: str):
    for headers in ({}, {"Authorization": "Bearer of-nobody"}, {"Authorization": "Basic YWRtaW46"}):
        request = urllib.request.Request(f"{busy}/api/v1/snapshot", headers=headers)
        with pytest.raises(urllib.error.HTTPError) as told:
            urllib.request.urlopen(request, timeout=PATIENCE_S)
        assert told.value.code == 401
        assert b"jobs" not in told.value.read().replace(b"--kube", b"")


def test_a_team_can_neither_read_nor_end_nor_change_what_is_another_teams(busy: str, ann: Person):
    merge = "application/merge-patch+json"
    job = "/apis/batch/v1/namespaces/team-b/jobs/secret-plan"
    for method, path, body in (
        ("GET", job, None),
        ("GET", "/api/v1/namespaces/team-b/pods", None),
        ("GET", "/api/v1/pods", None),
        ("GET", "/api/v1/nodes", None),
        ("GET", "/apis/gpuyard.dev/v1/gpunodes", None),
        ("DELETE", job, None),
        ("PATCH", job, {"spec": {"suspend": True}}),
        ("GET", "/api/v1/namespaces/gpuyard-system/configmaps", None),
        ("GET", "/api/v1/namespaces/gpuyard-system/secrets", None),
    ):
        with pytest.raises(ApiError) as told:
            ann.call(method, path, body, merge if method == "PATCH" else "application/json")
        assert told.value.code == 403, (method, path)


def test_who_may_not_read_the_cluster_is_told_at_once_who_can_tell_more(ann: Person):
    said = yard(ann.kubeconfig, "jobs", "--kube", code=2)
    assert "you may not read the whole cluster" in said
    assert "GPUYARD_URL" in said
    assert said.count("\n") == 1


def test_the_api_beyond_this_machine_asks_for_tls(installed: Cluster, tmp_path: Path):
    env = environment(KUBECONFIG=installed.scheduler_kubeconfig(), HOME=os.environ.get("HOME", "/"))
    command = [sys.executable, "-m", "gpuyard", "serve", "--role", "scheduler", "--no-lease", "--listen", "0.0.0.0:0"]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=PATIENCE_S, check=False)
    assert done.returncode == 2
    assert "needs TLS" in done.stderr
