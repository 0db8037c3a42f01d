"""One cycle: what each queue is due, who starts, who makes room for whom, and why the rest waits.

The first file to open. Called by `brain.decide` with a draft; every step works on the draft and can be undone. The
fleet is left as the plan would make it: the caller commits (foresight) or rolls back (a live world).
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from gpuyard.brain.engine.explaining import explain
from gpuyard.brain.engine.giving_way import consolidation, growth, preemption, stale_gangs, time_slicing
from gpuyard.brain.engine.nodes.columns import Held
from gpuyard.brain.engine.nodes.eligibility import Tier
from gpuyard.brain.engine.picture.draft import FITS, NOBODY, REPAIRED, Draft
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.brain.engine.placing import fragmentation, gang
from gpuyard.brain.engine.queueing import admission, ordering
from gpuyard.brain.engine.queueing.ordering import Bucket, Turns
from gpuyard.brain.engine.reserving import backfill, reservations
from gpuyard.brain.engine.sharing.amounts import GPUS, Amounts
from gpuyard.model.reasons import Code, Reason
from gpuyard.model.resources import WHOLE


def cycle(fleet: Fleet, memory: Memory, now: float) -> Draft:
    """Plan one moment, controllers aside."""
    draft = open_draft(fleet, memory, now)
    run(draft)
    return draft


def open_draft(fleet: Fleet, memory: Memory, now: float, began: Mapping[str, tuple[Held, ...]] = NOBODY) -> Draft:
    """A draft that knows the demand and what is reserved already, and by `shares` what each queue is due; `began` tells
    what those held whom earlier cycles of the same plan have changed."""
    draft = Draft(fleet, memory, now, began)
    fragmentation.follow_demand(fleet)
    reservations.restore(draft)
    return draft


def run(draft: Draft) -> None:
    """The numbered steps."""
    time_slicing.promote(draft)
    stale_gangs.repair_all(draft)  # 1 gangs below their minimum
    blocked = start_all(draft)  # 2 all that fits, in order
    if time_slicing.lift_later(draft, blocked):
        blocked = start_all(draft)
    make_room_all(draft, blocked)  # 3 room by moving, else by taking
    if draft.fleet.rolls.any_elastic:  # most fleets have nobody who could grow
        backfill.with_all_binding(draft, lambda: growth.grow_all(draft))  # 4 extras last
    reservations.conclude(draft)  # 5 what must stay free


def start_all(draft: Draft) -> list[Bucket]:
    """Start all that fits, in order; what cannot waits with its reason. Returns the buckets that still wait."""
    draft.waits.over_quota = 0
    return _start_those(draft, ordering.buckets(draft.fleet))


def start_again(draft: Draft, waiting: list[Bucket]) -> list[Bucket]:
    """Start what fits now that something fell free: those who may fit, and whoever gave way meanwhile."""
    backfill.hold_again(draft)
    waiting = [bucket for bucket in waiting if bucket.left()]
    changed = [row for row in draft.tx.touched() if draft.fleet.rolls.short.get(row.name) is row]
    victims = ordering.buckets_of(draft.fleet, _weigh_anew(draft, waiting, changed)) if changed else []
    ask_all = bool(draft.waits.over_quota or draft.kept or draft.policy.order.strict)
    asked = [bucket for bucket in waiting if ask_all or gang.might_fit(draft, bucket.head)]
    hopeless = set(waiting).difference(asked)
    ahead = ordering.ahead_of([*asked, *victims], hopeless)
    blocked = _start_those(draft, [*asked, *victims], ahead)
    left = hopeless.difference(ahead)
    return [*(bucket for bucket in waiting if bucket in left), *blocked]


def _weigh_anew(draft: Draft, waiting: list[Bucket], changed: list[JobRow]) -> list[JobRow]:
    """Those whom this plan changed and who wait now: who waited already may lack more by now, the others are new."""
    names = {row.name for row in changed}
    known: set[str] = set()
    for bucket in waiting:
        mine = names.intersection(row.name for row in bucket.left())
        if mine:
            bucket.asked = draft.fleet.shortfall(bucket.head)
            known |= mine
    return [row for row in changed if row.name not in known]


def _start_those(draft: Draft, waiting: list[Bucket], hopeless: Set[Bucket] = frozenset()) -> list[Bucket]:
    """Start in order what can; those who are known not to fit only keep their place in the order (rule 9)."""
    turns = Turns(draft, [*waiting, *hopeless])
    blocked: list[Bucket] = []
    while (bucket := turns.next()) is not None:
        if bucket in hopeless:
            turns.parked(bucket)
            blocked.append(bucket)
        elif try_start(draft, bucket):
            turns.started(bucket)
        else:
            turns.parked(bucket)
            blocked.append(bucket)
            if _holds_back(draft, bucket):
                blocked += _behind(draft, bucket, turns.rest())
                break
    if blocked:
        draft.note_free()
    return blocked


def _holds_back(draft: Draft, bucket: Bucket) -> bool:
    """Whether nobody may pass this bucket, which cannot start."""
    return draft.policy.order.strict and not bucket.head.job.on_hold


def _behind(draft: Draft, first: Bucket, rest: list[Bucket]) -> list[Bucket]:
    """The order is strict: everybody else waits for the first that cannot start."""
    name = first.head.name
    message = f"{name} comes first and cannot start; this policy's order is strict, so nobody passes it"
    for bucket in rest:
        draft.wait(bucket.left(), Reason(Code.OUTRANKED, needed=bucket.asked[GPUS], where=name, message=message))
    return rest


def try_start(draft: Draft, bucket: Bucket) -> bool:
    """Start the bucket's first job, or note why it and all like it wait."""
    row, tiers = bucket.head, _free_tiers(draft, bucket)
    reason = admission.refuses(draft, row, bucket.asked) if tiers is None else admission.over(draft, row, bucket.asked)
    if reason is None:
        enough = backfill.enough_idle(draft, row)
        if enough and (_start(draft, row) if tiers is None else gang.start_freely(draft, row, tiers)):
            draft.accept(row, REPAIRED if row.running else FITS)
            return True
        reason = (backfill.in_the_way(draft, row) if enough else None) or explain.no_place(bucket.asked)
        reservations.consider(draft, bucket.left(), bucket.asked)
    draft.wait(bucket.left(), reason)
    return False


def _free_tiers(draft: Draft, bucket: Bucket) -> tuple[Tier, ...] | None:
    """On which models the bucket's jobs may go if nothing but room and their queues have a say in it; None where more
    must be asked. They are alike, so the first is asked for all."""
    if draft.kept:
        return None
    if not bucket.knows_tiers:
        row, bucket.knows_tiers = bucket.head, True
        if not row.job.on_hold and not draft.policy.order.time_slicing:
            bucket.free_tiers = gang.free_tiers(draft, row)
    return bucket.free_tiers


def _start(draft: Draft, row: JobRow) -> bool:
    return backfill.try_aside(draft, row, lambda: time_slicing.resume(draft, row) or gang.start(draft, row))


def make_room_all(draft: Draft, blocked: list[Bucket]) -> None:
    """Each job still waiting, in order, tries to move others, then to take; then all that fits starts (rule 9)."""
    if not blocked or not (draft.policy.preempt or draft.policy.consolidate):
        return
    waiting = blocked
    turns = Turns(draft, blocked)
    while (bucket := turns.next()) is not None:
        row = bucket.head
        if not make_room(draft, bucket):
            bucket.refused = True
            draft.claims.refused[row.name] = _first_refusal(draft, row)
            turns.parked(bucket)
            if _holds_back(draft, bucket):
                return
            continue
        turns.started(bucket)
        if draft.waits.over_quota or draft.more_is_free():
            victims = set(draft.served)
            waiting = start_again(draft, waiting)
            turns = Turns(draft, [b for b in waiting if not b.refused and b.head.name not in victims])
        else:
            draft.note_free()
        assert row.complete()


def make_room(draft: Draft, bucket: Bucket) -> bool:
    """Move others out of the way of the bucket's first job, else take from them."""
    row = bucket.head
    if row.job.on_hold or not row.job.takes or not any(bucket.asked) or _asked_lately(draft, row):
        return False
    if draft.kept and _is_hopeless(draft, row, bucket.asked):
        return False
    return backfill.try_aside(
        draft,
        row,
        lambda: consolidation.make_room(draft, row, bucket.asked) or preemption.make_room(draft, row, bucket.asked),
    )


def _is_hopeless(draft: Draft, row: JobRow, asked: Amounts) -> bool:
    """Bounds that hold whichever reservations step aside: for most claims none need."""
    kept = backfill.idle_but_kept(draft) * WHOLE
    return consolidation.is_hopeless(draft, row, asked, kept) and preemption.is_hopeless(draft, row, asked, kept)


def _asked_lately(draft: Draft, row: JobRow) -> bool:
    """Whether the same claim found no room a moment ago; asking again at every event would cost more than it finds."""
    at = draft.claims.refused_before.get(row.name)
    if at is None or not at <= draft.now < at + draft.policy.claim_again:
        return False
    if draft.fleet.fresh:  # else nothing has changed since it was asked in vain
        draft.look_again(at + draft.policy.claim_again)
    return True


def _first_refusal(draft: Draft, row: JobRow) -> float:
    return draft.claims.refused_before[row.name] if _asked_lately(draft, row) else draft.now
