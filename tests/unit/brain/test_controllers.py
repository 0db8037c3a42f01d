"""Controllers by themselves: timed defragmentation keeps its hours and its mode, time limits are told once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuyard.brain.controllers import Controller, Nothing
from gpuyard.brain.controllers.alarms.remembering import AlarmsKept
from gpuyard.brain.controllers.defragmentation import Looked, _due
from gpuyard.brain.controllers.time_limits import LimitsTold
from gpuyard.brain.decide import Steps, decide, observe
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.files import parse_snapshot
from gpuyard.model.actions import Move, Terminate, Warn
from gpuyard.model.events import ActionFailed
from gpuyard.model.policy import DefragRule, Policy
from gpuyard.model.reasons import Code, Reason
from gpuyard.model.snapshot import Snapshot

HEADER = "apiVersion: gpuyard.dev/v1\nkind: Snapshot\nnow: 2026-01-01T03:00:00Z\n"
SCATTERED = """
nodes: [{name: n0, gpus: 4, model: H100}, {name: n1, gpus: 4, model: H100}, {name: n2, gpus: 4, model: H100}]
jobs:
  - {name: a, gpus: 1, started: 2026-01-01T02:59:59Z, placements: [{node: n0, gpus: [0]}]}
  - {name: b, gpus: 1, started: 2026-01-01T02:59:59Z, placements: [{node: n1, gpus: [0]}]}
  - {name: wide, gpus: 4, started: 2026-01-01T02:00:00Z, placements: [{node: n2, gpus: [0, 1, 2, 3]}]}
"""
HOUR = 3600.0


def moment(text: str = SCATTERED, rule: DefragRule = DefragRule.DO, **policy: float) -> Snapshot:
    found = parse_snapshot(HEADER + text, "here", 0.0)
    return replace(found, policy=replace(found.policy, defragment=rule, **policy))  # type: ignore[arg-type]


def test_it_moves_proposes_or_does_nothing_as_the_policy_says():
    plans = {rule: decide(Fleet(moment(rule=rule)), Memory(), moment().now).plan for rule in DefragRule}
    assert [type(action) for action in plans[DefragRule.DO].actions] == [Move]
    assert plans[DefragRule.PROPOSE].actions == ()
    assert plans[DefragRule.PROPOSE].proposed == plans[DefragRule.DO].actions
    assert (plans[DefragRule.OFF].actions, plans[DefragRule.OFF].proposed) == ((), ())


def test_it_looks_no_more_often_than_it_may_and_says_when_it_will():
    now = moment().now
    first = decide(Fleet(moment()), Memory(), now)
    assert first.memory.of(Looked) == Looked(now)
    again = decide(Fleet(moment()), first.memory, now + HOUR / 2)
    assert again.plan.actions == ()
    assert again.plan.look_again_at == now + HOUR


class Heard(Controller[Nothing]):
    """Only learns."""

    part = Nothing


class Acting(Heard):
    """Acts, and says so."""

    def act(self, draft: Draft, part: Nothing) -> Nothing:
        draft.look_again(draft.now + 7.0)
        return part


class Timely(Acting):
    timed = True


@pytest.mark.parametrize("controller", [Acting(), Timely()])
def test_whoever_acts_is_asked_before_after_and_while_watching_and_who_only_learns_plans_nothing(controller: Acting):
    now = moment().now
    for steps in (Steps((Heard(), controller)), Steps((Heard(),), (controller,)), Steps((), (), (controller, Heard()))):
        assert decide(Fleet(moment()), Memory(), now, steps).plan.look_again_at == now + 7.0
    silent = Steps((Heard(),), (Heard(),), (Heard(),))
    assert decide(Fleet(moment()), Memory(), now, silent).plan.look_again_at is None


@pytest.mark.parametrize(
    ("begin", "end", "hour", "due"),
    [(0, 0, 3, 3), (2, 6, 3, 3), (22, 6, 3, 3), (22, 6, 23, 23), (8, 9, 3, 8), (1, 2, 3, 25), (2, 3, 3, 26)],
)
def test_it_keeps_its_hours(begin: float, end: float, hour: float, due: float):
    policy = replace(Policy(), defrag_from=begin, defrag_until=end)
    assert _due(policy, hour * HOUR) == due * HOUR


LIMITED = """
nodes: [{name: n0, gpus: 4, model: H100}]
jobs:
  - {name: late, gpus: 1, time_limit: 1h, started: 2026-01-01T01:00:00Z, placements: [{node: n0, gpus: [0]}],
     checkpoint: {grace: 90s}}
  - {name: soon, gpus: 1, time_limit: 1h, started: 2026-01-01T02:30:00Z, placements: [{node: n0, gpus: [1]}]}
  - {name: to-be, gpus: 1, time_limit: 1m, started: 2026-01-01T02:00:00Z,
     placements: [{node: n0, gpus: [2], assigned: true}]}
"""


def measured(snapshot: Snapshot) -> Memory:
    """As if what is free had been measured for a while: nobody looks again for that."""
    return Memory().keeping(AlarmsKept(looked_at=snapshot.now + HOUR))


def test_whose_time_is_up_is_told_once_with_its_grace_and_the_next_end_is_known():
    snapshot = moment(LIMITED, DefragRule.OFF)
    first = decide(Fleet(snapshot), measured(snapshot), snapshot.now)
    (end,) = first.plan.actions
    assert isinstance(end, Terminate)
    assert (end.job, end.grace, str(end.reason)) == ("late", 90.0, "ran into its time limit of 3600 s")
    assert first.memory.of(LimitsTold).ended == {"late": snapshot.now}
    again = decide(Fleet(snapshot), first.memory, snapshot.now + 1)
    assert again.plan.actions == ()
    assert again.plan.look_again_at == snapshot.now + 90 + 60


def test_whom_the_word_to_end_did_not_reach_is_told_again_when_its_own_time_is_up():
    snapshot = moment(LIMITED, DefragRule.OFF)
    fleet = Fleet(snapshot)
    first = decide(fleet, Memory(), snapshot.now)
    missed = ActionFailed("late", (), Reason(Code.WORLD_CHANGED))
    memory, unknown = observe(fleet, first.memory, [missed], snapshot.now)
    assert (memory.of(LimitsTold).ended, unknown) == ({}, [])


WARNED = """
nodes: [{name: n0, gpus: 4, model: H100}]
jobs:
  - {name: tenth, gpus: 1, time_limit: 1h, started: 2026-01-01T02:05:00Z, placements: [{node: n0, gpus: [0]}]}
  - {name: saves, gpus: 1, time_limit: 1h, started: 2026-01-01T02:12:00Z, placements: [{node: n0, gpus: [1]}],
     checkpoint: {grace: 15m}}
  - {name: early, gpus: 1, time_limit: 1h, started: 2026-01-01T02:12:00Z, placements: [{node: n0, gpus: [2]}]}
"""


def test_a_job_is_warned_once_before_its_limit_by_a_tenth_of_it_or_by_its_grace():
    snapshot = moment(WARNED, DefragRule.OFF)
    first = decide(Fleet(snapshot), measured(snapshot), snapshot.now)
    told = {action.job: str(action.reason) for action in first.plan.actions if isinstance(action, Warn)}
    assert told == {"tenth": "5m left of its time limit of 1h", "saves": "12m left of its time limit of 1h"}
    assert first.plan.look_again_at == snapshot.now + 5 * 60  # the end of the first
    again = decide(Fleet(snapshot), first.memory, snapshot.now + 6 * 60 + 1)
    assert [each.job for each in again.plan.actions if isinstance(each, Warn)] == ["early"]
    assert [each.job for each in again.plan.actions if isinstance(each, Terminate)] == ["tenth"]


def test_a_job_that_starts_anew_is_warned_anew():
    snapshot = moment(WARNED, DefragRule.OFF)
    first = decide(Fleet(snapshot), Memory(), snapshot.now)
    restarted = tuple(replace(job, started=(job.started or 0.0) + 30) for job in snapshot.jobs)
    again = decide(Fleet(replace(snapshot, jobs=restarted)), first.memory, snapshot.now)
    assert {each.job for each in again.plan.actions if isinstance(each, Warn)} == {"tenth", "saves"}


def test_the_share_of_the_limit_is_a_knob_of_the_policy():
    snapshot = moment(WARNED, DefragRule.OFF, warn_before=0.0)
    plan = decide(Fleet(snapshot), Memory(), snapshot.now).plan
    assert [action.job for action in plan.actions if isinstance(action, Warn)] == ["saves"]


def test_a_yard_that_starts_a_job_looks_again_when_its_warning_is_due():
    waiting = "nodes: [{name: n0, gpus: 4, model: H100}]\njobs: [{name: new, gpus: 1, time_limit: 100s}]\n"
    snapshot = moment(waiting, DefragRule.OFF)
    assert decide(Fleet(snapshot), measured(snapshot), snapshot.now).plan.look_again_at == snapshot.now + 90


MOVED = """
nodes: [{name: n0, gpus: 4, model: H100}, {name: n1, gpus: 2, model: H100}]
jobs:
  - {name: small, gpus: 2, time_limit: 1h, started: 2026-01-01T02:05:00Z, placements: [{node: n0, gpus: [0, 1]}]}
  - {name: large, gpus: 4}
"""


def test_who_is_moved_by_a_plan_is_neither_warned_nor_ended_by_it_and_its_warning_is_remembered():
    snapshot = moment(MOVED, DefragRule.OFF)
    warned = LimitsTold(warned={"small": snapshot.jobs[0].started or 0.0})
    for before in (LimitsTold(), warned):
        decision = decide(Fleet(snapshot), measured(snapshot).keeping(before), snapshot.now)
        assert {(type(each).__name__, getattr(each, "job", "")) for each in decision.plan.actions} == {
            ("Move", "small"),
            ("Start", "large"),
        }
        assert decision.memory.of(LimitsTold) == before


def test_a_gang_of_which_some_run_is_on_its_time_and_one_that_is_only_assigned_is_not():
    gang = """
nodes: [{name: n0, gpus: 4, model: H100}]
jobs:
  - {name: gang, gpus: 1, tasks: 2, time_limit: 1h, started: 2026-01-01T01:00:00Z,
     placements: [{node: n0, gpus: [0]}, {node: n0, gpus: [1], assigned: true}]}
"""
    snapshot = moment(gang, DefragRule.OFF)
    (end,) = decide(Fleet(snapshot), measured(snapshot), snapshot.now).plan.actions
    assert isinstance(end, Terminate)
    waiting = moment(gang.replace("gpus: [0]}", "gpus: [0], assigned: true}"), DefragRule.OFF)
    assert decide(Fleet(waiting), measured(waiting), waiting.now).plan.actions == ()
