"""What a journal writes of events, it reads back: every kind of event, as a property."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import strategies as st

from gpuyard.model import events as told
from gpuyard.model.events import Event, JobSeen
from gpuyard.model.snapshot import Snapshot
from gpuyard.runtime.driving.recording import event_document, event_of
from tests.support.fleets import snapshots
from tests.support.histories import KINDS, histories
from tests.support.laws import law


@pytest.mark.slow
@law(snapshots(), st.data())
def test_an_event_reads_back_as_it_was_written(snapshot: Snapshot, data: Any):
    events, _ = data.draw(histories(snapshot), label="what happens")
    for event in events:
        written = json.loads(json.dumps(event_document(event)))
        assert event_of(written, snapshot.topology, snapshot.now) == _bare(event)


def _bare(event: Event) -> Event:
    """What a job runs is not written down."""
    return JobSeen(replace(event.job, run=None)) if isinstance(event, JobSeen) else event


def test_histories_tell_of_everything_that_can_happen_but_evictions_and_progress():
    text = "".join(function.__code__.co_names.__str__() for function in KINDS.values())
    unheard = [kind.__name__ for kind in get_args(told.Event) if kind.__name__ not in text]
    assert unheard == ["JobEvicted", "JobProgressed"]


@pytest.mark.parametrize(
    "event",
    [told.JobEvicted("a", 1.5), told.JobProgressed("a", 1.5, 3.0), told.JobProgressed("a", 1.5, 3.0, 9.0, 1.0, 0.5)],
)
def test_those_two_read_back_as_well(event: Event):
    assert event_of(json.loads(json.dumps(event_document(event))), (), 0.0) == event
