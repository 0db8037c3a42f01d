"""Timed defragmentation: moves that nobody waits for, within a budget, and only if it pays (rule 15).

Called by foresight (`yard defrag`), never by the cycle. Gain and cost have one unit, the GPU-second:

    gain = usable GPUs gained × how long the gap would stay open by itself (at most `defrag_horizon`)
    cost = work since the last checkpoint, and warming up again, of everybody moved (rule 19's lost work)

Usable GPUs are those free ones that the demand seen could use (`usefulness`). A gap closes by itself when the time
limits of those who stand in it run out. What does not gain `defrag_pays` times its cost is not proposed, and is said.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpuyard.brain.engine.defrag.search import DefragSearch
from gpuyard.brain.engine.giving_way import victims
from gpuyard.brain.engine.giving_way.victims import Unit
from gpuyard.brain.engine.nodes.requests import STATIC_CHECKERS
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.brain.engine.placing.devices import stands_free
from gpuyard.model.actions import Move
from gpuyard.model.answers.defrag import BudgetRoom, DefragPlan, Offer, ShapeGain
from gpuyard.model.answers.outlook import Fragmentation
from gpuyard.model.job import Placement
from gpuyard.model.outside.phrases import counted
from gpuyard.model.reasons import Code, Reason
from gpuyard.model.resources import WHOLE


def propose(draft: Draft, settled: Iterable[str] = ()) -> DefragSearch:
    """Find the moves that pay; the fleet is left as they would make it. Jobs that are `settled` were changed just now
    and stay."""
    search = DefragSearch(draft, settled)
    search.run()
    return search


def tell(search: DefragSearch, before: Fragmentation, after: Fragmentation, changes_first: int = 0) -> DefragPlan:
    """The proposal with its bill, its gain, and the headroom it leaves."""
    draft, useful, offer = search.draft, search.useful, search.offer()
    useful.sync()
    shapes = tuple(
        ShapeGain(each.gpus, each.tasks, each.level, round(each.weight, 6), search.fits_before[i], useful.fits(i))
        for i, each in enumerate(useful.wanted)
    )
    budgets = tuple(
        BudgetRoom(budget.name, was, victims.headroom(draft, budget))
        for budget, was in zip(draft.fleet.budgets, search.budgets_before, strict=True)
    )
    return DefragPlan(
        proposal=offer,
        declined=search.declined,
        reason=_verdict(offer, search.declined, draft.policy.defrag_pays, useful.usable() - search.usable_before),
        before=before,
        after=after,
        usable_before=search.usable_before,
        usable_after=useful.usable(),
        shapes=shapes,
        budgets=budgets,
        pays_at=draft.policy.defrag_pays,
        after_changes=changes_first,
    )


def _verdict(offer: Offer, declined: Offer | None, pays_at: float, gained: float) -> Reason:
    if offer.moves:
        numbers = _numbers(offer)
        message = f"moving {_jobs(offer)} makes {gained / WHOLE:.2f} more GPUs usable and pays: {numbers}"
        return Reason(Code.DEFRAGMENTED, needed=offer.bill.gpus, message=message)
    if declined is not None:
        numbers = _numbers(declined)
        message = f"the best that was found, moving {_jobs(declined)}, does not pay: {numbers} ({pays_at:g} is asked)"
        return Reason(Code.DOES_NOT_PAY, needed=declined.bill.gpus, message=message)
    return Reason(Code.NOTHING_TO_GAIN, message="no job can be moved so that more of the demand seen would fit")


def _jobs(offer: Offer) -> str:
    names = [toll.job for toll in offer.bill.tolls]
    return names[0] if len(names) == 1 else counted(len(names), "job")


def _numbers(offer: Offer) -> str:
    cost, gain = offer.bill.lost_gpu_s / 3600, offer.gain_gpu_s / 3600
    if not cost:
        return f"it gains {gain:.2f} GPU-hours and costs none"
    return f"it gains {gain:.2f} GPU-hours for {cost:.2f} lost, {offer.ratio:.2f} times its cost"


# --- is it still so? --------------------------------------------------------------------------------------------------


def valid(plan: DefragPlan, fleet: Fleet) -> Reason | None:
    """Why the plan may no longer be carried out, since the world has changed; None if it still holds.

    Asked before the first job is disturbed, and again before each further one with the moves that are left.
    """
    draft = Draft(fleet, Memory(), 0.0)
    reason = next((found for move in plan.moves if (found := _obstacle(draft, move)) is not None), None)
    draft.tx.rollback()
    return reason


def _obstacle(draft: Draft, move: Move) -> Reason | None:
    """What hinders one move, the earlier ones made; if nothing does it is made too."""
    row = draft.fleet.jobs.get(move.job)
    if row is None:
        return _changed(move.job, f"{move.job} is gone")
    if any(place.node not in draft.fleet.columns.index for place in (*move.source, *move.target)):
        return _changed(move.job, f"a node that {move.job} runs on or would move to is gone")
    source, target = (tuple(draft.fleet.held_from(row, places)) for places in (move.source, move.target))
    if not all(held in row.held for held in source):
        return _changed(move.job, f"{move.job} no longer runs where it ran")
    unit = Unit(row, source, False, sum(held.cost for held in source))
    if row.firm or row.job.foreign or not victims.budgets_allow(draft, (unit,)):
        return _changed(move.job, f"{move.job} may no longer be disturbed")
    for held, place in zip(target, move.target, strict=True):
        if not _open(draft, row, held.leaf, held.node) or not stands_free(draft.fleet.columns, held):
            return _changed(place.node, f"the place kept for {move.job} on {_named(place)} is not free any more")
    draft.remember(row)
    draft.tx.lift_all(row, source)
    for held in target:
        draft.tx.put(row, held)
    return None


def _open(draft: Draft, row: JobRow, leaf: int, node: int) -> bool:
    return bool(draft.fleet.shapes.static(row.requests[leaf], STATIC_CHECKERS)[node])


def _named(place: Placement) -> str:
    return f"{place.node}:{'+'.join(map(str, place.gpus))}" if place.gpus else place.node


def _changed(where: str, message: str) -> Reason:
    return Reason(Code.WORLD_CHANGED, where=where, message=f"{message}; nothing is moved")
