"""What controllers learn from events (durations, evictions), and when timed defragmentation looks."""

from __future__ import annotations

import pytest

from gpuyard.brain.controllers.defragmentation import Defragmentation, Looked
from gpuyard.brain.controllers.durations import KEPT, DurationsSeen
from gpuyard.brain.controllers.evictions import EvictionsSeen
from gpuyard.brain.engine import cycle
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Durations, Evictions, Memory
from gpuyard.model.events import Event, JobEvicted, JobGone, TasksEnded
from tests.support.moments import moment

DAY, HOUR = 86_400.0, 3600.0

RUNNING = """
nodes: [{name: n0, gpus: 4}]
jobs:
  - {name: a, started: -10m, submitted: -1h, at: "n0:0"}
  - {name: b, started: -20m, submitted: -1h, at: "n0:1"}
  - {name: desk, class: interactive, started: -30m, submitted: -1h, at: "n0:2"}
  - {name: waits, gpus: 4}
"""


def learnt(*events: Event, part: Durations | None = None) -> Durations:
    found = moment(RUNNING)
    return DurationsSeen().observe(part or Durations(), Fleet(found), events, found.now + 0.0004)


def ended(name: str, succeeded: int = 1) -> tuple[Event, Event]:
    return TasksEnded(name, (), succeeded=succeeded, failed=1 - succeeded), JobGone(name)


def test_a_job_that_ends_well_says_how_long_its_kind_takes():
    found = learnt(*ended("a"), *ended("b"), *ended("desk"))
    assert found.seconds == {"default/training": (600.0, 1200.0), "default/interactive": (1800.0,)}


@pytest.mark.parametrize(
    "events",
    [
        ended("a", succeeded=0),
        ended("waits"),
        ended("stranger"),
        (TasksEnded("a", (), succeeded=1),),
        (JobGone("a"),),
        (TasksEnded("a", (), succeeded=1), JobGone("b")),
    ],
)
def test_who_fails_is_cancelled_still_runs_or_never_ran_says_nothing(events: tuple[Event, ...]):
    before = Durations({"x": (1.0,)})
    assert learnt(*events, part=before) is before


def test_only_the_last_ones_are_remembered_and_other_kinds_stay():
    before = Durations({"default/training": tuple(map(float, range(KEPT))), "other": (7.0,)})
    found = learnt(*ended("a"), part=before)
    assert found.seconds == {"default/training": (*map(float, range(1, KEPT)), 600.0), "other": (7.0,)}


def test_evictions_are_remembered_for_a_day():
    fleet = Fleet(moment(RUNNING))
    now = 10 * DAY
    part = Evictions({"a": (now - DAY - 1, now - DAY, now - DAY + 1), "b": (now - DAY - 5,)})
    seen = EvictionsSeen().observe(part, fleet, (JobEvicted("a", now - 1), JobEvicted("c", now - 2), JobGone("b")), now)
    assert seen.times == {"a": (now - DAY + 1, now - 1), "c": (now - 2,)}
    assert EvictionsSeen().observe(part, fleet, (JobGone("b"),), now) is part


@pytest.mark.parametrize(
    ("hour", "window", "last", "looks", "again"),
    [
        (5, (0, 0), None, True, 6),  # always open
        (5, (0, 0), 4.5, False, 5.5),  # looked half an hour ago
        (5, (0, 0), 4, True, 6),
        (5, (5, 6), None, True, 6),
        (5, (6, 8), None, False, 6),
        (5, (2, 5), None, False, 26),  # it closed just now, and opens tomorrow
        (5, (4, 5.5), 4.5, False, 28),  # due when it has closed
        (23, (22, 3), None, True, 24),  # past midnight
        (2, (22, 3), None, True, 3),
        (3, (22, 3), None, False, 22),
        (21, (22, 3), None, False, 22),
    ],
)
def test_timed_defragmentation_looks_when_it_is_due_and_its_window_is_open(
    hour: float, window: tuple[float, float], last: float | None, looks: bool, again: float
):
    policy = {"defragment": "propose", "defrag_from": window[0], "defrag_until": window[1]}
    fleet = Fleet(moment('{nodes: [{name: n0, gpus: 4}], jobs: [{name: a, at: "n0:0"}]}', policy=policy))
    midnight = 20_454 * DAY
    draft = cycle.open_draft(fleet, Memory(), midnight + hour * HOUR)
    before = Looked(None if last is None else midnight + last * HOUR)
    after = Defragmentation().act(draft, before)
    assert after == (Looked(draft.now) if looks else before)
    assert draft.said.look_again_at == midnight + again * HOUR


def test_defragmentation_that_is_off_never_looks():
    fleet = Fleet(moment("{policy: {defragment: 'off'}, nodes: [{name: n0, gpus: 4}], jobs: []}"))
    draft = cycle.open_draft(fleet, Memory(), 5 * HOUR)
    assert Defragmentation().act(draft, Looked()) == Looked()
    assert draft.said.look_again_at is None
