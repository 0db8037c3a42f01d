"""What was worked out before is used again only where everything it depends on is the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuyard.brain.engine.nodes import feasibility
from gpuyard.brain.engine.nodes.columns import Held
from gpuyard.brain.engine.picture import job_rows
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.placing.fragmentation import follow_demand
from gpuyard.model.events import NodeSeen
from gpuyard.model.job import Job, TaskGroup, one_group
from gpuyard.model.node import Gpu, Health, Node
from gpuyard.model.queue import Queue
from gpuyard.model.resources import MILLI, WHOLE, Request
from gpuyard.model.snapshot import Snapshot


def fleet_of(nodes: tuple[Node, ...], *groups: TaskGroup) -> Fleet:
    """A fleet where one job of each group waits; the demand is known."""
    jobs = tuple(Job(f"j{i}", one_group(group), queue="q", submitted=0.0) for i, group in enumerate(groups))
    fleet = Fleet(Snapshot(now=10.0, nodes=nodes, queues=(Queue("q"),), jobs=jobs))
    follow_demand(fleet)
    return fleet


def scores(fleet: Fleet) -> list[tuple[int, float]]:
    """Room and score of every node for the first job."""
    request = fleet.jobs["j0"].requests[0]
    shape = fleet.shapes.get(request, fleet.shapes.tiers(request, True)[0])
    return list(zip(shape.room.tolist(), shape.score.tolist(), strict=True))


def test_nodes_that_differ_only_in_a_label_somebody_asks_for_are_not_taken_for_each_other():
    gpus = tuple(Gpu(i) for i in range(4))
    nodes = tuple(
        Node(f"n{i}", model="H", gpus=gpus, cpu=9000, labels=(("disk", disk),)) for i, disk in ((0, "a"), (1, "b"))
    )
    picky = TaskGroup(request=Request(gpus=3), node_selector=(("disk", "a"),))
    fleet = fleet_of(nodes, TaskGroup(request=Request(gpus=1)), picky)
    afresh = scores(fleet)
    assert afresh[0] != afresh[1]
    for n in (0, 1):
        held = Held(0, 0, n, (0,), 0, (), WHOLE, 0, 0, False)
        fleet.columns.shift(held, 1)
        fleet.columns.shift(held, -1)
        assert scores(fleet) == afresh


def test_a_part_left_on_a_sick_gpu_is_not_taken_for_one_on_a_sound_gpu():
    sick = (Gpu(0, health=Health.SICK), Gpu(1), Gpu(2))
    sound = (Gpu(0), Gpu(1), Gpu(2))
    nodes = (Node("n0", model="H", gpus=sound, cpu=9000), Node("n1", model="H", gpus=sick, cpu=9000))
    fleet = fleet_of(nodes, TaskGroup(request=Request(share=500 * MILLI)))
    for n in (0, 1):  # half of GPU 0 is in use on both, and GPU 1; on one of them nobody may join the other half
        fleet.columns.shift(Held(0, 0, n, (0,), WHOLE // 2, (), WHOLE // 2, 0, 0, False), 1)
    scores(fleet)
    for n in (0, 1):
        held = Held(0, 0, n, (1,), 0, (), WHOLE, 0, 0, False)
        fleet.columns.shift(held, 1)
        assert scores(fleet)[n][0] == (3, 2)[n]


def test_what_is_remembered_of_jobs_and_nodes_is_bounded_and_no_number_is_given_twice(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(job_rows, "_NUMBERS_KEPT", 4)
    monkeypatch.setattr(job_rows, "_NUMBERS", {})
    given = [job_rows._number(signature) for signature in range(20)]
    assert len(set(given)) == 20
    assert job_rows._number(19) == given[19]
    assert job_rows._number(0) not in given
    assert len(job_rows._NUMBERS) <= 4


def test_a_shape_that_has_seen_too_many_conditions_begins_anew_and_says_the_same(monkeypatch: pytest.MonkeyPatch):
    nodes = tuple(Node(f"n{i}", gpus=tuple(Gpu(g) for g in range(8)), model="H100") for i in range(2))
    fleets = [fleet_of(nodes, TaskGroup(request=Request(gpus=1))) for _ in range(2)]
    told = []
    for fleet, kept in zip(fleets, (1, 1 << 12), strict=True):
        monkeypatch.setattr(feasibility, "STATES_KEPT", kept)
        row = fleet.jobs["j0"]
        for gpu in range(8):
            scores(fleet)
            fleet.shift(row, Held(0, gpu, gpu % 2, (gpu,), 0, (), WHOLE, 0, 0, False), 1)
        shape = fleet.shapes.get(row.requests[0], fleet.shapes.tiers(row.requests[0], True)[0])
        told.append((scores(fleet), len(shape._seen_states)))
    assert told[0][0] == told[1][0]
    assert told[0][1] <= 2 < told[1][1]


def test_machines_that_differ_by_kilobytes_are_of_one_kind_and_still_told_apart_by_who_fits():
    sizes = (1 << 30, (1 << 30) + 1024, (1 << 30) - 1024)
    nodes = tuple(Node(f"n{i}", gpus=(Gpu(0),), memory=size) for i, size in enumerate(sizes))
    fleet = fleet_of(nodes, TaskGroup(request=Request(gpus=1, memory=1 << 30)))
    request = fleet.jobs["j0"].requests[0]
    assert len(set(fleet.columns.kind)) == 1
    assert [room for room, _ in scores(fleet)] == [1, 1, 0]
    assert fleet.shapes.room_when_empty(request).tolist() == [1, 1, 0]
    fleet.apply([NodeSeen(replace(nodes[0], memory=1)), NodeSeen(replace(nodes[2], memory=1 << 30))])
    assert [room for room, _ in scores(fleet)] == [0, 1, 1]
    assert fleet.shapes.room_when_empty(request).tolist() == [0, 1, 1]


def test_a_device_that_gave_its_large_slice_is_not_taken_for_one_that_gave_a_small_one():
    sliced = (Gpu(0, slices=("3g.20gb", "2g.10gb")),)
    nodes = tuple(Node(f"n{i}", model="H", gpus=sliced, cpu=9000) for i in (0, 1))
    fleet = fleet_of(nodes, TaskGroup(request=Request(mig=(("2g.10gb", 1),))))
    assert [room for room, _ in scores(fleet)] == [1, 1]
    for n, profile in enumerate(("3g.20gb", "2g.10gb")):
        fleet.columns.shift(Held(0, 0, n, (0,), 0, (profile,), 0, 0, 0, False), 1)
        scores(fleet)
    assert [room for room, _ in scores(fleet)] == [1, 0]
