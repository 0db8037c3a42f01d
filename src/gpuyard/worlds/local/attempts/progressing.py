"""What tasks tell of their own progress: kept with their attempt, and passed on to the brain.

Called by `lifecycle` for every such report, and by `world`, which decides when the brain hears of it. One rank speaks
for a job, the lowest that tells: ranks that count the same steps are not to be summed.
"""

from __future__ import annotations

from dataclasses import replace

from gpuyard.model.answers.progress import Progress
from gpuyard.model.events import Event, JobProgressed
from gpuyard.worlds.local.attempts.desk import Desk
from gpuyard.worlds.local.state.records import Attempt, Entry, Task

TOLD_MAX = 2
"""Of a job's words that the brain has not heard yet the first and the last are kept: warm-up and pace follow from
those."""


def hear(desk: Desk, entry: Entry, attempt: Attempt, task: Task, told: Progress | None) -> None:
    """A rank told how far it is, or was when it ended."""
    if told is None or told == attempt.progress or (attempt.speaker is not None and task.rank > attempt.speaker):
        return
    is_first = attempt.progress is None
    attempt.progress, attempt.speaker = told, task.rank
    if not entry.shown or attempt.started is None:
        return
    if is_first and told.first_at < told.at:  # nobody listened when it began to tell
        _tell(desk, entry, attempt.started, replace(told, at=told.first_at, done=told.first_done, saved=None))
    _tell(desk, entry, attempt.started, told)


def _tell(desk: Desk, entry: Entry, began: float, told: Progress) -> None:
    said = JobProgressed(entry.key, max(told.at, began), told.done, told.total, told.saved, began)
    known = [event for event in desk.events if _is_of(event, said.job)]
    if len(known) >= TOLD_MAX:
        desk.events = [event for event in desk.events if event is not known[-1]]
    desk.events.append(said)


def _is_of(event: Event, job: str) -> bool:
    return isinstance(event, JobProgressed) and event.job == job
