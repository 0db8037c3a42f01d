"""What a team is told of others' jobs: that they are there, and nothing that anybody wrote."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from gpuyard.brain import foresee
from gpuyard.files import snapshot_document
from gpuyard.kube.client import ApiReply
from gpuyard.model.actions import Start
from gpuyard.model.errors import Busy
from gpuyard.model.job import Bundle, Job, Placement, TaskGroup, one_group
from gpuyard.model.node import Budget, Gpu, Node
from gpuyard.model.queue import NO_LIMIT, Queue
from gpuyard.model.resources import Request
from gpuyard.model.snapshot import Reservation, Snapshot
from gpuyard.runtime.clock import SystemClock
from gpuyard.runtime.clustered.tenants import Stranger, TenantDesk, masked


def job(name: str, gpus: int = 2, **more: Any) -> Job:
    group = TaskGroup(request=Request(gpus=gpus), labels=(("app", f"{name}-label"),))
    return replace(Job(name, one_group(group), queue="default", user=name.partition("/")[0]), **more)


MOMENT = Snapshot(
    now=100.0,
    nodes=(Node("n0", model="H100", gpus=tuple(map(Gpu, range(2)))),),
    queues=(Queue("default", quota=NO_LIMIT),),
    jobs=(
        job("team-a/mine", submitted=2.0),
        job(
            "team-b/secret",
            submitted=1.0,
            family="team-b/secret-family",
            on_hold=True,
            held_for="its Job secret is suspended",
        ),
        job("team-b/other-secret", submitted=3.0),
    ),
    budgets=(Budget("team-b/secret-budget", jobs=("team-b/secret",), allowed=1),),
)
ROLES = Bundle("", (TaskGroup("secret-a"), Bundle("secret-c", (TaskGroup("secret-b"),), 1)), 2)
GROUPED = job("team-b/roles-secret", submitted=4.0, gang=ROLES, placements=(Placement("n0", group="secret-b"),))
OF_GROUPS = replace(
    MOMENT,
    jobs=(*MOMENT.jobs, GROUPED),
    budgets=(*MOMENT.budgets, Budget("team-b/secret-b", covers=((GROUPED.name, "secret-b"),), allowed=1)),
    reservations=(Reservation(GROUPED.name, (Placement("n0", group="secret-a"),)),),
)


def test_nothing_of_what_others_wrote_is_left():
    said = json.dumps(snapshot_document(masked(OF_GROUPS, {"team-a"})))
    assert "secret" not in said
    assert "team-b" not in said
    assert "team-a/mine" in said


def test_the_groups_of_others_go_by_one_name_wherever_they_are_told_of():
    moment = masked(OF_GROUPS, {"team-a"})
    theirs = next(each for each in moment.jobs if each.name == "somebody-3")
    first, second = (group.name for group in theirs.task_groups())
    assert [place.group for place in theirs.placements] == [second]
    assert [place.group for each in moment.reservations for place in each.placements] == [first]
    assert [budget.covers for budget in moment.budgets] == [(), (("somebody-3", second),)]
    assert all(group.name == "main" for each in moment.jobs if each != theirs for group in each.task_groups())


def test_the_next_plan_is_the_same_under_other_names():
    names = {"team-b/secret": "somebody-0", "team-b/other-secret": "somebody-2"}
    before = [names.get(name, name) for name in started(MOMENT)]
    assert started(masked(MOMENT, {"team-a"})) == before != []


def started(moment: Snapshot) -> list[str]:
    return [each.job for each in foresee.outlook(moment).actions if isinstance(each, Start)]


class FakeCluster:
    """Knows one token, and one namespace that its bearer may see."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.whole = True

    def post(self, path: str, body: bytes) -> ApiReply:
        spec = msgspec.json.decode(body)["spec"]
        self.asked.append(path.rsplit("/", 1)[1])
        if "token" in spec:
            status = {"authenticated": spec["token"] == "good", "user": {"username": "ann", "groups": ["team"]}}
        else:
            assert (spec["user"], spec["groups"]) == ("ann", ["team"])
            status = {"allowed": spec["resourceAttributes"].get("namespace") == "team-a"}
        return ApiReply(201, msgspec.json.encode({"status": status}))

    def synced(self) -> bool:
        return self.whole

    def snapshot(self) -> Snapshot:
        return MOMENT


def test_the_api_server_is_asked_once_for_many_questions():
    cluster = FakeCluster()
    desk = TenantDesk(cluster, SystemClock())
    first = desk.snapshot("good")
    assert {each.name for each in first.jobs} == {"team-a/mine", "somebody-0", "somebody-2"}
    count = len(cluster.asked)
    assert desk.snapshot("good") == first
    assert len(cluster.asked) == count == 4


def test_a_scheduler_that_has_not_seen_the_cluster_yet_does_not_say_that_it_is_empty():
    cluster = FakeCluster()
    cluster.whole = False
    with pytest.raises(Busy):
        TenantDesk(cluster, SystemClock()).snapshot("good")


def test_a_token_that_the_cluster_does_not_know_is_refused():
    with pytest.raises(Stranger):
        TenantDesk(FakeCluster(), SystemClock()).snapshot("bad")
