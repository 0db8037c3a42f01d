"""By which right a claimant may take from whom, one queue at a time (rules 16 to 18), and which ways it has to try."""

from __future__ import annotations

import pytest

from gpuyard.brain.engine.giving_way import victims
from gpuyard.brain.engine.giving_way.claims import Claim
from gpuyard.brain.engine.giving_way.preemption import MixedTakers, NearTakers, Takers
from gpuyard.brain.engine.giving_way.resettling import RoomMade, _before_all
from gpuyard.brain.engine.giving_way.room_making import RoomMaker
from gpuyard.brain.engine.giving_way.victims import Unit
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.model.reasons import Code
from gpuyard.model.resources import WHOLE
from tests.support.moments import moment

NOW = 1_767_225_600.0


def draft_of(text: str) -> Draft:
    return Draft(Fleet(moment(text)), Memory(), NOW)


def claim_of(draft: Draft) -> Claim:
    row = draft.fleet.jobs["w"]
    return Claim(draft, row, draft.fleet.shortfall(row))


# --- rights ---------------------------------------------------------------------------------------

YARD = """
nodes: [{name: n, times: 2, gpus: 8}]
policy: {POLICY}
queues:
  - {name: a, quota: 6}
  - {name: lent, quota: 2}
  - {name: just, quota: 2}
jobs:
  - {name: own-low, queue: a, gpus: 1, priority: 40, started: -1h, at: "n0:0"}
  - {name: own-equal, queue: a, gpus: 1, priority: PRIORITY, started: -1h, at: "n0:1"}
  - {name: lent-low, queue: lent, gpus: 2, priority: 40, started: -1h, at: "n0:2-3"}
  - {name: lent-high, queue: lent, gpus: 2, priority: 5000, started: -1h, at: "n0:4-5"}
  - {name: just-low, queue: just, gpus: 2, priority: 40, started: -1h, at: "n1:0-1"}
  - {name: w, queue: a, gpus: WANTED, priority: PRIORITY}
"""


def rights(wanted: int = 4, priority: int = 50, policy: str = "") -> dict[str, Code | None]:
    text = YARD.replace("POLICY", policy).replace("PRIORITY", str(priority)).replace("WANTED", str(wanted))
    draft = draft_of(text)
    claim = claim_of(draft)
    return {name: claim.right(row) for name, row in draft.fleet.jobs.items()}


NONE = dict.fromkeys(("own-low", "own-equal", "lent-low", "lent-high", "just-low", "w"))


def test_priority_counts_inside_a_queue_and_shares_between_queues():
    by_share = {"lent-low": Code.RECLAIMED, "lent-high": Code.RECLAIMED}
    assert rights() == NONE | {"own-low": Code.PREEMPTED} | by_share
    assert rights(wanted=5)["own-low"] is Code.PREEMPTED
    assert rights(priority=40) == NONE | by_share


def test_a_critical_job_takes_from_lower_ones_of_other_queues_as_the_policy_says():
    critical = {"own-low": Code.PREEMPTED, "lent-low": Code.CRITICAL, "lent-high": Code.RECLAIMED}
    assert rights(priority=1000)["lent-low"] is Code.RECLAIMED, "never, unless the policy says so"
    assert rights(priority=999, policy="preempt_across_queues: any")["lent-low"] is Code.RECLAIMED
    borrowed = rights(priority=1000, policy="preempt_across_queues: borrowed")
    assert borrowed == NONE | critical | {"lent-high": None}, "what a critical job holds is not taken back by shares"
    everywhere = rights(priority=1000, policy="preempt_across_queues: any")
    assert everywhere == NONE | critical | {"lent-high": None, "just-low": Code.CRITICAL}


def test_whoever_is_critical_is_shielded_from_shares_from_the_very_priority_on():
    text = YARD.replace("POLICY", "preempt_across_queues: borrowed, critical_priority: LEAST")
    text = text.replace("PRIORITY", "50").replace("WANTED", "4")
    for least, right in ((5000, None), (5001, Code.RECLAIMED)):
        draft = draft_of(text.replace("LEAST", str(least)))
        assert claim_of(draft).right(draft.fleet.jobs["lent-high"]) is right


def test_once_the_own_queue_s_lower_ones_are_gone_more_may_be_taken():
    text = YARD.replace("POLICY", "").replace("PRIORITY", "50").replace("WANTED", "5")
    draft = draft_of(text)
    claim, rows = claim_of(draft), draft.fleet.jobs
    assert claim.right(rows["lent-low"]) in (None, Code.RECLAIMED)
    assert claim.right_in_time(rows["lent-low"])
    assert claim.right_in_time(rows["own-low"])
    assert not claim.right_in_time(rows["own-equal"])
    assert not claim.right_in_time(rows["just-low"])
    assert not claim.right_in_time(rows["w"])
    assert claim.any_right()


def test_a_claim_without_any_right_is_told_apart_at_once():
    full = "nodes: [{name: n0, gpus: 2}]\nqueues: [{name: a, quota: 1}, {name: b, quota: 1}]\njobs: [%s]"
    held = (
        "{name: x, queue: b, gpus: 1, priority: 40, at: 'n0:0'}, {name: y, queue: a, gpus: 1, priority: 50, at: 'n0:1'}"
    )
    draft = draft_of(full % f"{held}, {{name: w, queue: a, gpus: 1, priority: 50}}")
    assert not claim_of(draft).any_right()
    draft = draft_of(full % f"{held}, {{name: w, queue: a, gpus: 1, priority: 51}}")
    assert claim_of(draft).any_right()
    over = held.replace("queue: b, gpus: 1, priority: 40, at: 'n0:0'", "queue: b, gpus: 2, at: 'n0:0-1'")
    draft = draft_of(full % f"{over.split(', {')[0]}, {{name: w, queue: a, gpus: 1, priority: 1}}")
    assert claim_of(draft).any_right()


def test_what_is_supposed_leaves_no_trace():
    draft = draft_of(YARD.replace("POLICY", "").replace("PRIORITY", "50").replace("WANTED", "4"))
    claim, rows = claim_of(draft), draft.fleet.jobs
    tree = draft.fleet.tree
    before = [list(used) for used in tree.used]
    lent = [victims.whole(rows[name]) for name in ("lent-low", "lent-high")]
    assert claim.right_to_all(lent[:1]) is Code.RECLAIMED
    with claim.supposed(lent[:1], gone=True):
        assert tree.used[tree.index["lent"]] == [2 * WHOLE]
        assert claim.right(rows["lent-high"]) is None, "its side is at its quota then"
    assert tree.used == before
    assert claim.right(rows["lent-high"]) is Code.RECLAIMED
    order = claim.rights_in_order(lent)
    assert len(order) == 1
    assert tree.used == before
    assert claim.rights_in_order([]) == {}
    assert not claim._supposed


# --- who may be lifted ----------------------------------------------------------------------------

LIFT = """
nodes: [{name: n, times: 2, gpus: 4}]
queues: [{name: a, quota: 4}, {name: b, quota: 4}]
budgets: [{name: pdb, jobs: [kept], min_available: 1}]
jobs:
  - {name: within, queue: b, gpus: 1, started: -1h, at: "n0:0"}
  - {name: low, queue: a, gpus: 1, priority: 40, started: -1h, at: "n0:1"}
  - {name: kept, queue: a, gpus: 1, priority: 40, started: -1h, at: "n0:2"}
  - {name: young, queue: a, gpus: 1, priority: 40, min_runtime: 2h, started: -1h, at: "n0:3"}
  - {name: w, queue: a, gpus: 1, priority: 50}
"""


@pytest.mark.parametrize(
    ("takers", "break_budgets", "allowed"),
    [
        (Takers, False, {"low"}),
        (MixedTakers, False, {"low", "within"}),
        (MixedTakers, True, {"low", "within", "kept"}),
        (NearTakers, False, {"low", "within"}),
    ],
)
def test_takers_lift_whom_they_have_a_right_to_and_mixed_ones_also_who_may_be_moved(
    takers: type[Takers], break_budgets: bool, allowed: set[str]
):
    draft = draft_of(LIFT)
    rights = takers(claim_of(draft), break_budgets)
    rows = draft.fleet.jobs
    assert {name for name in rows if rows[name].held and rights.allows(victims.whole(rows[name]))} == allowed
    assert rights.may_follow(victims.whole(rows["low"]))
    assert rights.may_follow(victims.whole(rows["within"])) is (takers is not Takers)
    low = (victims.whole(rows["low"]),)
    assert rights.may_all_go(low) is (takers is Takers)
    both = {*low, victims.whole(rows["within"])}
    for unit in both:
        draft.tx.lift_all(unit.row, unit.places)
    assert rights.stoppable(both) == (both if takers is Takers else set(low))


def test_a_take_that_stops_nobody_ranks_before_any_other_and_by_what_it_moves():
    draft = draft_of(LIFT)
    rights, rows = Takers(claim_of(draft)), draft.fleet.jobs
    low, within = victims.whole(rows["low"]), victims.whole(rows["within"])
    nobody, one, other = RoomMade((), (), ()), RoomMade((within,), (), ()), RoomMade((within,), (low,), ())
    assert rights.rank(nobody) == (False, False, 0)
    assert rights.rank(one) == (False, False, WHOLE)
    assert rights.rank(other)[0] is True
    assert rights.rank(other)[-1] == WHOLE
    assert sorted([other, one, nobody], key=rights.rank) == [nobody, one, other]


def test_near_takers_stop_nobody_far_from_where_the_claimant_then_runs():
    draft = draft_of(LIFT)
    rows = draft.fleet.jobs
    low = victims.whole(rows["low"])
    near = NearTakers(claim_of(draft))
    here, there = low.places[0]._replace(gpus=(1,)), low.places[0]._replace(node=1)
    draft.remember(rows["low"])
    draft.tx.lift(rows["low"], low.places[0])
    for taken, accepted in ((here, True), (there, False)):
        draft.tx.put(rows["w"], taken)
        assert near.accepts(RoomMade((), (low,), (taken,))) is accepted
        draft.tx.lift(rows["w"], taken)


# --- ways to try ----------------------------------------------------------------------------------


def maker_of(draft: Draft) -> RoomMaker:
    return RoomMaker(draft, draft.fleet.jobs["w"], Takers(claim_of(draft)))


@pytest.mark.parametrize(
    ("wanted", "tries", "node_tries", "odd"),
    [
        ("gpus: 2", 1, 2, False),
        ("gpus: 5", 0, 0, False),
        ("tasks: 2, gpus: 2", 1, 1, False),
        ("tasks: 3, gpus: 4", 0, 0, False),
        ("gpus: 2, topology: {required: node}", 2, 2, False),
        ("gpus: 2, topology: {required: nvlink}", 4, 4, True),
        ("class: inference, gpus: 2", 2, 2, True),
        ("groups: [{name: x, gpus: 1}, {name: y, gpus: 1}]", 1, 1, True),
    ],
)
def test_there_are_as_many_tries_as_places_and_unit_by_unit_where_nodes_may_miss_a_way(
    wanted: str, tries: int, node_tries: int, odd: bool
):
    draft = draft_of(LIFT.replace("gpus: 1, priority: 50", f"{wanted}, priority: 50"))
    maker = maker_of(draft)
    assert maker.odd() is odd
    assert len(list(maker.tries())) == tries
    assert len(list(maker.node_tries())) == node_tries


def test_every_set_of_a_region_is_tried_where_two_or_more_could_go():
    draft = draft_of(LIFT)
    maker = maker_of(draft)
    assert maker.few_could_go()
    assert len(list(maker.small_tries())) == 0, "one alone could go"
    assert len(list(maker.moves_of_few())) == 0
    mixed = RoomMaker(draft, draft.fleet.jobs["w"], MixedTakers(claim_of(draft)))
    assert len(list(mixed.small_tries())) == 1
    assert len(list(mixed.moves_of_few())) == 1
    assert len(list(mixed.clearing_tries())) == 2


def test_a_limit_in_the_way_is_made_room_under_by_those_who_hold_something_there():
    text = LIFT.replace("{name: a, quota: 4}", "{name: a, quota: 4, limit: 3}")
    draft = draft_of(text)
    maker = maker_of(draft)
    assert maker._limit_in_the_way() == "a"
    assert [unit.row.name for unit in maker._inside_the_limit()] == ["low"]
    assert len(list(maker.tries())) == 3
    gone: list[Unit] = []
    assert [unit.row.name for unit in maker._make_admissible(gone)] == ["low"]
    assert maker._limit_in_the_way() is None
    assert maker._inside_the_limit() == []


def test_the_best_of_all_tries_is_kept_and_only_one_way_leaves_a_clearing_behind():
    draft = draft_of(LIFT)
    maker = maker_of(draft)
    rows = draft.fleet.jobs
    low, kept = victims.whole(rows["low"]), victims.whole(rows["kept"])._replace(cost=0)
    dear, cheap = RoomMade((), (kept, low), ()), RoomMade((), (low,), ())
    made = maker.best(iter([lambda _: dear, lambda _: None, lambda _: cheap, lambda _: dear]))
    assert made is cheap
    assert maker.again() is cheap
    assert maker.one_way() is None
    assert maker.tried == 4
    assert maker.best(iter([])) is None
    assert maker.again() is None
    assert maker.best(iter([lambda _: None])) is None
    assert maker.first(iter([lambda _: None, lambda _: dear, lambda _: cheap])) is dear


def test_one_looks_for_a_place_before_all_others_with_what_else_its_job_has():
    draft = draft_of(LIFT)
    rows = draft.fleet.jobs
    a, b, c = (victims.whole(rows[name]) for name in ("low", "kept", "within"))
    again = b._replace(extra=True)
    assert _before_all(c, [a, b, c]) == [c, a, b]
    assert _before_all(again, [a, b, again, c]) == [b, again, a, c]
