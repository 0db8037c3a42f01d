"""Timed defragmentation (rule 15, last sentence): what is moved, what is left alone, and whether it pays."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import yaml

from gpuyard.brain import foresee
from gpuyard.brain.engine.defrag import defragmentation
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.files import parse_snapshot
from gpuyard.model.answers.defrag import DefragPlan
from gpuyard.model.job import Placement
from gpuyard.model.node import CORDONED, Health
from gpuyard.model.reasons import Code
from gpuyard.model.resources import WHOLE
from gpuyard.model.snapshot import Snapshot
from tests.support.scenario import expand

SCATTERED = """
nodes: [{name: n, times: 3, gpus: 8}]
jobs:
  - {name: small, started: -2h, checkpoint: {last: -5m}, at: "n0:0-1"}
  - {name: half, started: -2h, checkpoint: {last: -5m}, at: "n1:0-3"}
  - {name: big, preemptible: false, started: -2h, at: "n2:0-7"}
"""
"""One move of two GPUs makes a whole node free, and whole nodes are most of the demand."""

RACKS = """
topology: [rack]
nodes:
  - {name: "a{i}", times: 2, gpus: 8, domains: {rack: ra}}
  - {name: "b{i}", times: 2, gpus: 8, domains: {rack: rb}}
  - {name: "c{i}", times: 2, gpus: 8, domains: {rack: rc}}
jobs:
  - {name: one, started: -1m, at: "a0:0"}
  - {name: two, started: -1m, at: "b0:0"}
  - {name: gang, preemptible: false, topology: {required: rack}, at: ["c0:0-7", "c1:0-7"]}
"""

ISLANDS = """
nodes: [{name: n, times: 2, gpus: 8, islands: [[0, 1, 2, 3], [4, 5, 6, 7]]}]
jobs:
  - {name: s0, started: -1m, at: "n0:0"}
  - {name: s1, started: -1m, at: "n0:4"}
  - {name: near, preemptible: false, topology: {required: nvlink}, at: "n1:0-3"}
  - {name: far, preemptible: false, topology: {required: nvlink}, at: "n1:4-7"}
"""


def snapshot(text: str, change: dict[str, dict[str, Any]] | None = None, **more: Any) -> Snapshot:
    """The moment as written; `change` gives keys of single jobs another value, `more` of the whole."""
    document = yaml.safe_load(text) | more
    for job in document["jobs"]:
        job.update((change or {}).get(job["name"], {}))
    return parse_snapshot(json.dumps(expand(document)), "test", 0.0)


def propose(text: str, change: dict[str, dict[str, Any]] | None = None, **more: Any) -> DefragPlan:
    return foresee.defrag(snapshot(text, change, **more))


def moved(plan: DefragPlan) -> dict[str, list[str]]:
    return {move.job: [place.node for place in move.target] for move in plan.moves}


def fits(plan: DefragPlan, gpus: int, tasks: int = 1) -> tuple[int, int]:
    shape = next(s for s in plan.shapes if s.gpus == gpus * WHOLE and s.tasks == tasks)
    return shape.before, shape.after


# --- it pays, or it does not ---------------------------------------------------------------------


def test_a_small_job_is_moved_so_that_a_whole_node_falls_free():
    plan = propose(SCATTERED)
    assert moved(plan) == {"small": ["n1"]}
    assert fits(plan, 8) == (0, 1)
    assert plan.after.stranded < plan.before.stranded
    assert dict(plan.after.largest_gang)["node"] == 8


def test_the_bill_says_what_the_move_loses_warm_up_included():
    plan = propose(SCATTERED, {"small": {"warm_up": "4m"}})
    (toll,) = plan.proposal.bill.tolls
    assert (toll.job, toll.gpus, toll.lost_gpu_s) == ("small", 2 * WHOLE, 2 * (5 + 4) * 60.0)
    assert plan.proposal.ratio == plan.proposal.gain_gpu_s / toll.lost_gpu_s >= plan.pays_at


def test_the_gain_is_the_usable_gpus_times_the_horizon():
    for horizon in (600.0, 3600.0):
        plan = propose(SCATTERED, policy={"defrag_horizon": f"{horizon:.0f}s"})
        usable = (plan.usable_after - plan.usable_before) / WHOLE
        assert abs(plan.proposal.gain_gpu_s - usable * horizon) < 1e-6


def test_moving_hours_of_unsaved_work_does_not_pay_and_says_so_with_numbers():
    plan = propose(SCATTERED, {"small": {"checkpoint": {"last": "-2h"}}, "half": {"checkpoint": {"last": "-2h"}}},
                   policy={"defrag_horizon": "10m"})  # fmt: skip
    assert plan.moves == ()
    assert plan.reason.code is Code.DOES_NOT_PAY
    assert "4.00 lost" in plan.reason.message
    assert plan.declined is not None
    assert [move.job for move in plan.declined.moves] == ["small"]
    assert plan.declined.ratio < plan.pays_at
    assert plan.usable_after == plan.usable_before


def test_policy_may_ask_for_more_than_it_gains():
    ratio = propose(SCATTERED).proposal.ratio
    assert propose(SCATTERED, policy={"defrag_pays": ratio * 0.99}).moves
    assert not propose(SCATTERED, policy={"defrag_pays": ratio * 1.01}).moves


def test_a_job_that_ends_soon_anyway_is_not_worth_moving():
    plan = propose(SCATTERED, {"small": {"time_limit": "121m"}, "half": {"time_limit": "121m"}})
    assert plan.moves == ()
    assert plan.reason.code is Code.DOES_NOT_PAY


def test_a_job_that_its_limit_ends_gives_its_place_back_for_as_long_as_it_would_have_stayed():
    limits = {"small": {"time_limit": "150m"}, "half": {"time_limit": "150m"}}
    plan = propose(SCATTERED, limits, policy={"defrag_horizon": "1h"})
    usable = (plan.usable_after - plan.usable_before) / WHOLE
    assert moved(plan) == {"small": ["n1"]}
    assert abs(plan.proposal.gain_gpu_s - usable * 1800) < 1e-6


def test_nothing_is_gained_where_every_shape_fits_already():
    plan = propose("{nodes: [{name: n, times: 2, gpus: 8}], jobs: [{name: a, at: 'n0:0-7'}]}")
    assert plan.moves == ()
    assert plan.reason.code is Code.NOTHING_TO_GAIN
    assert plan.declined is None


def test_an_empty_yard_has_nothing_to_tidy_up():
    assert foresee.defrag(Snapshot()).reason.code is Code.NOTHING_TO_GAIN


# --- who is left alone ---------------------------------------------------------------------------


def test_a_disruption_budget_is_kept_and_its_headroom_told():
    budget = {"name": "keep", "jobs": ["small", "half"], "min_available": 2}
    assert propose(SCATTERED, budgets=[budget]).moves == ()
    plan = propose(SCATTERED, budgets=[budget | {"min_available": 1}])
    assert moved(plan) == {"small": ["n1"]}
    assert [(room.before, room.after) for room in plan.budgets] == [(1, 0)]


def test_a_job_inside_its_minimum_runtime_stays():
    stays = {"small": {"min_runtime": "3h"}, "half": {"min_runtime": "3h"}}
    assert propose(SCATTERED, stays).moves == ()
    assert propose(SCATTERED, {"small": {"min_runtime": "2h"}}).moves


def test_inference_is_never_moved_though_it_were_preemptible():
    serving = {"class": "inference", "preemptible": True}
    assert propose(SCATTERED, {"small": serving, "half": serving}).moves == ()


def test_jobs_that_cannot_be_preempted_and_foreign_loads_stay():
    assert propose(SCATTERED, {"small": {"preemptible": False}, "half": {"preemptible": False}}).moves == ()
    assert propose(SCATTERED, {"small": {"foreign": True}, "half": {"foreign": True}}).moves == ()


def test_a_job_evicted_too_often_today_stays():
    assert propose(SCATTERED, {"small": {"evictions": 3}, "half": {"evictions": 3}}).moves == ()


def test_no_more_jobs_are_moved_than_the_budget_says():
    crumbs = """
    nodes: [{name: n, times: 5, gpus: 4}]
    jobs:
      - {name: "crumb{i}", times: 4, started: -1m, at: "n{i}:0"}
      - {name: whole, preemptible: false, at: "n4:0-3"}
    """
    assert len(propose(crumbs).moves) == 1  # the demand has one such job, so one such gap is of use
    assert propose(crumbs, policy={"defrag_budget": 0}).moves == ()


def test_two_jobs_are_not_moved_where_the_budget_has_one():
    pair = """
    nodes: [{name: n, times: 3, gpus: 4}]
    jobs:
      - {name: "crumb{i}", times: 2, started: -1m, at: "n0:{i}"}
      - {name: other, preemptible: false, at: "n1:0-1"}
      - {name: whole, preemptible: false, at: "n2:0-3"}
    """
    assert sorted(moved(propose(pair))) == ["crumb0", "crumb1"]
    assert propose(pair, policy={"defrag_budget": 1}).moves == ()


# --- whom it moves, and where to -----------------------------------------------------------------


def test_a_gang_is_moved_whole_and_once():
    plan = propose("""
    nodes: [{name: n, times: 3, gpus: 4}]
    jobs:
      - {name: pair, started: -1m, at: ["n0:0", "n0:1"]}
      - {name: other, preemptible: false, at: "n1:0-1"}
      - {name: whole, preemptible: false, at: "n2:0-3"}
    """)
    assert moved(plan) == {"pair": ["n1", "n1"]}
    assert len(plan.moves[0].source) == 2


def test_a_rack_is_cleared_for_gangs_that_need_one():
    plan = propose(RACKS)
    assert moved(plan) == {"one": ["b0"]}
    assert fits(plan, 8, tasks=2) == (0, 1)
    assert dict(plan.after.largest_gang)["rack"] == 16


def test_an_island_is_cleared_for_tasks_that_need_one():
    plan = propose(ISLANDS)
    assert len(plan.moves) == 1
    assert fits(plan, 4) == (0, 1)
    assert dict(plan.after.largest_gang)["nvlink"] == 4


def test_a_task_in_one_island_is_not_cut_across_two():
    text = """
    nodes: [{name: n, times: 3, gpus: 8, islands: [[0, 1, 2, 3], [4, 5, 6, 7]]}]
    jobs:
      - {name: two, started: -1m, at: "n0:0-1"}
      - {name: left, preemptible: false, at: "n1:0-2"}
      - {name: right, preemptible: false, at: "n1:4-6"}
      - {name: whole, preemptible: false, at: "n2:0-7"}
    """
    assert propose(text).moves == ()
    assert moved(propose(text, {"right": {"at": "n1:4-5"}})) == {"two": ["n1"]}


def test_nobody_is_moved_to_another_model():
    models = [{"name": "n0", "gpus": 8, "model": "A100"}, {"name": "n1", "gpus": 8, "model": "H100"},
              {"name": "n2", "gpus": 8, "model": "A100"}]  # fmt: skip
    assert propose(SCATTERED, nodes=models).moves == ()


def test_the_target_is_free_before_the_source_is_disturbed():
    for text in (SCATTERED, RACKS):
        held = {(p.node, g) for job in snapshot(text).jobs for p in job.placements for g in p.gpus}
        plan = propose(text)
        assert plan.moves
        assert not any((p.node, g) in held for move in plan.moves for p in move.target for g in p.gpus)


def test_places_reserved_for_a_waiting_gang_are_not_used():
    jobs = yaml.safe_load(SCATTERED)["jobs"]
    jobs += [{"name": "late", "tasks": 4, "gpus": 4, "submitted": "-2h"}]
    place = {"node": "n1", "gpus": [4, 5, 6, 7]}
    plan = propose(SCATTERED, jobs=jobs, reservations=[{"job": "late", "placements": [place], "until": "+1h"}])
    assert not any(p.node == "n1" for move in plan.moves for p in move.target)


def test_what_waits_is_planned_first_and_stays_where_it_started():
    jobs = [*yaml.safe_load(SCATTERED)["jobs"], {"name": "fresh", "gpus": 4}]
    plan = propose(SCATTERED, jobs=jobs)
    assert plan.after_changes == 1
    assert "fresh" not in moved(plan)


def test_the_same_moment_gives_the_same_proposal_whatever_its_order():
    for text in (SCATTERED, RACKS, ISLANDS):
        first = snapshot(text)
        turned = replace(first, nodes=first.nodes[::-1], jobs=first.jobs[::-1])
        assert foresee.defrag(first) == foresee.defrag(turned)


# --- the world changes ---------------------------------------------------------------------------


def changed(**jobs: dict[str, Any]) -> Fleet:
    """The fleet with some jobs as they have become."""
    now = snapshot(SCATTERED)
    return Fleet(replace(now, jobs=tuple(replace(job, **jobs.get(job.name, {})) for job in now.jobs)))


def refusal(fleet: Fleet) -> str:
    reason = defragmentation.valid(propose(SCATTERED), fleet)
    assert reason is not None
    assert reason.code is Code.WORLD_CHANGED
    return reason.message


def test_a_plan_holds_while_nothing_has_changed():
    assert defragmentation.valid(propose(SCATTERED), changed()) is None


def test_a_plan_aborts_when_its_job_runs_elsewhere_or_is_gone():
    assert "no longer runs where it ran" in refusal(changed(small={"placements": (Placement("n0", (6, 7)),)}))
    now = snapshot(SCATTERED)
    assert "small is gone" in refusal(Fleet(replace(now, jobs=now.jobs[1:])))


def test_a_plan_aborts_when_the_target_was_taken_or_fell_sick():
    assert "n1:4+5 is not free" in refusal(changed(half={"placements": (Placement("n1", (4, 5, 6, 7)),)}))
    now = snapshot(SCATTERED)
    sick = replace(now.nodes[1], gpus=tuple(replace(gpu, health=Health.SICK) for gpu in now.nodes[1].gpus))
    assert "is not free" in refusal(Fleet(replace(now, nodes=(now.nodes[0], sick, now.nodes[2]))))
    closed = replace(now.nodes[1], closed=CORDONED)
    assert "is not free" in refusal(Fleet(replace(now, nodes=(now.nodes[0], closed, now.nodes[2]))))


def test_a_plan_aborts_when_its_job_may_no_longer_be_disturbed():
    assert "may no longer be disturbed" in refusal(changed(small={"preemptible": False}))


# --- the bill of those who are disturbed for somebody --------------------------------------------


def test_a_plan_that_moves_and_evicts_carries_its_bill():
    text = """
    nodes: [{name: n, times: 2, gpus: 8}]
    queues: [{name: q}]
    jobs:
      - {name: small, queue: q, started: -10m, warm_up: 1m, at: "n0:0-1"}
      - {name: other, queue: q, started: -10m, at: "n1:0-3"}
      - {name: big, queue: q, gpus: 8}
    """
    bill = foresee.outlook(snapshot(text)).bill
    assert [(toll.job, toll.moved, toll.lost_gpu_s) for toll in bill.tolls] == [("small", True, 2 * 11 * 60.0)]
    assert bill.gpus == 2 * WHOLE


# --- nobody is worse off -------------------------------------------------------------------------

APART = """
topology: [block, rack]
nodes:
  - {name: n0, gpus: 8, domains: {block: b, rack: r0}}
  - {name: n1, gpus: 8, domains: {block: b, rack: r1}}
  - {name: n2, gpus: 8, domains: {block: b, rack: r2}}
  - {name: n3, gpus: 8, domains: {block: b, rack: r3}}
jobs:
  - {name: gang, tasks: 2, gpus: 1, started: -1m, at: ["n0:0", "n0:1"]}
  - {name: x, preemptible: false, started: -1m, at: "n1:0-6"}
  - {name: y, preemptible: false, started: -1m, at: "n2:0-LAST"}
  - {name: z, preemptible: false, started: -1m, at: "n3:0-7"}
"""


def test_a_gang_is_not_moved_farther_apart_at_any_level():
    assert moved(propose(APART.replace("LAST", "5"))) == {"gang": ["n2", "n2"]}
    assert moved(propose(APART.replace("LAST", "6"))) == {}, "the same block, but two racks"


def test_nobody_is_moved_onto_gpus_that_are_less_healthy_but_whoever_finds_sound_ones():
    doubtful = {str(g): "suspect" for g in range(4, 8)}
    nodes = [{"name": "n0", "gpus": 8}, {"name": "n1", "gpus": 8}, {"name": "n2", "gpus": 8}]
    assert moved(propose(SCATTERED, nodes=nodes)) == {"small": ["n1"]}
    nodes[1] |= {"health": doubtful}
    assert moved(propose(SCATTERED, nodes=nodes)) == {"half": ["n0"]}


def test_a_gang_of_which_a_member_is_going_is_left_to_end():
    going = [{"node": "n0", "gpus": [0]}, {"node": "n0", "gpus": [1], "terminating": True}]
    assert moved(propose(SCATTERED, {"small": {"at": going, "tasks": 2, "min": 1, "gpus": 1}})) == {"half": ["n0"]}


def test_an_elastic_job_that_must_stay_together_is_moved_with_its_extra_and_has_as_many_tasks_as_before():
    elastic = {"tasks": 2, "min": 1, "topology": {"required": "node"}, "at": ["n0:0", "n0:1"]}
    plan = propose(SCATTERED, {"small": elastic})
    assert moved(plan) == {"small": ["n1", "n1"]}
    assert fits(plan, 8) == (0, 1)


def test_where_there_are_no_gpus_or_nobody_asks_for_one_nothing_is_moved():
    asked: list[dict[str, Any]] = [{"name": "one"}, {"name": "half", "fraction": 0.5}]
    asked += [{"name": f"in-one-{level}", "tasks": 2, "topology": {"required": level}} for level in ("rack", "nvlink")]
    bare = propose(SCATTERED, topology=["rack"], nodes=[{"name": "n0", "cpu": 8}], jobs=asked)
    for found in (bare, propose(SCATTERED, jobs=[{"name": "desk", "cpu": 1}])):
        assert (found.moves, found.before) == ((), found.after)
