"""Jobs end at their time limit: warned before, warned again, given the time to save their work, then ended for good.

What a job has run counts, not what it waited for its places to be ready. Supervisors and kubelets keep a limit of their
own as a last resort, a little later: a limit must hold while nobody decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from gpuyard.brain.controllers import Controller
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.brain.engine.picture.memory import Part
from gpuyard.brain.engine.settling import evacuation
from gpuyard.model.actions import Action
from gpuyard.model.events import ActionFailed, Event
from gpuyard.model.outside.phrases import duration
from gpuyard.model.reasons import Code, Reason

AGAIN_S = 60.0
"""A job that is still there so long after its grace is told once more."""


@dataclass(frozen=True, slots=True)
class LimitsTold(Part):
    """Who was told to end and when last, and which start of whom was warned."""

    name: ClassVar[str] = "time_limits_told"
    ended: Mapping[str, float] = field(default_factory=dict)
    warned: Mapping[str, float] = field(default_factory=dict)


class TimeLimits(Controller[LimitsTold]):
    """Warns whoever will soon have run as long as it may, and ends it then."""

    part = LimitsTold
    timed = True
    hears = (ActionFailed,)

    def observe(self, part: LimitsTold, before: Fleet, events: Sequence[Event], now: float) -> LimitsTold:
        """Whom the word did not reach has not been told."""
        missed = {event.job for event in events if isinstance(event, ActionFailed)}
        ended = {name: at for name, at in part.ended.items() if name not in missed}
        warned = {name: start for name, start in part.warned.items() if name not in missed}
        return LimitsTold(ended, warned)

    def act(self, draft: Draft, part: LimitsTold) -> LimitsTold:
        """Tell each once of what is due; say when the next one is."""
        ended: dict[str, float] = {}
        warned: dict[str, float] = {}
        _foresee_starts(draft)
        before = len(draft.said.actions)
        for row in draft.fleet.rolls.running_limited():
            ends = _end(row)
            if ends is None:
                continue
            if draft.is_changed(row):  # who is moved or stopped by this plan is not ended by it too
                if row.name in part.warned:
                    warned[row.name] = part.warned[row.name]
                continue
            if row.name in part.ended:
                ends = part.ended[row.name] + _grace(row) + AGAIN_S
                ended[row.name] = part.ended[row.name]
            elif _warn(draft, row, ends, part):
                warned[row.name] = row.started or 0.0
            if draft.now >= ends:
                evacuation.end(draft, row, _why(row), _grace(row))
                ended[row.name] = draft.now
            draft.look_again(ends)
        draft.said.actions[before:] = sorted(draft.said.actions[before:], key=_whose)  # whoever came first
        return part if (ended, warned) == (part.ended, part.warned) else LimitsTold(ended, warned)


def _whose(action: Action) -> str:
    return getattr(action, "job", "")


def _warn(draft: Draft, row: JobRow, ends: float, part: LimitsTold) -> bool:
    """Warn it if that is due and was not done since this start; whether it has been."""
    if part.warned.get(row.name) == row.started:
        return True
    due = ends - _notice(draft, row)
    if draft.now < due:
        draft.look_again(due)
        return False
    if draft.now < ends:
        evacuation.warn(draft, row, _soon(row, ends - draft.now))
    return True


def _notice(draft: Draft, row: JobRow) -> float:
    """How long before its end a job is warned: a share of its limit, and no less than it needs to save its work."""
    return max(draft.policy.warn_before * (row.job.time_limit or 0.0), _grace(row))


def _foresee_starts(draft: Draft) -> None:
    """Whoever this plan starts will be warned and will end, and nobody may happen to look before."""
    for name in draft.before:
        row = draft.fleet.jobs[name]
        if row.held and not row.running and row.job.time_limit is not None:
            draft.look_again(draft.now + max(row.job.time_limit - _notice(draft, row), 0.0))


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


def _soon(row: JobRow, left: float) -> Reason:
    message = f"{duration(left)} left of its time limit of {duration(row.job.time_limit or 0.0)}"
    return Reason(Code.TIME_LIMIT, where=row.name, message=message)
