"""Controllers by themselves: timed defragmentation keeps its hours and its mode, time limits are told once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuyard.brain.controllers.defragmentation import Looked, _due
from gpuyard.brain.controllers.time_limits import Ended
from gpuyard.brain.decide import decide
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.files import parse_snapshot
from gpuyard.model.actions import Move, Terminate
from gpuyard.model.policy import DefragRule, Policy
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


def test_whose_time_is_up_is_told_once_with_its_grace_and_the_next_end_is_known():
    snapshot = moment(LIMITED, DefragRule.OFF)
    first = decide(Fleet(snapshot), Memory(), snapshot.now)
    (end,) = first.plan.actions
    assert isinstance(end, Terminate)
    assert (end.job, end.grace, str(end.reason)) == ("late", 90.0, "ran into its time limit of 3600 s")
    assert first.memory.of(Ended).told == {"late": snapshot.now}
    again = decide(Fleet(snapshot), first.memory, snapshot.now + 1)
    assert again.plan.actions == ()
    assert again.plan.look_again_at == snapshot.now + 90 + 60
