"""Equal claims are answered as if each of them had been searched for."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gpuyard.brain.decide import decide
from gpuyard.brain.engine.giving_way import clearing, equal_claims, victims
from gpuyard.brain.engine.giving_way.claims import Claim
from gpuyard.brain.engine.giving_way.preemption import Takers
from gpuyard.brain.engine.giving_way.resettling import RoomMade
from gpuyard.brain.engine.giving_way.victims import Unit
from gpuyard.brain.engine.nodes.feasibility import Shape
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.brain.engine.placing import gang
from gpuyard.model.actions import Evict, Plan
from gpuyard.model.job import Job, Placement, TaskGroup, one_group
from gpuyard.model.node import Budget, Gpu, Node
from gpuyard.model.queue import Allowance, Queue
from gpuyard.model.resources import WHOLE, Request
from gpuyard.model.snapshot import Snapshot
from tests.support.moments import moment

NOW = 1_000_000.0
WIDTH = 4


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Who was answered without a search."""
    names: list[str] = []
    follow = equal_claims.follow

    def noted(*claim: object) -> RoomMade | None:
        outcome = follow(*claim)  # type: ignore[arg-type]
        if outcome is not None:
            names.extend(unit.row.name for unit in outcome.stopped)
        return outcome

    monkeypatch.setattr(equal_claims, "follow", noted)
    return names


def planned(snapshot: Snapshot) -> Plan:
    return decide(Fleet(snapshot), Memory(), snapshot.now).plan


def searched(snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """The same with every claim searched for."""
    monkeypatch.setattr(equal_claims, "follow", lambda *_: None)
    return planned(snapshot)


def fleet_of(nodes: int, holders: Callable[[int, int], Job], claims: list[Job], *queues: Queue) -> Snapshot:
    """Every GPU is held by somebody."""
    machines = tuple(
        Node(f"n{i}", gpus=tuple(Gpu(g) for g in range(WIDTH)), cpu=16_000, memory=1 << 36) for i in range(nodes)
    )
    held = [holders(i, g) for i in range(nodes) for g in range(WIDTH)]
    return Snapshot(now=NOW, nodes=machines, queues=queues, jobs=(*held, *claims))


ONE = one_group(TaskGroup(request=Request(gpus=1, cpu=1000)))


def holder(i: int, g: int, queue: str = "holder") -> Job:
    place = Placement(f"n{i}", (g,))
    return Job(f"h{i}-{g}", ONE, queue=queue, submitted=NOW - 900, started=NOW - 800, placements=(place,))


def claimant(i: int, priority: int | None = None) -> Job:
    return Job(f"w{i:02d}", ONE, queue="claimant", submitted=NOW - 60 + i, priority=priority)


def test_only_the_first_of_equal_claims_is_searched_for(followed: list[str]):
    queues = (Queue("claimant", quota=Allowance(16 * WHOLE)), Queue("holder"))
    plan = planned(fleet_of(4, holder, [claimant(i) for i in range(16)], *queues))
    stopped = [action.job for action in plan.actions if isinstance(action, Evict)]
    assert len(stopped) == 16
    assert set(stopped) - set(followed) == {"h3-3"}


@pytest.mark.parametrize("most", [1, 4, 9])
def test_a_claim_that_follows_another_counts_as_one_search(most: int, followed: list[str]):
    queues = (Queue("claimant", quota=Allowance(16 * WHOLE)), Queue("holder"))
    snapshot = fleet_of(4, holder, [claimant(i) for i in range(16)], *queues)
    planned(replace(snapshot, policy=replace(snapshot.policy, search_total=most)))
    assert len(followed) == most - 1


@pytest.fixture
def weighed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The nodes whose cheapest set was looked for, as often as it was."""
    nodes: list[int] = []
    cheapest_set = clearing.cheapest_set

    def noted(draft: Draft, leave: clearing.Leave, shape: Shape, node: int) -> tuple[Unit, ...]:
        nodes.append(node)
        return cheapest_set(draft, leave, shape, node)

    monkeypatch.setattr(clearing, "cheapest_set", noted)
    return nodes


def test_equals_of_a_node_go_one_after_the_other_without_being_weighed_again(weighed: list[int]):
    queues = (Queue("claimant", quota=Allowance(16 * WHOLE)), Queue("holder"))
    planned(fleet_of(4, holder, [claimant(i) for i in range(16)], *queues))
    # each when it is first of use and when its last equal has gone; the first also after the search for the first claim
    assert Counter(weighed) == {3: 3, 2: 2, 1: 2, 0: 2}


def test_a_node_is_weighed_again_once_somebody_who_needs_other_cores_came_for_the_one_who_went(weighed: list[int]):
    queues = (Queue("claimant", quota=Allowance(16 * WHOLE)), Queue("holder"))
    hungrier = one_group(TaskGroup(request=Request(gpus=1, cpu=2000)))
    planned(fleet_of(4, holder, [replace(claimant(i), gang=hungrier) for i in range(4)], *queues))
    assert Counter(weighed) == {3: 4}


BUDGET = {"budgets": (Budget("all", jobs=("h0-0", "h0-1"), max_unavailable=1),)}
SLICED = {
    "nodes": (
        Node("mig", model="A100-SXM4-40GB", gpus=(Gpu(0, slices=("3g.20gb", "3g.20gb")),), cpu=16_000, memory=1 << 36),
    )
}
CORES = {"queues": (Queue("other", quota=Allowance(0, cpu=8000)),)}


@pytest.mark.parametrize("more", [BUDGET, SLICED, CORES], ids=["budgets", "slices", "several resources"])
def test_every_claim_is_searched_for_where_more_than_gpus_has_a_say(more: dict[str, Any], followed: list[str]):
    queues = (Queue("claimant", quota=Allowance(16 * WHOLE)), Queue("holder"))
    snapshot = fleet_of(4, holder, [claimant(i) for i in range(16)], *queues)
    planned(snapshot)
    assert len(followed) == 15
    followed.clear()
    wider: dict[str, Any] = {name: (*getattr(snapshot, name), *added) for name, added in more.items()}
    plan = planned(replace(snapshot, **wider))
    assert followed == []
    assert any(isinstance(action, Evict) for action in plan.actions)


def test_a_claim_after_the_last_that_may_be_taken_takes_nothing(followed: list[str], monkeypatch: pytest.MonkeyPatch):
    queues = (Queue("claimant", quota=Allowance(8 * WHOLE)), Queue("holder", quota=Allowance(8 * WHOLE)))
    snapshot = fleet_of(4, holder, [claimant(i) for i in range(12)], *queues)
    plan = planned(snapshot)
    assert len(followed) == 7
    assert [waiting.job for waiting in plan.waiting if waiting.job.startswith("w")] == ["w08", "w09", "w10", "w11"]
    assert searched(snapshot, monkeypatch).actions == plan.actions


@pytest.mark.parametrize("seed", range(24))
def test_equal_claims_take_what_a_search_for_each_would(seed: int, monkeypatch: pytest.MonkeyPatch):
    dice = random.Random(seed)

    def somebody(i: int, g: int) -> Job:
        return replace(
            holder(i, g, dice.choice(("holder", "holder", "holder", "other", "claimant"))),
            submitted=NOW - dice.choice((900, 900, 1000)),
            priority=dice.choice((None, None, None, 10, 80)),
            preemptible=dice.choice((None,) * 9 + (False,)),
            min_runtime=dice.choice((None,) * 9 + (5000.0,)),
        )

    claims = [claimant(i, priority=dice.choice((50, 60)) if seed % 2 else 60) for i in range(dice.randrange(4, 14))]
    queues = [
        Queue(name, quota=Allowance(dice.randrange(12) * WHOLE), weight=dice.choice((0.0, 1.0, 2.0)))
        for name in ("claimant", "holder", "other")
    ]
    snapshot = fleet_of(4, somebody, claims, *queues)
    plan = planned(snapshot)
    again = searched(snapshot, monkeypatch)
    assert plan.actions == again.actions
    assert tuple(plan.waiting) == tuple(again.waiting)


EXACT = """
nodes: [{name: n, times: 2, gpus: 4}]
queues: [{name: a, quota: 8}, {name: b, quota: 0}]
jobs:
  - {name: pair, queue: b, gpus: 2, at: "n0:0-1"}
  - {name: twins, queue: b, tasks: 2, gpus: 1, at: ["n0:2", "n0:3"]}
  - {name: large, queue: b, gpus: 3, at: "n1:0-2"}
  - {name: single, queue: b, gpus: 1, at: "n1:3"}
  - {name: w, queue: a, gpus: 2}
"""


def test_only_one_task_that_leaves_just_as_many_gpus_on_a_node_with_no_other_free_may_be_followed():
    draft = Draft(Fleet(moment(EXACT)), Memory(), NOW)
    rows = draft.fleet.jobs
    claim = Claim(draft, rows["w"], draft.fleet.shortfall(rows["w"]))
    shape = next(gang.shapes(draft, rows["w"], 0))
    nodes = clearing.NodeClearing(draft, Takers(claim), shape, draft.fleet.columns.everywhere)
    last = equal_claims.Series(claim, nodes, 0)
    pair = victims.whole(rows["pair"])
    assert equal_claims._fits_exactly(last, pair, 0)
    assert not equal_claims._fits_exactly(last, victims.whole(rows["twins"]), 0), "two tasks"
    assert not equal_claims._fits_exactly(last, victims.whole(rows["large"]), 1), "more than is asked for"
    assert not equal_claims._fits_exactly(last, pair._replace(extra=True), 0), "an extra"
    draft.tx.lift_all(rows["twins"], list(rows["twins"].held))
    assert not equal_claims._fits_exactly(last, pair, 0), "others are free there"
