"""When a turn fails: keep what is needed for a report, rebuild the picture, name who causes it, and go on.

Used by `driver`. The first failure of a kind costs a rebuilt picture; the same one again costs the job that causes it
its place in the picture, where one can be named; whatever remains is tried again, ever more patiently.
"""

from __future__ import annotations

import traceback
from collections.abc import Collection
from dataclasses import dataclass, replace

from gpuyard import files
from gpuyard.brain.decide import STEPS, Steps, decide, observe
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.files.units import write_time
from gpuyard.model.events import JobSeen
from gpuyard.model.outside.phrases import counted
from gpuyard.model.snapshot import Snapshot
from gpuyard.runtime.driving.loop import Loop
from gpuyard.worlds.base import Reports

BACKOFF_S = 0.5
BACKOFF_MAX_S = 60.0


@dataclass(frozen=True, slots=True)
class Failure:
    """One way in which turns fail, and how often in a row."""

    stage: str
    error: str
    where: str
    at: float
    times: int = 1
    report: str = ""

    def __str__(self) -> str:
        often = "failed" if self.times == 1 else f"failed {counted(self.times, 'time')}"
        kept = f"; kept for a report: {self.report}" if self.report else ""
        return f"turns {often} since {write_time(round(self.at))} ({self.stage}: {self.error}){kept}"

    def is_like(self, other: Failure) -> bool:
        """Whether both are one and the same bug, as far as one can see."""
        return (self.stage, self.where) == (other.stage, other.where)


class Recovery:
    """What has failed, and the way back."""

    def __init__(self, loop: Loop, reports: Reports | None = None, steps: Steps = STEPS) -> None:
        self.last: Failure | None = None
        self.failing = False
        self._loop = loop
        self._reports = reports
        self._steps = steps

    @property
    def one_by_one(self) -> bool:
        """Whether the next plan is applied action by action: applying it whole failed twice."""
        return self.failing and self.last is not None and self.last.stage == "apply" and self.last.times > 1

    def succeeded(self) -> None:
        """A turn went through."""
        self.failing = False

    def failed(self, error: Exception, now: float) -> float:
        """A turn did not; how long to rest before the next one."""
        seen = _failure(self._loop.stage, error, now)
        again = self.failing and self.last is not None and seen.is_like(self.last)
        before = self.last if again else None
        self.failing = True
        self.last = seen if before is None else replace(before, times=before.times + 1, error=seen.error)
        if before is None:
            self.last = replace(self.last, report=self._report(self.last, error))
        named = before is not None and self._name_culprit(error)
        self._reopen()
        return 0.0 if named else min(BACKOFF_S * 2.0 ** (self.last.times - 1), BACKOFF_MAX_S)

    def _report(self, failure: Failure, error: Exception) -> str:
        """The exception and the moment; a report that cannot be written must not stop us either."""
        if self._reports is None:
            return ""
        try:
            moment = replace(self._loop.world.snapshot(), memory=self._loop.memory.to_document())
            document = files.snapshot_document(moment)
        except Exception as broken:
            document = {"missing": repr(broken)}
        trace = "".join(traceback.format_exception(error))
        told = {"stage": failure.stage, "error": failure.error, "at": write_time(failure.at), "traceback": trace}
        try:
            return self._reports.report(f"turn-{write_time(round(failure.at))}", told | {"snapshot": document})
        except Exception as broken:
            return f"it could not be kept: {broken!r}"

    def _name_culprit(self, error: Exception) -> bool:
        """Set the job apart that the failure comes from, or forget what is remembered amiss; whether there is any."""
        loop = self._loop
        if loop.stage != "decide":
            return False  # what cannot be read of one job the world leaves out; applying is tried one by one
        try:
            moment = loop.world.open()
        except Exception:  # the world cannot be opened now: there is nobody to look among
            return False
        if name := culprit(moment, loop.memory, loop.set_apart, self._steps):
            loop.set_apart[name] = f"{type(error).__name__}: {error}"
        elif part := poison(moment, loop.memory, loop.set_apart, self._steps):
            loop.memory = loop.memory.without(part)
            why = f"{type(error).__name__}: {error}"
            loop.leave_out(f"no plan could be made with what was remembered as {part} ({why})")
        else:
            return False
        return True

    def _reopen(self) -> None:
        stage = self._loop.stage
        try:
            self._loop.open()
        except Exception as error:
            if self.last is not None:
                self.last = replace(self.last, error=f"{self.last.error}; and opening anew: {error!r}")
        self._loop.stage = stage


def _failure(stage: str, error: Exception, now: float) -> Failure:
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return Failure(stage, f"{type(error).__name__}: {error}", f"{type(error).__name__} {where}", now)


def culprit(moment: Snapshot, memory: Memory, apart: Collection[str], steps: Steps = STEPS) -> str:
    """The one job without which a plan can be made; "" if there is no such one."""
    names = [job.name for job in moment.jobs if job.name not in apart]
    if not _fails(moment, memory, {*apart}, steps) or _fails(moment, memory, {*apart, *names}, steps):
        return ""
    while len(names) > 1:
        first, second = names[: len(names) // 2], names[len(names) // 2 :]
        if not _fails(moment, memory, {*apart, *first}, steps):
            names = first
        elif not _fails(moment, memory, {*apart, *second}, steps):
            names = second
        else:
            return ""
    return names[0]


def poison(moment: Snapshot, memory: Memory, apart: Collection[str], steps: Steps = STEPS) -> str:
    """The one part of memory without which a plan can be made; "" if there is no such one."""
    if not _fails(moment, memory, apart, steps):
        return ""
    parts = (part for part in sorted(memory.parts) if not _fails(moment, memory.without(part), apart, steps))
    return next(parts, "")


def _fails(moment: Snapshot, memory: Memory, without: Collection[str], steps: Steps) -> bool:
    try:
        fleet = Fleet(replace(moment, jobs=()))
        seen = [JobSeen(job) for job in moment.jobs if job.name not in without]
        memory, _ = observe(fleet, memory, seen, moment.now, steps)
        decide(fleet, memory, moment.now, steps)
    except Exception:
        return True
    return False
