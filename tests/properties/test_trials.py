"""A what-if leaves everything as it was, unless it is kept: also when it fails with an error, at any depth."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.brain.engine import cycle
from gpuyard.brain.engine.nodes.columns import sick
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.brain.engine.placing import gang
from gpuyard.model.reasons import Code, Reason
from gpuyard.model.snapshot import Snapshot
from tests.support.fleets import snapshots
from tests.support.pictures import picture


def state(draft: Draft) -> object:
    """All that a trial may change."""
    notes = (dict(draft.before), dict(draft.because), dict(draft.served), dict(draft.kept), tuple(draft.waits))
    aside = (draft.quota_aside, draft.effort, list(draft.fleet.capped), dict(draft.fleet.avoiders))
    return picture(draft.fleet), notes, aside


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


@given(snapshot=snapshots(), data=st.data(), relaxed=st.booleans())
def test_a_trial_that_is_not_kept_or_fails_leaves_everything_as_it_was(
    snapshot: Snapshot, data: st.DataObject, relaxed: bool
):
    draft = cycle.open_draft(Fleet(snapshot), Memory(), snapshot.now)
    before = state(draft)
    try:
        with draft.relaxed(quota=False, caps=False, neighbours=False, barred=sick) if relaxed else draft.trial():
            disturb(draft, data)
    except Boom:
        pass
    assert state(draft) == before


def test_what_breaks_a_rule_cannot_be_kept():
    draft = Draft(Fleet(Snapshot()), Memory(), 0.0)
    with draft.relaxed(quota=False) as trial, pytest.raises(AssertionError):
        trial.keep()
