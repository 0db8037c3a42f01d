"""Room by moving: preemptible jobs step aside so that a waiting one fits, and all still run (rule 15)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from math import fsum

from gpuyard.brain.engine.giving_way import victims
from gpuyard.brain.engine.giving_way.clearing import Key, Unasked
from gpuyard.brain.engine.giving_way.resettling import RoomMade
from gpuyard.brain.engine.giving_way.room_making import RoomMaker
from gpuyard.brain.engine.giving_way.victims import Unit
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.brain.engine.queueing import admission, grounds
from gpuyard.brain.engine.sharing.amounts import GPUS, Amounts
from gpuyard.brain.engine.sharing.quota import NOT_COUNTED
from gpuyard.model.reasons import Code, Reason


def make_room(draft: Draft, row: JobRow, asked: Amounts) -> bool:
    """Start the job by moving others; nobody stops. Whether it worked."""
    if is_hopeless(draft, row, asked):
        return False
    maker = RoomMaker(draft, row, Movers(draft, row, asked))
    outcome = maker.first(chain(maker.node_tries(), maker.clearing_tries(), maker.moves_of_few()))
    if outcome is None:
        return False
    tell_moved(draft, row, outcome.moved)
    draft.accept(row, Reason(Code.FITS, message="fits once others are moved"))
    return True


def is_hopeless(draft: Draft, row: JobRow, asked: Amounts, kept: int = 0) -> bool:
    """Whether moving cannot help. `kept`: what else would be free if reservations stepped aside, in grains."""
    if not draft.policy.consolidate or admission.refuses(draft, row, asked) is not None:
        return True
    return asked[GPUS] > draft.fleet.columns.idle_total + kept and not draft.fleet.moving_may_free


def tell_moved(draft: Draft, row: JobRow, moved: tuple[Unit, ...]) -> None:
    """Note for whom others were moved."""
    for unit in moved:
        draft.accept(unit.row, grounds.why_moved(row.name))
        draft.served[unit.row.name] = row.name


class Movers(Unasked):
    """Whom a claimant may move: preemptible jobs of any queue; above its fair share only its equals, and not much.

    Who moves keeps what it has, so nobody's right to move changes.
    """

    break_budgets = False
    moves_too = True
    firm_too = False

    def __init__(self, draft: Draft, row: JobRow, asked: Amounts) -> None:
        self.draft = draft
        self.row = row
        self.asked = asked
        self.borrower = _above_share(draft, row, asked)
        self.largest_gap = int(draft.fleet.columns.whole.max(initial=0))
        """The most whole GPUs free on one node: larger tasks have nowhere to go."""

    def allows(self, unit: Unit) -> bool:
        """Whether the unit may be moved for the claimant."""
        if unit.row is self.row or not self.lets_move(unit.row):
            return False
        return victims.may_be_disturbed(self.draft, unit) and victims.budgets_allow(self.draft, (unit,))

    def lets_move(self, row: JobRow) -> bool:
        """Whether the claimant may have the job moved, if anybody may."""
        return row.complete() and not (self.borrower and row.priority > self.row.priority)

    def floors(self, nodes: Sequence[int], shorts: Sequence[int]) -> list[Key | None]:
        """Who fits elsewhere is not known beforehand, so each node is weighed."""
        return [()] * len(nodes)

    def key(self, units: tuple[Unit, ...]) -> Key:
        """Tasks that fit a gap elsewhere first; fewest GPUs moved, least lost work, lowest priority, the younger."""
        return (
            any(len(held.gpus) > self.largest_gap for unit in units for held in unit.places if not held.share),
            sum(unit.cost for unit in units),
            fsum(victims.lost_work(self.draft, unit) for unit in units),
            max(unit.row.priority for unit in units),
            max(unit.row.youth for unit in units),
        )

    def stoppable(self, gone: Iterable[Unit]) -> set[Unit]:
        """Nobody stops for a move."""
        return set()

    def may_stop(self, units: tuple[Unit, ...]) -> bool:
        """Nobody may."""
        return not units

    def accepts(self, outcome: RoomMade) -> bool:
        """Everybody still runs, and a borrower moved no more than the policy's multiple of its own GPUs."""
        return not outcome.stopped and self.few_enough(outcome.moved)

    def few_enough(self, units: Iterable[Unit]) -> bool:
        """Whether moving these stays within what a borrower may move."""
        moved = sum(unit.cost for unit in units)
        return not self.borrower or moved <= self.draft.policy.move_factor * self.asked[GPUS]

    def rank(self, outcome: RoomMade) -> Key:
        """Fewest GPUs moved."""
        return self.key(outcome.moved) if outcome.moved else ()

    def least_stopped(self, rows: Iterable[JobRow], lacking: int) -> Key | None:
        """Nobody stops for a move."""
        return ()

    def at_best(self, key: Key) -> Key:
        """Who stops says nothing about who is moved."""
        return ()


def _above_share(draft: Draft, row: JobRow, asked: Amounts) -> bool:
    tree, share = draft.fleet.tree, draft.shares[row.queue]
    used, quota = tree.used[row.queue], tree.quota[row.queue]
    return any(quota[r] != NOT_COUNTED and amount and used[r] + amount > share[r] for r, amount in enumerate(asked))
