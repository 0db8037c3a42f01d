"""Jobs end at their time limit: warned, given the time to save their work, then ended for good, in every world alike.

What a job has run counts, not what it waited for its places to be ready. Supervisors and kubelets keep a limit of their
own as a last resort, a little later: a limit must hold while nobody decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from gpuyard.brain.controllers import Controller
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.brain.engine.picture.memory import Part
from gpuyard.brain.engine.settling import evacuation
from gpuyard.model.reasons import Code, Reason

AGAIN_S = 60.0
"""A job that is still there so long after its grace is told once more."""


@dataclass(frozen=True, slots=True)
class Ended(Part):
    """Who was told to end, and when last."""

    name: ClassVar[str] = "time_limits"
    told: Mapping[str, float] = field(default_factory=dict)


class TimeLimits(Controller[Ended]):
    """Ends whoever has run as long as it may."""

    part = Ended
    timed = True

    def act(self, draft: Draft, part: Ended) -> Ended:
        """Tell those whose time is up, once; say when the next one's is."""
        told = {}
        _foresee_starts(draft)
        for row in draft.fleet.running_limited():
            ends = _end(row)
            if ends is None or draft.is_changed(row):  # who is moved or stopped by this plan is not ended by it too
                continue
            if row.name in part.told:
                ends = part.told[row.name] + _grace(row) + AGAIN_S
                told[row.name] = part.told[row.name]
            if draft.now >= ends:
                evacuation.end(draft, row, _why(row), _grace(row))
                told[row.name] = draft.now
            draft.look_again(ends)
        return part if told == part.told else Ended(told)


def _foresee_starts(draft: Draft) -> None:
    """Whoever this plan starts will end, and nobody may happen to look before."""
    for name in draft.before:
        row = draft.fleet.jobs[name]
        if row.held and not row.running and row.job.time_limit is not None:
            draft.look_again(draft.now + row.job.time_limit)


def _end(row: JobRow) -> float | None:
    """When its time is up; None for one that does not run yet, or is not ours."""
    if row.started is None or row.job.time_limit is None or row.job.foreign or not row.alive():
        return None
    if all(place.assigned for place in row.placements):
        return None
    return row.started + row.job.time_limit


def _grace(row: JobRow) -> float:
    return row.job.checkpoint.grace if row.job.checkpoint is not None else 0.0


def _why(row: JobRow) -> Reason:
    return Reason(Code.TIME_LIMIT, where=row.name, message=f"ran into its time limit of {row.job.time_limit:g} s")
