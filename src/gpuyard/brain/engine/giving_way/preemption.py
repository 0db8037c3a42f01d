"""Room by taking: by priority inside a queue, by shares between queues, by policy across them (rules 16 to 19).

Victims are found by simulated placement: a set counts only if the claimant then stands, whole and in its topology.
Bounds come before search: a claim that cannot succeed costs a few additions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from math import fsum

from gpuyard.brain.engine.giving_way import equal_claims, victims
from gpuyard.brain.engine.giving_way.bounds import floors, many_floors
from gpuyard.brain.engine.giving_way.claims import Claim
from gpuyard.brain.engine.giving_way.clearing import Key
from gpuyard.brain.engine.giving_way.consolidation import Movers, tell_moved
from gpuyard.brain.engine.giving_way.resettling import RoomMade
from gpuyard.brain.engine.giving_way.room_making import RoomMaker
from gpuyard.brain.engine.giving_way.victims import Unit
from gpuyard.brain.engine.nodes.columns import Held
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.job_rows import Footing, JobRow
from gpuyard.brain.engine.queueing import admission, grounds
from gpuyard.brain.engine.sharing.amounts import GPUS, Amounts
from gpuyard.model.policy import PdbRule
from gpuyard.model.reasons import Code, Reason


def make_room(draft: Draft, row: JobRow, asked: Amounts) -> bool:
    """Start the job by taking from others what it has a right to; whether it worked."""
    if not draft.policy.preempt:
        return False
    refusal = admission.refuses(draft, row, asked)
    if _is_final(refusal):
        return False
    outcome = equal_claims.follow(draft, row, asked) if refusal is None else None
    outcome = outcome or _searched(draft, row, asked)
    if outcome is None:
        return False
    tell(draft, row, outcome)
    draft.accept(row, Reason(Code.FITS, message="fits once others give way"))
    return True


def is_hopeless(draft: Draft, row: JobRow, asked: Amounts, kept: int = 0) -> bool:
    """Whether taking cannot help, told by bounds alone. `kept`: what else would be free if reservations stepped aside,
    in grains."""
    if not draft.policy.preempt or _is_final(admission.refuses(draft, row, asked)):
        return True
    return not _may_succeed(Claim(draft, row, asked), kept)


def _is_final(refusal: Reason | None) -> bool:
    """Held, or non-preemptible and over its quota: it gains nothing by taking. Under a limit others may make room."""
    return refusal is not None and refusal.code is not Code.OVER_LIMIT


def _searched(draft: Draft, row: JobRow, asked: Amounts) -> RoomMade | None:
    claim = Claim(draft, row, asked)
    if not _may_succeed(claim):
        return None
    return _plain_or_mixed(claim) or _breaking_budgets(claim)


def _plain_or_mixed(claim: Claim) -> RoomMade | None:
    """A plain take, or one that moves some and stops the rest where that is better. The latter is looked for everywhere
    if there is no plain one, or it leaves a queue below its quota; else only where few could go."""
    takers = Takers(claim)
    plain = RoomMaker(claim.draft, claim.row, takers)
    few = plain.few_could_go()
    with claim.draft.trial() as trial:
        outcome = plain.best(chain(plain.tries(), plain.small_tries()))
        everywhere = outcome is None or takers.pushes_below_quota(outcome)
        if not claim.draft.policy.consolidate or not (everywhere or few):
            trial.keep()  # as it stands: there is nothing to compare it with
            if outcome is not None and (nodes := plain.one_way()) is not None:
                equal_claims.leave(claim, nodes)
            return outcome
        rank = takers.rank(outcome) if outcome is not None else None
        trial.undo()
        nearby = outcome is not None and not outcome.moved
        mixed = _mixed(claim, rank) if everywhere else _few_mixed(claim, rank, nearby)
        if mixed is not None:
            trial.keep()
            return mixed
    return plain.again()


def _mixed(claim: Claim, beat: Key | None, break_budgets: bool = False) -> RoomMade | None:
    maker = RoomMaker(claim.draft, claim.row, MixedTakers(claim, break_budgets))
    return maker.best(chain(maker.tries(), maker.clearing_tries(), maker.small_tries()), beat)


def _few_mixed(claim: Claim, beat: Key | None, nearby: bool) -> RoomMade | None:
    """Where few could go; if there is a take that moves nobody, only near the claimant (rule 19)."""
    maker = RoomMaker(claim.draft, claim.row, NearTakers(claim) if nearby else MixedTakers(claim))
    return maker.best(maker.small_tries(), beat)


def _breaking_budgets(claim: Claim) -> RoomMade | None:
    return _mixed(claim, None, break_budgets=True) if claim.draft.policy.pdb is PdbRule.LAST_RESORT else None


# --- bounds -----------------------------------------------------------------------------------------------------------


def _may_succeed(claim: Claim, kept: int = 0) -> bool:
    return claim.any_right() and enough_to_take(claim, kept)


def enough_to_take(claim: Claim, kept: int = 0) -> bool:
    """Whether free GPUs, those `kept` for somebody and all that could be taken at the very best would do."""
    draft, tree = claim.draft, claim.tree
    needed = claim.asked[GPUS]
    if not needed or draft.fleet.moving_may_free:
        return True
    have = draft.fleet.columns.idle_total + kept
    for parting in _sides(claim):
        have += parting
        if have >= needed:
            return True
    own = claim.row.queue
    return have + tree.used[own][GPUS] - tree.firm[own][GPUS] >= needed


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
    loose = tree.used[side][GPUS] - tree.firm[side][GPUS]
    if claim.critical or len(tree.resources) > 1:
        return loose
    floor = min(tree.quota[side][GPUS], draft.shares[side][GPUS])
    excess = tree.used[side][GPUS] - floor
    return 0 if excess <= 0 else min(loose, int(excess) + draft.largest_gang(side) - 1)


# --- rights -----------------------------------------------------------------------------------------------------------


class Takers:
    """Whom a claimant may stop, and which sets are better (rule 19)."""

    moves_too = False
    firm_too = False

    def __init__(self, claim: Claim, break_budgets: bool = False) -> None:
        self.break_budgets = break_budgets
        self.claim = claim
        self.draft = claim.draft
        self.row = claim.row

    def footings(self) -> frozenset[Footing] | None:
        """Where those stand whom the claimant may take from."""
        return self.claim.footings()

    def allows(self, unit: Unit) -> bool:
        """Whether the unit may go for the claimant, now or once others are gone."""
        return self.claim.right_in_time(unit.row) and self._may_go(unit)  # rights are the same for whole queues

    def may_follow(self, unit: Unit) -> bool:
        """Whether the claimant has a right to the unit, after those who are supposed to have gone."""
        return self.claim.right(unit.row) is not None

    def may_all_go(self, units: tuple[Unit, ...]) -> bool:
        """Whether the claimant has one right to all of them."""
        return self.claim.right_to_all(units) is not None

    def suppose(self, unit: Unit, gone: bool) -> None:
        """Every victim changes what its side holds."""
        self.claim.suppose(unit, gone)

    def _may_go(self, unit: Unit) -> bool:
        if unit.row is self.row or not victims.may_be_disturbed(self.draft, unit):
            return False
        return not self.draft.fleet.budgets or victims.budgets_allow(self.draft, (unit,))

    def floors(self, nodes: Sequence[int], shorts: Sequence[int]) -> list[Key | None]:
        """By what those have there from whom the claimant may take."""
        return many_floors.least_keys(self.draft, self.row, self.footings(), nodes, shorts)

    def key(self, units: tuple[Unit, ...]) -> Key:
        """The order of rule 19, for units that would stop."""
        if len(units) == 1:
            return self._key_of_one(*units)
        profiles = [victims.profile(self.draft, unit.row) for unit in units]
        whole = {unit.row.name for unit in units if not unit.extra}
        pairs = zip(profiles, units, strict=True)
        return (
            self.row.queue in {unit.row.queue for unit in units},
            bool(whole),
            *self._pushed(units),
            max([unit.row.priority for unit in units]),
            sum([known.evictions for known in profiles]),
            fsum([victims.lost_of(known, unit, unit.row.name in whole) for known, unit in pairs]),
            len(whole),
            len(units),
            max([known.youth for known in profiles]),
        )

    def _key_of_one(self, unit: Unit) -> Key:
        row, known = unit.row, victims.profile(self.draft, unit.row)
        own = row.queue == self.row.queue
        tree, left = self.draft.fleet.tree, self.draft.fleet.tree.used[row.queue][GPUS] - unit.cost
        return (
            own,
            not unit.extra,
            not own and left < tree.quota[row.queue][GPUS],
            not own and left < self.draft.shares[row.queue][GPUS],
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
        quota = any(tree.used[q][GPUS] - cost < tree.quota[q][GPUS] for q, cost in lost.items())
        share = any(tree.used[q][GPUS] - cost < shares[q][GPUS] for q, cost in lost.items())
        return quota, share

    def pushes_below_quota(self, outcome: RoomMade) -> bool:
        """Whether somebody stops whose queue then has less than its quota; asked while the outcome stands."""
        tree = self.draft.fleet.tree
        queues = {unit.row.queue for unit in outcome.stopped} - {self.row.queue}
        return any(tree.used[q][GPUS] < tree.quota[q][GPUS] for q in queues)

    def stoppable(self, gone: Iterable[Unit]) -> set[Unit]:
        """Nobody is lifted to whom there is no right."""
        return set(gone)

    def may_stop(self, units: tuple[Unit, ...]) -> bool:
        """Whether each is fair game when its turn comes."""
        return len(self.claim.rights_in_order(units)) == len(units)

    def accepts(self, outcome: RoomMade) -> bool:
        """Whoever stops was fair game when it went, and the take is bearable for its side."""
        rights = self.rights_of(outcome.stopped, outcome.taken)
        reclaimed = [unit for unit, right in rights.items() if right is Code.RECLAIMED]
        return len(rights) == len(outcome.stopped) and self.claim.reclaim.bearable(reclaimed)

    def rights_of(self, units: tuple[Unit, ...], taken: tuple[Held, ...]) -> dict[Unit, Code]:
        """By which right each goes that may go, as if they went one after the other before the claimant came."""
        claimant = Unit(self.row, taken, False, 0)
        with self.claim.supposed((claimant,), gone=True), self.claim.supposed(units, gone=False):
            return self.claim.rights_in_order(units)

    def rank(self, outcome: RoomMade) -> Key:
        """Better sets first; nobody stopped is best of all."""
        if not outcome.stopped:
            return (False, False, sum(unit.cost for unit in outcome.moved))
        with self.claim.supposed(outcome.stopped, gone=False):  # a key is that of units that stand
            return (True, *self.key(outcome.stopped), sum(unit.cost for unit in outcome.moved))

    def least_stopped(self, rows: Iterable[JobRow], lacking: int) -> Key | None:
        """By what those have from whom the claimant may take."""
        taken_from = [row for row in rows if self.claim.right_in_time(row)]
        return floors.least_stopped(self.draft, self.row, taken_from, lacking)

    def at_best(self, key: Key) -> Key:
        """With nobody moved."""
        return (True, *key, 0) if key else (False, False, 0)


class MixedTakers(Takers):
    """Also lets those step aside who may only be moved; whoever then stops must be fair game."""

    moves_too = True

    def __init__(self, claim: Claim, break_budgets: bool = False) -> None:
        super().__init__(claim, break_budgets)
        self.movers = Movers(claim.draft, claim.row, claim.asked)

    def footings(self) -> frozenset[Footing] | None:
        """Who may be moved needs no right."""
        return None

    def allows(self, unit: Unit) -> bool:
        """Whether the unit may be lifted at all; `accepts` has the last word."""
        if unit.row is self.row or not victims.may_be_disturbed(self.draft, unit):
            return False
        in_budget = victims.budgets_allow(self.draft, (unit,))
        if not in_budget and not self.break_budgets:
            return False
        return self.claim.right_in_time(unit.row) or (in_budget and self.movers.lets_move(unit.row))

    def may_follow(self, unit: Unit) -> bool:
        """Who may be moved needs no right."""
        return super().may_follow(unit) or self.movers.allows(unit)

    def may_all_go(self, units: tuple[Unit, ...]) -> bool:
        """Each for itself: some may be moved, others stopped."""
        return False

    def stoppable(self, gone: Iterable[Unit]) -> set[Unit]:
        """Those the claimant had a right to while they stood, at once or in time."""
        gone = list(gone)
        with self.claim.supposed(gone, gone=False):
            return {unit for unit in gone if self.claim.right_in_time(unit.row)}

    def accepts(self, outcome: RoomMade) -> bool:
        """Whoever moves without being fair game is moved by the rules of moving."""
        rights = self.rights_of(outcome.moved, outcome.taken)
        only_moved = [unit for unit in outcome.moved if unit not in rights]
        if only_moved and not (self.movers.few_enough(only_moved) and all(map(self._movable, only_moved))):
            return False
        return super().accepts(outcome)

    def _movable(self, unit: Unit) -> bool:
        return not self.movers.borrower or unit.row.priority <= self.row.priority


class NearTakers(MixedTakers):
    """For a claimant that has a plain take: nobody stops elsewhere, to make a place for those who move (rule 19)."""

    def accepts(self, outcome: RoomMade) -> bool:
        """Whoever stops lies where the claimant then runs, or had not begun when the plan did."""
        nodes = {held.node for held in outcome.taken}
        near = (
            not self.draft.origin(unit.row) or any(held.node in nodes for held in unit.places)
            for unit in outcome.stopped
        )
        return all(near) and super().accepts(outcome)


# --- telling ----------------------------------------------------------------------------------------------------------


def tell(draft: Draft, row: JobRow, outcome: RoomMade) -> None:
    """Note why others were moved or stopped, and for whom; it is the same for all who stand alike and cost alike."""
    tell_moved(draft, row, outcome.moved)
    reasons: dict[tuple[Footing, int], Reason] = {}
    for unit in outcome.stopped:
        alike = (unit.row.footing, unit.cost)
        if alike not in reasons:
            reasons[alike] = grounds.why_stopped(draft.fleet, row, unit.row, unit.cost)
        draft.accept(unit.row, reasons[alike])
        draft.served[unit.row.name] = row.name
