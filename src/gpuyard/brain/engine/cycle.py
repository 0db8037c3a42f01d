"""One cycle: what each queue is due, who starts, who makes room for whom, and why the rest waits.

The first file to open. Called by `brain.decide` with a fleet and the moment; every step works on the draft and can be
undone. The fleet is left as the plan would make it: the caller commits (simulation) or rolls back (a live world).
"""

from __future__ import annotations

from gpuyard.brain.engine import admission, explain, fragmentation, gang, ordering, quota
from gpuyard.brain.engine.draft import FITS, GROWS, REPAIRED, Draft
from gpuyard.brain.engine.fleet import Fleet, JobRow
from gpuyard.brain.engine.memory import Memory
from gpuyard.brain.engine.ordering import Bucket, Turns


def cycle(fleet: Fleet, memory: Memory, now: float) -> Draft:
    """Plan one moment."""
    draft = Draft(fleet, memory, now)
    fragmentation.follow_demand(fleet)
    draft.shares = quota.fair_shares(fleet.tree, fleet.demand, fleet.capacity())  # 1 what each queue is due
    waiting = ordering.buckets(fleet, fleet.short.values())
    start_all(draft, waiting)  # 2 all that fits, in order
    grow_all(draft)  # 3 extras last
    return draft


def start_all(draft: Draft, waiting: list[Bucket]) -> list[Bucket]:
    """Start all that fits, in order; what cannot waits with its reason. Returns the buckets that still wait."""
    turns = Turns(draft.fleet, draft.shares, waiting)
    blocked: list[Bucket] = []
    while (bucket := turns.next()) is not None:
        if try_start(draft, bucket):
            turns.started(bucket)
        else:
            turns.parked(bucket)
            blocked.append(bucket)
    return blocked


def try_start(draft: Draft, bucket: Bucket) -> bool:
    """Start the bucket's first job, or note why it and all like it wait."""
    row = bucket.head
    reason = admission.refuses(draft, row, bucket.asked)
    if reason is None:
        if gang.start(draft, row):
            draft.accept(row, REPAIRED if row.running else FITS)
            return True
        reason = explain.no_place(draft, row)
    for each in bucket.left():
        draft.wait(each, reason)
    return False


def grow_all(draft: Draft) -> None:
    """Extras, one task at a time, by turns over the queues (rule 8)."""
    growing = {row.name: row for row in draft.fleet.elastic() if row.complete()}
    while growing:
        turns = Turns(draft.fleet, draft.shares, [_extra(draft, row) for row in growing.values()])
        while (bucket := turns.next()) is not None:
            row = bucket.head
            if _may_grow(draft, row, bucket) and gang.grow(draft, row):
                draft.because.setdefault(row.name, GROWS)
            else:
                growing.pop(row.name)
            turns.parked(bucket)


def _extra(draft: Draft, row: JobRow) -> Bucket:
    leaf = next((leaf for leaf in range(len(row.groups)) if row.pending(leaf) > 0), 0)
    bucket = Bucket(row.queue, draft.fleet.costs.least(row.asks[leaf]))
    bucket.rows.append(row)
    return bucket


def _may_grow(draft: Draft, row: JobRow, bucket: Bucket) -> bool:
    return any(row.pending(leaf) > 0 for leaf in range(len(row.groups))) and (
        admission.refuses(draft, row, bucket.asked) is None
    )
