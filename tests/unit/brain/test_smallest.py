"""The smallest jobs that could be moved: known from one look, and the same as a fresh look however much has changed."""

from __future__ import annotations

import random

import pytest

from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.known import smallest
from gpuyard.brain.engine.picture.known.smallest import SmallestJobs
from gpuyard.brain.engine.picture.transaction import Transaction
from gpuyard.model.events import Event, JobGone, JobSeen
from gpuyard.model.job import Job, Placement, TaskGroup, one_group
from gpuyard.model.node import Gpu, Node
from gpuyard.model.queue import Queue
from gpuyard.model.resources import Request
from gpuyard.model.snapshot import Snapshot

NODES = tuple(Node(f"n{i}", model="H100", gpus=tuple(Gpu(g) for g in range(8)), cpu=96_000) for i in range(8))


def job_of_dice(dice: random.Random, number: int) -> Job:
    """One that runs on CPUs alone, with GPUs if its node has a place for such a number, or is firm."""
    gpus = tuple(range(number % 4)) if number < 8 else ()
    return Job(
        f"j{number:02d}", queue="q", gang=one_group(TaskGroup(request=Request(gpus=len(gpus), cpu=1000))),
        submitted=float(dice.randrange(5)), started=9.0, preemptible=dice.random() < 0.8,
        placements=(Placement(f"n{number % 8}", gpus),),
    )  # fmt: skip


def names(fleet: Fleet, tried: Transaction | None = None) -> list[str]:
    return [row.name for row in fleet.smallest.first(6, tried.touched() if tried is not None else ())]


def afresh(fleet: Fleet) -> list[str]:
    return [row.name for row in SmallestJobs(fleet.jobs).first(6)]


@pytest.mark.parametrize(("known", "changed"), [(8, 1024), (8, 3), (64, 3), (512, 1024)])
def test_they_are_those_of_a_fresh_look_whatever_happened_and_whatever_a_plan_tries(
    known: int, changed: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(smallest, "MOST_KNOWN", known)
    monkeypatch.setattr(smallest, "MOST_CHANGED", changed)
    dice = random.Random(known + changed)
    jobs = tuple(job_of_dice(dice, number) for number in range(30))
    fleet = Fleet(Snapshot(now=10.0, nodes=NODES, queues=(Queue("q"),), jobs=jobs))
    for _ in range(60):
        name = f"j{dice.randrange(30):02d}"
        came: Event = JobSeen(job_of_dice(dice, int(name[1:])))
        fleet.apply([JobGone(name) if name in fleet.jobs and dice.random() < 0.5 else came])
        tx = Transaction(fleet)
        for row in dice.sample(list(fleet.jobs.values()), 3):
            tx.lift_all(row, row.held)
        assert names(fleet, tx) == afresh(fleet)
        tx.rollback()
        assert names(fleet) == afresh(fleet)


def test_not_every_job_is_looked_at_again_when_some_have_changed(monkeypatch: pytest.MonkeyPatch):
    dice = random.Random(1)
    jobs = tuple(job_of_dice(dice, number) for number in range(30))
    fleet = Fleet(Snapshot(now=10.0, nodes=NODES, queues=(Queue("q"),), jobs=jobs))
    fleet.look_around()
    fleet.apply([JobGone("j09"), JobSeen(job_of_dice(dice, 10))])
    expected = afresh(fleet)
    monkeypatch.delattr(SmallestJobs, "look")
    assert names(fleet) == expected


def test_what_a_plan_keeps_is_known_as_well():
    dice = random.Random(2)
    jobs = tuple(job_of_dice(dice, number) for number in range(30))
    fleet = Fleet(Snapshot(now=10.0, nodes=NODES, queues=(Queue("q"),), jobs=jobs))
    first = fleet.jobs[names(fleet)[0]]
    tx = Transaction(fleet)
    tx.lift_all(first, first.held)
    tx.commit()
    assert first.name not in names(fleet)
    assert names(fleet) == afresh(fleet)
