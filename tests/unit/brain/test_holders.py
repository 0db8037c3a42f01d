"""Who holds devices of a node, in numbers: looked at once, and anew wherever something has changed."""

from __future__ import annotations

import numpy as np
import pytest

from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.known.holders import COST, DEVICE, PARTS, UNSAVED_SINCE, DeviceHolders, NodeHolders
from gpuyard.brain.engine.picture.transaction import Transaction
from gpuyard.model.events import TasksAssigned, TasksRunning
from gpuyard.model.job import Placement
from gpuyard.model.resources import WHOLE
from tests.support.moments import moment

NOW = 1_767_225_600.0
NODES = """
nodes: [{name: n, times: 2, gpus: 8}]
queues: [{name: a, quota: 8}]
jobs:
  - {name: old, queue: a, gpus: 2, started: -2h, submitted: -3h, at: "n0:0-1"}
  - {name: young, queue: a, fraction: 0.5, started: -1h, submitted: -2h, at: "n0:2"}
  - {name: namesake, queue: a, gpus: 1, started: -1h, submitted: -2h, at: "n0:3"}
  - {name: firm, queue: a, gpus: 1, preemptible: false, started: -1h, at: "n0:4"}
  - {name: plain, queue: a, cpu: 1, started: -1h, at: "n0"}
  - {name: w, queue: a, gpus: 1}
"""


def there(fleet: Fleet, node: int = 0) -> NodeHolders:
    (found,) = fleet.holders.of(np.array([node]))
    return found


def test_those_who_hold_devices_and_might_leave_the_younger_first():
    found = there(Fleet(moment(NODES)))
    assert [row.name for row in found.rows] == ["young", "namesake", "old"]
    assert [row.youth for row in found.rows] == sorted(row.youth for row in found.rows)
    assert found.numbers[PARTS].tolist() == [DEVICE, DEVICE, 2 * DEVICE]
    assert found.numbers[COST].tolist() == [WHOLE / 2, WHOLE, 2 * WHOLE]


def test_only_a_node_that_was_touched_is_looked_at_anew():
    fleet = Fleet(moment(NODES))
    before, other = there(fleet), there(fleet, 1)
    assert there(fleet) is before
    tx, row = Transaction(fleet), fleet.jobs["old"]
    tx.lift_all(row, row.held)
    assert [row.name for row in there(fleet).rows] == ["young", "namesake"]
    assert there(fleet, 1) is other
    tx.rollback()
    assert there(fleet).rows == before.rows
    assert there(fleet).numbers.tolist() == before.numbers.tolist()


def test_a_job_that_begins_to_run_where_it_was_assigned_is_known_to_have():
    fleet = Fleet(moment(NODES))
    place = (Placement("n1", (0,)),)
    fleet.apply([TasksAssigned("w", place, NOW - 60.0)])
    assert there(fleet, 1).numbers[UNSAVED_SINCE].tolist() == [NOW - 60.0]
    fleet.apply([TasksRunning("w", place, NOW)])
    assert there(fleet, 1).numbers[UNSAVED_SINCE].tolist() == [NOW]


def test_a_fleet_that_has_looked_around_knows_them_all_before_anybody_asks(monkeypatch: pytest.MonkeyPatch):
    fleet = Fleet(moment(NODES))
    fleet.look_around()
    monkeypatch.delattr(DeviceHolders, "_look")
    assert [len(found.rows) for found in fleet.holders.of_all()] == [3, 0]


def test_who_shares_a_device_has_a_part_of_it_whoever_the_others_are():
    shares = "  - {name: NAME, queue: a, fraction: 0.3, started: -1h, at: 'n1:0'MORE}\n"
    named = [("s0", ""), ("s1", ""), ("s2", ", preemptible: false")]
    text = NODES + "".join(shares.replace("NAME", name).replace("MORE", more) for name, more in named)
    found = there(Fleet(moment(text)), 1)
    assert sorted(row.name for row in found.rows) == ["s0", "s1"]
    assert found.numbers[PARTS].tolist() == [DEVICE / 3, DEVICE / 3], "the third keeps the device from falling free"
