"""Timed defragmentation: now and then, in its window, move what pays so that large gaps open (rule 15).

By policy off, only proposed (shadow mode), or done. It comes after the cycle, disturbs nobody whom that has changed,
and waits while room is kept for somebody: it is for when nobody waits. `yard defrag` shows the same search.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gpuyard.brain.controllers import Controller
from gpuyard.brain.engine.defrag import defragmentation
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.memory import Part
from gpuyard.model.policy import DefragRule, Policy

DAY_S = 86_400.0
HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Looked(Part):
    """When it last looked for moves that pay."""

    name: ClassVar[str] = "defragmentation"
    at: float | None = None


class Defragmentation(Controller[Looked]):
    """Moves what pays, or says what it would move."""

    part = Looked
    timed = True

    def act(self, draft: Draft, part: Looked) -> Looked:
        """Look for moves when it is time to; budgets are those of the policy, for each time it looks."""
        if draft.policy.defragment is DefragRule.OFF:
            return part
        if part.at is not None and part.at > draft.now:
            part = Looked(draft.now)  # by a clock that was ahead
        due = _due(draft.policy, draft.now if part.at is None else part.at + draft.policy.defrag_every)
        if draft.now < due:
            draft.look_again(due)
            return part
        draft.look_again(draft.now + draft.policy.defrag_every)
        if not draft.said.reserves and draft.fleet.columns.idle_total and _anybody_stays(draft):
            _defragment(draft)  # whoever moves needs a place that is free before
        return Looked(draft.now)


def _anybody_stays(draft: Draft) -> bool:
    """Whether somebody stands where it stood: only those are moved, who is changed by the plan itself is settled."""
    return any(row.held and name not in draft.before for name, row in draft.fleet.jobs.items())


def _defragment(draft: Draft) -> None:
    with draft.trial() as trial:
        search = defragmentation.propose(draft, settled=list(draft.before))
        if draft.policy.defragment is DefragRule.DO:
            for name, reason in search.because.items():
                draft.because[name] = reason
            trial.keep()
            return
        moves = search.offer().moves
    for move in moves:
        draft.propose(move)


def _due(policy: Policy, earliest: float) -> float:
    """The first moment from then on that lies in the window; hours of the day, UTC, the window may pass midnight."""
    begin, end = policy.defrag_from * HOUR_S, policy.defrag_until * HOUR_S
    into = earliest % DAY_S
    if begin == end or (begin <= into < end if begin < end else into >= begin or into < end):
        return earliest
    return earliest + (begin - into) % DAY_S
