"""Which task of a gang a move moves: ranks know each other by number, so a number moves with its task."""

from __future__ import annotations

import json

import yaml

from gpuyard.brain import foresee
from gpuyard.files import parse_snapshot
from gpuyard.model.actions import Move, Start
from tests.support.scenario import expand

ONE_MUST_MOVE = """
nodes: [{name: n, times: 2, gpus: 4}]
jobs:
  - {name: gang, tasks: 3, started: -2h, at: ["n0:1", "n0:2", "n0:3"]}
  - {name: firm, preemptible: false, started: -2h, at: "n1:0-2"}
  - {name: new, gpus: 2}
"""


def test_a_task_that_moves_keeps_its_number_beside_those_that_stay():
    snapshot = parse_snapshot(json.dumps(expand(yaml.safe_load(ONE_MUST_MOVE))), "test", 0.0)
    actions = foresee.outlook(snapshot).actions
    (move,) = (action for action in actions if isinstance(action, Move))
    assert [place.task for place in move.target] == [place.task for place in move.source]
    assert [action.job for action in actions if isinstance(action, Start)] == ["new"]
