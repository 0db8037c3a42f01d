"""What plans are held to, where a plan is right and its net change alone does not show it."""

from __future__ import annotations

from gpuyard.brain.foresee import outlook
from gpuyard.model.actions import Evict
from gpuyard.model.reasons import Code
from tests.support import tasks
from tests.support.invariants import what_is_reclaimed_was_borrowed
from tests.support.moments import moment

MENDED = """
nodes: [{name: n0, gpus: 4}]
queues: [{name: a, quota: 2}, {name: c, quota: 2}]
jobs:
  - {name: fallen, queue: c, tasks: 2, gpus: 1, submitted: -3h, started: -2h, placements: [{node: n0, gpus: [0]}]}
  - {name: lent, queue: c, gpus: 1, submitted: -2h, started: -1h, at: 'n0:1'}
  - {name: mine, queue: a, gpus: 2, submitted: -1m}
"""


def test_a_queue_that_passes_its_quota_by_a_gang_that_is_mended_first_has_borrowed(monkeypatch):
    snapshot = moment(MENDED)
    found = outlook(snapshot)
    evictions = [action for action in found.actions if isinstance(action, Evict)]
    assert [(action.job, action.beneficiary, action.reason.code) for action in evictions] == [
        ("lent", "mine", Code.RECLAIMED)
    ]
    assert list(what_is_reclaimed_was_borrowed(snapshot, found)) == []
    monkeypatch.setattr("tests.support.invariants.tasks_mended", lambda before, _: tasks.tasks_before(before))
    assert list(what_is_reclaimed_was_borrowed(snapshot, found)) != []
