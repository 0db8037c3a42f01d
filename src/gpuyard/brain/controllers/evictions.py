"""Evictions that happened, counted so that nobody is a victim again and again (rule 21). It plans nothing.

What a plan merely wanted does not count: the world tells when a gang has really gone.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpuyard.brain.controllers import Controller
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Evictions, only_recent
from gpuyard.model.events import Event, JobEvicted

DAY_S = 86_400.0


class EvictionsSeen(Controller[Evictions]):
    """Remembers a day of them."""

    part = Evictions
    hears = (JobEvicted,)

    def observe(self, part: Evictions, before: Fleet, events: Sequence[Event], now: float) -> Evictions:
        """One more for each gang that has gone."""
        gone = [event for event in events if isinstance(event, JobEvicted)]
        if not gone:
            return part
        times = only_recent(part.times, now, DAY_S)
        for event in gone:
            times[event.name] = (*times.get(event.name, ()), event.at)
        return Evictions(times)
