"""In which order those go whom a claim takes, which way of moving ranks first, and who is not disturbed in vain."""

from __future__ import annotations

from gpuyard.brain.engine.cycle import open_draft
from gpuyard.brain.engine.giving_way import clearing, victims
from gpuyard.brain.engine.giving_way.claims import Claim
from gpuyard.brain.engine.giving_way.consolidation import Movers
from gpuyard.brain.engine.giving_way.preemption import Takers
from gpuyard.brain.engine.giving_way.resettling import RoomMade
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.brain.engine.placing import gang
from gpuyard.brain.engine.sharing.amounts import GPUS
from gpuyard.model.reasons import Code
from gpuyard.model.resources import WHOLE
from tests.support.moments import moment

NOW = 1_767_225_600.0


def draft_of(text: str) -> Draft:
    return open_draft(Fleet(moment(text)), Memory(), NOW)


def claim_of(draft: Draft) -> Claim:
    row = draft.fleet.jobs["claim"]
    return Claim(draft, row, draft.fleet.shortfall(row))


def unit(draft: Draft, name: str) -> victims.Unit:
    return victims.whole(draft.fleet.jobs[name])


FAMILY = """
nodes: [{name: n0, gpus: 8}]
queues:
  - {name: near, quota: 8}
  - {name: far, quota: 0}
  - {name: ours, parent: near, quota: 8}
  - {name: sister, parent: near, quota: 0}
jobs:
  - {name: own, queue: ours, priority: 10, started: -2h, submitted: -3h, at: "n0:0-3"}
  - {name: sisters, queue: sister, started: -2h, submitted: -3h, at: "n0:4-5"}
  - {name: cousins, queue: far, started: -2h, submitted: -3h, at: "n0:6"}
  - {name: claim, queue: ours, priority: 90, gpus: 2}
"""


def test_those_of_its_own_queue_go_first_then_from_the_inside_of_the_tree_outwards_however_large_they_are():
    draft = draft_of(FAMILY)
    rights = claim_of(draft).rights_in_order([unit(draft, name) for name in ("cousins", "sisters", "own")])
    assert [(gone.row.name, right) for gone, right in rights.items()] == [
        ("own", Code.PREEMPTED),
        ("sisters", Code.RECLAIMED),
        ("cousins", Code.RECLAIMED),
    ]


def test_of_two_ways_to_make_room_the_one_that_moves_fewer_gpus_ranks_first_and_one_that_moves_nobody_before_both():
    draft = draft_of(FAMILY)
    row = draft.fleet.jobs["claim"]
    movers = Movers(draft, row, draft.fleet.shortfall(row))
    ways = [RoomMade(tuple(unit(draft, name) for name in moved), (), ()) for moved in (("sisters",), ("cousins",), ())]
    assert sorted(ways, key=movers.rank) == [ways[2], ways[1], ways[0]]


SHARED = """
nodes: [{name: n0, gpus: 2}]
queues: [{name: q, quota: 2}]
jobs:
  - {name: whole, queue: q, priority: 10, started: -2h, submitted: -3h, at: "n0:0"}
  - {name: half, queue: q, priority: 10, fraction: 0.5, started: -2h, submitted: -3h, at: "n0:1"}
  - {name: stays, queue: q, priority: 10, PREEMPTIBLE fraction: 0.5, started: -2h, submitted: -3h, at: "n0:1"}
  - {name: claim, queue: q, priority: 90, gpus: 2}
"""


def whom(text: str) -> list[str]:
    """Whom the claim would take on the first node."""
    draft = draft_of(text)
    shape = next(gang.shapes(draft, draft.fleet.jobs["claim"], 0))
    return sorted(gone.row.name for gone in clearing.cheapest_set(draft, Takers(claim_of(draft)), shape, 0))


def test_nobody_is_taken_from_a_shared_gpu_on_which_somebody_stays():
    assert whom(SHARED.replace("PREEMPTIBLE", "preemptible: false,")) == []
    assert whom(SHARED.replace("PREEMPTIBLE", "")) == ["half", "stays", "whole"]


LENDERS = """
nodes: [{name: n0, gpus: 4}]
queues: [{name: ours, quota: 4}, {name: lender, quota: 1}]
jobs:
  - {name: "l{i}", times: 3, queue: lender, started: -2h, submitted: -3h, at: "n0:{i}"}
  - {name: claim, queue: ours, gpus: 2}
"""


def test_a_queue_is_pushed_below_its_quota_by_the_least_that_it_lacks_then():
    draft = draft_of(LENDERS)
    takers, tree = Takers(claim_of(draft)), draft.fleet.tree
    both, lender = (unit(draft, "l0"), unit(draft, "l1")), tree.index["lender"]
    assert tree.quota[lender][GPUS] == WHOLE
    assert takers._pushed(both)[0] is False
    tree.quota[lender][GPUS] += 1
    assert takers._pushed(both)[0] is True
