"""When a waiting job could start: by limits, by what running jobs tell of their progress, by earlier jobs."""

from __future__ import annotations

import pytest

from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Durations, Memory, Progresses, Times
from gpuyard.brain.engine.reserving import eta
from tests.support.moments import moment

NOW = 1_767_225_600.0
HOUR = 3600.0
STARTED = NOW - HOUR
FULL = """
nodes: [{name: n0, gpus: 4}]
jobs:
  - {name: a, started: -1h, submitted: -2h, LIMIT at: "n0:0-3"}
  - {name: w, gpus: 4}
"""
Range = tuple[float, float] | None


def draft_of(text: str, durations: Times | None = None, progress: object = None) -> Draft:
    memory = Memory().keeping(Durations(durations or {}), Progresses({"a": progress} if progress else {}))  # type: ignore[dict-item]
    return Draft(Fleet(moment(text)), memory, NOW)


def estimate(text: str, durations: Times | None = None, progress: object = None) -> Range:
    draft = draft_of(text, durations, progress)
    return eta.estimate(draft, draft.fleet.jobs["w"])


def running(limit: str = "") -> str:
    return FULL.replace("LIMIT", f"time_limit: {limit}," if limit else "")


def test_nobody_knows_when_an_endless_job_ends():
    assert estimate(running()) is None
    draft = draft_of(running())
    assert eta.surely(draft, draft.fleet.jobs["w"]) is None


def test_a_time_limit_says_when_at_the_latest_and_half_of_what_is_left_is_a_lucky_guess():
    assert estimate(running("3h")) == (HOUR, 2 * HOUR)
    draft = draft_of(running("3h"))
    found = eta.surely(draft, draft.fleet.jobs["w"])
    assert found is not None
    assert (found.at, [(held.node, held.gpus) for held in found.places]) == (NOW + 2 * HOUR, [(0, (0, 1, 2, 3))])
    assert draft.fleet.jobs["a"].held, "it was only a trial"


def test_who_is_over_its_limit_ends_now():
    assert estimate(running("30m")) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("progress", "left_s"),
    [
        ((STARTED, NOW - 3000, 10.0, NOW, 40.0, 100.0), 6000.0),
        ((STARTED, NOW - 3000, 10.0, NOW - 600, 40.0, 100.0), 2 * 2400 - 600.0),
        ((STARTED, NOW - 3000, 10.0, NOW, 11.0, 100.0), 2 * HOUR),
        ((STARTED - 60, NOW - 3000, 10.0, NOW, 40.0, 100.0), 2 * HOUR),
        ((STARTED, NOW - 3000, 40.0, NOW, 40.0, 100.0), 2 * HOUR),
        ((STARTED, NOW - 3000, 10.0, NOW, 100.0, 100.0), 2 * HOUR),
        ((STARTED, NOW - 3000, 10.0, NOW - 2000, 90.0, 100.0), 2 * HOUR),
    ],
    ids=["its pace", "since it last told", "limit comes first", "an earlier start", "no step", "done", "overdue"],
)
def test_a_job_that_tells_its_progress_ends_when_its_pace_says_or_at_its_limit(
    progress: tuple[float, ...], left_s: float
):
    assert estimate(running("3h"), progress=progress) == (left_s / 2, left_s)


@pytest.mark.parametrize(
    ("seen", "left_s"),
    [
        ((7200.0, 5400.0, 9000.0, 6000.0, 8000.0), 9000.0 - HOUR),
        (tuple(4000.0 + 100 * i for i in range(20)), 4000.0 + 1800 - HOUR),
        ((9000.0,) * 4, None),
        ((600.0, 1200.0, 1800.0, 2400.0, 3600.0), None),
    ],
    ids=["the longest of few", "longer than nine of ten", "too few", "outlasted"],
)
def test_earlier_jobs_of_its_queue_and_class_say_how_long_it_lasts(seen: tuple[float, ...], left_s: float | None):
    found = estimate(running(), {"default/training": seen})
    assert found == (None if left_s is None else (left_s / 2, left_s))
    assert estimate(running(), {"default/batch": seen, "other/training": seen}) is None


def test_what_was_seen_bounds_a_limit_and_a_limit_what_was_seen():
    seen = {"default/training": (5400.0,) * 6}
    assert estimate(running("3h"), seen) == (900.0, 1800.0)
    assert estimate(running("80m"), seen) == (600.0, 1200.0)


def test_who_comes_first_in_the_queue_has_the_first_room():
    text = """
    nodes: [{name: n0, gpus: 2}]
    jobs:
      - {name: a, started: -1h, time_limit: 2h, at: "n0:0"}
      - {name: b, started: -1h, time_limit: 4h, at: "n0:1"}
      - {name: first, gpus: 1, submitted: -10m}
      - {name: w, gpus: 1, submitted: SINCE}
    """
    assert estimate(text.replace("SINCE", "-20m")) == (HOUR / 2, HOUR)
    assert estimate(text.replace("SINCE", "-5m")) == (1.5 * HOUR, 3 * HOUR)
    held = text.replace("SINCE", "-5m").replace("name: first,", "name: first, held: true,")
    assert estimate(held) == (HOUR / 2, HOUR)


def test_only_ends_where_the_job_could_run_count():
    text = """
    nodes: [{name: n0, gpus: 1, model: A100}, {name: n1, gpus: 1, model: H100}]
    jobs:
      - {name: a, started: -1h, time_limit: 2h, at: "n0:0"}
      - {name: b, started: -1h, time_limit: 4h, at: "n1:0"}
      - {name: w, gpus: 1, models: [H100]}
    """
    assert estimate(text) == (1.5 * HOUR, 3 * HOUR)


def test_a_job_that_this_plan_starts_has_its_whole_limit_before_it():
    draft = draft_of("nodes: [{name: n0, gpus: 1}]\njobs: [{name: w, gpus: 1, time_limit: 2h, started: -1h}]")
    row = draft.fleet.jobs["w"]
    assert eta.limit_end(draft, row) == NOW + HOUR, "as if it ran"
    draft.remember(row)
    assert eta.limit_end(draft, row) == NOW + 2 * HOUR


def test_a_gang_of_which_one_task_moves_begins_its_time_limit_anew():
    draft = draft_of(
        "nodes: [{name: n0, gpus: 4}]\njobs: [{name: g, tasks: 2, started: -1h, time_limit: 3h, at: ['n0:0', 'n0:1']}]"
    )
    row = draft.fleet.jobs["g"]
    assert eta.limit_end(draft, row) == NOW + 2 * HOUR
    draft.remember(row)
    last = row.held[-1]
    draft.tx.lift(row, last)
    assert eta.limit_end(draft, row) == NOW + 2 * HOUR, "it shrank, and runs on where it stood"
    draft.tx.put(row, last._replace(gpus=(3,)))
    assert eta.limit_end(draft, row) == NOW + 3 * HOUR
    draft.tx.put(row, last)
    assert eta.limit_end(draft, row) == NOW + 2 * HOUR, "it grew"
