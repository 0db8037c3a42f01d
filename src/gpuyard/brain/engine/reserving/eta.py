"""When could it start: by the time limits of what runs, or by what such jobs took before (rule 20).

Everything here is tried in a transaction and undone. `surely` looks at hard limits only and is what a reservation rests
on; `estimate` gives a range for people, never a point.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import nsmallest
from typing import NamedTuple

import numpy as np

from gpuyard.brain.engine.nodes.columns import Held
from gpuyard.brain.engine.nodes.requests import STATIC_CHECKERS
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.job_rows import JobRow, rank_in_queue
from gpuyard.brain.engine.picture.memory import Durations, Headway, Progresses
from gpuyard.brain.engine.placing import gang
from gpuyard.brain.engine.queueing import admission

MOST_ENDINGS = 512
"""Jobs whose end is looked at; a start that needs more of them is not worth a promise."""

MOST_AHEAD = 8
"""Jobs ahead in the queue that an estimate lets start first."""

FEWEST_SEEN = 5
"""Fewer jobs that ended teach nothing about those that run."""

FEWEST_PACES = 3
"""The same of steps, which differ less among jobs that are alike."""

Ending = Callable[[JobRow], float | None]
"""When a running job ends; None if nobody knows."""


class SureStart(NamedTuple):
    """A moment, and the places the job would take then."""

    at: float
    places: tuple[Held, ...]


def surely(draft: Draft, row: JobRow) -> SureStart | None:
    """The latest moment by which the job fits, if every job runs to its time limit; None if limits do not say."""
    return _earliest(draft, row, lambda other: limit_end(draft, other), ())


def estimate(draft: Draft, row: JobRow) -> tuple[float, float] | None:
    """Seconds until the job starts, as a range (half of the cases, nine of ten); None if nothing is known."""
    nothing_told = not draft.memory.of(Durations).seconds and not draft.memory.of(Progresses).jobs
    if nothing_told and not draft.fleet.rolls.limited:
        return None
    others = [other for other in draft.fleet.rolls.short.values() if not other.job.on_hold]
    first = nsmallest(MOST_AHEAD, others, key=rank_in_queue)
    ahead = [other for other in first if rank_in_queue(other) < rank_in_queue(row)]
    late = _earliest(draft, row, lambda other: _expected_end(draft, other, 1.0), ahead)
    if late is None:
        return None
    soon = _earliest(draft, row, lambda other: _expected_end(draft, other, 0.5), ahead)
    early = late.at if soon is None else min(soon.at, late.at)
    return (max(0.0, early - draft.now), max(0.0, late.at - draft.now))


def limit_end(draft: Draft, row: JobRow) -> float | None:
    """When a running job's time limit ends it."""
    if row.job.time_limit is None:
        return None
    started = draft.now if row.started is None or _begins_anew(draft, row) else row.started
    return max(draft.now, started + row.job.time_limit)


def _begins_anew(draft: Draft, row: JobRow) -> bool:
    """Whether the plan starts the job, or starts it elsewhere: nothing of it ran before, or it left a place and took
    another."""
    if row.name not in draft.before and row.name not in draft.began:
        return False
    before = [held for held in draft.origin(row) if not held.terminating]
    now = [held for held in row.held if not held.terminating]
    return not before or (not all(held in now for held in before) and not all(held in before for held in now))


def _expected_end(draft: Draft, row: JobRow, part: float) -> float | None:
    """The limit, or what jobs of its queue and class took before; `part` of what is left for a lucky guess."""
    start = row.started if row.started is not None else draft.now
    learned = _told_end(draft, row) or _learned_end(draft, row, start)
    ends = [end for end in (limit_end(draft, row), learned) if end is not None]
    return draft.now + part * (min(ends) - draft.now) if ends else None


def _told_end(draft: Draft, row: JobRow) -> float | None:
    """By what the job itself tells of its progress: what is left, at the pace of its steps so far, or, before it has
    one, at the pace of jobs like it."""
    known = draft.memory.of(Progresses)
    told = known.jobs.get(row.name)
    if told is None or told[0] != row.started or told[5] <= told[4]:
        return None
    _, _, _, at, done, total = told
    step = seconds_a_step(told) or _usual_step(known.paces.get(row.work_key, ()))
    end = at + (total - done) * step
    return end if step and end > draft.now else None


def seconds_a_step(told: Headway) -> float:
    """How long a step of the job took so far; 0 while it has told only once."""
    _, first_at, first_done, at, done, _ = told
    return (at - first_at) / (done - first_done) if done > first_done else 0.0


def _usual_step(seen: tuple[float, ...]) -> float:
    return sorted(seen)[len(seen) // 2] if len(seen) >= FEWEST_PACES else 0.0


def _learned_end(draft: Draft, row: JobRow, start: float) -> float | None:
    seen = draft.memory.of(Durations).seconds.get(duration_key(row), ())
    if len(seen) < FEWEST_SEEN:
        return None
    lasting = sorted(seen)
    end = start + lasting[min(len(lasting) - 1, int(0.9 * len(lasting)))]
    return end if end > draft.now else None  # it outlasted what was seen, which then says nothing more


def duration_key(row: JobRow) -> str:
    """Jobs that last alike: same queue, same class."""
    return f"{row.job.queue}/{row.job.job_class.value}"


def _earliest(draft: Draft, row: JobRow, ending: Ending, ahead: list[JobRow] | tuple[()]) -> SureStart | None:
    with draft.trial():
        return _replay(draft, row, ending, list(ahead))


def _replay(draft: Draft, row: JobRow, ending: Ending, ahead: list[JobRow]) -> SureStart | None:
    """Let running jobs end one after the other until the job fits; only those on nodes it could use."""
    usable = np.logical_or.reduce([draft.fleet.shapes.static(request, STATIC_CHECKERS) for request in row.requests])
    ends = [(end, other) for other in draft.fleet.ending() if (end := ending(other)) is not None]
    known = [(end, other.name) for end, other in ends if any(usable[held.node] for held in other.held)]
    for end, name in sorted(known)[:MOST_ENDINGS]:
        other = draft.fleet.jobs[name]
        draft.tx.lift_all(other, list(other.held))
        ahead = [first for first in ahead if not _start(draft, first)]
        held = len(row.held)
        if _start(draft, row):
            return SureStart(end, tuple(row.held[held:]))
    return None


def _start(draft: Draft, row: JobRow) -> bool:
    if not gang.might_fit(draft, row):
        return False
    asked = draft.fleet.shortfall(row)
    return admission.refuses(draft, row, asked) is None and gang.start(draft, row)
