"""Elastic Jobs that may be resized: who can be given back so, what is written, and when they are made larger again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from gpuyard.kube.client import ApiReply
from gpuyard.kube.owners import JobObject
from gpuyard.model.actions import Evict, Start
from gpuyard.model.events import TasksStopping
from gpuyard.model.job import Placement
from gpuyard.worlds.kubernetes.acting import resizing
from gpuyard.worlds.kubernetes.asking.marks import FULL_SIZE, GANG_MIN, RESIZABLE
from tests.support.kube.fake_kubelet import indexed_job
from tests.unit.kube.test_taking_back import GANG, WHY, Stage


class Elastic(Stage):
    """A Job of three that can run with one, on a node where all of them run."""

    def __init__(self, **notes: str) -> None:
        super().__init__(gpus=4)
        document = indexed_job("gang", 3)
        document["spec"]["template"]["metadata"]["annotations"] = {GANG_MIN: "1", RESIZABLE: "true", **notes}
        self.api.objects[GANG] = document
        self.job()
        for index in range(3):
            self.pod(f"gang-{index}", node="n0")
        self.look()

    def give_back(self, *indexes: int) -> list[Any]:
        """These go for another; what was written to owners and pods."""
        places = [place for place in self.observer.jobs["default/gang"].placements if place.task in indexes]
        uids = tuple(place.uid for place in places)
        (stopping,) = self.taker.take([Evict("default/gang", WHY, "default/other", tuple(places), uids)])
        assert isinstance(stopping, TasksStopping)
        self.settle()
        return [(method, path, body.get("spec", "")) for method, path, body in self.api.changes()]

    @property
    def sizes(self) -> tuple[int, int, str]:
        found = self.api.objects[GANG]
        return found["spec"]["parallelism"], found["spec"]["completions"], found["metadata"].get("annotations", {}).get(
            FULL_SIZE, ""
        )  # fmt: skip

    def seen(self) -> None:
        """Whatever was written to the Job has been heard of."""
        self.jobs.put(msgspec.convert(self.api.objects[GANG], JobObject))
        self.look()


def test_the_last_members_are_given_back_by_making_the_job_smaller_in_one_write():
    stage = Elastic()
    assert stage.give_back(1, 2) == [("PATCH", GANG, {"parallelism": 1, "completions": 1})]
    assert stage.sizes == (1, 1, "3")
    assert any("has 1 pod from now on" in body["note"] for _, path, body in stage.api.writes if "/events" in path)


def test_one_in_the_middle_is_not_given_back_so_for_kubernetes_would_take_another():
    stage = Elastic()
    (written,) = stage.give_back(1)
    assert written[2] == {"suspend": True}, "all of it gives way, as without the mark"


def test_what_would_end_the_minimum_or_an_ended_number_is_not_given_back_so():
    stage = Elastic(**{GANG_MIN: "2"})
    found = stage.observer.gathered["default/gang"]
    assert resizing.left_after(found, {"gang-2"}, ()) == 2
    assert resizing.left_after(found, {"gang-1", "gang-2"}, ()) == 0
    stage.job(status={"completedIndexes": "2"})
    stage.look()
    assert resizing.left_after(stage.observer.gathered["default/gang"], {"gang-1"}, ()) == 0


def test_one_that_is_on_its_way_to_its_node_counts_as_there():
    stage = Elastic()
    stage.pod("gang-2", node="")
    stage.look()
    found = stage.observer.gathered["default/gang"]
    assert resizing.left_after(found, {"gang-1"}, ()) == 1
    assert resizing.left_after(found, {"gang-1"}, {"gang-2"}) == 0


@pytest.mark.parametrize("told", ["false", "yes", ""])
def test_without_the_mark_no_job_is_resized(told: str):
    stage = Elastic(**{RESIZABLE: told})
    (written,) = stage.give_back(2)
    assert "parallelism" not in written[2]


def test_a_job_that_was_made_smaller_is_made_larger_when_places_are_kept_for_more():
    stage = Elastic()
    stage.give_back(1, 2)
    for index in (1, 2):
        stage.cache.pods.drop(f"default/gang-{index}")
    stage.seen()
    job = stage.observer.jobs["default/gang"]
    (group,) = job.task_groups()
    assert (group.tasks, group.min, group.absent) == (3, 1, 0), "the brain may grow it"
    start = Start("default/gang", (Placement("n0", (1,), task=1),), WHY)
    assert stage.taker.must_wait(start)
    stage.taker.promise(start)
    stage.taker.tend()
    stage.settle()
    assert stage.sizes == (2, 2, "3"), "by as many as have a place"
    stage.seen()
    stage.pod("gang-1b", uid="gang-1b")
    stage.look()
    stage.taker.tend()
    assert [name for name, _, _ in stage.sent] == ["gang-1b"]
    stage.taker.promise(Start("default/gang", (Placement("n0", (2,), task=2),), WHY))
    stage.taker.tend()
    stage.settle()
    assert stage.sizes == (3, 3, ""), "and the mark goes with the last"


def test_a_job_that_was_made_smaller_and_then_suspended_is_resumed_and_has_its_full_size_again():
    stage = Elastic()
    stage.give_back(2)
    stage.seen()
    stage.taker.take([Evict("default/gang", WHY, "default/other")])
    stage.settle()
    for index in range(3):
        stage.cache.pods.drop(f"default/gang-{index}")
    stage.api.objects[GANG]["status"] = {"conditions": [{"type": "Suspended", "status": "True"}]}
    stage.seen()
    assert stage.sizes == (2, 2, "3")
    places = tuple(Placement("n0", (index,), task=index) for index in range(3))
    stage.taker.promise(Start("default/gang", places, WHY))
    stage.taker.tend()
    stage.settle()
    assert stage.api.objects[GANG]["spec"]["suspend"] is False
    stage.seen()
    for index in range(2):
        stage.pod(f"gang-{index}b", uid=f"gang-{index}b")
    stage.look()
    stage.taker.tend()
    stage.settle()
    assert [name for name, _, _ in stage.sent] == ["gang-0b", "gang-1b"]
    assert stage.sizes == (3, 3, "")


def test_a_job_that_is_being_finished_is_not_made_larger():
    stage = Elastic()
    stage.give_back(1, 2)
    for index in (1, 2):
        stage.cache.pods.drop(f"default/gang-{index}")
    stage.job(status={"completedIndexes": "0"})
    stage.seen()
    assert resizing.size_for(stage.jobs.get("default/gang"), [Placement("n0", (1,), task=1)]) == 0


def test_a_job_that_somebody_has_made_larger_meanwhile_is_as_large_as_they_say():
    stage = Elastic()
    stage.give_back(2)
    stage.api.objects[GANG]["spec"] |= {"parallelism": 5, "completions": 5}
    stage.seen()
    (group,) = stage.observer.jobs["default/gang"].task_groups()
    assert group.tasks == 5


def told_and_deleted(stage: Elastic, going: Sequence[str]) -> list[str]:
    """How these pods are deleted: the requests, one after another."""
    pods = [stage.cache.pods.objects[f"default/{name}"] for name in going]
    assert asyncio.run(stage.taker.disruptor.delete(pods, "for another")) in ("", "too busy")
    return [f"{method} {path.rpartition('/pods/')[2]}" for method, path, _ in stage.api.writes]


def test_whoever_is_deleted_was_told_so_before_with_a_time_lest_kubernetes_takes_it_for_long_ago():
    stage = Elastic()
    assert told_and_deleted(stage, ["gang-1", "gang-2"]) == [
        "PATCH gang-1/status", "PATCH gang-2/status", "DELETE gang-1", "DELETE gang-2",
    ]  # fmt: skip
    (condition,) = stage.api.writes[0][2]["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("DisruptionTarget", "True")
    assert condition["lastTransitionTime"] == "1970-01-01T00:16:40Z"


def test_nobody_is_deleted_where_one_could_not_be_told():
    stage = Elastic()
    send = stage.api.send

    async def busy(method: str, path: str, *args: Any, **options: Any) -> ApiReply:
        if method == "PATCH" and "gang-2" in path:
            return ApiReply(409, b'{"message": "too busy"}')
        return await send(method, path, *args, **options)

    stage.api.send = busy  # type: ignore[method-assign]
    assert told_and_deleted(stage, ["gang-1", "gang-2"]) == ["PATCH gang-1/status"]
