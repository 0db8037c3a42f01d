"""Marks by which autoscalers leave the nodes of gangs alone: who bears them, and whose word about them holds."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from gpuyard.kube.objects import NodeObject, PodObject
from gpuyard.model.actions import Start
from gpuyard.model.job import Placement
from gpuyard.model.reasons import Code, Reason
from gpuyard.worlds.kubernetes.acting.bind import Binding
from gpuyard.worlds.kubernetes.acting.starting import Starter
from gpuyard.worlds.kubernetes.asking.marks import DEFAULTS, STAY
from gpuyard.worlds.kubernetes.cache import Cache
from gpuyard.worlds.kubernetes.observe import ClusterObserver
from tests.support.kube.fake_kubelet import FakeNode, condition, pod
from tests.support.pretend import StillClock

SAFE, UNDISTURBED = STAY


class Ears:
    """A binder, a teller and a preparer that only listen."""

    def __init__(self) -> None:
        self.sent: list[Binding] = []

    def send(self, binding: Binding) -> None:
        self.sent.append(binding)

    def forget(self, uid: str) -> None:
        pass

    def wants(self, pod: PodObject) -> bool:
        return False


def bound_with(notes: list[dict[str, str]], stay: dict[str, str] = STAY) -> list[dict[str, Any]]:
    """The annotations that pods with these of their own, one job, are bound with."""
    cache = Cache()
    observer = ClusterObserver(cache, DEFAULTS, StillClock(0.0))
    amounts = FakeNode("n0", gpus=8).amounts
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [condition()]}
    cache.nodes.put(msgspec.convert({"metadata": {"name": "n0", "uid": "n0"}, "status": status}, NodeObject))
    for index, theirs in enumerate(notes):
        document = pod(f"m{index}", 1)
        document["metadata"] |= {"namespace": "default", "uid": f"m{index}", "annotations": theirs}
        cache.pods.put(msgspec.convert(document | {"status": {"phase": "Pending"}}, PodObject))
    list(observer.events())
    ((name, _),) = observer.jobs.items()
    starter, ears = Starter(observer, StillClock(0.0), lambda work: None, stay), Ears()
    starter.binder = starter.teller = starter.preparer = ears  # type: ignore[assignment]
    places = tuple(Placement("n0", (index,), task=index) for index in range(len(notes)))
    starter.begin(Start(name, places, Reason(Code.PREEMPTED)))
    return [json.loads(binding.body())["metadata"]["annotations"] for binding in ears.sent]


def gang(*own: dict[str, str]) -> list[dict[str, str]]:
    return [{"gpuyard.dev/gang": "g", "gpuyard.dev/gang-tasks": str(len(own)), **each} for each in own]


def test_members_of_a_gang_bear_the_marks_that_autoscalers_heed():
    for told in bound_with(gang({}, {})):
        assert (told[SAFE], told[UNDISTURBED], told["gpuyard.dev/job"]) == ("false", "true", "default/gang/g")


def test_a_pod_that_stands_alone_bears_none_and_is_not_told_its_own_name():
    assert bound_with([{}]) == [{}]


@pytest.mark.parametrize("own", ["true", "false", ""])
def test_what_somebody_wrote_there_holds(own: str):
    first, second = bound_with(gang({SAFE: own}, {}))
    assert SAFE not in first
    assert first[UNDISTURBED] == "true"
    assert second[SAFE] == "false"


def test_a_cluster_may_do_without_them():
    assert all(STAY.keys().isdisjoint(told) for told in bound_with(gang({}, {}), {}))
