"""How amounts, times and places are said."""

from __future__ import annotations

import pytest

from gpuyard.cli.console import words
from gpuyard.model.job import Bundle, Job, TaskGroup
from gpuyard.model.resources import MILLI, UNLIMITED, WHOLE, Request
from tests.unit.cli.hand_made import job, placed


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0s"), (45, "45s"), (3600, "1h"), (7500, "2h5m"), (86400 * 3 + 60, "3d"), (-5, "0s"), (90061, "1d1h")],
)
def test_a_duration_is_said_in_its_two_largest_units(seconds: float, said: str):
    assert words.duration(seconds) == said


@pytest.mark.parametrize(
    ("amount", "said"), [(80 << 30, "80Gi"), (1 << 40, "1Ti"), (1536 << 20, "1.5Gi"), (7, "7"), (UNLIMITED, "-")]
)
def test_a_size_is_said_in_its_largest_unit(amount: int, said: str):
    assert words.size(amount) == said


def test_neighbours_that_hold_the_same_gpus_are_folded():
    assert words.places(placed(f"n{i}", *range(8)) for i in range(4)) == "n0..n3[0-7]"


def test_nodes_are_in_the_order_people_count():
    assert words.places([placed("n10", 0), placed("n2", 0)]) == "n2[0] n10[0]"


def test_tasks_on_one_node_are_one_place():
    assert words.places([placed("n0", 0), placed("n0", 1, task=1), placed("n0", 5, task=2)]) == "n0[0,1,5]"


def test_a_cpu_only_task_is_a_node_alone():
    assert words.places([placed("n0")]) == "n0"


def test_many_nodes_are_counted_and_not_listed():
    assert words.places(placed(f"n{i}", 0) for i in range(0, 20, 2)) == "n0[0] n2[0] n4[0] n6[0] +6 nodes"


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (Request(gpus=8), "8"),
        (Request(share=500 * MILLI), "0.5"),
        (Request(gpu_memory=20 << 30), "20Gi"),
        (Request(mig=(("1g.10gb", 2),)), "2·1g.10gb"),
        (Request(cpu=1000), "cpu"),
    ],
)
def test_a_request_is_said_as_it_was_asked(request_: Request, said: str):
    assert words.request(request_) == said


def test_a_job_of_several_groups_is_said_group_by_group():
    groups = (TaskGroup("lead", request=Request(gpus=1)), TaskGroup("work", 4, 4, Request(gpus=8)))
    assert words.shape(Job("a", Bundle("", groups, 2))) == "1×1 + 4×8"


def test_some_placements_of_a_job_are_said_as_so_many_tasks():
    assert words.shape(job("a", gpus=2, tasks=4), [placed("n0", 0, 1)]) == "1×2"


def test_an_amount_without_end_is_a_dash():
    assert words.gpus(UNLIMITED) == "-"
    assert words.gpus(WHOLE // 2) == "0.5"


@pytest.mark.parametrize(
    ("level", "said"),
    [("rack", "a rack"), ("nvlink", "an NVLink island"), ("aisle", "an aisle"), ("fleet", "the whole fleet")],
)
def test_a_level_is_said_as_a_place(level: str, said: str):
    assert words.place(level) == said
