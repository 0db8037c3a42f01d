"""Who comes before its equals by length, by what is left, or by what it has had: the number that orders them."""

from __future__ import annotations

from math import inf

import pytest

from gpuyard.brain.engine.picture.precedence import FIRST, level, turn
from gpuyard.model.job import Job, TaskGroup, one_group
from gpuyard.model.policy import OrderBy, OrderPolicy
from gpuyard.model.resources import WHOLE, Request


def job(tasks: int = 1, request: Request | None = None, **more: float) -> Job:
    group = TaskGroup(tasks=tasks, request=request or Request(gpus=1))
    return Job("j", one_group(group), queue="q", submitted=0.0, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("by", "length", "had", "ran", "number"),
    [
        (OrderBy.DEFAULT, 50.0, 10.0, 5.0, 0.0),
        (OrderBy.SJF, 50.0, 10.0, 5.0, 50.0),
        (OrderBy.SJF, None, 10.0, 5.0, inf),
        (OrderBy.SRSF, 50.0, 10.0, 5.0, 3 * 2 * 35.0),
        (OrderBy.SRSF, 50.0, 60.0, 5.0, 0.0),
        (OrderBy.SRSF, 50.5, 45.0, 5.0, 3 * 2 * 0.5),
        (OrderBy.SRSF, None, 10.0, 5.0, inf),
    ],
)
def test_three_tasks_of_two_gpus_each_are_ordered_by(
    by: OrderBy, length: float | None, had: float, ran: float, number: float
):
    asked = job(3, Request(gpus=2), duration=length, attained=had)  # type: ignore[arg-type]
    assert turn(asked, OrderPolicy(by=by), ran) == number


def test_a_fraction_counts_as_its_share_and_a_job_without_gpus_as_a_small_one():
    order = OrderPolicy(by=OrderBy.SRSF)
    assert turn(job(4, Request(share=WHOLE // 4), duration=10.0), order) == pytest.approx(10.0)
    assert turn(job(1, Request(), duration=10.0), order) == pytest.approx(0.1)
    assert turn(job(1, Request(), duration=10.0), order, ran=4.0) == pytest.approx(0.06)


@pytest.mark.parametrize(
    ("had", "expected"), [(0, 0), (99.9, 0), (100, 1), (399, 1), (401, 2), (1599, 2), (1601, 3), (6401, 4)]
)
def test_each_level_is_so_many_times_longer_than_the_one_before(had: float, expected: float):
    assert level(had, OrderPolicy(first_level=100.0, level_factor=4.0)) == expected


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_without_growth_there_are_two_levels(factor: float):
    order = OrderPolicy(first_level=100.0, level_factor=factor)
    assert [level(had, order) for had in (99.0, 100.0, 1e6)] == [0.0, 1.0, 1.0]


def test_what_a_job_had_counts_by_its_gpus_and_its_present_run():
    order = OrderPolicy(by=OrderBy.ATTAINED, first_level=100.0, level_factor=4.0)
    assert turn(job(2, attained=20.0), order, ran=29.0) == 0.0
    assert turn(job(2, attained=20.0), order, ran=31.0) == 1.0


def test_inside_a_level_the_smaller_comes_first_and_no_size_reaches_the_next():
    order = OrderPolicy(by=OrderBy.ATTAINED, first_level=100.0, level_factor=4.0, small_first=True)
    sizes = [turn(job(tasks), order) for tasks in (1, 2, 99_999, 100_000, 200_000)]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[1] < sizes[2] < sizes[3] == sizes[4] < 1.0
    assert sizes[0] > 0.0
    assert turn(job(), OrderPolicy()) > FIRST
