"""For whom room is kept, when some of those who ask have it already."""

from __future__ import annotations

from gpuyard.brain.engine.cycle import open_draft
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.brain.engine.reserving import reservations
from tests.support.moments import moment

NOW = 1_767_225_600.0
TWO = """
policy: {reservations_per_pool: 2}
nodes: [{name: n, times: 2, gpus: 8}]
busy: {n0: 0-3, n1: 0-3}
jobs:
  - {name: first, gpus: 8, submitted: -3h}
  - {name: second, gpus: 8, submitted: -2h}
reservations: [{job: first, placements: [{node: n0, gpus: [0, 1, 2, 3, 4, 5, 6, 7]}]}]
"""


def test_the_next_of_equal_jobs_is_kept_room_for_when_the_first_has_its_reservation_already():
    draft = open_draft(Fleet(moment(TWO)), Memory(), NOW)
    first, second = draft.fleet.jobs["first"], draft.fleet.jobs["second"]
    assert list(draft.kept) == ["first"]
    reservations.consider(draft, (first, second), draft.fleet.shortfall(first))
    assert {name: {held.node for held in kept.places} for name, kept in draft.kept.items()} == {
        "first": {0},
        "second": {1},
    }
