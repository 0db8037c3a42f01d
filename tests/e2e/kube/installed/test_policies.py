"""What the API server refuses and adds by itself, asked by people with tokens of their own."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from tests.e2e.kube.installed.conftest import Person
from tests.support.kube.cluster import UP_S, ApiError, Cluster, until
from tests.support.kube.components import NEEDS_DEFAULTS
from tests.support.kube.fake_kubelet import indexed_job, pod

pytestmark = pytest.mark.slow

MERGE = "application/merge-patch+json"
OURS = ("gpuyard.dev/job", "gpuyard.dev/task", "gpuyard.dev/gpus", "gpuyard.dev/suspended")


def noted(document: dict[str, Any], **notes: str) -> dict[str, Any]:
    notes = {key.replace("__", "/"): value for key, value in notes.items()}
    document["metadata"].setdefault("annotations", {}).update(notes)
    return document


@pytest.fixture
def tree(installed: Cluster) -> Any:
    """Two queues, one of them for team-a alone."""
    for name, spec in {"a": {"quota": {"gpu": 2}, "namespaces": ["team-a"]}, "open": {"quota": {"gpu": 1}}}.items():
        installed.create({"apiVersion": "gpuyard.dev/v1", "kind": "Queue", "metadata": {"name": name}, "spec": spec})
    yield
    installed.delete("/apis/gpuyard.dev/v1/queues")


def test_nobody_but_the_scheduler_writes_its_marks(ann: Person, installed: Cluster):
    for key in OURS:
        assert f"{key} is written by the scheduler" in ann.refused(
            {**pod("mine"), "metadata": {"name": "mine", "annotations": {key: "x"}}}
        )
    ann.create(pod("mine"))
    path = "/api/v1/namespaces/team-a/pods/mine"
    mark = {"metadata": {"annotations": {"gpuyard.dev/gpus": "GPU-of-others"}}}
    for where in (path, f"{path}/status"):
        with pytest.raises(ApiError) as told:  # even whoever may do everything
            installed.call("PATCH", where, mark, MERGE)
        assert "written by the scheduler" in str(told.value)
    for part in ("resize", "ephemeralcontainers"):  # by these nothing but their own part is written
        with contextlib.suppress(ApiError):
            installed.call("PATCH", f"{path}/{part}", mark, MERGE)
        assert "gpuyard.dev/gpus" not in installed.get(path)["metadata"].get("annotations", {})
    binding = {
        "apiVersion": "v1", "kind": "Binding", "target": {"apiVersion": "v1", "kind": "Node", "name": "n"},
        "metadata": {"name": "mine", "annotations": {"gpuyard.dev/gpus": "GPU-of-others"}},
    }  # fmt: skip
    for where in (f"{path}/binding", "/api/v1/namespaces/team-a/bindings"):
        with pytest.raises(ApiError, match="written by the scheduler"):
            installed.call("POST", where, binding)
    installed.call("POST", f"{path}/binding", binding, token=installed.account_token)
    assert installed.get(path)["metadata"]["annotations"]["gpuyard.dev/gpus"] == "GPU-of-others"
    ann.call("DELETE", path)


def test_a_mark_in_a_template_or_on_a_job_is_refused_before_pods_are_made(ann: Person):
    job = indexed_job("marked", 1)
    job["spec"]["template"]["metadata"]["annotations"] = {"gpuyard.dev/task": "7"}
    assert "of its template" in ann.refused(job)
    assert "gpuyard.dev/suspended" in ann.refused(noted(indexed_job("marked", 1), **{"gpuyard.dev__suspended": "x"}))


def test_a_job_of_ones_own_goes_on_though_the_scheduler_has_marked_it(ann: Person, installed: Cluster):
    ann.create(indexed_job("marked", 1))
    path = "/apis/batch/v1/namespaces/team-a/jobs/marked"
    mark = {"metadata": {"annotations": {"gpuyard.dev/suspended": "reclaimed"}}, "spec": {"suspend": True}}
    installed.call("PATCH", path, mark, MERGE, token=installed.account_token)
    ann.call("PATCH", path, {"metadata": {"labels": {"mine": "yes"}}}, MERGE)
    with pytest.raises(ApiError, match="written by the scheduler"):
        ann.call("PATCH", path, {"metadata": {"annotations": {"gpuyard.dev/suspended": None}}}, MERGE)
    with pytest.raises(ApiError, match="written by the scheduler"):
        installed.call("PATCH", f"{path}/status", {"metadata": {"annotations": {"gpuyard.dev/suspended": "x"}}}, MERGE)
    ann.call("DELETE", f"{path}?propagationPolicy=Background")


def test_nobody_passes_by_the_queue_by_naming_a_node(ann: Person, installed: Cluster):
    assert "may not name its node" in ann.refused(pod("here", 1, nodeName="n0"))
    ann.create(pod("no-gpus", 0, scheduler="default-scheduler", nodeName="n0"))
    ann.call("DELETE", "/api/v1/namespaces/team-a/pods/no-gpus")
    excepted = {"namespace": "kube-system", "name": "validator"}
    document = {**pod("validator", 1, scheduler="default-scheduler", nodeName="n0"), "metadata": excepted}
    installed.call("POST", "/api/v1/namespaces/kube-system/pods?dryRun=All", document)
    mirror = noted(pod("mirror", 1, nodeName="n0"), **{"kubernetes.io__config.mirror": "abc"})
    assert "may not name its node" in ann.refused(mirror)


@NEEDS_DEFAULTS
def test_gpus_asked_of_another_scheduler_are_refused_with_the_way_to_have_them(ann: Person, installed: Cluster):
    told = ann.refused(pod("other", 1, scheduler="default-scheduler"))
    assert "write spec.schedulerName gpuyard" in told
    assert "gpuyard.dev/managed=true" in told
    labels = "/api/v1/namespaces/team-a"
    installed.merge(labels, {"metadata": {"labels": {"gpuyard.dev/managed": "true"}}})
    try:
        until(lambda: made(ann, pod("other", 1, scheduler="default-scheduler")), UP_S, "the label is known")
        seen = installed.get("/api/v1/namespaces/team-a/pods/other")["spec"]
        assert seen["schedulerName"] == "gpuyard"
        assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in seen["tolerations"]
        ann.create(indexed_job("other", 1, scheduler="default-scheduler"))
        assert "podFailurePolicy" in installed.get("/apis/batch/v1/namespaces/team-a/jobs/other")["spec"]
        ann.create(pod("plain", 0, scheduler="default-scheduler"))
        assert installed.get("/api/v1/namespaces/team-a/pods/plain")["spec"]["schedulerName"] == "default-scheduler"
    finally:
        installed.merge(labels, {"metadata": {"labels": {"gpuyard.dev/managed": None}}})
        installed.delete("/apis/batch/v1/namespaces/team-a/jobs?propagationPolicy=Background")
        for name in ("other", "plain"):
            installed.delete(f"/api/v1/namespaces/team-a/pods/{name}", 0)


def made(person: Person, document: dict[str, Any]) -> bool:
    try:
        person.create(document)
    except ApiError:
        return False
    return True


@NEEDS_DEFAULTS
def test_a_pod_that_is_taken_back_is_no_failure_of_its_job(ann: Person, installed: Cluster):
    ann.create(indexed_job("mine", 2))
    spec = installed.get("/apis/batch/v1/namespaces/team-a/jobs/mine")["spec"]
    assert spec["podFailurePolicy"]["rules"] == [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    ]
    assert spec["podReplacementPolicy"] == "Failed"
    restarts = indexed_job("restarts", 1)
    restarts["spec"]["template"]["spec"]["restartPolicy"] = "OnFailure"
    ann.create(restarts)
    assert "podFailurePolicy" not in installed.get("/apis/batch/v1/namespaces/team-a/jobs/restarts")["spec"]
    installed.delete("/apis/batch/v1/namespaces/team-a/jobs?propagationPolicy=Background")


def test_a_queue_of_another_team_cannot_be_named(ann: Person, bob: Person, tree: None):
    queued = {"gpuyard.dev__queue": "a"}
    until(lambda: not made(bob, noted(pod("spy"), **queued)) or gone(bob, "spy"), UP_S, "the queue is known")
    assert "the queue a is not for the namespace team-b" in bob.refused(noted(pod("spy"), **queued))
    assert "is not for the namespace" in bob.refused(noted(indexed_job("spy", 1), **queued))
    labelled = pod("spy", labels={"gpuyard.dev/queue": "a"})
    assert "is not for the namespace" in bob.refused(labelled)
    bob.create(noted(pod("open"), **{"gpuyard.dev__queue": "open"}))
    ann.create(noted(pod("own"), **queued))
    bob.call("DELETE", "/api/v1/namespaces/team-b/pods/open")
    ann.call("DELETE", "/api/v1/namespaces/team-a/pods/own")


def gone(person: Person, name: str) -> bool:
    """Taken away again; never true, so that it is asked once more."""
    person.cluster.delete(f"/api/v1/namespaces/{person.namespace}/pods/{name}", 0)
    return False


def test_queues_are_an_operators_to_write_and_everybodys_to_read(ann: Person, tree: None):
    assert {each["metadata"]["name"] for each in ann.call("GET", "/apis/gpuyard.dev/v1/queues")["items"]} == {
        "a",
        "open",
    }
    queue = {"apiVersion": "gpuyard.dev/v1", "kind": "Queue", "metadata": {"name": "mine"}, "spec": {}}
    for method, path, body in (
        ("POST", "/apis/gpuyard.dev/v1/queues", queue),
        ("PATCH", "/apis/gpuyard.dev/v1/queues/a", {"spec": {"quota": {"gpu": 100}}}),
        ("DELETE", "/apis/gpuyard.dev/v1/queues/a", None),
    ):
        with pytest.raises(ApiError) as told:
            ann.call(method, path, body, MERGE if method == "PATCH" else "application/json")
        assert told.value.code == 403


def test_an_agent_writes_the_gpus_of_its_own_node_alone(installed: Cluster):
    token = agent_token(installed, "n0")
    installed.call("POST", "/apis/gpuyard.dev/v1/gpunodes", gpu_node("n0"), token=token)
    with pytest.raises(ApiError, match="the agent of n0 writes the GpuNode n0 alone"):
        installed.call("POST", "/apis/gpuyard.dev/v1/gpunodes", gpu_node("n1"), token=token)
    installed.create(gpu_node("n1"))
    sick = {"status": {"gpus": [{"uuid": "GPU-1", "health": "sick"}]}}
    for path in ("n1", "n1/status"):
        with pytest.raises(ApiError, match="alone"):
            installed.call("PATCH", f"/apis/gpuyard.dev/v1/gpunodes/{path}", sick, MERGE, token=token)
    installed.call("PATCH", "/apis/gpuyard.dev/v1/gpunodes/n0/status", sick, MERGE, token=token)
    with pytest.raises(ApiError, match="names its node"):  # a token that was stolen off no node
        installed.call(
            "PATCH",
            "/apis/gpuyard.dev/v1/gpunodes/n0",
            sick,
            MERGE,
            token=installed.token_of("gpuyard-system", "gpuyard-agent"),
        )
    for denied in ("/api/v1/nodes/n0", "/api/v1/nodes/n0/status"):
        with pytest.raises(ApiError) as told:
            installed.call("PATCH", denied, {"metadata": {"labels": {"x": "y"}}}, MERGE, token=token)
        assert told.value.code == 403
    installed.delete("/apis/gpuyard.dev/v1/gpunodes")
    installed.delete("/api/v1/namespaces/gpuyard-system/pods/agent-n0", 0)


def gpu_node(name: str) -> dict[str, Any]:
    spec = {"driver": "570.1", "gpus": [{"uuid": "GPU-1", "model": "H100-SXM5-80GB"}]}
    return {"apiVersion": "gpuyard.dev/v1", "kind": "GpuNode", "metadata": {"name": name}, "spec": spec}


def agent_token(cluster: Cluster, node: str) -> str:
    """As the kubelet of that node gives it to the agent's pod."""
    document = pod(f"agent-{node}", 0, scheduler="default-scheduler", nodeName=node, serviceAccountName="gpuyard-agent")
    document["metadata"]["namespace"] = "gpuyard-system"
    return cluster.token_of("gpuyard-system", "gpuyard-agent", cluster.create(document))
