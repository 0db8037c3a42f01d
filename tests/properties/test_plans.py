"""Laws of every plan, on random clusters: what is promised, and that nothing but the cluster decides."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import strategies as st

from gpuyard.brain.decide import decide
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.brain.foresee import Foresight, outlook
from gpuyard.files import parse_snapshot, snapshot_document
from gpuyard.model.snapshot import Snapshot
from tests.support.elsewhere import Planner
from tests.support.fleets import NOW, snapshots
from tests.support.invariants import restless, violations
from tests.support.laws import law, tell
from tests.support.second_opinion import left_out


@law(snapshots())
def test_no_plan_breaks_a_promise(snapshot: Snapshot):
    """No GPU over-used, no part of a gang, no limit or quota passed, no level crossed, one model a group, and so on."""
    tell(snapshot)
    assert violations(snapshot, outlook(snapshot)) == []


@law(snapshots())
def test_planning_again_changes_nothing(snapshot: Snapshot):
    tell(snapshot)
    assert restless(snapshot, outlook(snapshot), outlook) == []


@law(snapshots(), st.integers(0, 2**16))
def test_the_order_of_input_means_nothing(snapshot: Snapshot, seed: int):
    tell(snapshot)
    assert outlook(shuffled(snapshot, seed)) == outlook(snapshot)


def shuffled(snapshot: Snapshot, seed: int) -> Snapshot:
    """The same snapshot with every list whose order means nothing in another order."""
    dice = Random(seed)
    lists = ("nodes", "jobs", "queues", "pools", "budgets")
    mixed: dict[str, Any] = {}
    for name in lists:
        things = list(getattr(snapshot, name))
        mixed[name] = tuple(dice.sample(things, len(things)))
    return replace(snapshot, **mixed)


@pytest.fixture(scope="module")
def planners() -> Iterator[tuple[Planner, Planner]]:
    """Two planners whose sets and dicts of strings are laid out differently."""
    pair = Planner(1), Planner(2)
    yield pair
    for planner in pair:
        planner.close()


def test_the_hash_seed_means_nothing(planners: tuple[Planner, Planner]):
    @law(snapshots())
    def holds(snapshot: Snapshot) -> None:
        tell(snapshot)
        assert planners[0].plan(snapshot) == planners[1].plan(snapshot)

    holds()


@law(snapshots())
def test_one_cycle_offline_is_the_next_plan_of_a_live_yard(snapshot: Snapshot):
    tell(snapshot)
    live = decide(Fleet(snapshot), Memory.from_document(snapshot.memory), snapshot.now).plan
    assert Foresight(snapshot, cycles=1).outlook().actions == live.actions


@law(snapshots())
def test_a_job_that_fits_is_not_left_waiting(snapshot: Snapshot):
    """Judged without the engine, for jobs of one group whose queues have no bounds."""
    tell(snapshot)
    assert left_out(snapshot, outlook(snapshot)) == []


@law(snapshots(), share=0.5)
def test_every_random_cluster_is_a_valid_file(snapshot: Snapshot):
    tell(snapshot)
    read = parse_snapshot(json.dumps(snapshot_document(snapshot)), "random.json", NOW)
    assert outlook(read) == outlook(snapshot)
