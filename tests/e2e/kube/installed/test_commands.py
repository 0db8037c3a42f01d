"""`run`, `submit`, `cancel`, `hold` and `release` with `--kube`: Jobs of one's own namespace, by one's own rights."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.kube.conftest import PATIENCE_S, Scheduler, wait_for
from tests.e2e.kube.installed.conftest import Person
from tests.support.kube.cluster import ApiError, Cluster, environment
from tests.support.kube.commands import yard
from tests.support.kube.fake_kubelet import FakeKubelets, FakeNode

pytestmark = pytest.mark.slow

JOB = """
name: train
tasks: 2
gpus: 1
models: [H100]
time_limit: 2h
run: {command: [python, train.py], image: registry.example/train:1, env: {A: b}, retries: 3}
"""


@pytest.fixture(scope="module")
def running(installed: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeKubelets]:
    installed.empty("team-a")  # of what other modules have left there
    kubelets = FakeKubelets(installed)
    kubelets.add(FakeNode("n0", gpus=4))
    log = tmp_path_factory.mktemp("commands") / "scheduler.log"
    scheduler = Scheduler(installed.scheduler_kubeconfig(), log, "--no-lease")
    yield kubelets
    scheduler.kill()
    assert "Traceback" not in scheduler.text(), scheduler.text()
    installed.delete("/apis/batch/v1/namespaces/team-a/jobs?propagationPolicy=Background")
    installed.delete("/api/v1/namespaces/team-a/pods?gracePeriodSeconds=0", 0)
    installed.no_nodes()
    kubelets.stop()


@pytest.fixture
def at_home(ann: Person, tmp_path: Path) -> str:
    """Ann's kubeconfig, whose namespace is her team's."""
    document = yaml.safe_load(Path(ann.kubeconfig).read_text())
    document["contexts"][0]["context"]["namespace"] = "team-a"
    path = tmp_path / "ann.yaml"
    path.write_text(yaml.safe_dump(document))
    return str(path)


def job(cluster: Cluster, name: str) -> Any:
    return cluster.get(f"/apis/batch/v1/namespaces/team-a/jobs/{name}")


def is_gone(cluster: Cluster, name: str) -> bool:
    try:
        job(cluster, name)
    except ApiError as error:
        return error.code == 404
    return False


def test_a_job_file_becomes_a_gang_that_runs_is_held_released_and_ended(
    installed: Cluster, running: FakeKubelets, at_home: str, tmp_path: Path
):
    (tmp_path / "job.yaml").write_text(JOB)
    assert yard(at_home, "submit", "--kube", str(tmp_path / "job.yaml")).strip() == "team-a/train"
    wait_for(
        lambda: job(installed, "train")["status"].get("ready") == 2 or phases(installed) == ["Running"] * 2, "it runs"
    )
    seen = job(installed, "train")["spec"]
    assert (seen["completions"], seen["backoffLimit"], seen["activeDeadlineSeconds"]) == (2, 3, 7200)
    assert "podFailurePolicy" in seen
    assert installed.get("/api/v1/namespaces/team-a/services/train")["spec"]["clusterIP"] == "None"
    assert "to hold a Job is to stop it" in yard(at_home, "hold", "--kube", "train", code=2)
    assert "is being stopped" in yard(at_home, "hold", "--kube", "--requeue", "train")
    wait_for(lambda: phases(installed) == [], "its pods are gone")
    assert "train is released" in yard(at_home, "release", "--kube", "team-a/train").replace("team-a/", "")
    wait_for(lambda: phases(installed) == ["Running"] * 2, "it runs again")
    assert yard(at_home, "cancel", "--kube", "train") == "train is cancelled\n"
    wait_for(lambda: is_gone(installed, "train"), "it is gone")
    assert "There is no Job" in yard(at_home, "cancel", "--kube", "train", code=3)
    assert "cannot delete" in yard(at_home, "cancel", "--kube", "team-b/theirs", code=2)


def phases(cluster: Cluster) -> list[str]:
    return [pod["status"].get("phase", "") for pod in cluster.pods("team-a")]


def test_a_dry_run_writes_what_kubectl_would_apply(at_home: str, tmp_path: Path):
    (tmp_path / "job.yaml").write_text(JOB)
    made = yaml.safe_load(yard(at_home, "submit", "--kube", "--dry-run", "-o", "yaml", str(tmp_path / "job.yaml")))
    assert [each["kind"] for each in made] == ["Job", "Service"]
    template = made[0]["spec"]["template"]
    assert template["metadata"]["annotations"] == {"gpuyard.dev/models": "H100"}
    env = {each["name"]: each.get("value") for each in template["spec"]["containers"][0]["env"]}
    assert (env["WORLD_SIZE"], env["MASTER_ADDR"], env["A"]) == ("2", "train-0.train", "b")


def test_run_says_why_it_waits_and_goes_on_without_us(installed: Cluster, running: FakeKubelets, at_home: str):
    env = environment(KUBECONFIG=at_home, NO_COLOR="1")
    command = [
        sys.executable,
        "-m",
        "gpuyard",
        "run",
        "--kube",
        "--gpus",
        "99",
        "--name",
        "large",
        "--image",
        "x",
        "--",
        "true",
    ]
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as waiting:
        assert waiting.stderr is not None
        said = waiting.stderr.readline()
        assert "team-a/large waits" in said
        assert "99 GPUs" in said
        waiting.send_signal(2)
        rest = waiting.stderr.read()
        assert waiting.wait(PATIENCE_S) == 130
    assert "team-a/large goes on" in rest
    yard(at_home, "cancel", "--kube", "large")


def test_an_array_with_a_priority_by_number_starts_one_by_one_and_is_ended_as_one(
    installed: Cluster, running: FakeKubelets, at_home: str
):
    installed.prioritise(seven=7)
    made = ("--array", "0-2", "--priority", "7", "--gpus", "2", "--name", "sweep", "--image", "x", "--", "true")
    assert yard(at_home, "run", "--kube", "--detach", *made) == "team-a/sweep\n"

    def stand() -> list[tuple[str, int]]:
        pods = installed.pods("team-a", **{"batch.kubernetes.io/job-name": "sweep"})
        return sorted((pod["status"]["phase"], pod["spec"]["priority"]) for pod in pods)

    wait_for(lambda: stand() == [("Pending", 7), ("Running", 7), ("Running", 7)], "two of three have room, and run")
    assert "no task 3" in yard(at_home, "attach", "--kube", "--task", "3", "sweep", code=3)
    yard(at_home, "cancel", "--kube", "sweep")
    wait_for(lambda: stand() == [], "all of it is gone")


def test_attach_follows_a_job_says_why_it_waits_and_ctrl_c_leaves_it(
    installed: Cluster, running: FakeKubelets, at_home: str
):
    yard(at_home, "run", "--kube", "--detach", "--gpus", "99", "--name", "later", "--image", "x", "--", "true")
    env = environment(KUBECONFIG=at_home, NO_COLOR="1")
    command = [sys.executable, "-m", "gpuyard", "attach", "--kube", "later"]
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as attached:
        assert attached.stderr is not None
        assert "Following later; Ctrl-C leaves it running" in attached.stderr.readline()
        assert "99 GPUs" in attached.stderr.readline()
        attached.send_signal(2)
        assert "later goes on" in attached.stderr.read()
        assert attached.wait(PATIENCE_S) == 130
    wait_for(lambda: job(installed, "later")["status"].get("active") == 1, "its pod is counted, and there still")
    yard(at_home, "cancel", "--kube", "later")
    wait_for(lambda: is_gone(installed, "later"), "it is gone")
    assert "There is no Job" in yard(at_home, "attach", "--kube", "later", code=3)


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--gpus", "1"), "without an image"),
        (("--gpus", "0.5", "--image", "x"), "part of a GPU"),
        (("--priority", "8", "--image", "x"), "none has the value 8; there is seven (7)"),
        (("--array", "1-2", "--image", "x"), "numbers are not 0 to N"),
        (("--after", "other", "--image", "x"), "submit it when that has ended"),
        (("--name", "Not_A_Name", "--image", "x"), "cannot be called"),
    ],
)
def test_what_a_cluster_cannot_have_is_said_before_anything_is_made(
    installed: Cluster, at_home: str, args: tuple[str, ...], told: str
):
    installed.prioritise(seven=7)
    said = yard(at_home, "run", "--kube", "--detach", *args, "--", "true", code=2)
    assert told in said
    assert said.count("error:") == 1
