"""By which right a waiting job may take from others: preemption by priority inside its queue, reclaim by shares between
queues, critical jobs across them by policy (rules 16 to 18).

A claim is asked anew before each victim goes, because every victim changes what its side holds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from gpuyard.brain.engine.giving_way.reclaim import Reclaim
from gpuyard.brain.engine.giving_way.victims import Unit
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.job_rows import NO_QUEUE, Footing, JobRow
from gpuyard.brain.engine.picture.standing import Bookings
from gpuyard.brain.engine.queueing import grounds
from gpuyard.brain.engine.sharing.amounts import Amounts, add, minus
from gpuyard.model.policy import AcrossQueues
from gpuyard.model.reasons import Code

MOST_ORDERED = 6
"""Units of which every order is tried when none follows from their size."""


class Rights:
    """Rights by queue and priority, worked out once for all who stand alike there."""

    __slots__ = ("footings", "in_time", "inside", "now")

    def __init__(self) -> None:
        self.now: dict[Footing, Code | None] = {}
        self.in_time: dict[Footing, bool] = {}
        self.footings: frozenset[Footing] | None = None
        self.inside: dict[int, list[tuple[int, Amounts]]] = {}
        """What could go in a branch of the claimant's, by queue."""


class _Change(NamedTuple):
    """What some units would make of the books, and of who stands where."""

    bookings: Bookings
    footings: dict[Footing, int]


class Claim:
    """A waiting job, what it lacks, and by which right it may take."""

    def __init__(self, draft: Draft, row: JobRow, asked: Amounts) -> None:
        self.draft = draft
        self.row = row
        self.asked = asked
        self.tree = draft.fleet.tree
        self.reclaim = Reclaim(draft, row, asked)
        self._standing = Rights()
        """As the books are."""
        self._supposing = Rights()
        """As they are supposed to be."""
        self._supposed: Bookings = {}
        """What is supposed to be held more than is, or less; empty where the books are as they are."""
        self._footings_supposed: dict[Footing, int] = {}
        """How many units are supposed to stand there more than do, or fewer; empty where all stand as they do."""
        self._rights_at = len(self.tree.changed)
        self.critical = grounds.is_critical(draft.policy, row)

    def right(self, victim: JobRow) -> Code | None:
        """By which right the claimant may take from the victim now; None if by none.

        It depends on the victim's queue and priority alone, so it is worked out once until some queue changes.
        """
        if victim is self.row:
            return None
        return self._right_to(victim.footing)

    def _right_to(self, footing: Footing) -> Code | None:
        rights = self._known()
        if footing not in rights.now:
            rights.now[footing] = self._right(footing)
        return rights.now[footing]

    def _known(self) -> Rights:
        """What has been worked out about the books as they are, or are supposed to be."""
        if self._supposed or self._footings_supposed:
            return self._supposing
        version = len(self.tree.changed)
        if version != self._rights_at:
            self._standing = Rights()
            self._rights_at = version
        return self._standing

    def right_in_time(self, victim: JobRow) -> bool:
        """Whether the claimant could have a right to take from the victim once others are gone whom it may take from:
        lower priorities of its own queue, and queues of its own branch."""
        return victim is not self.row and self._right_in_time(victim.footing)

    def _right_in_time(self, footing: Footing) -> bool:
        if self._right_to(footing) is not None:
            return True
        rights = self._known()
        if footing not in rights.in_time:
            rights.in_time[footing] = self._gets_right(footing)
        return rights.in_time[footing]

    def footings(self) -> frozenset[Footing]:
        """Where those preemptible jobs stand whom the claimant may take from, now or in time."""
        rights = self._known()
        if rights.footings is None:
            rights.footings = frozenset(footing for footing in self._taken_up() if self._right_in_time(footing))
        return rights.footings

    def _taken_up(self) -> list[Footing]:
        """Where preemptible jobs stand, or are supposed to."""
        held = self.draft.fleet.priorities.items()
        found = [Footing(queue, priority) for queue, counts in held for priority in counts]
        return [*found, *(footing for footing, more in self._footings_supposed.items() if more > 0)]

    def _gets_right(self, victim: Footing) -> bool:
        """Whether there is a right once all have gone who could, inside of where the victim's queue parts."""
        if victim.queue in (NO_QUEUE, self.row.queue):
            return False
        inside = self._could_go_in(self.reclaim.parting(victim.queue).ours)
        for queue, loose in inside:
            self.tree.suppose(queue, loose, False, -1)
        try:
            return self._right(victim) is not None
        finally:
            for queue, loose in inside:
                self.tree.suppose(queue, loose, False, 1)

    def _could_go_in(self, branch: int) -> list[tuple[int, Amounts]]:
        """What could go for the claimant in its own branch, which opens its right to those beyond. Whether somebody
        there could go follows from what lies further in, so this ends."""
        found, tree = self._known().inside, self.tree
        if branch not in found:
            there = [f for f in self._taken_up() if f.queue != NO_QUEUE and branch in tree.paths[f.queue]]
            queues = sorted({footing.queue for footing in there if self._right_in_time(footing)})
            found[branch] = [(q, minus(tree.used[q], tree.firm[q])) for q in queues]
        return found[branch]

    # --- in which order -------------------------------------------------------------------------------------------

    def rights_in_order(self, units: Iterable[Unit]) -> dict[Unit, Code]:
        """By which right each goes, one after the other, in an order in which as many as can have one.

        Those of the claimant's own queue first, for that lets its branch have more; then from the inside of the tree
        outwards, the small before the large: a side that is barely above its due may lose its largest last. The units
        stand; they are taken off the books here one by one, and put back.
        """
        units = list(units)
        if len(units) == 1:
            (unit,) = units
            right = self.right(unit.row)
            return {} if right is None else {unit: right}
        rights = self._greedily(units)
        if len(rights) == len(units) or len(units) > MOST_ORDERED or len(self.tree.resources) == 1:
            return rights
        return self._in_any_order(frozenset(units), set()) or rights

    def _in_any_order(self, units: frozenset[Unit], dead: set[frozenset[Unit]]) -> dict[Unit, Code]:
        """The rights of an order in which all can go; none if there is no such order. With several resources who is
        small in one may be what a side is above its due by in another, so every order is looked at."""
        for unit in sorted(units, key=self._goes_before):
            rest = units - {unit}
            right = self.right(unit.row)
            if right is None or rest in dead or (not unit.extra and any(u.extra and u.row is unit.row for u in rest)):
                continue
            with self.supposed((unit,), gone=True):
                found = self._in_any_order(rest, dead) if rest else {}
            if found or not rest:
                return {unit: right, **found}
            dead.add(rest)
        return {}

    def _greedily(self, units: list[Unit]) -> dict[Unit, Code]:
        """Whoever may go first goes."""
        waiting = self._lanes(units)
        if len(waiting) == 1:
            right = self.right_to_all(units)
            if right is not None:
                return dict.fromkeys(units, right)
        rights: dict[Unit, Code] = {}
        try:
            while (following := self._first_of(waiting)) is not None:
                unit, right = following
                self.suppose(unit, gone=True)
                rights[unit] = right
                lane = waiting[unit.row.footing]
                lane.pop()
                if not lane:
                    del waiting[unit.row.footing]
        finally:
            self.suppose_all(rights, gone=False)
        return rights

    def _first_of(self, waiting: Mapping[Footing, list[Unit]]) -> tuple[Unit, Code] | None:
        """Who may go next, and by which right; None if nobody may."""
        ready = [(lane[-1], right) for lane in waiting.values() if (right := self.right(lane[-1].row)) is not None]
        if len(ready) > 1:
            return min(ready, key=lambda pair: self._goes_before(pair[0]))
        return ready[0] if ready else None

    def right_to_all(self, units: Sequence[Unit]) -> Code | None:
        """The one right by which all of these may go one after the other, who share a footing; None if there is none,
        or more than one.

        Every one that goes leaves its side less, and takes nothing from the claimant's: a right that is there before
        the first has gone and before the last is there all the time.
        """
        *others, last = units
        first = self.right(last.row)
        if first is None or not others:
            return first
        with self.supposed(others, gone=True):
            return first if self.right(last.row) is first else None

    def _lanes(self, units: Iterable[Unit]) -> dict[Footing, list[Unit]]:
        """Units that the claimant has the same right to, the first to go last: extras, then the smaller."""
        lanes: dict[Footing, list[Unit]] = {}
        for unit in sorted(units, key=lambda unit: (unit.extra, -unit.cost, unit.row.age, unit.places)):
            lanes.setdefault(unit.row.footing, []).append(unit)
        return lanes

    def _goes_before(self, unit: Unit) -> tuple[object, ...]:
        queue = unit.row.queue
        depth = (
            0
            if queue == self.row.queue
            else 1 + self.tree.paths[self.row.queue].index(self.reclaim.parting(queue).ours)
        )
        return (depth, unit.cost, unit.row.age, unit.places)

    @contextmanager
    def supposed(self, units: Collection[Unit], gone: bool) -> Iterator[None]:
        """Suppose for a while that these are gone, or that they stand."""
        change = self._change_by(units)
        self._suppose(change, -1 if gone else 1)
        try:
            yield
        finally:
            self._suppose(change, 1 if gone else -1)

    def suppose_all(self, units: Collection[Unit], gone: bool) -> None:
        """Suppose that these are gone, or back; whoever supposes takes it back."""
        self._suppose(self._change_by(units), -1 if gone else 1)

    def suppose(self, unit: Unit, gone: bool) -> None:
        """The same for one."""
        self.suppose_all((unit,), gone)

    def _change_by(self, units: Collection[Unit]) -> _Change:
        """What would be if these stood who do not."""
        change = _Change({}, {})
        for unit in units:
            footing = unit.row.footing
            change.footings[footing] = change.footings.get(footing, 0) + 1
            for held in unit.places:
                self.draft.fleet.count_in(change.bookings, unit.row, held, 1)
        return change

    def _suppose(self, change: _Change, sign: int) -> None:
        self._supposing = Rights()
        for footing, count in change.footings.items():
            more = self._footings_supposed.pop(footing, 0) + sign * count
            if more:
                self._footings_supposed[footing] = more
        for account, amounts in change.bookings.items():
            queue, firm = account
            self.tree.suppose(queue, amounts, firm, sign)
            supposed = self._supposed.pop(account, None) or self.draft.fleet.costs.nothing()
            add(supposed, amounts, sign)
            if any(supposed):
                self._supposed[account] = supposed

    # --- the rights -----------------------------------------------------------------------------------------------

    def any_right(self) -> bool:
        """Whether there is anybody at all the claimant could take from."""
        holders = self.draft.fleet.priorities
        if self._some_below(holders.get(self.row.queue, {})):
            return True
        if self.critical and any(self._some_below(counts) for counts in holders.values()):
            return True
        if not self.reclaim.due():
            return False
        return any(
            counts and q not in (self.row.queue, NO_QUEUE) and self.reclaim.allows(q) for q, counts in holders.items()
        )

    def _some_below(self, counts: dict[int, int]) -> bool:
        return any(priority < self.row.priority for priority in counts)

    def _right(self, victim: Footing) -> Code | None:
        if victim.queue == NO_QUEUE:
            return None
        if victim.queue == self.row.queue:
            return Code.PREEMPTED if victim.priority < self.row.priority else None
        if self._by_priority(victim):
            return Code.CRITICAL
        return Code.RECLAIMED if self._by_share(victim) else None

    # --- rule 18 --------------------------------------------------------------------------------------------------

    def _by_priority(self, victim: Footing) -> bool:
        if not self.critical or victim.priority >= self.row.priority:
            return False
        if self.draft.policy.preempt_across_queues is AcrossQueues.ANY:
            return True
        return self.tree.above(victim.queue, self.tree.quota[victim.queue])

    def _shielded(self, victim: Footing) -> bool:
        """What a critical job took is not taken back by shares while the policy stands."""
        policy = self.draft.policy
        return policy.preempt_across_queues is not AcrossQueues.NEVER and victim.priority >= policy.critical_priority

    # --- rule 17 --------------------------------------------------------------------------------------------------

    def _by_share(self, victim: Footing) -> bool:
        return not self._shielded(victim) and self.reclaim.allows(victim.queue)
