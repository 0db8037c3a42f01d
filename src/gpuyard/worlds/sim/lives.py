"""A simulated job from its arrival to its end, and who hears what becomes of it.

Changed by `world` alone; figures, placement files and faults read it.
"""

from __future__ import annotations

from typing import Protocol

from gpuyard.model.job import Placement
from gpuyard.worlds.sim.traces.trace import Arrival


class Live:
    """One job from its arrival to its end."""

    __slots__ = ("arrival", "attempts", "checked", "epoch", "evictions", "expired", "first_start", "held",
                 "left", "overhead", "placements", "slow", "started", "stops", "waits")  # fmt: skip

    def __init__(self, arrival: Arrival, overhead: float) -> None:
        self.arrival = arrival
        self.overhead = overhead
        self.left = arrival.work
        self.placements: tuple[Placement, ...] = ()
        self.slow = 1.0
        """How many times longer its work takes where it stands."""
        self.started = 0.0
        self.checked = 0.0
        """Up to when its work has been counted."""
        self.epoch = 0
        """Tells an end that was foreseen from one that still holds."""
        self.first_start: float | None = None
        self.held = 0.0
        self.stops = 0
        self.attempts = 0
        """Starts of the whole gang, moves among them."""
        self.evictions = 0
        """Stops and moves that a plan wanted; faults are not among them."""
        self.waits: float | None = None
        """Since when it waits again, once it has stopped."""
        self.expired = False
        """Ended by its time limit, with work left."""

    @property
    def running(self) -> bool:
        """Whether it holds a place."""
        return bool(self.placements)


class Observer(Protocol):
    """Hears what happens, in order."""

    def arrived(self, now: float, live: Live) -> None:
        """A job was submitted."""

    def placed(self, now: float, live: Live, moved: bool) -> None:
        """A job started, resumed, or was moved."""

    def resized(self, now: float, live: Live) -> None:
        """An elastic gang goes on with more or fewer tasks."""

    def stopped(self, now: float, live: Live, lost: float) -> None:
        """A job was evicted; `lost` seconds of its work are undone."""

    def failed(self, now: float, live: Live, lost: float) -> None:
        """A failure took tasks from a job; if it does not run now, it fell below its minimum and lost so much work."""

    def finished(self, now: float, live: Live) -> None:
        """A job did all its work, or has `expired`."""

    def dropped(self, now: float, live: Live) -> None:
        """A job that is tried once did not fit."""

    def settled(self, now: float, waiting: int) -> None:
        """A plan was applied; so many jobs wait."""
