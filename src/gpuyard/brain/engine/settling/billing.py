"""The bill of a plan: what the work costs that its moves and evictions interrupt (rule 19's lost work).

Called once a plan stands, by foresight for `yard plan` and by defragmentation. It weighs nothing: choosing is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpuyard.brain.engine.giving_way import victims
from gpuyard.brain.engine.giving_way.victims import Unit
from gpuyard.brain.engine.nodes.columns import Held
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.model.actions import Action, Evict, Move
from gpuyard.model.answers.bill import Bill, Toll
from gpuyard.model.resources import WHOLE


def bill(draft: Draft, actions: Iterable[Action], origin: Mapping[str, tuple[Held, ...]]) -> Bill:
    """What each move and eviction costs; `origin` says what the jobs held before."""
    return Bill(tuple(_toll(draft, each, origin) for each in actions if isinstance(each, Move | Evict)))


def _toll(draft: Draft, action: Move | Evict, origin: Mapping[str, tuple[Held, ...]]) -> Toll:
    row = draft.fleet.jobs[action.job]
    before = [held for held in origin[action.job] if not held.terminating]
    left = action.source if isinstance(action, Move) else action.placements
    gone = list(draft.fleet.held_from(row, left)) if left else before
    unit = Unit(row, tuple(gone), len(gone) < len(before), sum(held.cost for held in gone))
    return Toll(action.job, unit.cost, victims.lost_work(draft, unit) / WHOLE, isinstance(action, Move))
