"""What one benchmark is, and how its seconds are taken. No benchmark lives here."""

from __future__ import annotations

import cProfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import perf_counter, process_time
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Sample:
    """One run: what was timed, the figure it gives (None: the engine does not do this yet), and numbers beside it."""

    seconds: float
    figure: float | None
    notes: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """One row of the table. `run` is called `runs` times in a process of its own."""

    name: str
    title: str
    unit: str
    run: Callable[[], Sample]
    aim: float | None = None
    more_is_better: bool = False
    peer: str = ""
    runs: int = 5
    bounds: Mapping[str, float] = field(default_factory=dict)
    """The most that numbers beside the figure may be; `p95` and `max` are there where runs are many."""


class Stopwatch:
    """Times calls by its clock; with a profiler set, profiles exactly what it times."""

    profiler: cProfile.Profile | None = None

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock

    def __call__(self, call: Callable[[], T]) -> tuple[float, T]:
        start = self.clock()
        result = Stopwatch.profiler.runcall(call) if Stopwatch.profiler else call()
        return self.clock() - start, result


timed = Stopwatch(perf_counter)
"""What passes on the wall: where others do part of the work."""

worked = Stopwatch(process_time)
"""What one core works: where we do all of it. On an idle machine both are the same; on a busy one the neighbours
do not count."""
