"""What is tried is logged: who was changed since a mark, what was taken since, and back again."""

from __future__ import annotations

import pathlib
import re

import gpuyard
from gpuyard.brain.engine.nodes.columns import Held
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.brain.engine.picture.transaction import MANY, Transaction
from gpuyard.model.resources import WHOLE
from tests.support.moments import moment
from tests.support.pictures import differences, picture

TWO = """
nodes: [{name: n0, gpus: 4}]
jobs: [{name: a, at: "n0:0"}, {name: b, tasks: 2, gpus: 1}]
"""


def opened() -> tuple[Fleet, Transaction, JobRow, JobRow]:
    fleet = Fleet(moment(TWO))
    return fleet, Transaction(fleet), fleet.jobs["a"], fleet.jobs["b"]


def on(gpu: int) -> Held:
    return Held(0, gpu, 0, (gpu,), 0, (), WHOLE, 0, 0, False)


def test_who_was_changed_is_named_once_in_the_order_of_change():
    _, tx, a, b = opened()
    tx.put(b, on(1))
    tx.lift(a, a.held[0])
    tx.put(b, on(2))
    tx.put(a, on(3))
    assert [row.name for row in tx.touched()] == ["b", "a"]


def test_what_a_job_took_since_a_mark_leaves_out_others_and_what_was_lifted():
    _, tx, a, b = opened()
    tx.put(b, on(1))
    mark = tx.checkpoint()
    tx.lift_all(a, a.held)
    tx.put(a, on(3))
    tx.put(b, on(2))
    assert tx.added(b, mark) == [on(2)]
    assert tx.added(b, 0) == [on(1), on(2)]
    assert tx.added(a, 0) == [on(3)]


def test_rolling_back_undoes_all_since_the_mark_and_nothing_before():
    fleet, tx, a, b = opened()
    untouched = picture(fleet)
    tx.put(b, on(1))
    mark, marked = tx.checkpoint(), picture(fleet)
    tx.lift_all(a, a.held)
    tx.put(b, on(0))
    tx.rollback(mark)
    assert differences(picture(fleet), marked) == []
    tx.rollback()
    assert differences(picture(fleet), untouched) == []


def test_many_changes_are_undone_together_as_they_would_be_one_by_one():
    fleet, tx, a, b = opened()
    untouched = picture(fleet)
    tx.put(b, on(1))
    mark, marked = len(tx), picture(fleet)
    for _ in range(MANY):
        tx.lift_all(a, a.held)
        tx.put(b, on(0))
        tx.lift(b, on(0))
        tx.put(a, on(2))
    tx.lift(b, on(1))
    tx.rollback(mark)
    assert differences(picture(fleet), marked) == []
    assert len(tx) == mark
    tx.rollback()
    assert differences(picture(fleet), untouched) == []


def test_what_is_committed_stays():
    fleet, tx, _, b = opened()
    tx.put(b, on(1))
    kept = picture(fleet)
    tx.commit()
    tx.rollback()
    assert (tx.checkpoint(), tx.touched()) == (0, [])
    assert differences(picture(fleet), kept) == []


def test_nobody_beside_trials_sets_marks_or_rolls_back_to_them():
    by_hand = re.compile(r"\.checkpoint\(\)|\.rollback\([^)]")
    brain = pathlib.Path(gpuyard.__file__).parent / "brain"
    found = {path.name for path in brain.rglob("*.py") if by_hand.search(path.read_text(encoding="utf-8"))}
    assert found == {"trial.py"}
