"""Who may be disturbed, until when not, and what it costs: protections, budgets and lost work in numbers."""

from __future__ import annotations

import pytest

from gpuyard.brain.engine.giving_way import victims
from gpuyard.brain.engine.giving_way.bounds import floors
from gpuyard.brain.engine.giving_way.claims import Claim
from gpuyard.brain.engine.giving_way.preemption import Takers
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Evictions, Memory
from gpuyard.model.resources import WHOLE
from tests.support.moments import moment

NOW = 1_767_225_600.0
HOUR = 3600.0
DAY = 24 * HOUR


def draft_of(text: str, evicted: dict[str, tuple[float, ...]] | None = None) -> Draft:
    memory = Memory().keeping(Evictions(evicted)) if evicted else Memory()
    return Draft(Fleet(moment(text)), memory, NOW)


def yard(jobs: str, policy: str = "", budgets: str = "[]") -> str:
    return f"nodes: [{{name: n, times: 2, gpus: 8}}]\npolicy: {{{policy}}}\nbudgets: {budgets}\njobs: [{jobs}]"


ELASTIC = "{name: el, tasks: 6, min: 2, gpus: 1, started: -2h, at: ['n0:0', 'n0:1', 'n1:0', 'n1:1']}"


# --- extras and gangs -----------------------------------------------------------------------------


def test_what_came_last_above_the_minimum_goes_first_one_by_one():
    row = draft_of(yard(ELASTIC)).fleet.jobs["el"]
    extras = victims.last_extras(row)
    assert [(unit.places[0].task, unit.extra, unit.cost) for unit in extras] == [(3, True, WHOLE), (2, True, WHOLE)]
    assert victims.spare_tasks(row, 0) == 2
    gang = victims.whole(row)
    assert ([held.task for held in gang.places], gang.extra, gang.cost) == ([0, 1, 2, 3], False, 4 * WHOLE)
    rest = victims.parts(gang)
    assert [[held.task for held in unit.places] for unit in rest] == [[3], [2], [0, 1]]
    assert [(unit.extra, unit.cost) for unit in rest] == [(True, WHOLE), (True, WHOLE), (False, 2 * WHOLE)]
    assert victims.parts(extras[0]) == [extras[0]]
    assert [[held.task for held in unit.places] for unit in victims.units_of(row)] == [[3], [2], [0, 1, 2, 3]]
    assert [[held.task for held in unit.places] for unit in victims.units_on(row, 0)] == [[1], [0], [0, 1, 2, 3]]


def test_a_gang_that_is_not_elastic_goes_whole_and_ended_members_make_others_spare():
    firm = draft_of(yard("{name: g, tasks: 2, started: -2h, at: ['n0:0', 'n0:1']}")).fleet.jobs["g"]
    assert victims.last_extras(firm) == []
    assert (
        victims.units_on(firm, 0)
        == victims.units_of(firm)
        == victims.parts(victims.whole(firm))
        == [victims.whole(firm)]
    )
    done = "{name: g, tasks: 4, min: 3, succeeded: 2, started: -2h, at: ['n0:0', 'n0:1']}"
    assert victims.spare_tasks(draft_of(yard(done)).fleet.jobs["g"], 0) == 1


def test_a_lone_extra_is_all_there_is_to_give():
    row = draft_of(yard("{name: g, tasks: 2, min: 1, succeeded: 1, started: -2h, at: ['n0:0']}")).fleet.jobs["g"]
    assert [(unit.extra, len(unit.places)) for unit in victims.units_of(row)] == [(True, 1)]


# --- protections ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "policy", "gang", "extras", "again"),
    [
        ("", "", True, True, None),
        ("preemptible: false, ", "", False, False, None),
        ("min_runtime: 3h, ", "", False, True, NOW + HOUR),
        ("min_runtime: 2h, ", "", True, True, None),
        ("min_runtime: 1h, ", "", True, True, None),
        ("", "min_runtime: 3h", False, True, NOW + HOUR),
        ("min_runtime: 1h, ", "min_runtime: 3h", True, True, None),
        ("evictions: 2, ", "", True, True, None),
        ("evictions: 3, ", "", False, False, None),
        ("evictions: 2, ", "protect_after: 2", False, False, None),
    ],
)
def test_who_may_go_and_when_time_alone_may_change_that(
    job: str, policy: str, gang: bool, extras: bool, again: float | None
):
    draft = draft_of(yard(ELASTIC.replace("{name: el, ", "{name: el, " + job), policy))
    row = draft.fleet.jobs["el"]
    known = victims.profile(draft, row)
    assert (known.gang_may_go, known.extras_may_go) == (gang, extras)
    assert victims.may_be_disturbed(draft, victims.whole(row)) is gang
    last, other = victims.last_extras(row)[0], victims.units_on(row, 0)[0]
    assert victims.may_be_disturbed(draft, last) is extras
    assert victims.may_be_disturbed(draft, other) is gang  # inside a minimum runtime only what came last may go
    assert draft.said.look_again_at == again


@pytest.mark.parametrize(
    ("times", "count", "spared", "again"),
    [
        ((), 0, False, None),
        ((NOW - DAY,), 0, False, None),  # a day ago is over
        ((NOW - 2 * HOUR,), 1, False, None),
        ((NOW - 600,), 1, False, None),
        ((NOW - 300,), 1, True, NOW + 300),
        ((NOW - 2 * HOUR, NOW - 700), 2, True, NOW + 500),
        ((NOW - 2 * HOUR, NOW - 1300), 2, False, None),
        ((NOW - 20 * HOUR, NOW - 6 * HOUR, NOW - 5 * HOUR), 3, True, NOW + 4 * HOUR),
    ],
)
def test_one_evicted_of_late_is_spared_for_longer_each_time(
    times: tuple[float, ...], count: int, spared: bool, again: float | None
):
    draft = draft_of(yard(ELASTIC, "eviction_grace: 10m"), {"el": times} if times else None)
    row = draft.fleet.jobs["el"]
    assert victims.evictions(draft, row) == count
    assert victims.spared(draft, row) is spared
    assert draft.said.look_again_at == again


# --- budgets --------------------------------------------------------------------------------------

TWO = "{name: a, tasks: 3, started: -2h, at: ['n0:0', 'n0:1', 'n0:2']}, {name: b, tasks: 2, min: 1, at: ['n1:0']}"


@pytest.mark.parametrize(
    ("budget", "room"),
    [
        ("min_available: 4", 0),
        ("min_available: 3", 1),
        ("min_available: 5", -1),
        ("max_unavailable: 1", 0),  # one of five does not run yet
        ("max_unavailable: 3", 2),
        ("max_unavailable: 0", -1),
    ],
)
def test_a_budget_counts_what_runs_and_what_should(budget: str, room: int):
    draft = draft_of(yard(TWO, budgets=f"[{{name: keep, jobs: [a, b], {budget}}}]"))
    (each,) = draft.fleet.budgets
    assert victims.headroom(draft, each) == room
    a, b = draft.fleet.jobs["a"], draft.fleet.jobs["b"]
    assert victims.budgets_allow(draft, [victims.whole(b)]) is (room >= 1)
    assert victims.budgets_allow(draft, [victims.whole(a)]) is (room >= 3)
    assert victims.forbids(draft, b) == ("" if room >= 1 else "keep")
    assert victims.forbids(draft, a) == "keep"


def test_ended_members_are_not_missed_and_what_the_plan_disturbs_counts():
    ended = "{name: a, tasks: 5, min: 3, succeeded: 1, failed: 1, started: -2h, at: ['n0:0', 'n0:1', 'n0:2']}"
    draft = draft_of(yard(ended, budgets="[{name: keep, jobs: [a], max_unavailable: 2}]"))
    (each,) = draft.fleet.budgets
    assert victims.headroom(draft, each) == 2
    row = draft.fleet.jobs["a"]
    draft.remember(row, tuple(row.held))
    draft.tx.lift_all(row, row.held[:1])
    assert victims.headroom(draft, each) == 1


def test_whom_no_budget_names_may_go():
    draft = draft_of(yard(TWO, budgets="[{name: keep, jobs: [b], min_available: 1}]"))
    assert victims.budgets_allow(draft, [victims.whole(draft.fleet.jobs["a"])])
    assert not victims.budgets_allow(draft, [victims.whole(draft.fleet.jobs["b"])])
    assert victims.forbids(draft, draft.fleet.jobs["a"]) == ""


# --- costs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "gang", "extra"),
    [
        ("", 4 * 7200, 7200),
        ("warm_up: 2m, ", 4 * 7320, 7200),
        ("checkpoint: {interval: 10m, last: -5m}, ", 4 * 300, 300),
        ("checkpoint: {interval: 10m}, ", 4 * 7200, 7200),
        ("checkpoint: {interval: 10m, last: -5h}, warm_up: 1m, ", 4 * 7260, 7200),
    ],
)
def test_lost_work_is_what_ran_since_the_last_checkpoint_and_the_warm_up_of_who_restarts(
    job: str, gang: float, extra: float
):
    draft = draft_of(yard(ELASTIC.replace("{name: el, ", "{name: el, " + job)))
    row = draft.fleet.jobs["el"]
    last = victims.last_extras(row)[0]
    assert victims.lost_work(draft, victims.whole(row)) == gang * WHOLE
    assert victims.lost_work(draft, last) == extra * WHOLE
    assert victims.lost_work(draft, last, restarts=True) == gang / 4 * WHOLE
    assert victims.lost_work(draft, victims.whole(row), restarts=False) == extra * 4 * WHOLE


def test_the_class_s_warm_up_counts_where_the_job_names_none():
    draft = draft_of(yard(ELASTIC, "classes: {training: {warm_up: 3m}}"))
    assert victims.lost_work(draft, victims.whole(draft.fleet.jobs["el"])) == 4 * 7380 * WHOLE


# --- which victims are better ---------------------------------------------------------------------

CLAIM = """
nodes: [{name: n, times: 2, gpus: 4}]
queues: [{name: a, quota: 4}, {name: b, quota: 2}, {name: c, quota: 1}]
policy: {classes: {training: {warm_up: 1m}}}
jobs:
  - {name: claims, queue: a, gpus: 2, priority: 90}
  - {name: own, queue: a, priority: 10, started: -1h, submitted: -3h, at: "n0:0"}
  - {name: el, queue: b, tasks: 3, min: 1, gpus: 1, started: -2h, submitted: -2h, at: ["n0:1", "n0:2", "n0:3"]}
  - {name: pair, queue: b, evictions: 1, started: -1h, submitted: -5h, at: "n1:0+1"}
  - {name: one, queue: c, priority: 70, started: -3h, submitted: -4h, at: "n1:2"}
"""


def test_sets_of_victims_are_compared_in_the_order_of_the_rule():
    draft = draft_of(CLAIM)
    jobs = draft.fleet.jobs
    takers = Takers(Claim(draft, jobs["claims"], draft.fleet.shortfall(jobs["claims"])))
    extra, later = victims.last_extras(jobs["el"])
    own, el, pair, one = (victims.whole(jobs[name]) for name in ("own", "el", "pair", "one"))
    youth = {name: victims.profile(draft, jobs[name]).youth for name in ("own", "el", "pair", "one")}
    below = {q: draft.shares[jobs[q].queue][0] for q in ("el", "one")}
    left = {"el": 5 * WHOLE, "one": WHOLE}
    hour = HOUR * WHOLE
    assert takers.key((own,)) == (True, True, False, False, 10, 0, hour + 60 * WHOLE, 1, 1, youth["own"])
    assert takers.key((extra,)) == (
        False, False, False, left["el"] - WHOLE < below["el"], 50, 0, 2 * hour, 0, 1, youth["el"],
    )  # fmt: skip
    assert takers.key((el,)) == (
        False, True, False, left["el"] - 3 * WHOLE < below["el"], 50, 0, 3 * (2 * hour + 60 * WHOLE), 1, 1, youth["el"],
    )  # fmt: skip
    assert takers.key((one,)) == (
        False, True, True, left["one"] - WHOLE < below["one"], 70, 0, 3 * hour + 60 * WHOLE, 1, 1, youth["one"],
    )  # fmt: skip
    assert takers.key((extra, later)) == (
        False, False, False, left["el"] - 2 * WHOLE < below["el"], 50, 0, 4 * hour, 0, 2, youth["el"],
    )  # fmt: skip
    assert takers.key((el, pair)) == (
        False, True, True, True, 50, 1, 3 * (2 * hour + 60 * WHOLE) + 2 * (hour + 60 * WHOLE), 2, 2,
        max(youth["el"], youth["pair"]),
    )  # fmt: skip
    assert takers.key((own, one)) == (
        True, True, True, True, 70, 0, 4 * hour + 120 * WHOLE, 2, 2, max(youth["own"], youth["one"]),
    )  # fmt: skip


def test_what_stopping_loses_for_each_gpu_is_what_is_not_saved_and_the_warm_up():
    draft = draft_of(yard("{name: a, started: -2h, checkpoint: {last: -5m}, warm_up: 4m, at: 'n0:0-3'}"))
    assert floors.lost(draft, draft.fleet.jobs["a"]) == (5 + 4) * 60.0


def test_three_restarts_of_jobs_like_it_say_how_long_it_warms_up_and_two_do_not():
    draft = draft_of(yard("{name: a, started: -2h, at: 'n0:0'}"))
    row = draft.fleet.jobs["a"]
    expected = row.warm_up
    draft.warm_ups = {row.work_key: (500.0, 900.0)}
    assert victims.warm_up(draft, row) == expected
    draft.warm_ups = {row.work_key: (500.0, 900.0, 700.0)}
    assert victims.warm_up(draft, row) == 700.0
