"""What becomes of a job when an attempt at it is over: it has succeeded or failed, waits again, or goes on elsewhere.

Asked by `lifecycle` once all tasks are gone, and by whoever ends a job that has no attempt; under the desk's lock.
"""

from __future__ import annotations

import signal

from gpuyard.model.events import JobEvicted, JobSeen
from gpuyard.model.job import Phase
from gpuyard.model.outside.phrases import agreeing, are, counted
from gpuyard.worlds.local.attempts.desk import Desk
from gpuyard.worlds.local.attempts.gates import REST_MAX_S, Gates
from gpuyard.worlds.local.state.records import Attempt, Entry, Task, survives

BACKOFF_S = 10.0


class JobEnding:
    """What is decided of jobs whose attempt is over."""

    def __init__(self, desk: Desk, gates: Gates, backoff: float = BACKOFF_S) -> None:
        self.desk = desk
        self.gates = gates
        self.backoff = backoff

    def finish(self, entry: Entry, attempt: Attempt) -> bool:
        """All tasks are gone: what becomes of the job? True is that it goes on where it was moved to."""
        attempt.state, attempt.ended = "ended", self.desk.now()
        self.desk.keep_attempt(entry, attempt)
        number = attempt.number
        self.desk.then(lambda: self.desk.launcher.forget(entry.id, number))
        entry.attempt = None
        entry.note(attempt)
        outcomes = {task.outcome for task in attempt.tasks.values()}
        if not attempt.why and outcomes == {"stopped"}:
            attempt.why = "preempted"  # it was shrunk to nothing
        bad = [task for task in attempt.tasks.values() if task.outcome in ("failed", "lost", "timeout")]
        first = min(bad, key=lambda task: (task.ended or 0.0, task.rank), default=None)
        if not entry.left():
            self._enough(entry, attempt)  # what succeeded has succeeded, also where it was to stop
        elif attempt.why in ("cancelled", "preempted", "moved", "requeued", "held", "node", "drained"):
            return self._given_up(entry, attempt)
        elif attempt.why == "timeout":
            self._timed_out(entry, attempt)
        elif first is None or survives(entry, attempt):
            self._enough(entry, attempt)
        else:
            self._failed(entry, attempt, first)
        return False

    def _timed_out(self, entry: Entry, attempt: Attempt) -> None:
        limit = entry.description().time_limit or 0.0
        code = next((task.exit for task in attempt.tasks.values() if task.exit), None)
        self.over(entry, Phase.FAILED, _and_so_far(f"ran into its time limit of {limit:g} s", attempt), code)

    def _enough(self, entry: Entry, attempt: Attempt) -> None:
        """The gang has what it must have; tasks that had no room so far come now."""
        self.unfollow(entry)
        entry.spent |= {task.number for task in attempt.tasks.values() if task.outcome == "failed"}
        if left := entry.left():
            done, more = len(entry.succeeded), len(left)
            have = agreeing(done, "has", "have")
            self.wait_again(entry, f"{counted(done, 'task')} {have} succeeded, {more} {are(more)} left")
        else:
            self.over(entry, Phase.SUCCEEDED, _and_so_far("", attempt), 0)

    def _given_up(self, entry: Entry, attempt: Attempt) -> bool:
        if attempt.why == "cancelled":
            self.over(entry, Phase.CANCELLED, _and_so_far(entry.told or "cancelled", attempt), None)
            return False
        entry.evictions += attempt.why in ("preempted", "moved", "drained")
        if attempt.why in ("preempted", "drained"):
            self.desk.events.append(JobEvicted(entry.key, self.desk.now()))
        goes_on = attempt.why == "moved" or not entry.held  # a hold ends no work, and what moves is at work
        if entry.following is not None and goes_on and is_sound(self.desk, entry.following):
            return True
        self.unfollow(entry)
        self.wait_again(entry, _and_so_far(f"attempt {attempt.number} was {attempt.story}", attempt))
        return False

    def unfollow(self, entry: Entry) -> None:
        """A move that is no longer wanted, or no longer possible, is written off."""
        if entry.following is not None:
            entry.following.state, entry.following.why = "ended", "dropped"
            self.desk.keep_attempt(entry, entry.following)
            entry.following = None

    def _failed(self, entry: Entry, attempt: Attempt, first: Task) -> None:
        told = _and_so_far(f"rank {first.rank}: {first.told or _end_in_words(first.exit)}", attempt)
        run = entry.description().run
        if first.outcome == "timeout":  # nobody decided, and its supervisor did
            self._timed_out(entry, attempt)
        elif first.outcome == "lost":
            # Not the job's fault: it is tried again however often, ever more patiently.
            entry.losses += 1
            entry.not_before = self.desk.now() + self._patience(entry.losses)
            self.wait_again(entry, told)
        elif run is not None and entry.failures < run.retries:
            entry.failures += 1
            entry.not_before = self.desk.now() + self._patience(entry.failures)
            self.wait_again(entry, f"{told}; retry {entry.failures} of {run.retries}")
        else:
            self.over(entry, Phase.FAILED, told, first.exit)

    def rest_of(self, entry: Entry) -> float:
        """How long a job that has just failed or been lost rests at most before it is tried again."""
        return self._patience(max(1, entry.failures, entry.losses))

    def _patience(self, times: int) -> float:
        return min(self.backoff * 2.0 ** (times - 1), REST_MAX_S)

    def wait_again(self, entry: Entry, told: str) -> None:
        """Back to the queue, or behind a gate."""
        entry.phase = Phase.HELD if entry.held else Phase.WAITING
        entry.told, entry.waits = told, self.desk.now()
        self.desk.keep(entry)
        self.desk.say("held" if entry.held else "requeued", entry, message=told)
        if entry.held or entry.not_before > self.desk.now():
            self.gates.hide(entry)
            self.gates.consider(entry)
        else:
            self.desk.events.append(JobSeen(entry.job()))

    def over(self, entry: Entry, phase: Phase, told: str, code: int | None) -> None:
        """The job has ended for good."""
        entry.phase, entry.told, entry.exit = phase, told, code
        entry.ended, entry.reason = self.desk.now(), None
        self.desk.keep(entry)
        self.desk.say("cancelled" if phase is Phase.CANCELLED else "ended", entry, message=told, exit_code=code)
        self.desk.book.retire(entry)
        self.gates.hide(entry)
        self.desk.then(lambda: self._let_follow(entry))

    def _let_follow(self, entry: Entry) -> None:
        self.gates.ended(entry)
        self.end_doomed()

    def end_doomed(self) -> None:
        """Jobs that were to follow a success that will not come are over too."""
        while self.gates.doomed:
            doomed, self.gates.doomed = self.gates.doomed, []
            with self.desk.change():
                for follower, told in doomed:
                    if not follower.over:
                        self.over(follower, Phase.CANCELLED, told, None)


def is_sound(desk: Desk, attempt: Attempt) -> bool:
    """Whether its places are still there and well."""
    for place in (task.placement for task in attempt.live()):
        node = desk.nodes.get(place.node)
        if node is None or not all(node.gpus[index].usable for index in place.gpus):
            return False
    return True


def _and_so_far(told: str, attempt: Attempt) -> str:
    """How an attempt ended, and how far it came by its own word."""
    ended = max((task.ended or 0.0 for task in attempt.tasks.values()), default=0.0)
    far = attempt.progress.ending(ended) if attempt.progress is not None else ""
    return "; ".join(filter(None, (told, far)))


def _end_in_words(code: int | None) -> str:
    """How a task ended: by a signal, which has a name, or with a code of its own."""
    if code is None or code >= 0:
        return f"exit code {code}"
    known = {each.value: each.name for each in signal.Signals}
    return f"ended by {known.get(-code, f'signal {-code}')}"
