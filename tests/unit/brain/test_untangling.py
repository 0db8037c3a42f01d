"""Moves that wait for each other in a circle are not made (rule 26)."""

from __future__ import annotations

from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.brain.engine.settling import evacuation, keeping_places, stories
from gpuyard.files import parse_snapshot
from gpuyard.model.actions import Move
from tests.support.moments import moment

NOW = 1_767_225_600.0
SWAP = """
apiVersion: gpuyard.dev/v1
kind: Snapshot
nodes: [{name: n0, gpus: 3}]
jobs:
  - {name: a, tasks: 1, gpus: 1, started: 2025-12-31T00:00:00Z, placements: [{node: n0, gpus: [0]}]}
  - {name: b, tasks: 1, gpus: 1, started: 2025-12-31T00:00:00Z, placements: [{node: n0, gpus: [1]}]}
"""


def test_two_jobs_that_would_change_places_stay_where_they_are():
    draft = Draft(Fleet(parse_snapshot(SWAP, "swap", NOW)), Memory(), NOW)
    a, b = draft.fleet.jobs["a"], draft.fleet.jobs["b"]
    places = {row.name: row.held[0] for row in (a, b)}
    for row in (a, b):
        draft.remember(row)
        draft.tx.lift(row, places[row.name])
    draft.tx.put(a, places["b"])
    draft.tx.put(b, places["a"])
    assert keeping_places.untangle(draft, draft.before)
    assert (a.held, b.held) == ([places["a"]], [places["b"]])
    assert evacuation.net_actions(draft.fleet, draft.before, stories.Story({}, {})) == ()


def test_a_job_that_follows_another_to_a_free_place_is_told_after_it():
    draft = Draft(Fleet(parse_snapshot(SWAP, "swap", NOW)), Memory(), NOW)
    a, b = draft.fleet.jobs["a"], draft.fleet.jobs["b"]
    first, second = a.held[0], b.held[0]
    for row, held in ((a, first), (b, second)):
        draft.remember(row)
        draft.tx.lift(row, held)
    draft.tx.put(a, second)
    draft.tx.put(b, second._replace(gpus=(2,)))
    assert not keeping_places.untangle(draft, draft.before)
    actions = evacuation.net_actions(draft.fleet, draft.before, stories.Story({}, {}))
    moves = [action for action in actions if isinstance(action, Move)]
    assert [(move.job, move.after) for move in moves] == [("b", ()), ("a", ("b",))]


def test_two_who_would_change_places_stay_also_where_somebody_starts_beside_them():
    waiting = "  - {name: new, tasks: 1, gpus: 1}\n"
    draft = Draft(Fleet(parse_snapshot(SWAP + waiting, "swap", NOW)), Memory(), NOW)
    a, b, new = (draft.fleet.jobs[name] for name in ("a", "b", "new"))
    first, second = a.held[0], b.held[0]
    for row in (a, b, new):
        draft.remember(row)
        draft.tx.lift_all(row, list(row.held))
    for row, held in ((a, second), (b, first), (new, first._replace(gpus=(2,)))):
        draft.tx.put(row, held)
    assert keeping_places.untangle(draft, draft.before)
    assert (a.held, b.held) == ([first], [second])
    assert [held.gpus for held in new.held] == [(2,)], "who is in nobody's way starts"


def test_a_job_that_shrinks_is_put_back_with_as_many_tasks_as_the_plan_leaves_it():
    three = "{name: g, tasks: 3, min: 1, started: -2h, at: ['n0:0', 'n0:1', 'n0:2']}"
    draft = Draft(Fleet(moment(f"nodes: [{{name: n0, gpus: 4}}]\njobs: [{three}]")), Memory(), NOW)
    row = draft.fleet.jobs["g"]
    places = tuple(row.held)
    draft.remember(row)
    draft.tx.lift_all(row, list(places))
    assert keeping_places._put_back(draft, row, places, 2)
    assert tuple(row.held) == places[:2]
