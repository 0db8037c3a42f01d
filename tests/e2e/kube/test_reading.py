"""What the commands that only read say of a cluster, with the rights of whoever asks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuyard.cli.main import run
from tests.e2e.kube.conftest import Schedulers, Scheduling, bound, condition, wait_for
from tests.support.kube import commands
from tests.support.kube.cluster import Cluster, environment
from tests.support.kube.fake_kubelet import FakeKubelets, FakeNode, indexed_job, pod, pod_spec

pytestmark = pytest.mark.slow


def yard(cluster: Cluster, *args: str, code: int = 0) -> str:
    return commands.yard(cluster.scheduler_kubeconfig(), *args, code=code)


Looks = Callable[..., tuple[int, str]]


@pytest.fixture
def looks(cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Looks:
    """Types a command in this process: its exit code, and all it wrote."""
    monkeypatch.setenv("KUBECONFIG", cluster.scheduler_kubeconfig())
    monkeypatch.setenv("COLUMNS", "200")

    def call(*args: str) -> tuple[int, str]:
        code = run(args)
        return code, "".join(capsys.readouterr())

    return call


def test_jobs_nodes_and_reasons_of_a_cluster_are_told(
    cluster: Cluster, kubelets: FakeKubelets, scheduling: Scheduling, looks: Looks
):
    kubelets.add(FakeNode("n0", gpus=4))
    scheduling()
    cluster.create(pod("train", 3))
    wait_for(lambda: bound(cluster) == {"train": "n0"}, "it is bound")
    cluster.create(indexed_job("gang", 6))
    wait_for(lambda: are_told(cluster, 7), "its pods are told why, and the other runs")
    listed = {job["name"]: job["phase"] for job in json.loads(yard(cluster, "jobs", "--kube", "-o", "json"))}
    assert listed == {"default/train": "running", "default/gang": "waiting"}
    told = json.loads(looks("why", "default/gang", "--kube", "-o", "json")[1])
    assert "needs 6 GPUs" in told["reason"]["message"]
    assert "n0" in looks("nodes", "--kube")[1]
    assert "default/gang" in looks("plan", "--kube")[1]


def are_told(cluster: Cluster, count: int) -> bool:
    """Whether there are so many pods, each of which runs or has heard why it waits: nothing more is to come."""
    pods = cluster.pods()
    return len(pods) == count and all(
        each["status"]["phase"] == "Running" or condition(each).get("message") for each in pods
    )


def timeless(answer: Any) -> Any:
    """An answer without what changes with the hour it is given at."""
    if isinstance(answer, list):
        return [timeless(each) for each in answer]
    if not isinstance(answer, dict):
        return answer
    return {key: timeless(value) for key, value in answer.items() if key not in ("timing", "in_the_way", "now")}


def test_every_verb_that_only_looks_looks_at_a_cluster_too(
    cluster: Cluster,
    kubelets: FakeKubelets,
    scheduling: Scheduling,
    looks: Looks,
    tmp_path: Path,
):
    kubelets.add(FakeNode("n0", gpus=4), FakeNode("n1", gpus=4))
    cluster.create(pod("theirs", 1, scheduler="default-scheduler", nodeName="n1"))
    scheduling()
    cluster.create(indexed_job("train", 3))
    wait_for(lambda: len(bound(cluster)) == 4, "it is bound beside theirs")
    cluster.create(pod("claims", 0, resourceClaims=[{"name": "gpu", "resourceClaimName": "mine"}]))
    cluster.create(indexed_job("gang", 6))
    wait_for(lambda: are_told(cluster, 11), "all pods are there, and whatever can happen has happened")

    def answer(*args: str) -> Any:
        code, text = looks(*args, "-o", "json")
        assert code == 0, text
        return json.loads(text)

    assert "4 of 8 GPUs free" in looks("free", "--kube")[1]
    (queue,) = answer("queues", "--kube")
    assert (queue["name"], queue["used"], queue["waiting"]) == ("default", 3, 2)
    assert {node["name"] for node in answer("nodes", "--kube")} == {"n0", "n1"}
    assert answer("alerts", "--kube") is not None
    code, text = looks("why", "claims", "--kube")
    assert (code, "ClaimUnsupported" in text) == (0, True)
    code, text = looks("defrag", "--kube")
    assert (code, "--dry-run" in text) == (2, True)

    file = tmp_path / "moment.yaml"
    file.write_text(looks("snapshot", "--kube", "-o", "yaml")[1])
    assert timeless(answer("plan", str(file))) == timeless(answer("plan", "--kube"))
    for verb in (("free",), ("frag",), ("defrag", "--dry-run"), ("why", "default/gang"), ("jobs",)):
        assert timeless(answer(*verb, "--snapshot", str(file))) == timeless(answer(*verb, "--kube"))


def test_a_snapshot_of_a_cluster_is_answered_as_the_cluster_is(
    cluster: Cluster, kubelets: FakeKubelets, looks: Looks, tmp_path: Path
):
    kubelets.add(FakeNode("n0", gpus=4), FakeNode("n1", gpus=4))
    cluster.create(indexed_job("gang", 6))
    cluster.create(pod("alone", 4))
    wait_for(lambda: len(cluster.pods()) == 7, "all pods are there")
    file = tmp_path / "moment.json"
    file.write_text(looks("snapshot", "--kube", "-o", "json")[1])
    live = json.loads(looks("plan", "--kube", "-o", "json")[1])["actions"]
    assert json.loads(looks("plan", str(file), "-o", "json")[1])["actions"] == live != []


def test_the_disruption_budgets_of_a_cluster_are_those_of_the_picture(
    cluster: Cluster, kubelets: FakeKubelets, schedulers: Schedulers, looks: Looks
):
    kubelets.add(FakeNode("n0"))
    schedulers()
    replicas = {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod_spec(1)}
    cluster.create(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web"},
            "spec": {**replicas, "template": template},
        }
    )
    spec = {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}}
    cluster.create(
        {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "pdb"}, "spec": spec}
    )

    def allowed() -> int:
        budget = cluster.get("/apis/policy/v1/namespaces/default/poddisruptionbudgets/pdb")
        return int(budget.get("status", {}).get("disruptionsAllowed", 0))

    wait_for(lambda: allowed() == 1, "its controller has counted")
    (told,) = json.loads(looks("snapshot", "--kube", "-o", "json")[1])["budgets"]
    assert (told["name"], told["allowed"], len(told["jobs"])) == ("default/pdb", 1, 3)


def test_a_cluster_that_is_not_named_is_asked_for(cluster: Cluster, tmp_path):
    env = environment(HOME=str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-m", "gpuyard", "jobs", "--kube"], capture_output=True, text=True, env=env, check=False
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "no cluster is named" in done.stderr
