"""What jobs ask for, remembered for a day: what is free is measured by it, whoever waits. It plans nothing."""

from __future__ import annotations

from collections.abc import Sequence

from gpuyard.brain.controllers import Controller
from gpuyard.brain.engine.defrag.asked import AskedShape, DayAsked, asked_by
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.model.events import Event, JobSeen


class DemandAsked(Controller[DayAsked]):
    """Counts each job once, when it first comes."""

    part = DayAsked
    hears = (JobSeen,)

    def observe(self, part: DayAsked, before: Fleet, events: Sequence[Event], now: float) -> DayAsked:
        """A picture that is built anew is told of every job again; those that were counted are known by their age."""
        asked: dict[AskedShape, float] = {}
        anew = not before.jobs
        for event in events:
            if not isinstance(event, JobSeen) or event.job.name in before.jobs or event.job.foreign:
                continue
            if anew and event.job.submitted <= part.upto:
                continue
            for shape, gpus in asked_by(event.job):
                asked[shape] = asked.get(shape, 0.0) + gpus
        return part.with_asked({shape.key: gpus for shape, gpus in asked.items()}, now) if asked else part
