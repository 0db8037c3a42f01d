"""What jobs tell of their own progress: when each will end, what it would lose, and what jobs like it need.

From start to first progress a job warms up: loads its data, its model, its checkpoint. Whoever is stopped pays that
again, and does again what it has not saved, so both weigh where victims are chosen (rule 19). It plans nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpuyard.brain.controllers import Controller
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.job_rows import work_key
from gpuyard.brain.engine.picture.memory import Headway, Progresses
from gpuyard.brain.engine.reserving.eta import seconds_a_step
from gpuyard.model.events import Event, JobGone, JobProgressed, JobSeen
from gpuyard.model.job import Job

KEPT = 20
"""Warm-ups and paces remembered for work of one kind; older ones say little about tomorrow."""


class ProgressSeen(Controller[Progresses]):
    """Learns from those who tell."""

    part = Progresses
    hears = (JobProgressed, JobGone)

    def observe(self, part: Progresses, before: Fleet, events: Sequence[Event], now: float) -> Progresses:
        """The first word since a start ends the warm-up, each later one says how fast the job is."""
        if not (part.jobs or part.saved or any(isinstance(event, JobProgressed) for event in events)):
            return part
        learning = Learning(dict(part.jobs), dict(part.warm_ups), dict(part.paces), dict(part.saved))
        seen: dict[str, Job] = {}  # in these very events
        for event in events:
            if isinstance(event, JobSeen):
                seen[event.job.name] = event.job
            elif isinstance(event, JobProgressed | JobGone):
                name = event.job if isinstance(event, JobProgressed) else event.name
                row = before.jobs.get(name)
                job = seen.get(name, row.described() if row is not None else None)
                if isinstance(event, JobGone):
                    learning.part_with(name, job)
                elif job is not None:
                    learning.hear(job, event)
        learnt = learning.learnt()
        return part if learnt == part else learnt


@dataclass(frozen=True, slots=True)
class Learning:
    """What is known while events are gone through."""

    jobs: dict[str, Headway]
    warm_ups: dict[str, tuple[float, ...]]
    paces: dict[str, tuple[float, ...]]
    saved: dict[str, float]

    def hear(self, job: Job, event: JobProgressed) -> None:
        """A job told how far it is."""
        began = job.started if event.started is None else event.started
        if began is None or event.at < began:
            return
        if event.saved is not None:
            self.saved[job.name] = min(event.saved, event.at)
        if event.done <= 0.0:  # it has begun to count, and done nothing yet
            return
        known = self.jobs.get(job.name)
        if known is None or known[0] != began:
            _keep(self.warm_ups, work_key(job), event.at - began)
            known = None
        elif event.at < known[3]:  # a world that came up again tells it once more
            return
        if known is None or event.done < known[4]:  # it counts anew: what it did before says nothing of its pace
            known = (began, event.at, event.done, event.at, event.done, event.total)
        self.jobs[job.name] = (*known[:3], event.at, event.done, event.total)

    def part_with(self, name: str, job: Job | None) -> None:
        """A job is gone: what it did is forgotten, how fast it was is not."""
        self.saved.pop(name, None)
        told = self.jobs.pop(name, None)
        if told is not None and job is not None and (step := seconds_a_step(told)):
            _keep(self.paces, work_key(job), step)

    def learnt(self) -> Progresses:
        """All of it, to be remembered."""
        return Progresses(self.jobs, self.warm_ups, self.paces, self.saved)


def _keep(seen: dict[str, tuple[float, ...]], work: str, seconds: float) -> None:
    seen[work] = (*seen.get(work, ()), round(seconds, 6))[-KEPT:]
