"""Who is late is named: who does not begin with its cause, and its gang is tried elsewhere, once; who does not go."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuyard.kube.objects import NodeObject, PodObject
from gpuyard.kube.owners import JobObject
from gpuyard.model.actions import Evict, Move
from gpuyard.worlds.kubernetes.acting.start_watch import OVERDUE_S, StartWatch, StopWatch, cause_of
from gpuyard.worlds.kubernetes.asking.marks import DEFAULTS
from gpuyard.worlds.kubernetes.cache import Cache
from gpuyard.worlds.kubernetes.observe import ClusterObserver
from tests.support.kube.fake_kubelet import FakeNode, condition, container, indexed_job, pod
from tests.support.pretend import StillClock

PULL = {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}
MAKING = {"waiting": {"reason": "ContainerCreating"}}
RUNS = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}


class Watched:
    """A gang of two on two nodes, and what is done about it."""

    def __init__(self) -> None:
        self.clock = StillClock(0.0)
        self.cache = Cache()
        self.observer = ClusterObserver(self.cache, DEFAULTS, self.clock)
        self.taken: list[Evict | Move] = []
        self.watch = StartWatch(self.observer, self.take, self.clock, 60.0)
        owner = indexed_job("gang", 2)
        owner["metadata"] |= {"namespace": "d", "uid": "job"}
        self.cache.owner_kind("Job.batch").put(msgspec.convert(owner, JobObject))
        for name in ("n0", "n1"):
            amounts = FakeNode(name).amounts
            status = {"capacity": amounts, "allocatable": amounts, "conditions": [condition()]}
            self.cache.nodes.put(
                msgspec.convert({"metadata": {"name": name, "uid": name}, "status": status}, NodeObject)
            )

    def take(self, actions: list[Evict | Move]) -> list[Any]:
        self.taken += actions
        return []

    def member(self, index: int, state: dict[str, Any] | None, uid: str = "", phase: str = "Pending") -> None:
        document = pod(f"gang-{index}", 1, nodeName=f"n{index}")
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "gang", "uid": "job", "controller": True}
        notes = {"batch.kubernetes.io/job-completion-index": str(index)}
        document["metadata"] |= {
            "namespace": "d", "uid": uid or f"u{index}", "annotations": notes, "ownerReferences": [owner],
        }  # fmt: skip
        document["status"] = {"phase": phase, "containerStatuses": [container(state)] if state else []}
        self.cache.pods.put(msgspec.convert(document, PodObject))

    def after(self, seconds: float) -> list[str]:
        """What is told of pods when so much time has passed."""
        list(self.observer.events())
        self.watch.look()
        self.clock.at += seconds
        self.watch.look()
        told, self.watch.causes = [words for _, words in self.watch.causes], []
        return told


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_a_gang_is_taken_back_when_one_of_it_does_not_begin_and_keeps_off_that_node_alone(watched: Watched):
    watched.member(0, RUNS, phase="Running")
    watched.member(1, PULL)
    assert watched.after(30.0) == []
    (told,) = watched.after(31.0)
    assert told.startswith(
        "gang-1 has not begun on n1 for 60 s: ErrImagePull: no such image; all of d/gang is taken back"
    )
    (evict,) = watched.taken
    assert evict.job == "d/gang"
    assert watched.observer.avoidance.shunned_by("d/gang") == ("n1",)
    assert watched.after(600.0) == []


@pytest.mark.parametrize("first", [PULL, RUNS])
def test_the_second_time_it_is_only_told(watched: Watched, first: dict[str, Any]):
    phase = "Running" if first is RUNS else "Pending"
    watched.member(0, first, phase=phase)
    watched.member(1, PULL)
    watched.after(61.0)
    assert len(watched.taken) == 1
    for index in range(2):
        watched.cache.pods.drop(f"d/gang-{index}")
    watched.after(1.0)
    watched.member(0, first, uid="again0", phase=phase)
    watched.member(1, PULL, uid="again1")
    (told,) = watched.after(61.0)
    assert "has not begun" in told
    assert "taken back" not in told
    assert len(watched.taken) == 1


def test_who_prepares_or_runs_has_begun(watched: Watched):
    watched.member(0, RUNS, phase="Running")
    document = pod("init", 1, nodeName="n0")
    document["metadata"] |= {"namespace": "d", "uid": "init"}
    document["status"] = {"phase": "Pending", "initContainerStatuses": [container(RUNS)]}
    watched.cache.pods.put(msgspec.convert(document, PodObject))
    assert watched.after(1000.0) == []


def test_a_pod_that_nobody_would_make_anew_is_told_about_and_left(watched: Watched):
    document = pod("bare", 1, nodeName="n0")
    document["metadata"] |= {"namespace": "d", "uid": "bare"}
    document["status"] = {"phase": "Pending"}
    watched.cache.pods.put(msgspec.convert(document, PodObject))
    assert watched.after(61.0) == ["bare has not begun on n0 for 60 s: its kubelet has said nothing of it"]
    assert watched.taken == []


def test_a_cause_is_what_is_wrong_and_not_what_is_under_way():
    def told(*states: dict[str, Any]) -> str:
        document = pod("p", 1) | {"status": {"phase": "Pending", "containerStatuses": [container(s) for s in states]}}
        return cause_of(msgspec.convert(document, PodObject))

    assert told(MAKING, PULL) == "ErrImagePull: no such image"
    assert told(MAKING) == "its containers are still being made"


class Leaving:
    """A pod that was told to go."""

    def __init__(self, ready: str = "True") -> None:
        self.clock, self.cache = StillClock(0.0), Cache()
        self.watch = StopWatch(self.cache, self.clock)
        node = {"metadata": {"name": "n0", "uid": "n0"}, "status": {"conditions": [condition(ready)]}}
        self.cache.nodes.put(msgspec.convert(node, NodeObject))
        self.pod(deletionTimestamp="2026-01-01T00:00:00Z")

    def pod(self, node: str = "n0", **metadata: Any) -> None:
        document = pod("p", 1, terminationGracePeriodSeconds=5, **({"nodeName": node} if node else {}))
        document["metadata"] |= {"namespace": "d", "uid": "u", **metadata}
        self.cache.pods.put(msgspec.convert(document | {"status": {"phase": "Running"}}, PodObject))

    def after(self, seconds: float) -> list[str]:
        self.watch.look()
        self.clock.at += seconds
        return [words for _, words in self.watch.look()]


HELD = "what it holds stays its own until it is gone"


def test_who_is_there_long_after_its_grace_is_told_once_and_nothing_is_forced():
    leaving = Leaving()
    assert leaving.after(OVERDUE_S) == []
    grace = f"p was told to go and is still there on n0, {OVERDUE_S:g} s after its grace of 5 s"
    assert leaving.after(5.0) == [f"{grace}; {HELD}"]
    assert leaving.after(1000.0) == []
    leaving.cache.pods.drop("d/p")
    assert leaving.cache.leaving == set()


def test_the_grace_is_the_one_that_it_was_told_to_go_with():
    leaving = Leaving()
    leaving.cache.pods.drop("d/p")
    leaving.pod(deletionTimestamp="2026-01-01T00:00:00Z", deletionGracePeriodSeconds=600)
    assert leaving.after(599.0 + OVERDUE_S) == []
    (told,) = leaving.after(1.0)
    assert "after its grace of 600 s" in told


def test_that_its_kubelet_does_not_answer_is_said():
    (told,) = Leaving(ready="Unknown").after(1000.0)
    assert "; its kubelet does not answer; " in told


def test_who_goes_in_time_or_never_had_a_node_is_not_spoken_of():
    leaving = Leaving()
    leaving.cache.pods.drop("d/p")
    leaving.pod(node="", deletionTimestamp="2026-01-01T00:00:00Z")
    assert leaving.after(1000.0) == []
