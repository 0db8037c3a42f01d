"""Extras: elastic jobs grow by turns when there is room, or when others' extras can move or be taken (rule 8)."""

from __future__ import annotations

from gpuyard.brain.engine.giving_way.claims import Claim
from gpuyard.brain.engine.giving_way.consolidation import Movers
from gpuyard.brain.engine.giving_way.preemption import Takers, enough_to_take, tell
from gpuyard.brain.engine.giving_way.resettling import GROW
from gpuyard.brain.engine.giving_way.room_making import RoomMaker
from gpuyard.brain.engine.giving_way.victims import Unit
from gpuyard.brain.engine.picture.draft import GROWS, Draft
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.brain.engine.placing import adding
from gpuyard.brain.engine.queueing import admission
from gpuyard.brain.engine.queueing.ordering import Bucket, Turns
from gpuyard.brain.engine.sharing.amounts import Amounts


def grow_all(draft: Draft) -> None:
    """Add one task after the other, each to the job whose turn it is by rule 7, until nothing more fits."""
    turns = Turns(draft, [_extra(draft, row) for row in draft.fleet.rolls.elastic() if row.complete()])
    while (bucket := turns.next()) is not None:
        row = bucket.head
        if row.complete() and _grow(draft, row, bucket.asked):
            draft.because.setdefault(row.name, GROWS)
            turns.asks_again(bucket, _least(draft, row))
        else:
            turns.parked(bucket)


def _extra(draft: Draft, row: JobRow) -> Bucket:
    return Bucket(row.queue, _least(draft, row), (row,))


def _least(draft: Draft, row: JobRow) -> Amounts:
    """What its next extra costs at the least."""
    leaf = next(iter(row.open_groups()), 0)
    return draft.fleet.costs.least(row.requests[leaf])


def _grow(draft: Draft, row: JobRow, asked: Amounts) -> bool:
    if not row.open_groups():
        return False
    allowed = admission.refuses(draft, row, asked) is None
    if allowed and adding.grow(draft, row):
        return True
    if not (row.single and row.job.takes):
        return False
    return (allowed and _by_moving(draft, row, asked)) or _by_taking(draft, row, asked)


def _by_moving(draft: Draft, row: JobRow, asked: Amounts) -> bool:
    if not draft.policy.consolidate or not _others_have_extras(draft, row):
        return False
    maker = RoomMaker(draft, row, ExtraMovers(draft, row, asked), GROW)
    outcome = maker.first(maker.tries())
    if outcome is not None:
        tell(draft, row, outcome)
    return outcome is not None


def _by_taking(draft: Draft, row: JobRow, asked: Amounts) -> bool:
    if not draft.policy.preempt or not _others_have_extras(draft, row):
        return False
    claim = Claim(draft, row, asked)
    if not enough_to_take(claim):
        return False
    maker = RoomMaker(draft, row, ExtraTakers(claim), GROW)
    outcome = maker.best(maker.tries())
    if outcome is not None:
        tell(draft, row, outcome)
    return outcome is not None


def _others_have_extras(draft: Draft, row: JobRow) -> bool:
    return any(other is not row and _has_extra(other) for other in draft.fleet.rolls.elastic_rows())


def _has_extra(row: JobRow) -> bool:
    return any(row.live[leaf] > group.min - group.succeeded for leaf, group in enumerate(row.groups))


class ExtraMovers(Movers):
    """Growth moves others' extras, never a minimum."""

    def allows(self, unit: Unit) -> bool:
        """Only extras."""
        return unit.extra and super().allows(unit)


class ExtraTakers(Takers):
    """Growth takes others' extras, never a minimum."""

    def allows(self, unit: Unit) -> bool:
        """Only extras."""
        return unit.extra and super().allows(unit)
