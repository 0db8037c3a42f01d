"""The baseline of `yard demo`: the recorded jobs once more, first come, first served.

Called by `demo_summary`. It is a small simulation of its own and no part of the scheduler: jobs start strictly in the
order of their coming, whole, on the first nodes with room; nobody overtakes, moves or gives way.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from gpuyard.model.queue import model_matches


@dataclass(frozen=True)
class Ran:
    """A job as it was recorded: when it came, what it asked for, how long it ran."""

    name: str
    at: float
    tasks: int
    gpus: int
    seconds: float
    models: tuple[str, ...] = ()
    kind: str = "training"


@dataclass(frozen=True)
class FifoNode:
    """A node, as far as this cares."""

    model: str
    gpus: int


def replay(jobs: Sequence[Ran], machines: Sequence[FifoNode]) -> tuple[dict[str, float], float]:
    """How long each job waits, and when the last one ends; one that fits nowhere is left out."""
    free = [machine.gpus for machine in machines]
    ends: list[tuple[float, int, tuple[int, ...], int]] = []
    waits: dict[str, float] = {}
    now = 0.0
    for number, job in enumerate(sorted(jobs, key=lambda job: (job.at, job.name))):
        now = max(now, job.at)
        _finish(ends, free, now)
        while (places := _places(job, machines, free)) is None and ends:
            now = ends[0][0]
            _finish(ends, free, now)
        if places is None:
            continue
        for place in places:
            free[place] -= job.gpus
        waits[job.name] = now - job.at
        heapq.heappush(ends, (now + job.seconds, number, places, job.gpus))
    return waits, max([now, *(end[0] for end in ends)])


def _finish(ends: list[tuple[float, int, tuple[int, ...], int]], free: list[int], now: float) -> None:
    while ends and ends[0][0] <= now:
        _, _, places, gpus = heapq.heappop(ends)
        for place in places:
            free[place] += gpus


def _places(job: Ran, machines: Sequence[FifoNode], free: Sequence[int]) -> tuple[int, ...] | None:
    """The first nodes with room for every task."""
    left, found = list(free), []
    for _ in range(job.tasks):
        for place, machine in enumerate(machines):
            fits = not job.models or any(model_matches(model, machine.model) for model in job.models)
            if fits and left[place] >= job.gpus:
                left[place] -= job.gpus
                found.append(place)
                break
        else:
            return None
    return tuple(found)
