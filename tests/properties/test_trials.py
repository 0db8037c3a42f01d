"""A what-if leaves everything as it was, unless it is kept: also when it fails with an error, at any depth."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.brain.engine import cycle
from gpuyard.brain.engine.giving_way import growth
from gpuyard.brain.engine.giving_way.claims import Claim
from gpuyard.brain.engine.giving_way.room_making import RoomMaker
from gpuyard.brain.engine.nodes.columns import sick
from gpuyard.brain.engine.nodes.vacancy import Vacancy
from gpuyard.brain.engine.picture.draft import Draft, Said
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.brain.engine.picture.transaction import Transaction
from gpuyard.brain.engine.picture.trial import Trial
from gpuyard.brain.engine.picture.waits import Waits
from gpuyard.brain.engine.placing import gang
from gpuyard.brain.engine.reserving import backfill
from gpuyard.brain.engine.sharing.quota import QueueTree
from gpuyard.model.reasons import Code, Reason
from gpuyard.model.snapshot import Snapshot
from tests.support.fleets import crowded, snapshots
from tests.support.pictures import differences, picture

WORKED_OUT = {"_capacity", "_shares", "_dues", "_free", "_largest", "claims", "effort", "promises", "look_again_at"}
"""What a draft has found out or tried, which stays true: whoever comes next need not find it out again."""


def state(draft: Draft) -> dict[str, object]:
    """All that a trial may change: the fleet, what holds for a while, and every field of the draft."""
    fleet = draft.fleet
    aside = (list(fleet.capped), dict(fleet.avoiders), fleet.company.heeded)
    found = {name: told(value) for name, value in vars(draft).items() if name not in WORKED_OUT | {"fleet"}}
    return {**picture(fleet), "aside": aside, "over quota": draft.waits.over_quota, **found}


def told(value: Any) -> object:
    """A field of the draft as it is now."""
    match value:
        case Transaction():
            return len(value)
        case Waits():
            return tuple(value)
        case Said():
            return {name: told(each) for name, each in vars(value).items() if name not in WORKED_OUT}
        case dict():
            return dict(value)
        case list():
            return list(value)
    return value


class Boom(Exception):
    """Something in the middle of a trial."""


def disturb(draft: Draft, data: st.DataObject) -> None:
    """Do what steps do: lift, place, note, wait, try deeper, fail."""
    rows = list(draft.fleet.jobs.values())
    for _ in range(data.draw(st.integers(0, 4))):
        if not rows:
            return
        row = data.draw(st.sampled_from(rows))
        match data.draw(st.sampled_from(["lift", "start", "note", "wait", "deeper", "kept", "boom"])):
            case "lift" if not row.job.foreign:
                draft.remember(row)
                draft.tx.lift_all(row, list(row.held))
            case "start":
                gang.start(draft, row)
            case "note":
                draft.because[row.name] = Reason(Code.FITS)
                draft.served[row.name] = "somebody"
            case "wait":
                draft.wait((row,), Reason(Code.OVER_LIMIT))
            case "deeper":
                with draft.trial():
                    disturb(draft, data)
            case "kept":
                with draft.trial() as trial:
                    disturb(draft, data)
                    trial.keep()
            case "boom":
                raise Boom


def aside(draft: Draft, how: str) -> Trial:
    """A trial of each kind."""
    match how:
        case "relaxed":
            budget = next((each.name for each in draft.fleet.budgets), "")
            return draft.relaxed(quota=False, caps=False, neighbours=False, barred=sick, budget=budget)
        case "bound":
            return draft.bound(draft.kept.values())
    return draft.trial()


@given(snapshot=snapshots(), data=st.data(), how=st.sampled_from(["plain", "bound", "relaxed"]))
def test_a_trial_that_is_not_kept_or_fails_leaves_everything_as_it_was(
    snapshot: Snapshot, data: st.DataObject, how: str
):
    draft = cycle.open_draft(Fleet(snapshot), Memory(), snapshot.now)
    before = state(draft)
    try:
        with aside(draft, how):
            disturb(draft, data)
    except Boom:
        pass
    assert differences(state(draft), before) == []


STEPS: list[tuple[type, str]] = [
    (Transaction, "put"), (Transaction, "lift"), (Transaction, "lift_together"), (QueueTree, "refuses"),
    (QueueTree, "above"), (QueueTree, "within"), (Claim, "right"), (Claim, "_right"), (RoomMaker, "best"),
    (Vacancy, "room"), (Draft, "accept"),
]  # fmt: skip
"""What planning does again and again, with tries of every kind around it."""


@pytest.mark.parametrize("step", STEPS, ids=lambda step: f"{step[0].__name__}.{step[1]}")
@given(data=st.data())
def test_a_plan_that_fails_in_the_middle_of_whatever_it_tries_leaves_everything_as_it_was(
    step: tuple[type, str], data: st.DataObject
):
    snapshot = data.draw(crowded() | snapshots())
    draft = cycle.open_draft(Fleet(snapshot), Memory(), snapshot.now)
    before = state(draft)
    left = data.draw(st.integers(0, 30))
    (owner, name), real = step, getattr(*step)

    def fail_at_last(*given: Any, **more: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise Boom
        return real(*given, **more)

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Boom), draft.trial():
        patch.setattr(owner, name, fail_at_last)
        blocked = cycle.start_all(draft)
        cycle.make_room_all(draft, blocked)
        backfill.with_all_binding(draft, lambda: growth.grow_all(draft))
    assert differences(state(draft), before) == []


def test_what_breaks_a_rule_cannot_be_kept():
    draft = Draft(Fleet(Snapshot()), Memory(), 0.0)
    with draft.relaxed(quota=False) as trial, pytest.raises(AssertionError):
        trial.keep()
