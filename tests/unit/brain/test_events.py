"""Tasks by unique id, assigned before running; what failed is forgotten; load of others; a policy that changes."""

from __future__ import annotations

from dataclasses import replace

from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.files import parse_snapshot
from gpuyard.model.events import (
    ActionFailed,
    JobSeen,
    NodeLoaded,
    PolicyChanged,
    TasksAssigned,
    TasksEnded,
    TasksRunning,
    TasksStopping,
)
from gpuyard.model.job import Placement
from gpuyard.model.node import Load
from gpuyard.model.reasons import Code, Reason
from tests.support.pictures import picture

TEXT = """
apiVersion: gpuyard.dev/v1
kind: Snapshot
now: 2026-01-01T00:00:00Z
nodes: [{name: n0, gpus: 4, cpu: 16, model: H100}]
jobs: [{name: a, tasks: 2, gpus: 1, cpu: 2}]
"""
MOMENT = parse_snapshot(TEXT, "here", 0.0)
FIRST, SECOND = (Placement("n0", (gpu,), task=gpu, uid=f"1.1.{gpu}") for gpu in (0, 1))
WHY = Reason(Code.NODES_UNAVAILABLE, message="the kubelet refused it")


def fleet(*events: object) -> Fleet:
    made = Fleet(MOMENT)
    assert made.apply(events) == []  # type: ignore[arg-type]
    return made


def told(made: Fleet) -> list[tuple[str, bool, bool]]:
    return [(place.uid, place.assigned, place.terminating) for place in made.jobs["a"].described().placements]


def test_a_job_has_started_when_its_first_task_runs_and_not_when_it_is_assigned():
    made = fleet(TasksAssigned("a", (FIRST, SECOND), 10.0))
    assert told(made) == [("1.1.0", True, False), ("1.1.1", True, False)]
    made.apply([TasksRunning("a", (FIRST,), 25.0), TasksRunning("a", (SECOND,), 30.0)])
    assert told(made) == [("1.1.0", False, False), ("1.1.1", False, False)]
    assert made.jobs["a"].started == 25.0


def test_what_was_assigned_and_failed_is_not_there_any_more():
    made = fleet(TasksAssigned("a", (FIRST, SECOND), 10.0), ActionFailed("a", (FIRST, SECOND), WHY))
    assert picture(made) == picture(Fleet(MOMENT))


def test_a_stop_that_failed_is_no_stop():
    made = fleet(
        TasksRunning("a", (FIRST, SECOND), 10.0), TasksStopping("a", (FIRST,)), ActionFailed("a", (FIRST,), WHY)
    )
    assert told(made) == [("1.1.0", False, False), ("1.1.1", False, False)]


def test_the_end_of_one_task_is_not_the_end_of_the_next_one_in_its_place():
    later = replace(FIRST, uid="1.2.0", gpus=(2,))
    made = fleet(
        TasksRunning("a", (FIRST, SECOND), 10.0),
        TasksStopping("a", (FIRST,)),
        TasksAssigned("a", (later,), 20.0),
        TasksEnded("a", (FIRST,)),
    )
    assert told(made) == [("1.2.0", True, False), ("1.1.1", False, False)]


def test_what_others_use_is_taken_and_given_back():
    made = fleet(NodeLoaded("n0", Load(cpu=15_000)))
    assert made.columns.cpu[0] == 1000
    made.apply([NodeLoaded("n0", Load())])
    assert picture(made) == picture(Fleet(MOMENT))


def test_a_policy_that_changes_is_the_one_it_would_have_been_built_with():
    classes = {kind: replace(each, priority=each.priority + 7) for kind, each in MOMENT.policy.classes.items()}
    policy = replace(MOMENT.policy, classes=classes, consolidate=False)
    made = fleet(PolicyChanged(policy), JobSeen(MOMENT.jobs[0]))
    afresh = Fleet(replace(MOMENT, policy=policy))
    assert made.policy == policy
    assert made.jobs["a"].priority == afresh.jobs["a"].priority
    assert picture(made) == picture(afresh)
