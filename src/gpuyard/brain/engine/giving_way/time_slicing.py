"""Time-slicing: running jobs make way for waiting ones that come before them in the order, and resume later.

Called by the cycle when something is blocked and the policy wants it. Everyone who comes after the first blocked job
is lifted; the cycle then starts all in order, and those still in their place have lost nothing. Not part of rules 15
to 19: who is protected there (firm, foreign, minimum runtime, budgets) is not touched here either.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpuyard.brain.engine.giving_way import victims
from gpuyard.brain.engine.picture import precedence
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.job_rows import JobRow, rank_in_queue
from gpuyard.brain.engine.picture.memory import TimeSlices
from gpuyard.brain.engine.placing.devices import stands_free
from gpuyard.brain.engine.queueing.ordering import Bucket
from gpuyard.brain.engine.sharing.amounts import GPUS
from gpuyard.model.reasons import Code, Reason


def promote(draft: Draft) -> None:
    """Jobs that have waited too long in all come before every other, the oldest first, until they end.

    Only while the fleet could run all that waits at once: beyond that, age alone would order a queue that no order can
    serve in time, and let everybody starve instead of a few.
    """
    order = draft.policy.order
    if not order.patience:
        return
    spared = _overrun(draft)
    for row in draft.fleet.jobs.values():
        late = not spared and row.queue >= 0 and _waited_in_all(draft, row)
        if late != (row.turn == precedence.FIRST):
            _reorder(draft, row, precedence.FIRST if late else precedence.turn(row.job, order))


def _reorder(draft: Draft, row: JobRow, turn: float) -> None:
    waits = row.line is not None
    draft.fleet.rolls.waiting_lines.leave(row)
    row.turn = turn
    if waits:
        draft.fleet.rolls.waiting_lines.join(row)


def _overrun(draft: Draft) -> bool:
    """Whether more waits than the whole fleet could run."""
    shortfall, lines = draft.fleet.shortfall, draft.fleet.rolls.waiting_lines
    return sum(len(line.rows()) * shortfall(line.head)[GPUS] for line in lines) > draft.fleet.capacity()[GPUS]


def _waited_in_all(draft: Draft, row: JobRow) -> bool:
    ran = draft.now - row.started if row.held and row.started is not None else 0.0
    return draft.now - row.job.submitted - row.job.attained - ran >= draft.policy.order.patience


def lift_later(draft: Draft, blocked: Iterable[Bucket]) -> bool:
    """Lift whoever runs and comes after the first blocked job; whether that may let somebody start."""
    order = draft.policy.order
    if not order.time_slicing:
        return False
    weighed = draft.memory.of(TimeSlices).weighed_at
    if weighed is not None and weighed <= draft.now < weighed + order.time_slice:
        if any(not bucket.head.job.on_hold for bucket in blocked):
            draft.look_again(weighed + order.time_slice)
        return False
    heads = [bucket for bucket in blocked if not bucket.head.job.on_hold and any(bucket.asked)]
    if not heads:
        return False
    draft.memory = draft.memory.keeping(TimeSlices(draft.now))
    draft.look_again(draft.now + order.time_slice)
    later = _later(draft, min((bucket.head for bucket in heads), key=rank_in_queue))
    freed = sum(held.cost for row in later for held in row.held)
    if freed + int(draft.fleet.columns.idle.sum()) < min(bucket.asked[GPUS] for bucket in heads) or not later:
        return False
    for row in later:
        draft.remember(row)
        draft.because[row.name] = SLICED
        draft.tx.lift_all(row, list(row.held))
    return True


SLICED = Reason(Code.PREEMPTED, message="makes way for a job that comes before it in the order; it resumes later")


def _later(draft: Draft, first: JobRow) -> list[JobRow]:
    rank, order = rank_in_queue(first), draft.policy.order
    found = []
    for row in draft.fleet.jobs.values():
        if row.held and row.complete() and not row.job.foreign and row.queue >= 0:
            if row.turn != precedence.FIRST:
                row.turn = precedence.turn(row.job, order, draft.now - (row.started or draft.now))
            if rank_in_queue(row) > rank and victims.may_be_disturbed(draft, victims.whole(row)):
                found.append(row)
    return found


def resume(draft: Draft, row: JobRow) -> bool:
    """Put a lifted job back where it ran, if that is still free."""
    before = draft.before.get(row.name)
    if not before or row.held or not (draft.policy.order.time_slicing and draft.policy.order.stay):
        return False
    with draft.trial() as trial:
        for held in before:
            if not stands_free(draft.fleet.columns, held):
                return False
            draft.tx.put(row, held)
        trial.keep()
    return True
