"""One job inside the fleet: what it lacks, which numbers its tasks get, where it stands in line."""

from __future__ import annotations

import random
from math import inf

import pytest

from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.job_rows import MANY, JobRow, WaitingLine, rank_in_queue
from gpuyard.model.job import Bundle
from tests.support.moments import moment

NODES = "nodes: [{name: n, times: 2, gpus: 8}]\n"


def row_of(job: str) -> JobRow:
    return Fleet(moment(f"{NODES}jobs: [{job}]")).jobs["j"]


@pytest.mark.parametrize(
    ("job", "pending", "missing", "complete", "alive"),
    [
        ("tasks: 4, min: 3", 4, 3, False, False),
        ("tasks: 4, min: 3, at: ['n0:0', 'n0:1']", 2, 1, False, True),
        ("tasks: 4, min: 2, at: ['n0:0', 'n0:1']", 2, 0, True, True),
        ("tasks: 4, min: 3, succeeded: 1, at: ['n0:0', 'n0:1']", 1, 0, True, True),
        ("tasks: 4, min: 3, failed: 1, at: ['n0:0', 'n0:1']", 1, 1, False, True),
        ("tasks: 4, min: 1, succeeded: 2", 2, 0, True, False),
    ],
)
def test_ended_members_are_not_started_again_and_those_that_succeeded_count(
    job: str, pending: int, missing: int, complete: bool, alive: bool
):
    row = row_of(f"{{name: j, gpus: 1, {job}}}")
    assert (row.pending(), row.missing(), row.complete(), row.alive()) == (pending, missing, complete, alive)
    assert row.open_groups() == [0]


NEST = """
{name: j, min_groups: 2, groups: [
  {name: a, tasks: 2, gpus: 1},
  {name: b, min_groups: MIN, groups: [{name: c, tasks: 1, gpus: 1}, {name: d, tasks: 2, min: 1, gpus: 1}]},
  {name: e, tasks: 1, gpus: 1}], at: [PLACES]}
"""


@pytest.mark.parametrize(
    ("least", "places", "complete", "whole"),
    [
        (1, "n0:0 a.0, n0:1 a.1", False, [True, False, False]),
        (1, "n0:0 a.0, n0:1 a.1, n0:2 d.0", True, [True, True, False]),
        (2, "n0:0 a.0, n0:1 a.1, n0:2 d.0", False, [True, False, False]),
        (2, "n0:0 a.0, n0:1 c.0, n0:2 d.0, n0:3 e.0", True, [False, True, True]),
        (1, "n0:0 a.0, n0:3 e.0", False, [False, False, True]),
    ],
)
def test_a_bundle_is_complete_with_as_many_complete_groups_as_it_asks_for(
    least: int, places: str, complete: bool, whole: list[bool]
):
    listed = []
    for place in places.split(", "):
        where, _, task = place.partition(" ")
        node, _, gpu = where.partition(":")
        group, _, number = task.partition(".")
        listed.append(f"{{node: {node}, gpus: [{gpu}], group: {group}, task: {number}}}")
    text = NEST.replace("MIN", str(least)).replace("at: [PLACES]", f"placements: [{', '.join(listed)}]")
    row = row_of(text.strip())
    assert row.complete() is complete
    found = [
        row.bundle_complete(inner, first)[0] if isinstance(inner, Bundle) else row.missing(first) == 0
        for inner, first in zip(row.job.gang.groups, (0, 1, 3), strict=True)
    ]
    assert found == whole
    assert row.bundle_complete(row.job.gang, 0) == (complete, 4)


def test_new_tasks_get_the_lowest_numbers_that_nobody_has_and_that_have_not_ended():
    assert row_of("{name: j, tasks: 4, gpus: 1}").lowest_free_tasks(0, 3) == [0, 1, 2]
    some = row_of("{name: j, tasks: 5, min: 1, gpus: 1, at: ['n0:0', 'n0:1']}")
    assert some.lowest_free_tasks(0, 2) == [2, 3]
    assert some.lowest_free_tasks(0, 4) == [2, 3, 4, 5]


@pytest.mark.parametrize(
    ("job", "since"),
    [
        ("started: -2h, at: 'n0:0'", -7200.0),
        ("started: -2h, checkpoint: {last: -1h}, at: 'n0:0'", -3600.0),
        ("started: -1h, checkpoint: {last: -2h}, at: 'n0:0'", -3600.0),
        ("gpus: 1", inf),
    ],
)
def test_work_is_unsaved_since_the_start_or_the_last_checkpoint_whichever_is_later(job: str, since: float):
    snapshot = moment(f"{NODES}jobs: [{{name: j, {job}}}]")
    row = Fleet(snapshot).jobs["j"]
    assert row.unsaved_since == (inf if since == inf else snapshot.now + since)


def test_the_younger_sorts_first_and_among_equals_the_larger_name():
    ages = {"a": 1, "b": 1, "job-1": 1, "job-10": 1, "job-1-x": 1, "c": 2}
    jobs = ", ".join(f"{{name: {name}, submitted: -{hours}h}}" for name, hours in ages.items())
    fleet = Fleet(moment(f"{NODES}jobs: [{jobs}]"))
    youngest_first = ["job-10", "job-1-x", "job-1", "b", "a", "c"]
    assert sorted(fleet.jobs, key=lambda name: fleet.jobs[name].youth) == youngest_first


# --- lines ----------------------------------------------------------------------------------------


def waiting(count: int) -> list[JobRow]:
    jobs = ", ".join(
        f"{{name: j{i:03}, gpus: 1, priority: {i % 3}, submitted: -{1 + i * 7 % 50}m}}" for i in range(count)
    )
    return list(Fleet(moment(f"{NODES}jobs: [{jobs}]")).jobs.values())


@pytest.mark.parametrize("count", [3, MANY - 1, MANY, MANY + 1, 3 * MANY])
def test_a_line_stands_in_order_however_many_join_and_leave_at_once(count: int):
    rows, dice = waiting(count), random.Random(count)
    line, there = WaitingLine("key"), set[JobRow]()
    assert not line
    for part in (count, count // 2, 1, count // 3):
        for row in dice.sample(rows, part):
            if row in there:
                line.leave(row)
                there.remove(row)
            else:
                line.join(row)
                there.add(row)
        assert bool(line) is bool(there)
        assert list(line.rows()) == sorted(there, key=rank_in_queue)
        assert line.waits() == sorted(row.wait for row in there)
        if there:
            assert line.head is min(there, key=rank_in_queue)


def test_a_line_is_the_same_until_somebody_joins_or_leaves_and_a_trial_undone_leaves_no_trace():
    first, second, third = waiting(3)
    line = WaitingLine("key")
    line.join(first)
    line.join(second)
    stood = line.rows()
    assert line.rows() is stood
    line.leave(first)
    line.join(first)
    assert line.rows() is stood
    line.join(third)
    line.leave(third)
    assert line.rows() is stood
    assert line.waits() == sorted((first.wait, second.wait))
    line.leave(second)
    assert line.rows() == (first,)
    assert line.waits() == [first.wait]
