"""Laws of the fleet: what is tried can be undone without a trace, and events lead where a fresh build does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import note
from hypothesis import strategies as st

from gpuyard.brain.decide import decide
from gpuyard.brain.engine import cycle
from gpuyard.brain.engine.picture import fleet as picture_of_the_brain
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.brain.engine.placing import gang
from gpuyard.model.events import Event
from gpuyard.model.snapshot import Snapshot
from tests.support.fleets import snapshots
from tests.support.histories import histories
from tests.support.laws import law, tell
from tests.support.pictures import differences, picture


@law(snapshots())
def test_rolling_a_cycle_back_restores_every_column_bit_for_bit(snapshot: Snapshot):
    tell(snapshot)
    fleet = Fleet(snapshot)
    before = picture(fleet)
    cycle.cycle(fleet, Memory(), snapshot.now).tx.rollback()
    assert differences(before, picture(fleet)) == []


@law(snapshots())
def test_deciding_leaves_the_fleet_as_it_was_and_says_the_same_again(snapshot: Snapshot):
    tell(snapshot)
    fleet = Fleet(snapshot)
    before = picture(fleet)
    first = decide(fleet, Memory(), snapshot.now)
    assert differences(before, picture(fleet)) == []
    assert decide(fleet, Memory(), snapshot.now) == first


@law(
    snapshots(), st.lists(st.tuples(st.sampled_from(("start", "lift", "mark", "back")), st.integers(0, 9)), max_size=12)
)
def test_anything_tried_is_undone_to_the_mark_it_began_at(snapshot: Snapshot, steps: list[tuple[str, int]]):
    tell(snapshot)
    fleet = Fleet(snapshot)
    draft = cycle.open_draft(fleet, Memory(), snapshot.now)
    marks = [(0, picture(fleet))]
    for step, number in steps:
        take_step(draft, step, number, marks)
    while marks:
        go_back(draft, marks)


Marks = list[tuple[int, dict[str, Any]]]


def take_step(draft: Draft, step: str, number: int, marks: Marks) -> None:
    """Start or lift a job, set a mark, or go back to the last one."""
    names = sorted(draft.fleet.jobs)
    row = draft.fleet.jobs[names[number % len(names)]] if names else None
    if step == "mark":
        marks.append((draft.tx.checkpoint(), picture(draft.fleet)))
    elif step == "back" and len(marks) > 1:
        go_back(draft, marks)
    elif step == "start" and row is not None and not row.complete():
        gang.start(draft, row)
    elif step == "lift" and row is not None:
        draft.tx.lift_all(row, row.held)


def go_back(draft: Draft, marks: Marks) -> None:
    """Roll back to the last mark and compare with what was there."""
    mark, then = marks.pop()
    draft.tx.rollback(mark)
    assert differences(then, picture(draft.fleet)) == []


@law(st.data(), snapshots(most_jobs=6))
def test_events_one_by_one_give_the_fleet_that_a_fresh_build_gives(data: st.DataObject, snapshot: Snapshot):
    tell(snapshot)
    events, end = data.draw(histories(snapshot), label="what happens")
    tell(end, "where it leads")
    fleet, fresh = lived_through(snapshot, events), Fleet(end)
    assert differences(picture(fresh), picture(fleet)) == []
    assert decide(fleet, Memory(), end.now) == decide(fresh, Memory(), end.now)


@law(st.data(), snapshots(most_jobs=6))
def test_events_of_one_turn_lead_where_a_fresh_build_does(data: st.DataObject, snapshot: Snapshot):
    tell(snapshot)
    events, end = data.draw(histories(snapshot, most=10), label="what happens")
    tell(end, "where it leads")
    fleet, fresh = Fleet(snapshot), Fleet(end)
    decide(fleet, Memory(), snapshot.now)
    fleet.apply(events)
    assert differences(picture(fresh), picture(fleet)) == []
    assert decide(fleet, Memory(), end.now) == decide(fresh, Memory(), end.now)


@law(st.data(), snapshots(most_jobs=6))
def test_letting_go_of_what_nobody_asks_for_any_more_changes_nothing(data: st.DataObject, snapshot: Snapshot):
    tell(snapshot)
    events, end = data.draw(histories(snapshot), label="what happens")
    tell(end, "where it leads")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(picture_of_the_brain, "REQUESTS_KEPT", -1_000_000)  # at every event
        fleet = lived_through(snapshot, events)
    asked = {request for row in fleet.jobs.values() for request in row.requests}
    assert not events or asked <= set(fleet.requests.values())
    assert differences(picture(Fleet(end)), picture(fleet)) == []
    assert decide(fleet, Memory(), end.now) == decide(Fleet(end), Memory(), end.now)


def lived_through(snapshot: Snapshot, events: list[Event]) -> Fleet:
    """A fleet that was planned for after every event, as a live one is."""
    fleet = Fleet(snapshot)
    decide(fleet, Memory(), snapshot.now)
    for event in events:
        note(str(event))
        fleet.apply([event])
        decide(fleet, Memory(), snapshot.now)
    return fleet
