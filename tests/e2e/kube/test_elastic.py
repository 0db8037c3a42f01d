"""Elastic Jobs on a real API server: they give back their last members, keep the others as they are, and grow again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kube.conftest import Schedulers, Scheduling, wait_for
from tests.e2e.kube.test_giving_way import SITE, is_complete, job, running
from tests.support.kube.cluster import Cluster
from tests.support.kube.fake_kubelet import FakeKubelets, FakeNode, indexed_job
from tests.support.kube.place import FORGIVING

pytestmark = pytest.mark.slow

FULL_SIZE = "gpuyard.dev/full-size"
POLICY = "policy: {eviction_grace: 0s, protect_after: 100}"


@pytest.fixture
def site(cluster: Cluster, kubelets: FakeKubelets, tmp_path: Path) -> tuple[str, ...]:
    """One node of four GPUs, and how a scheduler is started for it."""
    cluster.prioritise(urgent=1000)
    kubelets.add(FakeNode("n0", gpus=4))
    (tmp_path / "site.yaml").write_text(SITE)
    return "--no-lease", "--site", str(tmp_path / "site.yaml")


def elastic(restarts: str = "OnFailure", **notes: str) -> dict[str, Any]:
    """A Job of four that can run with two."""
    document = indexed_job("elastic", 4)
    marks = {"gang-min": "2", **notes}
    document["spec"]["template"]["metadata"]["annotations"] |= {
        f"gpuyard.dev/{key}": told for key, told in marks.items()
    }
    document["spec"]["template"]["spec"]["restartPolicy"] = restarts
    return document


def sizes(cluster: Cluster) -> tuple[int, int, str]:
    """How large the Job is, and how large it was at first if it was made smaller."""
    found = job(cluster, "elastic")
    spec = found["spec"]
    return spec["parallelism"], spec["completions"], found["metadata"].get("annotations", {}).get(FULL_SIZE, "")


def members(cluster: Cluster, *indexes: int) -> set[str]:
    """Uids of the pods with these numbers."""
    key = "batch.kubernetes.io/job-completion-index"
    return {uid for index in indexes for uid in uids(cluster.pods(**{key: str(index)}), "elastic")}


def uids(pods: list[dict[str, Any]], job_name: str) -> list[str]:
    return [pod["metadata"]["uid"] for pod in pods if pod["metadata"]["name"].startswith(job_name)]


def test_a_job_that_may_be_resized_shrinks_for_another_and_the_next_leader_lets_it_grow_again(
    cluster: Cluster, kubelets: FakeKubelets, schedulers: Schedulers, site: tuple[str, ...]
):
    leader = schedulers(*site)
    cluster.create(elastic(resizable="true"))
    wait_for(lambda: len(running(cluster, "elastic")) == 4, "all of it runs")
    first = members(cluster, 0, 1)
    cluster.create(indexed_job("urgent", 1, gpus=2, priorityClassName="urgent"))
    wait_for(lambda: running(cluster, "urgent"), "the urgent one runs")
    assert sizes(cluster) == (2, 2, "4")
    assert running(cluster, "elastic") == first, "the others have noticed nothing"
    leader.kill()
    kubelets.finish("urgent")
    schedulers(*site)
    wait_for(lambda: len(running(cluster, "elastic")) == 4, "it has grown again")
    assert sizes(cluster) == (4, 4, "")
    assert first < running(cluster, "elastic")
    kubelets.finish("elastic")
    wait_for(lambda: is_complete(cluster, "elastic"), "the Job is complete")
    status = job(cluster, "elastic")["status"]
    assert (status.get("failed", 0), status["succeeded"]) == (0, 4)


def test_a_job_that_was_made_smaller_is_complete_when_those_are_done_who_run(
    cluster: Cluster, kubelets: FakeKubelets, scheduling: Scheduling, site: tuple[str, ...]
):
    scheduling(POLICY)
    cluster.create(elastic(resizable="true"))
    wait_for(lambda: len(running(cluster, "elastic")) == 4, "all of it runs")
    cluster.create(indexed_job("urgent", 1, gpus=2, priorityClassName="urgent"))
    wait_for(lambda: running(cluster, "urgent") and sizes(cluster)[0] == 2, "it was made smaller")
    wait_for(lambda: len(running(cluster, "elastic")) == 2, "two are left")
    kubelets.finish("elastic")
    wait_for(lambda: is_complete(cluster, "elastic"), "the Job is complete")
    status = job(cluster, "elastic")["status"]
    assert (status.get("failed", 0), status["succeeded"]) == (0, 2)


@pytest.mark.long  # the job controller makes pods anew only after a pause
def test_extras_of_a_job_that_bears_it_are_deleted_made_anew_and_start_when_there_is_room(
    cluster: Cluster, kubelets: FakeKubelets, scheduling: Scheduling, site: tuple[str, ...]
):
    scheduling(POLICY)
    document = elastic("Never")
    document["spec"]["podFailurePolicy"] = FORGIVING
    cluster.create(document)
    wait_for(lambda: len(running(cluster, "elastic")) == 4, "all of it runs")
    first = members(cluster, 0, 1)
    cluster.create(indexed_job("urgent", 1, gpus=2, priorityClassName="urgent"))
    wait_for(lambda: running(cluster, "urgent"), "the urgent one runs")
    assert sizes(cluster) == (4, 4, "")
    assert running(cluster, "elastic") == first, "the others have noticed nothing"
    kubelets.finish("urgent")
    wait_for(lambda: len(running(cluster, "elastic")) == 4, "all of it runs again")
    kubelets.finish("elastic")
    wait_for(lambda: is_complete(cluster, "elastic"), "the Job is complete")
    status = job(cluster, "elastic")["status"]
    assert (status.get("failed", 0), status["succeeded"]) == (0, 4)
