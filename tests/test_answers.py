"""Moments drawn at random are answered as they were when somebody last looked, and with the same work; see
tests/support/answers.py and tests/support/work.py."""

from __future__ import annotations

import builtins

import pytest

from tests.support import answers, corners, sums, work

AT_ONCE = 30
LINES = answers.YARDS.read_text(encoding="utf-8").splitlines()


@pytest.fixture(autouse=True)
def nobody_sums_floats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtins, "sum", sums.only_of_integers)


def test_whoever_sums_floats_is_named():
    product = {"__name__": "gpuyard.brain.somewhere"}
    assert eval("sum((1, 2), 3)", product) == 6
    with pytest.raises(AssertionError, match=r"gpuyard\.brain\.somewhere adds floats"):
        eval("sum((1, 0.5))", product)


QUICK = 8
"""Each of so many is asked in the inner loop too."""


@pytest.mark.parametrize(
    "number", [pytest.param(n, marks=() if n % QUICK == 0 else pytest.mark.slow) for n in range(len(LINES))]
)
def test_a_yard_is_answered_as_it_was(number: int):
    assert answers.changes_of_yard(f"yard {number}", answers.yard(LINES[number])) == []


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, corners.COUNT, AT_ONCE))
def test_a_corner_is_answered_as_it_was(first: int):
    numbers = range(first, min(first + AT_ONCE, corners.COUNT))
    assert [told for n in numbers for told in answers.changes_of_yard(f"corner {n}", answers.corner(n))] == []


def test_an_answer_that_changed_is_told_by_its_part():
    name = "yard 0"
    as_kept = dict(zip(answers.PARTS, answers.kept()[name], strict=True))
    assert answers.differences(name, as_kept) == []
    (told,) = answers.differences(name, as_kept | {"waiting": "other", "defrag": "other"})
    assert told.startswith("other waiting, defrag than is kept")
    assert answers.differences("a yard that nobody has kept", as_kept) == []


def test_every_step_that_is_counted_is_one_of_the_brain():
    assert list(work.unknown_steps()) == []


def test_steps_are_counted_whatever_was_asked_before():
    snapshot = answers.corner(0)
    first, again = (work.counted(lambda: answers.to_question(snapshot, "outlook"))[1] for _ in range(2))
    assert first == again
    assert first["trying"] > 0


def test_work_that_is_more_than_before_is_told_in_steps():
    name = "yard 0, outlook"
    as_kept = work.kept()[name]
    assert work.differences(name, as_kept) == []
    (told,) = work.differences(name, as_kept | {"placing": as_kept["placing"] + 7})
    assert f"placing {as_kept['placing']} -> {as_kept['placing'] + 7} steps" in told
    assert work.differences("a yard that nobody has kept", as_kept) == []
