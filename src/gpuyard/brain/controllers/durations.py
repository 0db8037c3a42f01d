"""How long jobs took that ended well: what estimates of starts and ends are made from. It plans nothing."""

from __future__ import annotations

from collections.abc import Sequence

from gpuyard.brain.controllers import Controller
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Durations
from gpuyard.brain.engine.reserving.eta import duration_key
from gpuyard.model.events import Event, JobGone, TasksEnded

KEPT = 50
"""Durations remembered per kind of job; older ones say little about tomorrow."""


class DurationsSeen(Controller[Durations]):
    """Learns from jobs that succeed."""

    part = Durations
    hears = (JobGone,)

    def observe(self, part: Durations, before: Fleet, events: Sequence[Event], now: float) -> Durations:
        """Whoever had a task succeed and is gone has ended well."""
        well = {event.job for event in events if isinstance(event, TasksEnded) and event.succeeded}
        if not well:
            return part
        learned: dict[str, tuple[float, ...]] = {}
        for event in events:
            row = before.jobs.get(event.name) if isinstance(event, JobGone) and event.name in well else None
            if row is not None and row.started is not None:
                key = duration_key(row)
                seen = learned.get(key, part.seconds.get(key, ()))
                learned[key] = (*seen, round(now - row.started, 3))[-KEPT:]
        return Durations({**part.seconds, **learned}) if learned else part
