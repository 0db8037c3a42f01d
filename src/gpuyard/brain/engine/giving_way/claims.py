"""By which right a waiting job may take from others: preemption by priority inside its queue, reclaim by shares between
queues, critical jobs across them by policy (rules 16 to 18).

A claim is asked anew before each victim goes, because every victim changes what its side holds.
"""

from __future__ import annotations

from gpuyard.brain.engine.giving_way.reclaim import Reclaim
from gpuyard.brain.engine.giving_way.victims import Unit
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.job_rows import NO_QUEUE, JobRow
from gpuyard.brain.engine.sharing.amounts import Amounts
from gpuyard.model.policy import AcrossQueues
from gpuyard.model.reasons import Code


class Claim:
    """A waiting job, what it lacks, and by which right it may take."""

    def __init__(self, draft: Draft, row: JobRow, asked: Amounts) -> None:
        self.draft = draft
        self.row = row
        self.asked = asked
        self.tree = draft.fleet.tree
        self.reclaim = Reclaim(draft, row, asked)
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
        if not self.reclaim.due():
            return False
        return any(
            counts and q not in (self.row.queue, NO_QUEUE) and self.reclaim.allows(q) for q, counts in holders.items()
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
        return not self._shielded(victim) and self.reclaim.allows(victim.queue)
