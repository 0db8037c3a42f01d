"""A job that cannot be dealt with ends and is set aside, whatever is wrong with it; the others go on.

Called by `lifecycle` and `recovery` where something about one job went wrong that nobody foresaw.
"""

from __future__ import annotations

from gpuyard.model.events import Event, JobGone, JobSeen
from gpuyard.model.job import Phase
from gpuyard.worlds.local.attempts.desk import Desk
from gpuyard.worlds.local.ports import TaskKey
from gpuyard.worlds.local.state.records import Entry

TOLD_MAX = 300


def strip(desk: Desk, entry: Entry, error: Exception) -> str:
    """Take from a job of the book whatever runs of it; what to say of its end."""
    attempts = [attempt for attempt in (entry.attempt, entry.following) if attempt is not None]
    entry.attempt = entry.following = None
    for key in [TaskKey(entry.id, each.number, task.serial) for each in attempts for task in each.tasks.values()]:
        if desk.holdings.begun(key):  # what it holds is its own until it is proven gone
            desk.launcher.bury([key], "it was set aside")
    desk.events = [event for event in desk.events if _job_of(event) != entry.key]
    return _note(desk, entry, f"{type(error).__name__}: {error}")


def _job_of(event: Event) -> str:
    """Whom an event is about; the brain need not hear what it has not heard yet of a job that is given up."""
    match event:
        case JobSeen(job=job):
            return job.name
        case JobGone(name=name):
            return name
    return str(getattr(event, "job", ""))


def lay_aside(desk: Desk, entry: Entry) -> None:
    """A job whose rows cannot be read: it never gets into the book, and its owner still finds it."""
    entry.told = _note(desk, entry, entry.flaw)
    entry.phase, entry.ended = Phase.FAILED, desk.now()
    desk.keep(entry)
    desk.say("set-aside", entry, message=entry.told)
    desk.book.note_over(entry)


def _note(desk: Desk, entry: Entry, why: str) -> str:
    why = why if len(why) <= TOLD_MAX else f"{why[: TOLD_MAX - 3]}..."
    desk.batch.add(
        "UPDATE attempts SET state = 'ended', why = 'set aside' WHERE job = ? AND state != 'ended'", (entry.id,)
    )
    content = {"id": entry.id, "user": entry.owner.user, "phase": entry.phase.value, "text": entry.template.text}
    desk.aside.put("job", f"{entry.key}@{entry.id}", why, content)
    return f"it was set aside, because the yard cannot deal with it: {ascii(why)[1:-1]}"
