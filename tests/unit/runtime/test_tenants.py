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
from gpuyard.model.job import (
    AffinityTerm,
    Bundle,
    Evenness,
    Expression,
    Job,
    Neighbour,
    Placement,
    TaskGroup,
    Toleration,
    one_group,
)
from gpuyard.model.node import Budget, Gpu, Node
from gpuyard.model.queue import NO_LIMIT, Queue
from gpuyard.model.resources import Request
from gpuyard.model.snapshot import Reservation, Snapshot
from gpuyard.runtime.clock import SystemClock
from gpuyard.runtime.clustered.newcomers import network_of
from gpuyard.runtime.clustered.tenants import KEPT, KnownTenant, Stranger, TenantAnswers
from gpuyard.runtime.clustered.veiling import masked


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
    tenants = TenantAnswers(cluster, SystemClock())
    first = tenants.snapshot(tenants.tenant("good"))
    assert {each.name for each in first.jobs} == {"team-a/mine", "somebody-0", "somebody-2"}
    count = len(cluster.asked)
    assert tenants.snapshot(tenants.tenant("good")) == first
    assert len(cluster.asked) == count == 4


def test_a_scheduler_that_has_not_seen_the_cluster_yet_does_not_say_that_it_is_empty():
    cluster = FakeCluster()
    cluster.whole = False
    with pytest.raises(Busy):
        TenantAnswers(cluster, SystemClock()).snapshot(KnownTenant("ann"))


def test_a_token_that_the_cluster_does_not_know_is_refused():
    with pytest.raises(Stranger):
        TenantAnswers(FakeCluster(), SystemClock()).tenant("bad")


ONLY = (Expression("kubernetes.io/metadata.namespace", "In", ("team-b",)),)
CHOOSY = TaskGroup(
    request=Request(gpus=1, extras=(("secret.example/device", 1), ("pods", 1))),
    node_selector=(("zone", "east"), ("secret-key", "secret-value")),
    terms=((AffinityTerm((Expression("secret-rack", "NotIn", ("secret-1",)), Expression("age", "Gt", ("7",)))),),),
    likes=((AffinityTerm((Expression("zone", "In", ("secret-zone", "east")),)), 5),),
    labels=(("app", "secret-app"), ("kubernetes.io/metadata.namespace", "team-b")),
    near=(Neighbour("node", (Expression("app", "In", ("secret-app",)), *ONLY)),),
    even=(Evenness("node", ONLY, among=((AffinityTerm((Expression("secret-disk", "In", ("secret-2", "east")),)),),)),),
    tolerations=(Toleration("secret-taint", "Exists"), Toleration("gpu", "Equal", "yes")),
)
LABELLED = Node(
    "n1", model="H100", gpus=tuple(map(Gpu, range(2))), labels=(("age", "9"), ("zone", "east")), extras=(("pods", 9),)
)


def test_no_word_of_anothers_wishes_is_left_but_those_that_nodes_bear():
    theirs = replace(job("team-b/choosy"), gang=one_group(CHOOSY), models=("secret-gpu", "H100"))
    seen = masked(replace(MOMENT, nodes=(LABELLED,), jobs=(*MOMENT.jobs, theirs)), {"team-a"})
    said = json.dumps(snapshot_document(seen))
    assert "secret" not in said
    assert "team-b" not in said
    (group,) = next(each for each in seen.jobs if each.models).task_groups()
    assert ("zone", "east") in group.node_selector
    assert group.terms[0][0].expressions[1] == Expression("age", "Gt", ("7",))
    assert [each.expressions[0].values[1] for each in (group.even[0].among or ())[0]] == ["east"]
    assert group.near[0].labels[0].values[0] in dict(group.labels).values()


def test_the_order_of_one_second_is_the_same_under_other_names():
    """Under its new name the other one would come first: somebody < team-a < team-b."""
    jobs = (job("team-a/mine", submitted=5.0), job("team-b/x", submitted=5.0), job("zeta/y", submitted=5.0))
    moment = replace(MOMENT, jobs=jobs, budgets=())
    assert started(moment) == ["team-a/mine"] == started(masked(moment, {"team-a"}))
    assert started(masked(moment, {"zeta"})) == ["somebody-0"]


def test_who_is_kept_off_by_neighbours_of_another_team_hears_the_same_reason():
    alone = Neighbour("node", (Expression("app", "Exists"),))
    loner = TaskGroup(request=Request(gpus=1), apart=(alone,), labels=(("app", "secret-app"),))
    holder = replace(job("team-b/loner"), gang=one_group(loner), placements=(Placement("n0", (0,)),), started=1.0)
    mine = job("team-a/mine", gpus=1, submitted=2.0)
    moment = replace(MOMENT, jobs=(holder, mine), budgets=())
    before, after = foresee.why(moment, "team-a/mine"), foresee.why(masked(moment, {"team-a"}), "team-a/mine")
    assert before is not None
    assert after is not None
    assert str(before.reason).replace("team-b/loner", "somebody-0") == str(after.reason)
    assert "secret" not in json.dumps(snapshot_document(masked(moment, {"team-a"})))


def test_a_flood_of_tokens_of_nobody_costs_few_reviews_and_keeps_out_nobody_else():
    cluster = FakeCluster()
    tenants = TenantAnswers(cluster, SystemClock())
    tenants.admit("good", "10.0.0.9")
    tenants.tenant("good")
    before, refused = len(cluster.asked), 0
    for number in range(3 * KEPT):
        try:
            tenants.admit(f"random-{number}", "10.0.0.1")
        except Busy:
            refused += 1
            continue
        with pytest.raises(Stranger):
            tenants.tenant(f"random-{number}")
    reviews = len(cluster.asked) - before
    assert reviews == 3 * KEPT - refused
    assert reviews < 500  # by how long this took
    for source in ("10.0.0.1", "10.0.0.2"):  # who was known once is no newcomer, wherever they come from
        tenants.admit("good", source)
    assert tenants.tenant("good").user == "ann"
    tenants.admit("new", "10.0.0.2")
    with pytest.raises(Stranger):
        tenants.tenant("new")


def test_a_refusal_is_remembered_and_costs_no_second_review():
    cluster = FakeCluster()
    tenants = TenantAnswers(cluster, SystemClock())
    for _ in range(100):
        tenants.admit("bad", "10.0.0.1")
        with pytest.raises(Stranger):
            tenants.tenant("bad")
    assert len(cluster.asked) == 1


@pytest.mark.parametrize(
    ("source", "counted"),
    [
        ("10.0.0.1", "10.0.0.1"), ("::ffff:10.0.0.1", "10.0.0.1"), ("", ""), ("testclient", "testclient"),
        ("2001:db8:0:7:1::5", "2001:db8:0:7::/64"), ("fe80::1%eth0", "fe80::/64"),
    ],
)  # fmt: skip
def test_addresses_of_one_owner_count_as_one(source: str, counted: str):
    assert network_of(source) == counted
