"""What jobs tell of their own progress: when each will end, and what a restart costs jobs like it. It plans nothing.

From start to first progress a job warms up: loads its data, its model, its checkpoint. Whoever is stopped pays that
again, so it weighs where victims are chosen (rule 19).
"""

from __future__ import annotations

from collections.abc import Sequence

from gpuyard.brain.controllers import Controller
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.brain.engine.picture.memory import Headway, Progresses
from gpuyard.model.events import Event, JobGone, JobProgressed

KEPT = 20
"""Warm-ups remembered per family; older ones say little about tomorrow."""


class ProgressSeen(Controller[Progresses]):
    """Learns from those who tell."""

    part = Progresses
    hears = (JobProgressed, JobGone)

    def observe(self, part: Progresses, before: Fleet, events: Sequence[Event], now: float) -> Progresses:
        """The first word since a start ends the warm-up, each later one says how fast the job is."""
        jobs, warm_ups = dict(part.jobs), dict(part.warm_ups)
        for event in events:
            if isinstance(event, JobGone):
                jobs.pop(event.name, None)
            elif isinstance(event, JobProgressed) and (row := before.jobs.get(event.job)) is not None:
                _hear(row, event, jobs, warm_ups)
        return part if (jobs, warm_ups) == (part.jobs, part.warm_ups) else Progresses(jobs, warm_ups)


def _hear(row: JobRow, event: JobProgressed, jobs: dict[str, Headway], warm_ups: dict[str, tuple[float, ...]]) -> None:
    if row.started is None or event.at < row.started:
        return
    known = jobs.get(row.name)
    if known is None or known[0] != row.started:
        seen = warm_ups.get(row.family, ())
        warm_ups[row.family] = (*seen, round(event.at - row.started, 3))[-KEPT:]
        known = (row.started, event.at, event.done, event.at, event.done, event.total)
    jobs[row.name] = (*known[:3], event.at, event.done, event.total)
