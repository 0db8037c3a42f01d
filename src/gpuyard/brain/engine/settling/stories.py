"""Why each change of a net plan is made, and for whom: true also where a plan was made in several cycles.

Called by `evacuation`. What cycles noted as they went may be overtaken by later ones: who was started was moved since,
for whom somebody stopped has given way itself. The words that are told are those of the net change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gpuyard.brain.engine.nodes.columns import Held
from gpuyard.brain.engine.picture.draft import FITS
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.brain.engine.queueing import grounds
from gpuyard.model.reasons import Code, Reason

FOR_NOBODY = frozenset((Code.STALE, Code.DEADLOCK, Code.DRAINED))
"""Stops for the sake of no claim; what is to be said is in the reason."""
TAKES = frozenset((Code.PREEMPTED, Code.RECLAIMED, Code.CRITICAL))
MOVES = frozenset((Code.CONSOLIDATED, Code.DEFRAGMENTED)) | FOR_NOBODY
STARTS = frozenset((Code.FITS, Code.GROWS, Code.REPAIRED))
MADE_ROOM = Reason(Code.FITS, message="fits once others give way")


class Story(NamedTuple):
    """Why jobs were changed, and for whom."""

    because: Mapping[str, Reason]
    served: Mapping[str, str]


class Change(NamedTuple):
    """What left and what came, in order: the first of each are moves."""

    row: JobRow
    gone: list[Held]
    come: list[Held]
    kept: int


def why_stopped(fleet: Fleet, story: Story, row: JobRow, cost: int) -> Reason:
    """Whose claim it was, by the right that its beneficiary has; not by that of somebody who gains nothing."""
    noted, gains = story.because.get(row.name), fleet.jobs.get(story.served.get(row.name, ""))
    if noted is not None and (noted.code in FOR_NOBODY or gains is None):
        return noted
    if noted is not None and noted.code in TAKES and noted.where in ("", story.served[row.name]):
        return noted  # time slices name nobody: the order does
    return Reason(Code.RECLAIMED) if gains is None else grounds.why_stopped(fleet, gains, row, cost)


def why_moved(story: Story, name: str) -> Reason:
    """So that somebody fits; or the reason that it was moved for by itself."""
    noted, gains = story.because.get(name), story.served.get(name, "")
    if noted is not None and noted.code in MOVES and (noted.where == gains or noted.code is not Code.CONSOLIDATED):
        return noted
    return grounds.why_moved(gains)


def why_started(story: Story, name: str, after: Iterable[str]) -> Reason:
    """It fits, now or once others are gone."""
    noted = story.because.get(name)
    if noted is not None and noted.code in STARTS:
        return noted
    return MADE_ROOM if after else FITS


# --- for whom --------------------------------------------------------------------------------------------------------


def who_gains(changes: list[Change], served: Mapping[str, str]) -> dict[str, str]:
    """For whom each job gave way in the end: who it was for may itself have given way to somebody since."""
    gaining = {change.row.name: change for change in changes if len(change.come) > len(change.gone)}
    queues = {change.row.name: change.row.queue for change in changes}
    takers = _takers(gaining.values())
    found: dict[str, str] = {}
    for change in changes:
        name = change.row.name
        seen, heir = {name}, served.get(name, "")
        while heir and heir not in gaining and heir not in seen:
            seen.add(heir)
            heir = served.get(heir, "")
        if heir not in gaining:
            first = queues.get(served.get(name, ""))
            heir = _heir(change, takers, first) or served.get(name, "")
        found[name] = heir
    return found


Device = tuple[int, int]
"""A node, and a GPU of it."""


def _takers(gaining: Iterable[Change]) -> dict[Device, list[JobRow]]:
    """Who came to each device: victims and starts both grow with the fleet, so nobody looks through all of them."""
    found: dict[Device, list[JobRow]] = {}
    for change in gaining:
        for held in change.come:
            for device in held.gpus:
                found.setdefault((held.node, device), []).append(change.row)
    return found


def _heir(change: Change, takers: Mapping[Device, list[JobRow]], queue: int | None) -> str:
    """Who took the devices that this job left; one of the queue it first gave way to, if any did."""
    left = {(held.node, device) for held in change.gone for device in held.gpus}
    heirs = (row for device in left for row in takers.get(device, ()))
    first = min(heirs, key=lambda row: (row.queue != queue, row.name), default=None)
    return "" if first is None else first.name
