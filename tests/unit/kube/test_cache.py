"""What is kept of a cluster: pods that come before their owner, owners that go before their pods, nothing for ever."""

from __future__ import annotations

from typing import Any

import msgspec

from gpuyard.kube.objects import Metadata, NodeObject, NodeStatus, PodObject
from gpuyard.kube.owners import JobObject
from gpuyard.model.job import Placement
from gpuyard.worlds.kubernetes.asking.marks import SUSPENDED
from gpuyard.worlds.kubernetes.cache import Cache
from gpuyard.worlds.kubernetes.gathering import kept_back
from gpuyard.worlds.kubernetes.keeping.objects import Objects
from tests.support.kube.fake_kubelet import indexed_job, pod


def job(tasks: int = 4, **more: Any) -> JobObject:
    document = indexed_job("gang", tasks, **more)
    document["metadata"] |= {"namespace": "default", "uid": "job"}
    return msgspec.convert(document, JobObject)


def member(index: int, node: str = "", **status: str) -> PodObject:
    document = pod(f"gang-{index}", 1, **({"nodeName": node} if node else {}))
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "gang", "uid": "job", "controller": True}
    notes = {"batch.kubernetes.io/job-completion-index": str(index)}
    document["metadata"] |= {
        "namespace": "default",
        "uid": f"u{index}",
        "ownerReferences": [owner],
        "annotations": notes,
    }
    return msgspec.convert(document | {"status": {"phase": "Pending", **status}}, PodObject)


def kept() -> tuple[Cache, Objects[Any]]:
    cache = Cache()
    return cache, cache.owner_kind("Job.batch")


def filed(cache: Cache) -> dict[str, set[str]]:
    """Pods by their gang."""
    return {gang: set(cache.members.of(gang)) for gang in cache.members}


def test_a_pod_that_comes_before_its_owner_is_by_itself_until_that_is_seen():
    cache, jobs = kept()
    cache.pods.put(member(0))
    assert filed(cache) == {"default/gang-0": {"default/gang-0"}}
    jobs.put(job())
    assert filed(cache) == {"default/gang": {"default/gang-0"}}
    assert list(cache.dirty.gangs) == ["default/gang-0", "default/gang"]


def test_a_job_that_another_scheduler_has_suspended_is_its_own_to_resume():
    """Two of us may serve one cluster under two names: each resumed and suspended what the other had put aside."""
    cache, jobs = kept()
    for name, known in (("another", set()), ("gpuyard", {"default/gang"})):
        seen = member(0)
        theirs = msgspec.structs.replace(seen, spec=msgspec.structs.replace(seen.spec, scheduler_name=name))
        mark = {SUSPENDED: kept_back.written("reclaimed", 5.0, [theirs])}
        suspended = job(job={"suspend": True})
        marked = msgspec.structs.replace(suspended.metadata, annotations=mark)
        jobs.put(msgspec.structs.replace(suspended, metadata=marked))
        assert set(cache.kept_back) == known
    jobs.drop("default/gang")
    assert not cache.kept_back


def test_a_gang_stays_one_when_its_owner_goes_first_and_then_nothing_is_left_of_either():
    cache, jobs = kept()
    jobs.put(job())
    for index in range(2):
        cache.pods.put(member(index))
    jobs.drop("default/gang")
    cache.pods.put(member(0, phase="Running"))
    assert filed(cache) == {"default/gang": {"default/gang-0", "default/gang-1"}}
    for index in range(2):
        cache.pods.drop(f"default/gang-{index}")
    assert (filed(cache), cache.gang_of("default/gang-0"), dict(cache.owners.owners.objects)) == ({}, "", {})


def test_another_pod_of_the_same_name_is_another_pod():
    cache, jobs = kept()
    jobs.put(job())
    cache.pods.put(member(0))
    cache.devices["u0"] = ((3,), ())
    again = member(0)
    cache.pods.put(msgspec.structs.replace(again, metadata=msgspec.structs.replace(again.metadata, uid="new")))
    assert cache.devices == {}
    assert filed(cache) == {"default/gang": {"default/gang-0"}}


def on_its_way(*there: str) -> Cache:
    """A member that was sent to n0, and the nodes that there are."""
    cache, jobs = kept()
    jobs.put(job())
    for name in there:
        cache.nodes.put(NodeObject(Metadata(name=name), status=NodeStatus({"nvidia.com/gpu": "1"})))
    cache.pods.put(member(0))
    cache.dirty.gangs.clear()
    cache.assumed.put(Placement("n0", (0,), uid="u0"), "default/gang-0")
    return cache


def test_a_binding_that_comes_true_on_a_node_that_is_gone_is_looked_at():
    cache = on_its_way()
    cache.pods.put(member(0, node="n0"))
    assert (list(cache.dirty.gangs), len(cache.assumed)) == (["default/gang"], 0)


def test_a_binding_that_is_heard_of_together_with_another_change_is_looked_at():
    notes = {"batch.kubernetes.io/job-completion-index": "0", "gpuyard.dev/class": "batch"}
    for change in ({"labels": {"app": "x"}}, {"annotations": notes}):
        cache, now = on_its_way("n0"), member(0, node="n0")
        cache.pods.put(msgspec.structs.replace(now, metadata=msgspec.structs.replace(now.metadata, **change)))
        assert (list(cache.dirty.gangs), len(cache.assumed)) == (["default/gang"], 0)


def test_our_own_binding_come_true_wakes_nobody():
    cache = on_its_way("n0")
    cache.pods.put(member(0, node="n0"))
    assert (list(cache.dirty.gangs), len(cache.assumed), cache.assumed.coming_to("n0")) == ([], 0, ())
    cache.pods.put(member(0, node="n0", phase="Running"))
    assert list(cache.dirty.gangs) == ["default/gang"]


def test_a_condition_that_we_wrote_ourselves_wakes_nobody():
    cache, jobs = kept()
    jobs.put(job())
    cache.pods.put(member(0))
    cache.dirty.gangs.clear()
    told = member(0)
    status = msgspec.structs.replace(told.status, message="needs 4 GPUs")
    cache.pods.put(msgspec.structs.replace(told, status=status))
    assert not cache.dirty.gangs


def test_a_kubelet_that_refuses_a_pod_is_told_of_once():
    cache, jobs = kept()
    heard: list[tuple[str, ...]] = []
    cache.refused_by_node = lambda *told: heard.append(told)
    jobs.put(job())
    cache.pods.put(member(0, node="n0"))
    for _ in range(2):
        cache.pods.put(member(0, node="n0", phase="Failed", reason="UnexpectedAdmissionError"))
    assert heard == [("n0", "UnexpectedAdmissionError", "default/gang")]


def alone(name: str = "gang") -> PodObject:
    document = pod(name, 1)
    document["metadata"] |= {"namespace": "default", "uid": "alone"}
    return msgspec.convert(document, PodObject)


def test_a_pod_that_is_called_like_a_job_made_later_is_none_of_its_members():
    cache, jobs = kept()
    cache.pods.put(alone())
    assert filed(cache) == {"default/gang": {"default/gang"}}
    jobs.put(job())
    cache.pods.put(member(0))
    assert filed(cache) == {"default/pod/gang": {"default/gang"}, "default/gang": {"default/gang-0"}}
    jobs.drop("default/gang")
    assert filed(cache) == {"default/pod/gang": {"default/gang"}, "default/gang": {"default/gang-0"}}
    cache.pods.drop("default/gang-0")  # and with it all that was known of the Job
    assert filed(cache) == {"default/gang": {"default/gang"}}
    jobs.put(job())
    jobs.drop("default/gang")
    assert filed(cache) == {"default/gang": {"default/gang"}}


def made_at(seen: Any, moment: str, uid: str) -> Any:
    metadata = msgspec.structs.replace(seen.metadata, creation_timestamp=moment, uid=uid)
    return msgspec.structs.replace(seen, metadata=metadata)


def test_pods_that_outlive_their_job_are_none_of_the_job_that_has_its_name_next():
    cache, jobs = kept()
    jobs.put(made_at(job(), "2026-01-01T00:00:00Z", "job"))
    left_behind = made_at(member(0, "n0", phase="Running"), "2026-01-01T00:00:01Z", "u0")
    cache.pods.put(left_behind)
    jobs.put(made_at(job(), "2026-01-01T01:00:00Z", "next"))
    assert filed(cache) == {"default/gang-0": {"default/gang-0"}}
    cache.pods.put(made_at(member(1), "2026-01-01T01:00:00Z", "u1"))
    assert filed(cache) == {"default/gang-0": {"default/gang-0"}, "default/gang": {"default/gang-1"}}
