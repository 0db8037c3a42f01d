"""What makes a job come before its equals: age alone, or its length, what it still needs, or what it has had.

Asked when a job enters the fleet, and by `time_slicing` when time has passed. One number, the smaller the earlier;
jobs of equal number go by rule 7.
"""

from __future__ import annotations

from math import floor, fsum, inf, log

from gpuyard.model.job import Job
from gpuyard.model.policy import OrderBy, OrderPolicy
from gpuyard.model.resources import WHOLE

MOST = 100_000.0
"""GPUs; larger jobs count as this large where size orders a level."""


FIRST = -1.0
"""The number of the one job of a queue that has waited too long: before every other."""


def turn(job: Job, order: OrderPolicy, ran: float = 0.0) -> float:
    """The job's number, given how long its present run has lasted."""
    match order.by:
        case OrderBy.DEFAULT:
            return 0.0
        case OrderBy.SJF:
            return inf if job.duration is None else job.duration
        case OrderBy.SRSF:
            return inf if job.duration is None else max(0.0, job.duration - job.attained - ran) * gpus(job)
        case OrderBy.ATTAINED:
            size = gpus(job)
            return level((job.attained + ran) * size, order) + (
                min(size, MOST) / (MOST + 1) if order.small_first else 0
            )


def gpus(job: Job) -> float:
    """GPUs of all its tasks; a job without any counts as a small one."""
    asked = fsum(group.tasks * (group.request.gpus or group.request.share / WHOLE) for group in job.task_groups())
    return asked or 0.01


def level(attained: float, order: OrderPolicy) -> float:
    """0 up to the first level's GPU time, 1 up to `level_factor` times as much, and so on."""
    if attained < order.first_level:
        return 0.0
    if order.level_factor <= 1:
        return 1.0
    return 1.0 + floor(log(attained / order.first_level, order.level_factor))
