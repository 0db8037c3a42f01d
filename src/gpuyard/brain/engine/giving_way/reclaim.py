"""Reclaim: what a queue below its quota or fair share may take back from queues above theirs (rule 17).

Asked by `claims` before each victim goes, and by `preemption` once all are known. Preemption inside a queue is by
priority and not decided here.
"""

from __future__ import annotations

from typing import NamedTuple

from gpuyard.brain.engine.giving_way.victims import Unit
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.job_rows import NO_QUEUE, JobRow
from gpuyard.brain.engine.sharing.amounts import Amounts, add
from gpuyard.brain.engine.sharing.quota import NOT_COUNTED


class Parting(NamedTuple):
    """Where two queues part: the claimant's and the victim's branch just below their common queue."""

    ours: int
    theirs: int


class Reclaim:
    """One waiting job, what it lacks, and from which queues its own may take that back."""

    def __init__(self, draft: Draft, row: JobRow, asked: Amounts) -> None:
        self.draft = draft
        self.row = row
        self.asked = asked
        self.tree = draft.fleet.tree
        self._partings: dict[int, Parting] = {}

    def due(self) -> bool:
        """Whether the claimant's queue stays within its fair share with what it lacks."""
        return self.tree.within(self.row.queue, self.draft.shares[self.row.queue], self.asked)

    def allows(self, queue: int) -> bool:
        """Whether shares let the claimant take back from this queue now."""
        if not self.due():
            return False
        ours, theirs = self.parting(queue)
        quota, shares = self.tree.quota, self.draft.shares
        if self.tree.within(ours, quota[ours], self.asked) and self.tree.above(theirs, quota[theirs]):
            return True
        return self.tree.within(ours, shares[ours], self.asked) and self.tree.above(theirs, shares[theirs])

    def parting(self, queue: int) -> Parting:
        """Where the claimant's queue and this one part."""
        found = self._partings.get(queue)
        if found is None:
            found = self._partings[queue] = self._part(queue)
        return found

    def _part(self, queue: int) -> Parting:
        ours, theirs = list(self.tree.paths[self.row.queue]), list(self.tree.paths[queue])
        while ours[-1] == theirs[-1]:
            ours.pop()
            theirs.pop()
        return Parting(ours[-1], theirs[-1])

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
        beyond = (used[ours][r] > quota[ours][r] != NOT_COUNTED for r, amount in enumerate(self.asked) if amount)
        if not any(beyond):
            return True
        before = self._before(theirs, stopped)
        for r, gain in enumerate(self.asked):
            lacks = share[r] - used[theirs][r]
            if quota[theirs][r] != NOT_COUNTED and before[r] > share[r] and lacks > 0 and lacks >= gain:
                return False
        return not any(self._could_claim_back(row, parting) for row in self._waiting_below(theirs, stopped))

    def _before(self, side: int, stopped: list[Unit]) -> Amounts:
        """What a side held before these went."""
        total = list(self.tree.used[side])
        for unit in stopped:
            if side in self.tree.paths[unit.row.queue]:
                for held in unit.places:
                    add(total, self.draft.fleet.price(held))
        return total

    def _waiting_below(self, side: int, stopped: list[Unit]) -> list[JobRow]:
        short = self.draft.fleet.rolls.short.values()
        rows = {row.name: row for row in short if row is not self.row and not row.job.on_hold}
        rows.update((unit.row.name, unit.row) for unit in stopped if not unit.extra)
        return [row for row in rows.values() if row.queue != NO_QUEUE and side in self.tree.paths[row.queue]]

    def _could_claim_back(self, row: JobRow, parting: Parting) -> bool:
        asked, due = self.draft.fleet.shortfall(row), self.draft.shares[row.queue]
        return any(asked) and self.tree.within_quota(parting.theirs, asked) and self.tree.within(row.queue, due, asked)
