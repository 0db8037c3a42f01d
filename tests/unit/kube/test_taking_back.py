"""Who is taken back, by which writes, and what is kept for whom meanwhile; without a server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Sequence
from typing import Any

import msgspec
import pytest

from gpuyard.kube.client import ApiReply
from gpuyard.kube.objects import Metadata, NodeObject, PodObject
from gpuyard.kube.owners import JobObject, PodGroupObject
from gpuyard.model.actions import Evict, Start
from gpuyard.model.events import ActionFailed, Event, JobSeen, TasksAssigned, TasksStopping
from gpuyard.model.job import Job, Placement
from gpuyard.model.reasons import Code, Reason
from gpuyard.worlds.kubernetes.acting.disrupt import Disruptor
from gpuyard.worlds.kubernetes.acting.taking_back import PROMISE_S, TakerBack
from gpuyard.worlds.kubernetes.asking.marks import DEADLINE, SUSPENDED, ReadingSettings
from gpuyard.worlds.kubernetes.cache import Cache
from gpuyard.worlds.kubernetes.gathering import controllers, kept_back
from gpuyard.worlds.kubernetes.observe import ClusterObserver
from tests.support.kube.fake_kubelet import indexed_job, pod

JOBS = "/apis/batch/v1/jobs"
GANG = "/apis/batch/v1/namespaces/default/jobs/gang"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
WHY = Reason(Code.PREEMPTED, message="for somebody")


class Hours:
    """Time that only passes when somebody sleeps."""

    def __init__(self) -> None:
        self.at = 1000.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds


class Api:
    """What Disruptor asks of an API server."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {BUDGETS: {"items": []}}
        self.writes: list[tuple[str, str, Any]] = []

    async def send(self, method: str, path: str, body: bytes | None = None, *_: Any, **__: Any) -> ApiReply:
        told = json.loads(body) if body else None
        if method != "GET":
            self.writes.append((method, path, told))
        if method == "PATCH" and path in self.objects:
            self.objects[path] = merged(self.objects[path], told)
        found = self.objects.get(path)
        return ApiReply(200 if found is not None or method != "GET" else 404, json.dumps(found).encode())

    async def post(self, path: str, body: bytes, timeout: float = 0.0) -> ApiReply:
        return await self.send("POST", path, body)

    def changes(self) -> list[tuple[str, str, Any]]:
        """All but what is told of it."""
        return [write for write in self.writes if "/events" not in write[1]]


def merged(old: Any, new: Any) -> Any:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    kept = {**old, **{key: merged(old.get(key, {}), value) for key, value in new.items()}}
    return {key: value for key, value in kept.items() if value is not None}


class Stage:
    """One node, one gang of two that runs on it, and whoever wants its place."""

    def __init__(self, gpus: int = 2) -> None:
        self.clock, self.api, self.works = Hours(), Api(), list[Coroutine[Any, Any, None]]()
        self.cache = Cache()
        self.cache.owners.paths["Job.batch"] = JOBS
        self.jobs = self.cache.owner_kind("Job.batch")
        self.observer = ClusterObserver(self.cache, ReadingSettings(), self.clock)
        self.sent: list[tuple[str, str, str]] = []
        self.taker = TakerBack(self.observer, self, self.clock, self.works.append)  # type: ignore[arg-type]
        self.taker.disruptor = Disruptor(self.api, self.clock, lambda: True, self.cache.owners.paths)  # type: ignore[arg-type]
        self.node(gpus)

    def send(self, job: str, placed: Sequence[tuple[Placement, PodObject]]) -> None:
        """As the Starter does."""
        for place, each in placed:
            self.cache.assumed.put(place, f"default/{place.uid}")
            self.sent.append((each.metadata.name, place.node, place.uid))

    def node(self, gpus: int) -> None:
        amounts = {"nvidia.com/gpu": str(gpus), "cpu": "64", "memory": "1Ti", "pods": "100"}
        conditions = [{"type": "Ready", "status": "True"}]
        document = {
            "metadata": {"name": "n0", "uid": "n0", "labels": {"nvidia.com/gpu.product": "H100"}},
            "status": {"capacity": amounts, "allocatable": amounts, "conditions": conditions},
        }
        self.cache.nodes.put(msgspec.convert(document, NodeObject))

    def job(self, name: str = "gang", **more: Any) -> None:
        """A Job as the API server has it now; `spec`, `status` and `annotations` are added."""
        document = self.api.objects.get(f"/apis/batch/v1/namespaces/default/jobs/{name}") or indexed_job(name, 2)
        document["metadata"] |= {"namespace": "default", "uid": name, "resourceVersion": "1"}
        for part in ("spec", "status"):
            document[part] = {**document.get(part, {}), **more.get(part, {})}
        self.api.objects[f"/apis/batch/v1/namespaces/default/jobs/{name}"] = document
        self.jobs.put(msgspec.convert(document, JobObject))

    def pod(self, name: str, job: str = "gang", node: str = "", **more: Any) -> None:
        """A pod of a Job, or of nobody; with a node it runs there."""
        document = pod(name, more.pop("gpus", 1), **({"nodeName": node} if node else {}), **more.pop("wishes", {}))
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": job, "controller": True}
        index = {"batch.kubernetes.io/job-completion-index": name.rsplit("-", 1)[1][:1]} if job else {}
        document["metadata"] |= {"namespace": "default", "uid": more.pop("uid", name), "annotations": index}
        document["metadata"] |= {"labels": {"app": job}, **({"ownerReferences": [owner]} if job else {}), **more}
        document["status"] = {"phase": "Running" if node else "Pending"}
        self.cache.pods.put(msgspec.convert(document, PodObject))

    def runs(self, name: str = "gang", **wishes: Any) -> None:
        self.job(name)
        for index in range(2):
            self.pod(f"{name}-{index}", name, "n0", wishes=wishes)
        self.look()

    def look(self) -> list[Event]:
        return list(self.observer.events())

    def settle(self) -> None:
        """Whatever was to be done has been."""
        for work in self.works:
            asyncio.run(work)
        self.works.clear()

    def told(self, name: str = "default/gang") -> Job:
        self.look()
        return self.observer.jobs[name]

    def suspended(self) -> None:
        """The job controller has seen to it: the gang's pods are gone."""
        document = self.api.objects[GANG]
        self.job(status={"conditions": [{"type": "Suspended", "status": "True"}]}, spec=document["spec"])
        for index in range(2):
            self.cache.pods.drop(f"default/gang-{index}")
        self.look()

    def taken_back(self) -> None:
        self.runs(priority=7, priorityClassName="seven")
        self.taker.take([Evict("default/gang", WHY)])
        self.settle()
        self.suspended()


@pytest.fixture
def stage() -> Stage:
    return Stage()


def places(*numbers: int) -> tuple[Placement, ...]:
    return tuple(Placement("n0", (number,), task=number) for number in numbers)


# --- suspended ---------------------------------------------------------------------------------------------------


def test_a_gang_of_a_job_leaves_by_one_write_that_suspends_and_marks_it(stage: Stage):
    stage.runs()
    (told,) = stage.taker.take([Evict("default/gang", WHY)])
    assert isinstance(told, TasksStopping)
    assert len(told.placements) == 2
    stage.settle()
    ((method, path, body),) = stage.api.changes()
    assert (method, path, body["spec"]) == ("PATCH", GANG, {"suspend": True})
    assert body["metadata"]["uid"] == "gang"
    assert SUSPENDED in body["metadata"]["annotations"]


def test_a_gang_that_was_told_to_go_is_not_told_to_run_before_the_api_server_says_that_it_leaves(stage: Stage):
    stage.runs()
    stage.taker.take([Evict("default/gang", WHY)])
    stage.settle()
    stage.job(spec=stage.api.objects[GANG]["spec"])
    assert all(place.terminating for place in stage.told().placements)
    assert stage.taker.take([Evict("default/gang", WHY)]) != []
    assert not stage.works


def test_a_gang_that_was_taken_back_waits_with_all_its_members_and_what_they_asked_for(stage: Stage):
    stage.taken_back()
    waiting = stage.told()
    assert (waiting.placements, waiting.on_hold, waiting.priority) == ((), False, 7)
    (group,) = waiting.task_groups()
    assert (group.tasks, group.absent, group.request.gpus) == (2, 0, 1)


def test_whoever_leads_next_knows_of_it_what_the_last_one_knew(stage: Stage):
    stage.taken_back()
    stage.job(spec=stage.api.objects[GANG]["spec"])
    successor = Stage()
    successor.api.objects = stage.api.objects
    successor.job(spec=stage.api.objects[GANG]["spec"])
    assert successor.told() == stage.told()


def test_it_is_resumed_once_it_has_a_place_and_its_pods_are_sent_there_by_their_numbers(stage: Stage):
    stage.taken_back()
    start = Start("default/gang", places(0, 1), WHY)
    assert stage.taker.must_wait(start)
    (told,) = stage.taker.promise(start)
    assert isinstance(told, TasksAssigned)
    stage.taker.tend()
    stage.settle()
    assert stage.api.changes()[-1][2]["spec"] == {"suspend": False}
    assert SUSPENDED not in stage.api.objects[GANG]["metadata"].get("annotations", {})
    stage.job(spec=stage.api.objects[GANG]["spec"], status={"conditions": []})
    assert len(stage.told().placements) == 2  # they are kept, though there is neither mark nor pod
    stage.pod("gang-1-b")
    stage.pod("gang-0-b")
    stage.look()
    stage.taker.tend()
    assert sorted(stage.sent) == [("gang-0-b", "n0", "gang-0-b"), ("gang-1-b", "n0", "gang-1-b")]
    assert {place.uid for place in stage.told().placements} == {"gang-0-b", "gang-1-b"}


def test_pods_that_come_back_asking_for_more_than_was_kept_for_them_wait_as_all_do():
    stage = Stage(gpus=8)
    stage.taken_back()
    stage.taker.promise(Start("default/gang", places(0, 1), WHY))
    stage.taker.tend()
    stage.settle()
    stage.job(spec=stage.api.objects[GANG]["spec"], status={"conditions": []})
    for name in ("gang-0-b", "gang-1-b"):  # its template was changed while it was suspended
        stage.pod(name, gpus=4)
    stage.look()
    stage.taker.tend()
    assert stage.sent == []
    (told,) = stage.taker.failures
    assert isinstance(told, ActionFailed)
    assert "asks for more" in told.reason.message
    waiting = stage.told()
    assert (waiting.placements, waiting.task_groups()[0].request.gpus) == ((), 4)


def test_it_is_not_resumed_before_its_controller_has_heard_of_the_suspension(stage: Stage):
    stage.runs()
    stage.taker.take([Evict("default/gang", WHY)])
    stage.settle()
    stage.job(spec=stage.api.objects[GANG]["spec"])
    stage.look()
    stage.taker.promise(Start("default/gang", places(0, 1), WHY))
    stage.taker.tend()
    assert not stage.works


def test_what_somebody_else_suspended_is_left_to_them(stage: Stage):
    stage.job(spec={"suspend": True})
    assert asyncio.run(stage.taker.disruptor.resume("Job.batch", "default/gang"))
    assert stage.api.writes == []


def test_a_deadline_is_shortened_by_what_was_used_of_it_and_what_it_was_is_kept(stage: Stage):
    stage.job(spec={"activeDeadlineSeconds": 600}, status={"startTime": "1970-01-01T00:10:00Z"})  # 400 s ago
    for index in range(2):
        stage.pod(f"gang-{index}", node="n0")
    stage.look()
    stage.taker.take([Evict("default/gang", WHY)])
    stage.settle()
    ((_, _, body),) = stage.api.changes()
    assert body["spec"] == {"suspend": True, "activeDeadlineSeconds": 200}
    assert body["metadata"]["annotations"][DEADLINE] == "600"


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("JobSet.jobset.x-k8s.io", {"suspend": True}),
        ("RayCluster.ray.io", {"suspend": True}),
        ("PyTorchJob.kubeflow.org", {"runPolicy": {"suspend": True}}),
    ],
)
def test_each_kind_is_suspended_where_it_says_so(kind: str, spec: dict[str, Any]):
    assert controllers.suspension(kind, True) == spec


# --- kept --------------------------------------------------------------------------------------------------------


def test_whoever_waits_for_others_to_leave_is_bound_when_they_are_gone_and_not_before(stage: Stage):
    stage.runs()
    stage.job("next")
    for index in range(2):
        stage.pod(f"next-{index}", "next")
    stage.look()
    stage.taker.take([Evict("default/gang", WHY, "default/next")])
    start = Start("default/next", places(0, 1), WHY, after=("default/gang",))
    assert stage.taker.must_wait(start)
    stage.taker.promise(start)
    stage.settle()
    stage.taker.tend()
    assert stage.sent == []
    assert len(stage.told("default/next").placements) == 2
    stage.suspended()
    stage.taker.tend()
    assert [name for name, _, _ in stage.sent] == ["next-0", "next-1"]


def test_what_is_kept_for_pods_that_never_come_is_given_up(stage: Stage):
    stage.taken_back()
    stage.taker.promise(Start("default/gang", places(0, 1), WHY))
    stage.clock.at += PROMISE_S + 1
    stage.taker.expire()
    (failed,) = stage.taker.failures
    assert isinstance(failed, ActionFailed)
    assert "did not come" in str(failed.reason)
    assert stage.told().placements == ()
    assert stage.told().on_hold  # for a while


# --- who may not be ----------------------------------------------------------------------------------------------


def test_a_budget_that_does_not_cover_all_who_go_is_named_and_nobody_is_touched(stage: Stage):
    selector = {"matchLabels": {"app": "gang"}}
    status = {"disruptionsAllowed": 1, "observedGeneration": 1}
    metadata = {"name": "keep", "namespace": "default", "generation": 1}
    stage.api.objects[BUDGETS] = {"items": [{"metadata": metadata, "spec": {"selector": selector}, "status": status}]}
    stage.runs()
    stage.job("next")
    stage.pod("next-0", "next")
    stage.look()
    stage.taker.take([Evict("default/gang", WHY, "default/next")])
    stage.taker.promise(Start("default/next", places(0), WHY, after=("default/gang",)))
    stage.settle()
    assert stage.api.writes == []
    disappointed = [event for event in stage.taker.failures if isinstance(event, ActionFailed)]
    assert {event.job for event in disappointed} == {"default/gang", "default/next"}
    assert all("default/keep allows 1 of 2" in str(event.reason) for event in disappointed)
    assert not any(place.terminating for place in stage.told().placements)
    assert stage.told("default/next").placements == ()


def test_a_bare_pod_is_not_preemptible_and_stays_whatever_a_plan_wants(stage: Stage):
    stage.pod("alone-0", "", "n0")
    (seen,) = [event for event in stage.look() if isinstance(event, JobSeen)]
    assert seen.job.preemptible is False
    (failed,) = stage.taker.take([Evict("default/alone-0", WHY)])
    assert isinstance(failed, ActionFailed)
    assert "nobody would make the pod alone-0 anew" in str(failed.reason)
    assert (stage.works, stage.api.writes) == ([], [])


def test_where_one_of_two_cannot_go_neither_does_and_nobody_is_sent_to_their_places(stage: Stage):
    stage.runs()
    stage.pod("alone-0", "", "n0")
    stage.job("next")
    stage.pod("next-0", "next")
    stage.look()
    victims = [Evict(name, WHY, "default/next") for name in ("default/alone-0", "default/gang")]
    failed = stage.taker.take(victims)
    assert [type(event) for event in failed] == [ActionFailed, ActionFailed]
    start = Start("default/next", places(0), WHY, after=("default/alone-0", "default/gang"))
    assert stage.taker.must_wait(start)
    (refused,) = stage.taker.promise(start)
    assert isinstance(refused, ActionFailed)
    stage.taker.tend()
    assert (stage.works, stage.sent, stage.api.writes) == ([], [], [])


def test_who_could_not_be_taken_back_is_left_alone_for_a_while(stage: Stage):
    stage.runs()
    del stage.api.objects[GANG]  # the API server knows nothing of it
    stage.taker.take([Evict("default/gang", WHY)])
    stage.settle()
    assert len(stage.taker.failures) == 1
    assert isinstance(stage.taker.take([Evict("default/gang", WHY)])[0], ActionFailed)
    assert not stage.works
    stage.clock.at += 11
    stage.taker.take([Evict("default/gang", WHY)])
    assert stage.works
    for work in stage.works:
        work.close()


# --- the mark ----------------------------------------------------------------------------------------------------


def test_a_mark_speaks_of_its_owners_namespace_alone_and_one_that_cannot_be_read_is_none():
    theirs = msgspec.convert(pod("x", 1), PodObject)
    theirs = msgspec.structs.replace(theirs, metadata=Metadata(name="x", namespace="other", uid="u"))
    text = kept_back.written("why", 5.0, [theirs])
    owner = Metadata(name="gang", namespace="team", annotations={SUSPENDED: text})
    mark = kept_back.mark_of(owner)
    assert mark is not None
    (remembered,) = kept_back.remembered(owner, mark)
    assert (remembered.metadata.namespace, remembered.metadata.uid, remembered.spec.node_name) == ("team", "", "")
    deep = '{"x":' + "[" * 50_000 + "]" * 50_000 + "}"
    endless = '{"at": 1e300}'
    for text in ("for others", deep, endless):
        assert kept_back.mark_of(Metadata(annotations={SUSPENDED: text})) is None


def test_who_gains_is_named_on_an_owner_of_the_same_namespace_alone(stage: Stage):
    stage.runs()
    stage.taker.take([Evict("default/gang", Reason(Code.PREEMPTED, message="for secret/next"), "secret/next")])
    stage.settle()
    ((_, _, body),) = stage.api.changes()
    assert "secret" not in json.dumps(body)
    assert all("secret" not in json.dumps(write) for write in stage.api.writes)


def test_a_mark_is_understood_also_where_the_group_of_its_pods_is_heard_of_later(stage: Stage):
    stage.taken_back()
    document = stage.api.objects[GANG]
    mark = json.loads(document["metadata"]["annotations"][SUSPENDED])
    for each in mark["pods"]:
        each["metadata"].setdefault("labels", {})["scheduling.x-k8s.io/pod-group"] = "ring"
    document["metadata"]["annotations"][SUSPENDED] = json.dumps(mark)
    successor = Stage()
    groups = successor.cache.owner_kind("PodGroup.scheduling.x-k8s.io")
    successor.api.objects = stage.api.objects
    successor.job(spec=document["spec"])
    assert successor.cache.kept_back == {}
    group = {"metadata": {"name": "ring", "namespace": "default", "uid": "ring"}, "spec": {"minMember": 2}}
    groups.put(msgspec.convert(group, PodGroupObject))
    assert list(successor.cache.kept_back) == ["default/podgroup/ring"]
    assert successor.told("default/podgroup/ring").placements == ()
