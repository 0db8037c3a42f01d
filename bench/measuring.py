"""What one benchmark is, and how its seconds are taken. No benchmark lives here."""

from __future__ import annotations

import cProfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import perf_counter
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


class Stopwatch:
    """Times calls; with a profiler set, profiles exactly what it times."""

    def __init__(self) -> None:
        self.profiler: cProfile.Profile | None = None

    def __call__(self, call: Callable[[], T]) -> tuple[float, T]:
        start = perf_counter()
        result = self.profiler.runcall(call) if self.profiler else call()
        return perf_counter() - start, result


timed = Stopwatch()
