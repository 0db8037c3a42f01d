"""Defragmentation in numbers: what room is of use, what freeing devices costs, which sizes a node divides into."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from gpuyard.brain.engine.defrag import candidates, usefulness
from gpuyard.brain.engine.defrag.asked import AskedShape, DayAsked, asked_by
from gpuyard.brain.engine.defrag.candidates import DeviceCosts, NodeGoal
from gpuyard.brain.engine.defrag.usefulness import Usefulness, shapes_wanted
from gpuyard.brain.engine.explaining import sizing
from gpuyard.brain.engine.giving_way import victims
from gpuyard.brain.engine.nodes.columns import Held
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.model.resources import WHOLE
from tests.support.moments import moment

NOW = 1_767_225_600.0
RACKS = """
topology: [rack]
nodes:
  - {name: n0, gpus: 4, domains: {rack: r0}}
  - {name: n1, gpus: 4, domains: {rack: r0}, islands: [[0, 1], [2, 3]]}
  - {name: n2, gpus: 4, domains: {rack: r1}}
jobs:
  - {name: x, gpus: 1, started: -1h, at: "n0:0"}
  - {name: y, gpus: 1, started: -2h, at: "n1:0"}
  - {name: z, gpus: 3, started: -1h, at: "n2:0-2"}
  - {name: w, WANTED}
"""


def draft_of(wanted: str = "gpus: 4") -> Draft:
    return Draft(Fleet(moment(RACKS.replace("WANTED", wanted))), Memory(), NOW)


def useful_for(wanted: str) -> tuple[Draft, Usefulness, int]:
    draft = draft_of(wanted)
    shapes = shapes_wanted(draft)
    row = draft.fleet.jobs["w"]
    return draft, Usefulness(draft, shapes), next(i for i, each in enumerate(shapes) if each.request is row.request)


# --- what fits ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "room", "fits", "size"),
    [
        ("gpus: 2", [1, 1, 0], 2, 2),
        ("gpus: 3", [1, 1, 0], 2, 3),
        ("gpus: 4", [0, 0, 0], 0, 4),
        ("tasks: 2, gpus: 1, topology: {required: rack}", [3, 3, 1], 3, 2),
        ("tasks: 3, gpus: 1, topology: {required: rack}", [3, 3, 1], 2, 3),
        ("tasks: 2, gpus: 1, topology: {required: node}", [1, 1, 0], 2, 2),
        ("tasks: 2, gpus: 1, topology: {required: nvlink}", [1, 1, 0], 2, 2),
        ("gpus: 3, topology: {required: nvlink}", [1, 0, 0], 1, 3),
        ("tasks: 2, gpus: 3", [1, 1, 0], 2, 3),  # no level: task by task
    ],
)
def test_how_many_gangs_of_a_shape_fit_where_they_must_lie_together(wanted: str, room: list[int], fits: int, size: int):
    _, useful, i = useful_for(wanted)
    assert useful.room[i].tolist() == room
    assert [useful.room_at(i, node) for node in range(3)] == room
    assert (useful.fits(i), useful.wanted[i].size) == (fits, size * WHOLE)


def test_room_beyond_what_was_asked_for_is_worth_nothing():
    draft, useful, i = useful_for("tasks: 3, gpus: 2")
    assert (useful.fits(i) * useful.wanted[i].size, useful.wanted[i].asked) == (4 * WHOLE, 6 * WHOLE)
    assert not useful.saturated(i)
    row = draft.fleet.jobs["z"]
    draft.tx.lift(row, row.held[0])
    assert useful.fits(i) == 2
    useful.sync()
    assert useful.fits(i) == 4
    assert useful.saturated(i)
    _, just, k = useful_for("tasks: 2, gpus: 2")
    assert just.fits(k) * just.wanted[k].size == just.wanted[k].asked
    assert just.saturated(k)


def test_shapes_weigh_by_the_gpus_asked_for_the_heaviest_first():
    shapes = shapes_wanted(draft_of("gpus: 4"))
    assert [(each.gpus // WHOLE, each.asked // WHOLE, each.weight) for each in shapes] == [
        (4, 4, 4 / 9),
        (3, 3, 3 / 9),
        (1, 2, 2 / 9),
    ]
    assert usefulness._in_islands(draft_of().fleet.columns, np.array([0, 1, 2]), 1).tolist() == [3, 3, 1]
    assert usefulness._in_islands(draft_of().fleet.columns, np.array([0, 1, 2]), 2).tolist() == [1, 1, 0]
    assert shapes[0].told() == "one more task of 4 GPUs"
    assert shapes[2].told() == "one more task of 1 GPU"


# --- what it costs --------------------------------------------------------------------------------


def unless_z(row: JobRow, held: Held) -> victims.Unit | None:
    return None if row.name == "z" else victims.whole(row)


def test_a_device_costs_its_part_of_who_is_on_it_nothing_where_free_and_ever_so_much_where_somebody_stays():
    draft = draft_of()
    costs = DeviceCosts(draft)
    x, y = (victims.lost_work(draft, victims.whole(draft.fleet.jobs[name])) / WHOLE for name in ("x", "y"))
    bother = candidates.BOTHER
    assert y == 2 * x
    assert costs.sync(unless_z).tolist() == [[x + bother, 0, 0, 0], [y + bother, 0, 0, 0], [inf, inf, inf, 0]]
    row = draft.fleet.jobs["x"]
    held = row.held[0]
    draft.tx.lift(row, held)
    draft.tx.put(row, held._replace(gpus=(3,)))
    assert costs.sync(unless_z).tolist()[0] == [0, 0, 0, x + bother]
    pair = victims.Unit(row, (held, held._replace(gpus=(1, 2))), False, 3 * WHOLE)
    lost = victims.lost_work(draft, pair) / WHOLE
    assert costs._per_device(pair, {}) == (lost + bother) / 3
    assert costs._per_device(None, {}) == inf


def test_the_cheapest_devices_of_a_node_are_freed_first():
    sums = candidates._sums(np.array([[3.0, 1.0, 2.0], [0.0, inf, 5.0]]))
    assert sums.tolist() == [[0.0, 1.0, 3.0, 6.0], [0.0, 0.0, 5.0, inf]]


def test_one_more_task_costs_what_it_lacks_to_the_next_whole_one():
    draft, useful, i = useful_for("gpus: 2")
    costs = np.array([[7.0, 0, 0, 0], [5.0, 0, 0, 0], [inf, inf, inf, 0]])
    assert candidates._price_of_next(draft.fleet.columns, useful, costs, i).tolist() == [7.0, 5.0, inf]
    found = candidates._prices_of_further(draft.fleet.columns, useful, costs, i)
    assert found.tolist() == [[7.0, inf], [5.0, inf], [inf, inf]]
    options = list(candidates._nodes(draft.fleet.columns, useful, costs, i))
    assert options == [(5.0, (NodeGoal(1, 0b1111, 2),)), (7.0, (NodeGoal(0, 0b1111, 2),))]


def test_further_tasks_in_a_domain_are_those_that_cost_least_and_room_there_is_kept():
    draft, useful, i = useful_for("tasks: 4, gpus: 2, topology: {required: rack}")
    costs = np.array([[7.0, 0, 0, 0], [5.0, 0, 0, 0], [2.0, 2.0, 2.0, 0]])
    options = sorted(candidates._domains(draft.fleet.columns, useful, costs, i))
    assert options == [(12.0, (NodeGoal(0, 0b1111, 2), NodeGoal(1, 0b1111, 2)))]
    goals = candidates._goals(draft.fleet.columns, np.array([1, 0, 0]), 0, np.array([0, 0, 2]))
    assert goals == (NodeGoal(0, 0b1111, 1), NodeGoal(2, 0b1111, 2))


def test_an_island_is_priced_by_its_own_devices():
    draft, useful, i = useful_for("gpus: 2, topology: {required: nvlink}")
    costs = np.array([[7.0, 0, 0, 0], [5.0, 0, 0, 0], [inf, inf, inf, 0]])
    found = sorted(candidates._islands(draft.fleet.columns, useful, costs, i))
    assert found == [(5.0, (NodeGoal(1, 0b0011, 2),)), (7.0, (NodeGoal(0, 0b1111, 2),))]


# --- what was asked for in a day ------------------------------------------------------------------

HOUR, HOURS, SHAPES_KEPT = 3600.0, 24, 48


def test_what_was_asked_for_counts_for_a_day_by_the_hour():
    asked = DayAsked().with_asked({"a": 2.0, "b": 1.0}, 0.0).with_asked({"a": 3.0}, HOUR / 2)
    assert asked.total(0.0) == {"a": 5.0, "b": 1.0}
    assert asked.total((HOURS - 1) * HOUR) == {"a": 5.0, "b": 1.0}
    assert asked.total(HOURS * HOUR) == {}
    later = asked.with_asked({"b": 4.0}, (HOURS - 1) * HOUR)
    assert later.total((HOURS - 1) * HOUR) == {"a": 5.0, "b": 5.0}
    assert later.total(HOURS * HOUR) == {"b": 4.0}
    next_day = later.with_asked({}, HOURS * HOUR)
    assert next_day.gpus == {"b": {str(HOURS - 1): 4.0}}
    assert next_day.upto == HOURS * HOUR
    assert next_day.with_asked({}, 0.0).upto == HOURS * HOUR


def test_the_rarest_shapes_are_forgotten_when_there_are_too_many():
    many = {f"s{i:02}": 1.0 + i for i in range(SHAPES_KEPT)}
    asked = DayAsked().with_asked(many, 0.0)
    assert len(asked.gpus) == SHAPES_KEPT
    more = asked.with_asked({"new": 1.5}, 0.0)
    assert set(more.gpus) == {*many, "new"} - {"s00"}


@pytest.mark.parametrize(
    ("job", "shape", "gpus", "words"),
    [
        ("gpus: 8", AskedShape(8 * WHOLE, 1, "", ()), 8.0, "8"),
        ("tasks: 3, gpus: 2", AskedShape(2 * WHOLE, 1, "", ()), 6.0, "2"),
        ("tasks: 3, gpus: 2, topology: {required: rack}", AskedShape(2 * WHOLE, 3, "rack", ()), 6.0, "3×2 in one rack"),
        ("gpus: 2, topology: {required: rack}", AskedShape(2 * WHOLE, 1, "", ()), 2.0, "2"),
        ("gpus: 2, topology: {required: nvlink}", AskedShape(2 * WHOLE, 1, "nvlink", ()), 2.0, "1×2 in one nvlink"),
        ("gpus: 1, topology: {required: nvlink}", AskedShape(WHOLE, 1, "", ()), 1.0, "1"),
        ("fraction: 0.5, models: [H100]", AskedShape(WHOLE // 2, 1, "", ("H100",)), 0.5, "0.5 H100"),
    ],
)
def test_a_job_asks_for_a_shape_inside_a_level_where_several_must_lie_together(
    job: str, shape: AskedShape, gpus: float, words: str
):
    (found,) = asked_by(draft_of(job).fleet.jobs["w"].job)
    assert found == (shape, gpus)
    assert shape.told() == words
    assert AskedShape.of_key(shape.key) == shape


# --- sizes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpus", "width", "sizes"),
    [(3, 8, [2, 3, 4]), (5, 8, [4, 5, 8]), (7, 8, [4, 7, 8]), (5, 6, [3, 5, 6]), (4, 6, [3, 4, 6])],
)
def test_sizes_near_one_that_does_not_divide_a_node_are_those_that_do(gpus: int, width: int, sizes: list[int]):
    assert list(sizing._sizes(gpus, width)) == sizes


@pytest.mark.parametrize(("gpus", "advised"), [(1, False), (2, False), (3, True), (4, False), (5, False)])
def test_only_who_asks_for_a_size_that_leaves_a_rest_is_advised(gpus: int, advised: bool):
    draft = draft_of(f"gpus: {gpus}")
    found = sizing.advise(draft, draft.fleet.jobs["w"])
    assert (found is not None) is advised
    if found is not None:
        assert found.width == 4
        assert [(each.gpus, each.now, each.empty) for each in found.places] == [(2, 2, 6), (3, 2, 3), (4, 0, 3)]


def test_who_asks_for_a_part_of_a_gpu_is_advised_no_size():
    draft = draft_of("fraction: 0.5")
    assert sizing.advise(draft, draft.fleet.jobs["w"]) is None
