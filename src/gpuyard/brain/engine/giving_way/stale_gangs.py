"""Gangs below their minimum: repaired first, also by moving or taking; released whole when that fails (rule 22)."""

from __future__ import annotations

from collections.abc import Iterable

from gpuyard.brain.engine.giving_way import consolidation, preemption, victims
from gpuyard.brain.engine.picture.draft import REPAIRED, Draft
from gpuyard.brain.engine.picture.job_rows import JobRow, rank_in_queue
from gpuyard.brain.engine.placing import gang
from gpuyard.brain.engine.queueing import admission
from gpuyard.model.reasons import Code, Reason


def gangs(draft: Draft) -> list[JobRow]:
    """Gangs that run below their minimum and are ours, those that come first first."""
    return in_order(row for row in draft.fleet.rolls.halves.values() if row.alive())


def in_order(rows: Iterable[JobRow]) -> list[JobRow]:
    """Who is repaired first."""
    return sorted(rows, key=rank_in_queue)


def repair_all(draft: Draft) -> None:
    """Bring every stale gang back to its minimum; release those whose grace is over, the last in the order first, as
    far as that leaves others no room to be repaired (rule 23: the younger gives way)."""
    stuck = [row for row in gangs(draft) if not repair(draft, row)]
    over = [row for row in stuck if grace_over(draft, row)]
    while over:
        row = over.pop()
        release(draft, row, Reason(Code.STALE, message=f"{row.name} ran below its minimum for longer than its grace"))
        stuck = [other for other in stuck if other is not row and not repair(draft, other)]
        over = [other for other in over if other in stuck]


def repair(draft: Draft, row: JobRow) -> bool:
    """Start what the gang lacks, by moving or taking if need be; whether it is complete now."""
    asked = draft.fleet.shortfall(row)
    if admission.refuses(draft, row, asked) is None and gang.start(draft, row):
        draft.accept(row, REPAIRED)
        return True
    if not row.job.takes:
        return False
    return consolidation.make_room(draft, row, asked) or preemption.make_room(draft, row, asked)


def grace_over(draft: Draft, row: JobRow) -> bool:
    """Whether the gang has been below its minimum for longer than it is borne; a negative grace never ends."""
    grace = draft.policy.stale_grace if row.job.stale_grace is None else row.job.stale_grace
    since = draft.now if row.job.stale_since is None else row.job.stale_since
    if grace >= 0:
        draft.look_again(since + grace)
    return 0 <= grace <= draft.now - since


def release(draft: Draft, row: JobRow, reason: Reason) -> None:
    """Take the whole gang off its places, preemptible or not."""
    draft.remember(row)
    draft.tx.lift_all(row, victims.whole(row).places)
    draft.because[row.name] = reason
