"""What a trace is once it is read: who arrives when, how long it works, and what demand is known beforehand.

Made by the readers, consumed by `world`. Times are seconds from the trace's start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gpuyard.model.job import Job


@dataclass(frozen=True, slots=True)
class Arrival:
    """One job comes. `work` is how long it runs when nothing stops it; None: it stays for ever."""

    at: float
    job: Job
    work: float | None = None
    overhead: float = 0.0
    """What a start costs this job, in seconds of its run."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Arrivals in order, and what is known before the first."""

    name: str
    arrivals: tuple[Arrival, ...]
    expected: tuple[tuple[Job, float], ...] = ()
    """Sample jobs with their number: the demand known beforehand, by whoever replays with that knowledge."""
    tried_once: bool = False
    """Tasks only arrive; each is tried once and dropped if it does not fit (the rules of the FGD experiment)."""
    notes: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a trace that is replayed, seconds since the epoch."""

    since: float = float("-inf")
    until: float = float("inf")

    def holds(self, at: float) -> bool:
        """Whether a moment lies in it; the end does not."""
        return self.since <= at < self.until


def by_time(arrivals: Sequence[Arrival]) -> tuple[Arrival, ...]:
    """In order of arrival, equals by name."""
    return tuple(sorted(arrivals, key=lambda arrival: (arrival.at, arrival.job.name)))
