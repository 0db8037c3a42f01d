"""Waits that are longer than the job's class may wait: one alert for each queue, class and dominant reason.

A thousand jobs that wait for the same are one alert that counts them. Costs what kinds of jobs wait, not how many
jobs; why a kind waits is looked into when its first job is overdue, and again after a while.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from math import inf
from typing import NamedTuple

from gpuyard.brain.controllers.alarms.phrasing import duration
from gpuyard.brain.controllers.alarms.remembering import AlarmsKept, Told
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.job_rows import JobRow, WaitingLine
from gpuyard.model.alerts import Alert, AlertKind, Severity
from gpuyard.model.job import JobClass
from gpuyard.model.reasons import Explanation, Outcome

AGAIN_S = 3600.0
"""What was found out about a kind of job is looked into anew after this long."""
LAST = chr(0x10FFFF)
"""Sorts behind every name."""
SOON_S = 1.0
"""When those are looked into for whom this plan had no time."""


class Overdue(NamedTuple):
    """Jobs of one kind that have waited too long: the one that waits longest, since when, and how many they are."""

    since: float
    row: JobRow
    jobs: int
    after: float
    """How long its class may wait."""


@dataclass
class Inquiry:
    """Who finds out why a job waits, and for how many more kinds there is time."""

    explain: Callable[[JobRow], Explanation]
    left: int
    after: float
    """How long after it was found late a kind is looked into: the plan that finds it may have much else to do."""


def watch(draft: Draft, part: AlarmsKept, inquiry: Inquiry) -> tuple[list[Alert], dict[str, Told], dict[str, float]]:
    """The alerts, why the kinds of jobs wait that are overdue, and since when those are known to be of which nobody
    knows why."""
    told: dict[str, Told] = {}
    found: dict[str, float] = {}
    causes: dict[tuple[str, str, str], list[tuple[Overdue, Told]]] = {}
    for each in sorted(_overdue(draft), key=lambda each: (each.since, each.row.name)):
        kind = kind_of(each.row)
        known = told.get(kind) or part.told.get(kind)
        since = min(part.found.get(kind, draft.now), draft.now)
        if known is None or draft.now >= known.at + AGAIN_S:
            due = known is not None or draft.now >= since + inquiry.after
            known = _told(draft, each, inquiry) if due and inquiry.left else known
        if known is None:
            found[kind] = since
            draft.look_again(max(since, draft.now) + SOON_S)
            continue
        told[kind] = known
        causes.setdefault((each.row.job.queue, each.row.class_name, known.code), []).append((each, known))
    return [_alert(cause, late) for cause, late in causes.items()], told, found


def _overdue(draft: Draft) -> list[Overdue]:
    found = []
    stopped = _stopped_now(draft)
    for line in draft.fleet.rolls.waiting_lines:
        row = line.head
        after = draft.policy.of(row.job).alert_after
        if row.job.on_hold or not after:
            continue
        waits, begin = line.waits(), draft.now - after
        gone = stopped.get(line, ())
        oldest = next((wait for wait in waits if wait not in gone), None)
        if oldest is None:
            continue
        if oldest[0] <= begin:
            late = bisect_right(waits, (begin, LAST)) - sum(wait[0] <= begin for wait in gone)
            found.append(Overdue(oldest[0], draft.fleet.jobs[oldest[1]], late, after))
        else:
            draft.look_again(oldest[0] + after)
    return found


def _stopped_now(draft: Draft) -> dict[WaitingLine, set[tuple[float, str]]]:
    """Those whom this very plan stops: they stand in line again, and have not waited yet."""
    found: dict[WaitingLine, set[tuple[float, str]]] = {}
    for name in draft.before:
        row = draft.fleet.jobs[name]
        if row.running and row.line is not None:
            found.setdefault(row.line, set()).add(row.wait)
    return found


def kind_of(row: JobRow) -> str:
    """Names jobs that are answered alike, the same after a restart."""
    job = row.job
    cards = (job.models, job.min_gpu_memory, job.min_architecture, job.architecture)
    asked = (job.gang, *cards, job.avoid, job.time_limit)
    return f"{job.queue}/{row.class_name}/{_digest((asked, row.firm))}"


@lru_cache(maxsize=1 << 12)
def _digest(asked: tuple[object, ...]) -> str:
    """Short and the same everywhere; spelling a job out costs much more than finding it again, plan after plan."""
    return f"{zlib.crc32(repr(_spelled(asked)).encode()):08x}"


def _spelled(value: object) -> object:
    """What it says, and nothing of fields that say nothing: one that a later version adds names no job otherwise."""
    if is_dataclass(value):
        told = [(each, getattr(value, each.name)) for each in fields(value)]
        return [(each.name, _spelled(said)) for each, said in told if said != each.default]
    return [_spelled(each) for each in value] if isinstance(value, tuple | list) else value


def _told(draft: Draft, each: Overdue, inquiry: Inquiry) -> Told:
    """Looked into now."""
    inquiry.left -= 1
    found = inquiry.explain(each.row)
    reason, name = found.reason, each.row.name
    helps = next((suggestion.change for suggestion in found.suggestions), "")
    message = str(reason).removeprefix(f"{name} ")
    return Told(draft.now, reason.code.value, reason.outcome is Outcome.NEVER, message, helps)


def _alert(cause: tuple[str, str, str], found: list[tuple[Overdue, Told]]) -> Alert:
    """Told of the job that waits longest."""
    (queue, of, code), (oldest, told) = cause, found[0]
    name, count = oldest.row.name, sum(each.jobs for each, _ in found)
    since = min((each.since + each.after for each, _ in found), default=inf)
    after = duration(oldest.after)
    if count == 1:
        who = f"{name} ({of}, queue {queue}) has waited longer than {after}"
    else:
        who = f"{count} {of} jobs of queue {queue} have waited longer than {after}, {name} the longest"
    never = "it can never run here: " if told.never else "it "
    helps = f"; it would start if you {told.helps}" if told.helps else ""
    return Alert(
        f"wait/{queue}/{of}/{code}",
        AlertKind.WAIT,
        Severity.CRITICAL if of == JobClass.INFERENCE.value else Severity.WARNING,
        since,
        f"{who}: {never}{told.message}{helps}",
        f"yard why {name}",
        count,
        (("queue", queue), ("class", of), ("reason", code)),
        (name,),
    )
