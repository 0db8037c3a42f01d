"""The clock was a year ahead and is right again: what was remembered meanwhile puts nothing off for a year."""

from __future__ import annotations

from gpuyard.brain.controllers.defragmentation import Looked
from gpuyard.brain.decide import decide
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Evictions, Memory, TimeSlices
from gpuyard.model.actions import Plan
from tests.support.moments import moment

NOW = 1_767_225_600.0
AHEAD = NOW + 365 * 86_400.0
LOW_HAS_ALL = """
nodes: [{name: n, times: 1, gpus: 8}]
jobs:
  - {name: low, gpus: 8, priority: 1, at: "n0:0-7"}
  - {name: high, gpus: 8, priority: 99}
"""
IN_SLICES = """
policy: {order: {time_slicing: true, time_slice: 60, by: attained}}
nodes: [{name: n, times: 1, gpus: 8}]
jobs:
  - {name: long, gpus: 8, attained: 9000, at: "n0:0-7"}
  - {name: new, gpus: 8}
"""
SCATTERED = """
policy: {defragment: do, defrag_every: 100}
nodes: [{name: n, times: 2, gpus: 8}]
jobs:
  - {name: a, gpus: 1, at: "n0:0"}
  - {name: b, gpus: 1, at: "n1:0"}
"""


def planned(yaml: str, memory: Memory, after: float = 0.0) -> tuple[Plan, Memory]:
    plan, memory = decide(Fleet(moment(yaml)), memory, NOW + after)
    return plan, memory


def test_an_eviction_that_is_yet_to_come_protects_nobody():
    for times, evicted in (((NOW - 60.0,), False), ((AHEAD,), True), ((AHEAD, NOW - 86_300.0), True)):
        plan, _ = planned(LOW_HAS_ALL, Memory().keeping(Evictions({"low": times})))
        assert bool(plan.actions and plan.actions[0].job == "low") is evicted, times  # type: ignore[union-attr]


def test_defragmentation_looks_again_when_its_time_has_passed():
    _, memory = planned(SCATTERED, Memory().keeping(Looked(AHEAD)))
    assert memory.of(Looked).at == NOW
    _, memory = planned(SCATTERED, memory, 100.0)
    assert memory.of(Looked).at == NOW + 100.0


def test_running_jobs_are_weighed_against_waiting_ones_at_once():
    for weighed, actions in ((NOW - 30.0, 0), (AHEAD, 2)):
        plan, _ = planned(IN_SLICES, Memory().keeping(TimeSlices(weighed)))
        assert len(plan.actions) == actions
