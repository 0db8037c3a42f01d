"""How a gang below its minimum is brought back to it (rule 22)."""

from __future__ import annotations

import pytest

from gpuyard.brain.engine.cycle import open_draft
from gpuyard.brain.engine.giving_way import stale_gangs
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Memory
from tests.support.moments import moment

NOW = 1_767_225_600.0
BELOW = """
nodes: [{name: n0, gpus: 2}, {name: n1, gpus: MORE}]
jobs:
  - {name: low, gpus: 1, priority: 1, started: -1h, at: "n0:1"}
  - {name: gang, tasks: 2, gpus: 1, priority: 90, started: -1h, topology: {required: node}, takes: TAKES, at: ["n0:0"]}
"""


@pytest.mark.parametrize(
    ("takes", "more", "repaired", "low"),
    [
        ("true", 0, True, []),  # it stops
        ("true", 1, True, [1]),  # it moves
        ("false", 0, False, [0]),
        ("false", 1, False, [0]),
    ],
)
def test_a_stale_gang_has_others_stop_or_move_for_it_unless_it_takes_nothing(
    takes: str, more: int, repaired: bool, low: list[int]
):
    draft = open_draft(Fleet(moment(BELOW.replace("TAKES", takes).replace("MORE", str(more)))), Memory(), NOW)
    (row,) = stale_gangs.gangs(draft)
    assert stale_gangs.repair(draft, row) is repaired
    assert [held.node for held in draft.fleet.jobs["low"].held] == low
    assert len(row.held) == (2 if repaired else 1)
