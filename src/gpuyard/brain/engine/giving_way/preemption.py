"""Room by taking: by priority inside a queue, by shares between queues, by policy across them (rules 16 to 19).

Victims are found by simulated placement: a set counts only if the claimant then stands, whole and in its topology.
Bounds come before search: a claim that cannot succeed costs a few additions.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from gpuyard.brain.engine.giving_way import victims
from gpuyard.brain.engine.giving_way.claims import Claim
from gpuyard.brain.engine.giving_way.clearing import Key
from gpuyard.brain.engine.giving_way.consolidation import Movers, tell_moved
from gpuyard.brain.engine.giving_way.room_making import RoomMade, RoomMaker
from gpuyard.brain.engine.giving_way.victims import Unit
from gpuyard.brain.engine.nodes.columns import Held
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.brain.engine.queueing import admission
from gpuyard.brain.engine.sharing.amounts import Amounts
from gpuyard.brain.engine.sharing.quota import NOT_COUNTED
from gpuyard.model.policy import PdbRule
from gpuyard.model.reasons import Code, Reason
from gpuyard.model.resources import gpu_words


def make_room(draft: Draft, row: JobRow, asked: Amounts) -> bool:
    """Start the job by taking from others what it has a right to; whether it worked."""
    if not draft.policy.preempt or not _worth_a_search(draft, row, asked):
        return False
    claim = Claim(draft, row, asked)
    if not claim.any_right() or not enough_to_take(claim):
        return False
    for takers in _takers(claim):
        maker = RoomMaker(draft, row, takers)
        tries = maker.tries()
        if isinstance(takers, MixedTakers):
            tries = chain(tries, maker.clearing_tries())
        outcome = maker.best(tries)
        if outcome is not None:
            tell(draft, row, outcome, claim)
            draft.accept(row, Reason(Code.FITS, message="fits once others give way"))
            return True
    return False


def _worth_a_search(draft: Draft, row: JobRow, asked: Amounts) -> bool:
    """A job that is held, or non-preemptible and over its quota, gains nothing by taking."""
    refusal = admission.refuses(draft, row, asked)
    return refusal is None or refusal.code is Code.OVER_LIMIT


def _takers(claim: Claim) -> list[Takers]:
    """Plain takes first; then takes that move some and stop the rest; last, if policy says so, breaking budgets."""
    found = [Takers(claim)]
    if claim.draft.policy.consolidate:
        found.append(MixedTakers(claim))
    if claim.draft.policy.pdb is PdbRule.LAST_RESORT:
        found.append(MixedTakers(claim, break_budgets=True))
    return found


# --- bounds -----------------------------------------------------------------------------------------------------------


def enough_to_take(claim: Claim) -> bool:
    """Whether free GPUs and all that could be taken at the very best would do."""
    draft, tree = claim.draft, claim.tree
    needed = claim.asked[0]
    if not needed or draft.fleet.columns.profiles:
        return True
    have = draft.fleet.columns.idle_total
    for parting in _sides(claim):
        have += parting
        if have >= needed:
            return True
    own = claim.row.queue
    return have + tree.used[own][0] - tree.firm[own][0] >= needed


def _sides(claim: Claim) -> list[int]:
    """What each side that parts from the claimant's branch could lose: its excess, and one victim's overshoot."""
    draft, tree = claim.draft, claim.tree
    found, below = [], claim.row.queue
    for q in tree.paths[claim.row.queue][1:]:
        found += [_most_from(draft, claim, side) for side in tree.children[q] if side != below]
        below = q
    return found


def _most_from(draft: Draft, claim: Claim, side: int) -> int:
    tree = draft.fleet.tree
    loose = tree.used[side][0] - tree.firm[side][0]
    if claim.critical or len(tree.resources) > 1:
        return loose
    quota = tree.quota[side][0] if tree.quota[side][0] != NOT_COUNTED else 0
    floor = min(quota, draft.shares[side][0])
    excess = tree.used[side][0] - floor
    return 0 if excess <= 0 else min(loose, int(excess) + draft.largest_gang(side) - 1)


# --- rights -----------------------------------------------------------------------------------------------------------


class Takers:
    """Whom a claimant may stop, and which sets are better (rule 19)."""

    firm_too = False

    def __init__(self, claim: Claim, break_budgets: bool = False) -> None:
        self.break_budgets = break_budgets
        self.claim = claim
        self.draft = claim.draft
        self.row = claim.row

    def allows(self, unit: Unit) -> bool:
        """Whether the unit may go for the claimant now."""
        return self._may_go(unit) and self.claim.right(unit) is not None

    def _may_go(self, unit: Unit) -> bool:
        if unit.row is self.row or not victims.may_be_disturbed(self.draft, unit):
            return False
        return not self.draft.fleet.budgets or victims.budgets_allow(self.draft, (unit,))

    def floor(self, node: int) -> Key:
        """Rights change with every leaver, so each node is weighed."""
        return ()

    def key(self, units: tuple[Unit, ...]) -> Key:
        """The order of rule 19, for units that would stop."""
        if len(units) == 1:
            return self._key_of_one(units[0])
        profiles = [victims.profile(self.draft, unit.row) for unit in units]
        gangs = sum(not unit.extra for unit in units)
        return (
            any(unit.row.queue == self.row.queue for unit in units),
            gangs > 0,
            *self._pushed(units),
            max(unit.row.priority for unit in units),
            sum(known.evictions for known in profiles),
            sum(victims.lost_work(self.draft, unit) for unit in units),
            gangs,
            len(units),
            max(known.youth for known in profiles),
        )

    def _key_of_one(self, unit: Unit) -> Key:
        row, known = unit.row, victims.profile(self.draft, unit.row)
        own = row.queue == self.row.queue
        tree, left = self.draft.fleet.tree, self.draft.fleet.tree.used[row.queue][0] - unit.cost
        return (
            own,
            not unit.extra,
            not own and left < tree.quota[row.queue][0],
            not own and left < self.draft.shares[row.queue][0],
            row.priority,
            known.evictions,
            (known.lost + (0.0 if unit.extra else known.warm_up)) * unit.cost,
            int(not unit.extra),
            1,
            known.youth,
        )

    def _pushed(self, units: tuple[Unit, ...]) -> tuple[bool, bool]:
        """Whether some queue falls below its quota, and below its fair share."""
        tree, shares = self.draft.fleet.tree, self.draft.shares
        lost: dict[int, int] = {}
        for unit in units:
            if unit.row.queue != self.row.queue:
                lost[unit.row.queue] = lost.get(unit.row.queue, 0) + unit.cost
        quota = any(tree.used[q][0] - cost < tree.quota[q][0] for q, cost in lost.items())
        share = any(tree.used[q][0] - cost < shares[q][0] for q, cost in lost.items())
        return quota, share

    def accepts(self, outcome: RoomMade) -> bool:
        """Whoever stops was fair game when it went, and the take is bearable for its side."""
        rights = self.rights_of(outcome.stopped, outcome.taken)
        reclaimed = [unit for unit, right in zip(outcome.stopped, rights, strict=True) if right is Code.RECLAIMED]
        return None not in rights and self.claim.reclaim.bearable(reclaimed)

    def rights_of(self, stopped: tuple[Unit, ...], taken: tuple[Held, ...]) -> list[Code | None]:
        """By which right each goes, as if they went now, one after the other, before the claimant came."""
        changed = self.draft.fleet.tree.changed
        noted = len(changed)
        self._book(self.row, taken, -1)
        for unit in stopped:
            self._book(unit.row, unit.places, 1)
        rights: dict[Unit, Code | None] = {}
        for unit in sorted(stopped, key=lambda unit: self.key((unit,))):
            rights[unit] = self.claim.right(unit)
            self._book(unit.row, unit.places, -1)
        self._book(self.row, taken, 1)
        del changed[noted:]  # every booking was undone
        return [rights[unit] for unit in stopped]

    def _book(self, row: JobRow, places: Iterable[Held], sign: int) -> None:
        for held in places:
            self.draft.fleet.charge(row, held, sign)

    def rank(self, outcome: RoomMade) -> Key:
        """Better sets first; nobody stopped is best of all."""
        if not outcome.stopped:
            return (False, False, sum(unit.cost for unit in outcome.moved))
        return (True, *self.key(outcome.stopped), sum(unit.cost for unit in outcome.moved))


class MixedTakers(Takers):
    """Also lets those step aside who may only be moved; whoever then stops must be fair game."""

    def __init__(self, claim: Claim, break_budgets: bool = False) -> None:
        super().__init__(claim, break_budgets)
        self.movers = Movers(claim.draft, claim.row, claim.asked)

    def allows(self, unit: Unit) -> bool:
        """Whether the unit may be lifted at all; `accepts` has the last word."""
        if unit.row is self.row or not victims.may_be_disturbed(self.draft, unit):
            return False
        if not self.break_budgets and not victims.budgets_allow(self.draft, (unit,)):
            return False
        return self.claim.right(unit) is not None or self.movers.allows(unit)

    def accepts(self, outcome: RoomMade) -> bool:
        """Whoever moves without being fair game is moved by the rules of moving."""
        rights = self.rights_of(outcome.moved, outcome.taken)
        only_moved = [unit for unit, right in zip(outcome.moved, rights, strict=True) if right is None]
        if only_moved and not (self.movers.few_enough(only_moved) and all(map(self._movable, only_moved))):
            return False
        return super().accepts(outcome)

    def _movable(self, unit: Unit) -> bool:
        return not self.movers.borrower or unit.row.priority <= self.row.priority


# --- telling ----------------------------------------------------------------------------------------------------------


def tell(draft: Draft, row: JobRow, outcome: RoomMade, claim: Claim | None = None) -> None:
    """Note why others were moved or stopped, and for whom."""
    tell_moved(draft, row, outcome.moved)
    if claim is not None:
        for unit in outcome.stopped:
            draft.accept(unit.row, _why_stopped(claim, unit))
            draft.served[unit.row.name] = row.name


def _why_stopped(claim: Claim, unit: Unit) -> Reason:
    row, tree = claim.row, claim.tree
    gpus = gpu_words(unit.cost)
    victim_queue = tree.queues[unit.row.queue].name
    if unit.row.queue == row.queue:
        message = f"{row.name} has priority {row.priority} over {unit.row.priority} in queue {victim_queue}"
        return Reason(Code.PREEMPTED, needed=unit.cost, where=row.name, message=message)
    if claim.critical and unit.row.priority < row.priority:
        message = f"{row.name} is critical (priority {row.priority}) and takes {gpus} across queues"
        return Reason(Code.CRITICAL, needed=unit.cost, where=row.name, message=message)
    ours = tree.queues[row.queue].name
    message = f"queue {ours} takes back {gpus} that {victim_queue} holds above its quota or fair share"
    return Reason(Code.RECLAIMED, needed=unit.cost, where=row.name, message=message)
