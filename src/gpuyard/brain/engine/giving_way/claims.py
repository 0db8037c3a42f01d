"""What one waiting job may take from others: by priority inside its queue, by shares between queues, by policy across
them (rules 16 to 18).

A claim is asked anew before each victim goes, because every victim changes what its side holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from gpuyard.brain.engine.giving_way.victims import Unit
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.job_rows import NO_QUEUE, JobRow
from gpuyard.brain.engine.sharing.amounts import Amounts
from gpuyard.brain.engine.sharing.quota import NOT_COUNTED
from gpuyard.model.policy import AcrossQueues
from gpuyard.model.reasons import Code


class Parting(NamedTuple):
    """Where two queues part: the claimant's and the victim's branch just below their common queue."""

    ours: int
    theirs: int


class Claim:
    """A waiting job, what it lacks, and by which right it may take."""

    def __init__(self, draft: Draft, row: JobRow, asked: Amounts) -> None:
        self.draft = draft
        self.row = row
        self.asked = asked
        self.tree = draft.fleet.tree
        self._partings: dict[int, Parting] = {}
        self._rights: dict[tuple[int, int], Code | None] = {}
        self._rights_at = -1
        policy = draft.policy
        self.critical = (
            row.priority >= policy.critical_priority and policy.preempt_across_queues is not AcrossQueues.NEVER
        )

    def right(self, unit: Unit) -> Code | None:
        """By which right the claimant may take the unit now; None if by none.

        It depends on the victim's queue and priority alone, so it is worked out once until some queue changes.
        """
        version = len(self.tree.changed)
        if version != self._rights_at:
            self._rights.clear()
            self._rights_at = version
        key = (unit.row.queue, unit.row.priority)
        if key not in self._rights:
            self._rights[key] = self._right(unit.row)
        return None if unit.row is self.row else self._rights[key]

    def any_right(self) -> bool:
        """Whether there is anybody at all the claimant could take from."""
        holders = self.draft.fleet.priorities
        if self._some_below(holders.get(self.row.queue, {})):
            return True
        if self.critical and any(self._some_below(counts) for counts in holders.values()):
            return True
        if not self._fits_due(self.row.queue, self.draft.shares[self.row.queue]):
            return False
        return any(
            counts and q not in (self.row.queue, NO_QUEUE) and self._side_gives(q) for q, counts in holders.items()
        )

    def _some_below(self, counts: dict[int, int]) -> bool:
        return any(priority < self.row.priority for priority in counts)

    def _right(self, victim: JobRow) -> Code | None:
        if victim.queue == NO_QUEUE:
            return None
        if victim.queue == self.row.queue:
            return Code.PREEMPTED if victim.priority < self.row.priority else None
        if self._by_priority(victim):
            return Code.CRITICAL
        return Code.RECLAIMED if self._by_share(victim) else None

    # --- rule 18 --------------------------------------------------------------------------------------------------

    def _by_priority(self, victim: JobRow) -> bool:
        if not self.critical or victim.priority >= self.row.priority:
            return False
        if self.draft.policy.preempt_across_queues is AcrossQueues.ANY:
            return True
        return self.tree.above(victim.queue, self.tree.quota[victim.queue])

    def _shielded(self, victim: JobRow) -> bool:
        """What a critical job took is not taken back by shares while the policy stands."""
        policy = self.draft.policy
        return policy.preempt_across_queues is not AcrossQueues.NEVER and victim.priority >= policy.critical_priority

    # --- rule 17 --------------------------------------------------------------------------------------------------

    def _by_share(self, victim: JobRow) -> bool:
        return not self._shielded(victim) and self._side_gives(victim.queue)

    def _side_gives(self, queue: int) -> bool:
        """Whether shares let the claimant take from this queue now."""
        if not self._fits_due(self.row.queue, self.draft.shares[self.row.queue]):
            return False
        ours, theirs = self.parting(queue)
        quota, shares = self.tree.quota, self.draft.shares
        if self._fits_due(ours, quota[ours]) and self.tree.above(theirs, quota[theirs]):
            return True
        return self._fits_due(ours, shares[ours]) and self.tree.above(theirs, shares[theirs])

    def parting(self, queue: int) -> Parting:
        """Where the claimant's queue and this one part."""
        found = self._partings.get(queue)
        if found is None:
            found = self._partings[queue] = self._part(queue)
        return found

    def _part(self, queue: int) -> Parting:
        ours, theirs = list(self.tree.paths[self.row.queue]), list(self.tree.paths[queue])
        while ours and theirs and ours[-1] == theirs[-1]:
            ours.pop()
            theirs.pop()
        return Parting(ours[-1], theirs[-1])

    def _fits_due(self, q: int, due: Iterable[float]) -> bool:
        """Whether a queue stays within `due` with what the claimant lacks, in every resource it counts."""
        used, quota = self.tree.used[q], self.tree.quota[q]
        return all(
            quota[r] == NOT_COUNTED or not amount or used[r] + amount <= allowed
            for r, (amount, allowed) in enumerate(zip(self.asked, due, strict=True))
        )

    def beyond_quota(self, queue: int) -> bool:
        """Whether the claimant's side, against this queue, goes beyond its quota."""
        ours = self.parting(queue).ours
        return not self._fits_due(ours, self.tree.quota[ours])

    # --- the last sentence of rule 17, once the victims are known ---------------------------------------------------

    def bearable(self, stopped: list[Unit]) -> bool:
        """For takes beyond quota: the victim's side loses less than the claimant gains, and cannot claim it back.

        Asked while the victims are gone and the claimant stands in its place.
        """
        sides = {self.parting(unit.row.queue) for unit in stopped}
        return all(self._bearable_for(parting, stopped) for parting in sorted(sides))

    def _bearable_for(self, parting: Parting, stopped: list[Unit]) -> bool:
        ours, theirs = parting
        used, quota, share = self.tree.used, self.tree.quota, self.draft.shares[theirs]
        if not any(quota[ours][r] != NOT_COUNTED and used[ours][r] > quota[ours][r] for r in range(len(self.asked))):
            return True
        for r, gain in enumerate(self.asked):
            if gain and quota[theirs][r] != NOT_COUNTED and share[r] - used[theirs][r] >= gain:
                return False
        return not any(self._could_claim_back(row, parting) for row in self._waiting_below(theirs, stopped))

    def _waiting_below(self, side: int, stopped: list[Unit]) -> list[JobRow]:
        rows = {row.name: row for row in self.draft.fleet.short.values() if row is not self.row and not row.job.held}
        rows.update((unit.row.name, unit.row) for unit in stopped if not unit.extra)
        return [row for row in rows.values() if row.queue != NO_QUEUE and side in self.tree.paths[row.queue]]

    def _could_claim_back(self, row: JobRow, parting: Parting) -> bool:
        asked = self.draft.fleet.shortfall(row)
        theirs, used, quota = parting.theirs, self.tree.used, self.tree.quota
        fits_quota = all(
            quota[theirs][r] == NOT_COUNTED or not amount or used[theirs][r] + amount <= quota[theirs][r]
            for r, amount in enumerate(asked)
        )
        own, due = row.queue, self.draft.shares[row.queue]
        fits_share = all(
            quota[own][r] == NOT_COUNTED or not amount or used[own][r] + amount <= due[r]
            for r, amount in enumerate(asked)
        )
        return any(asked) and fits_quota and fits_share
