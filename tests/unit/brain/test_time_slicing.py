"""Who is lifted for whom, who comes first after waiting too long, and when the brain looks again (time slicing)."""

from __future__ import annotations

import pytest

from gpuyard.brain import decide
from gpuyard.brain.engine.giving_way import time_slicing
from gpuyard.brain.engine.picture import precedence
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Memory, TimeSlices
from gpuyard.brain.engine.queueing.ordering import Bucket
from tests.support.moments import moment

NOW = 1_767_225_600.0


def sliced(jobs: str, weighed: float | None = None) -> Draft:
    """The plan for a node of four GPUs, slices of ten minutes, after the jobs were last weighed then."""
    order = "by: sjf, time_slicing: true, time_slice: 10m"
    text = f"nodes: [{{name: n0, gpus: 4}}]\npolicy: {{order: {{{order}}}}}\njobs: [{jobs}]"
    memory = Memory() if weighed is None else Memory().keeping(TimeSlices(weighed))
    return decide.plan(Fleet(moment(text)), memory, NOW)


def runs(draft: Draft) -> list[str]:
    return sorted(row.name for row in draft.fleet.jobs.values() if row.held)


LONG = "{name: long, duration: 9h, started: -1h, submitted: -2h, at: 'n0:0-3'}"
SHORT = "{name: short, duration: 1h, gpus: 4}"


def test_a_shorter_job_takes_the_place_of_a_longer_one_and_the_next_look_is_a_slice_away():
    draft = sliced(f"{LONG}, {SHORT}")
    assert runs(draft) == ["short"]
    assert draft.said.look_again_at == NOW + 600
    assert draft.memory.of(TimeSlices).weighed_at == NOW


@pytest.mark.parametrize(("ago_s", "lifted"), [(300, False), (599, False), (600, True), (900, True)])
def test_nobody_is_weighed_again_before_its_slice_is_over(ago_s: int, lifted: bool):
    draft = sliced(f"{LONG}, {SHORT}", NOW - ago_s)
    assert runs(draft) == ["short" if lifted else "long"]
    assert draft.said.look_again_at == (NOW + 600 if lifted else NOW - ago_s + 600)
    assert draft.memory.of(TimeSlices).weighed_at == (NOW if lifted else NOW - ago_s)


@pytest.mark.parametrize(
    "jobs",
    [
        LONG,
        f"{LONG}, {SHORT.replace('name', 'held: true, name')}",
        f"{LONG.replace('9h', '30m')}, {SHORT}",
        f"{LONG.replace('name', 'preemptible: false, name')}, {SHORT}",
        f"{LONG.replace('name', 'min_runtime: 2h, name')}, {SHORT}",
        f"{LONG}, {SHORT.replace('gpus: 4', 'gpus: 8')}",
    ],
    ids=["nobody waits", "on hold", "the running one is shorter", "not preemptible", "minimum runtime", "too large"],
)
def test_who_gains_nothing_or_may_not_be_disturbed_runs_on(jobs: str):
    assert runs(sliced(jobs)) == ["long"]


def test_no_look_is_foreseen_for_those_who_are_kept_back():
    held = SHORT.replace("name", "held: true, name")
    assert sliced(f"{LONG}, {held}", NOW - 300).said.look_again_at is None
    assert sliced(f"{LONG}, {held}").memory.of(TimeSlices).weighed_at is None


# --- who has waited too long ----------------------------------------------------------------------


def promoted(jobs: str, patience: str = "1h") -> list[str]:
    text = f"nodes: [{{name: n0, gpus: 4}}]\npolicy: {{order: {{by: sjf, patience: {patience}}}}}\njobs: [{jobs}]"
    draft = Draft(Fleet(moment(text)), Memory(), NOW)
    time_slicing.promote(draft)
    return sorted(row.name for row in draft.fleet.jobs.values() if row.turn == precedence.FIRST)


def test_who_has_waited_as_long_as_the_patience_lasts_comes_first():
    jobs = "{name: late, gpus: 1, submitted: -1h}, {name: soon, gpus: 1, submitted: -59m}"
    assert promoted(jobs) == ["late"]
    assert promoted(jobs, "59m") == ["late", "soon"]


def test_time_that_a_job_ran_is_no_waiting():
    ran = "{name: ran, submitted: -3h, started: RAN, at: 'n0:0'}"
    assert promoted(ran.replace("RAN", "-2h")) == ["ran"]
    assert promoted(ran.replace("RAN", "-121m")) == []


def test_where_more_waits_than_the_fleet_could_run_nobody_comes_first():
    jobs = "{name: j, times: 2, gpus: GPUS, submitted: -2h}"
    assert promoted(jobs.replace("GPUS", "2")) == ["j0", "j1"]
    assert promoted(jobs.replace("GPUS", "3")) == []


@pytest.mark.parametrize(("gpus", "gained"), [(4, True), (8, False)])
def test_lifting_is_said_to_gain_something_only_if_enough_falls_free_for_somebody(gpus: int, gained: bool):
    jobs = f"{LONG}, {SHORT.replace('gpus: 4', f'gpus: {gpus}')}"
    text = f"nodes: [{{name: n0, gpus: 4}}]\npolicy: {{order: {{by: sjf, time_slicing: true}}}}\njobs: [{jobs}]"
    draft = Draft(Fleet(moment(text)), Memory(), NOW)
    row = draft.fleet.jobs["short"]
    blocked = Bucket(row.queue, draft.fleet.shortfall(row), (row,))
    assert time_slicing.lift_later(draft, [blocked]) == gained
    assert runs(draft) == ([] if gained else ["long"])
