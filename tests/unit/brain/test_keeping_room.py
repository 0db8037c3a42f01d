"""Room kept and room left: reservations, what binds whom, who begins anew, where jobs may stand again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuyard.brain.engine.nodes.columns import Held
from gpuyard.brain.engine.picture.draft import Draft, Kept
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.brain.engine.placing import gang
from gpuyard.brain.engine.reserving import backfill, eta, reservations
from gpuyard.brain.engine.reserving.stand_ins import keep, stand_in
from gpuyard.brain.engine.settling import keeping_places
from gpuyard.model.resources import WHOLE
from tests.support.moments import moment

NOW = 1_767_225_600.0
HOUR = 3600.0


def draft_of(text: str, began: dict[str, tuple[Held, ...]] | None = None) -> Draft:
    return Draft(Fleet(moment(text)), Memory(), NOW, began or {})


def on(node: int, *gpus: int, task: int = 0) -> Held:
    return Held(0, task, node, gpus, cost=len(gpus) * WHOLE)


# --- who begins anew (rule 20) --------------------------------------------------------------------

MOVED = """
nodes: [{name: n, times: 2, gpus: 4}]
jobs: [{name: j, tasks: 3, min: 1, gpus: 1, started: -1h, time_limit: 3h, at: ['n0:0', 'n0:1']}]
"""
A, B, C, D = on(0, 0, task=0), on(0, 1, task=1), on(0, 2, task=2), on(1, 0, task=0)


@pytest.mark.parametrize(
    ("before", "now", "anew"),
    [
        (None, (A, B), False),  # nothing was done to it
        ((), (A,), True),  # it did not run
        ((A, B), (A, B), False),
        ((A, B), (A,), False),  # it shrank
        ((A,), (A, B), False),  # it grew
        ((A, B), (A, C), True),  # it left a place and took another
        ((A,), (D,), True),
    ],
)
def test_a_job_begins_anew_if_it_left_a_place_and_took_another(
    before: tuple[Held, ...] | None, now: tuple[Held, ...], anew: bool
):
    draft = draft_of(MOVED)
    row = draft.fleet.jobs["j"]
    row.held[:] = now
    if before is not None:
        draft.before["j"] = before
    assert eta._begins_anew(draft, row) is anew
    assert eta.limit_end(draft, row) == NOW + (3 * HOUR if anew else 2 * HOUR)
    if before is not None:
        again = draft_of(MOVED, began={"j": before})
        again.fleet.jobs["j"].held[:] = now
        assert eta._begins_anew(again, again.fleet.jobs["j"]) is anew


# --- what is reserved -----------------------------------------------------------------------------

RACKS = """
topology: [rack]
nodes:
  - {name: n0, gpus: 4, pool: p, domains: {rack: r0}}
  - {name: n1, gpus: 4, pool: p, domains: {rack: r1}, islands: [[0, 1], [2, 3]]}
  - {name: n2, gpus: 4, pool: q, domains: {rack: r1}}
jobs:
  - {name: x, gpus: 3, at: "n0:0-2"}
  - {name: y, gpus: 1, at: "n1:1"}
  - {name: z, gpus: 1, at: "n2:0"}
  - {name: w, submitted: -2h, WANTED}
"""


def likeliest(wanted: str) -> list[tuple[int, tuple[int, ...]]]:
    draft = draft_of(RACKS.replace("WANTED", wanted))
    return [(held.node, held.gpus) for held in reservations._likeliest(draft, draft.fleet.jobs["w"])]


@pytest.mark.parametrize(
    ("wanted", "places"),
    [
        ("gpus: 4", [(1, (0, 1, 2, 3))]),
        ("gpus: 2", [(1, (0, 2))]),  # what is free there first
        ("tasks: 2, gpus: 4", [(1, (0, 1, 2, 3)), (2, (0, 1, 2, 3))]),
        ("tasks: 3, gpus: 4", [(1, (0, 1, 2, 3)), (2, (0, 1, 2, 3)), (0, (0, 1, 2, 3))]),
        ("tasks: 3, gpus: 2", [(1, (0, 2)), (1, (1, 3)), (2, (1, 2))]),
        ("tasks: 2, gpus: 4, topology: {required: rack}", [(1, (0, 1, 2, 3)), (2, (0, 1, 2, 3))]),
        ("tasks: 3, gpus: 4, topology: {required: rack}", []),
        ("tasks: 2, gpus: 1, topology: {required: nvlink}", [(1, (2,)), (1, (3,))]),
        (
            "tasks: 2, gpus: 2, topology: {required: nvlink}",
            [(2, (1, 2)), (2, (0, 3))],
        ),  # a node without islands is one
        ("tasks: 5, gpus: 1, topology: {required: nvlink}", []),
        ("tasks: 4, gpus: 4", []),
        ("fraction: 0.5", []),
    ],
)
def test_room_is_kept_where_most_is_free_and_there_on_the_emptiest_nodes(
    wanted: str, places: list[tuple[int, tuple[int, ...]]]
):
    assert likeliest(wanted) == places


def test_nodes_that_the_job_may_not_use_count_neither_for_their_domain_nor_against_it():
    racks = """
topology: [rack]
nodes:
  - {name: n0, gpus: 4, model: H100, domains: {rack: r0}}
  - {name: n1, gpus: 4, model: A100, domains: {rack: r0}}
  - {name: n2, gpus: FREE, model: H100, domains: {rack: r1}}
jobs:
  - {name: w, submitted: -2h, models: [H100], tasks: 2, gpus: 2, topology: {required: rack}}
"""

    def kept_on(free: int) -> set[str]:
        draft = draft_of(racks.replace("FREE", str(free)))
        places = reservations._likeliest(draft, draft.fleet.jobs["w"])
        return {draft.fleet.columns.nodes[held.node].name for held in places}

    assert kept_on(4) == {"n0"}  # as much as in the other rack: the first
    assert kept_on(5) == {"n2"}


def test_a_pool_is_full_with_as_many_reservations_as_the_policy_allows():
    draft = draft_of(RACKS.replace("WANTED", "gpus: 4"))
    row = draft.fleet.jobs["w"]
    assert reservations._full_pools(draft) == set()
    assert reservations._pools_left(draft)
    assert reservations._pools(draft, (on(0, 0), on(2, 0))) == {"p", "q"}
    keep(draft, Kept(row, (on(1, 0), on(2, 1)), None, False, stand_in(draft, row)))
    assert reservations._full_pools(draft) == {"p", "q"}
    assert not reservations._pools_left(draft)
    draft.policy = replace(draft.policy, reservations_per_pool=2)
    assert reservations._full_pools(draft) == set()


def test_a_job_has_waited_long_enough_from_the_very_moment_on():
    draft = draft_of(RACKS.replace("WANTED", "gpus: 4"))
    row = draft.fleet.jobs["w"]
    draft.policy = replace(draft.policy, reserve_after=2 * HOUR)
    assert reservations._waited(draft, row)
    assert draft.said.look_again_at is None
    draft.policy = replace(draft.policy, reserve_after=2 * HOUR + 1)
    assert not reservations._waited(draft, row)
    assert draft.said.look_again_at == NOW + 1


# --- whom a reservation binds ---------------------------------------------------------------------

GAP = """
nodes: [{name: n0, gpus: 4}]
queues: [{name: a, quota: 1}, {name: b, quota: 4}]
jobs:
  - {name: owner, queue: a, gpus: 4}
  - {name: short, queue: a, gpus: 2, time_limit: 1h}
  - {name: long, queue: a, gpus: 2, time_limit: 3h}
  - {name: endless, queue: a, gpus: 2}
  - {name: within, queue: b, gpus: 2}
"""


@pytest.mark.parametrize(
    ("until", "borrower", "bound"),
    [
        (HOUR, False, {"long", "endless", "within"}),
        (HOUR - 1, False, {"short", "long", "endless", "within"}),
        (None, False, {"short", "long", "endless", "within"}),
        (HOUR, True, {"long", "endless"}),
        (3 * HOUR, True, {"endless"}),
    ],
)
def test_a_reservation_binds_whoever_is_not_gone_in_time_and_a_borrower_s_nobody_within_quota(
    until: float | None, borrower: bool, bound: set[str]
):
    draft = draft_of(GAP)
    owner = draft.fleet.jobs["owner"]
    kept = Kept(owner, (on(0, 0, 1, 2, 3),), None if until is None else NOW + until, borrower, stand_in(draft, owner))
    assert {name for name, row in draft.fleet.jobs.items() if backfill._binds(draft, kept, row)} == bound


def test_a_look_at_what_is_idle_counts_what_is_kept():
    draft = draft_of(GAP)
    owner = draft.fleet.jobs["owner"]
    assert backfill.enough_idle(draft, owner)
    keep(draft, Kept(owner, (on(0, 0, 1, 2),), None, False, stand_in(draft, owner)))
    assert draft.fleet.columns.whole_total == 1
    assert backfill.enough_idle(draft, owner)


# --- where jobs may stand again (rule 26) ---------------------------------------------------------

SHRINKS = """
nodes: [{name: n, times: 2, gpus: 4}]
jobs:
  - {name: j, tasks: 3, min: 1, gpus: 1, started: -1h, MORE at: ['n0:0', 'n0:1', 'n0:2']}
  - {name: k, gpus: 2, started: -1h, at: 'n1:0-1'}
  - {name: new, gpus: 1}
"""


def shrunk(more: str = "") -> tuple[Draft, JobRow, tuple[Held, ...]]:
    draft = draft_of(SHRINKS.replace("MORE", more))
    row = draft.fleet.jobs["j"]
    before = tuple(row.held)
    for held in before[1:]:
        draft.tx.lift(row, held)
    return draft, row, before


def test_a_job_that_shrinks_may_leave_any_of_its_places_but_first_what_it_has_not_any_more():
    draft, row, before = shrunk()
    a, b, c = before
    assert keeping_places._some_of(draft, row, before) == [before, (a,), (b,), (c,)]
    draft.tx.put(row, b)
    draft.tx.lift(row, a)
    assert keeping_places._some_of(draft, row, before) == [(b, a, c), (b,), (a,), (c,)]
    draft.tx.put(row, a)
    assert keeping_places._some_of(draft, row, before) == [(a, b, c), (a, b), (a, c), (b, c)]
    draft.tx.put(row, c)
    assert keeping_places._some_of(draft, row, before) == [(a, b, c)]


def test_inside_its_minimum_runtime_a_job_gives_what_came_last():
    draft, row, before = shrunk("min_runtime: 2h,")
    assert keeping_places._some_of(draft, row, before) == [before]


def test_a_job_is_displaced_if_it_stands_anew_while_a_place_of_its_own_is_left():
    draft, row, before = shrunk()
    assert not keeping_places._displaced(row, before), "it only shrank"
    draft.tx.put(row, on(1, 3, task=1))
    assert keeping_places._displaced(row, before)
    assert not keeping_places._displaced(row, before[:1]), "it only grew"
    assert not keeping_places._displaced(row, ())
    renumbered = before[0]._replace(task=7)
    assert keeping_places._places([renumbered]) == keeping_places._places(before[:1])
    draft.tx.lift_all(row, list(row.held))
    assert not keeping_places._displaced(row, before), "it does not run any more"


def test_as_many_stand_again_as_the_plan_gives_and_not_one_more():
    draft, row, before = shrunk()
    assert keeping_places._put_back(draft, row, before, 1)
    assert len(row.held) == 1
    assert keeping_places._put_back(draft, row, before, 2)
    assert tuple(row.held) == before[:2]
    other = draft.fleet.jobs["new"]
    draft.tx.put(other, before[2]._replace(task=0))
    assert not keeping_places._put_back(draft, row, before, 3)
    assert len(row.held) == 2


def test_places_are_looked_for_by_rank_by_size_and_each_first_once():
    draft, row, _ = shrunk()
    rows = draft.fleet.jobs
    orders = keeping_places._orders(draft, [rows["j"], rows["k"]])
    assert [[each.name for each in order] for order in orders] == [["j", "k"], ["k", "j"]]
    assert keeping_places._orders(draft, []) == [[]]
    assert keeping_places._choices(draft, row) == (2, True)
    bound, bound_row, _ = shrunk("topology: {required: node},")
    assert keeping_places._choices(bound, bound_row) == (2, False), "it comes first of those with as many nodes"
    assert gang.might_fit(draft, rows["new"])
