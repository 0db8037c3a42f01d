"""Emptying a node or a GPU gently: who moves, who stops and waits again, who stays until it ends by itself.

Called by the engine after every turn while something is being drained, and for the preview of `yard drain`. It works
on the brain's fleet with the brain's own tools and leaves it as it was; what is to be done it says as actions, which
`evacuation` makes as for every other disturbance. Nothing new may be placed on what is drained: the fleet knows that.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from gpuyard.brain.engine.giving_way import victims
from gpuyard.brain.engine.giving_way.victims import Unit
from gpuyard.brain.engine.nodes.columns import Held
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.brain.engine.placing import gang
from gpuyard.brain.engine.placing.fragmentation import follow_demand
from gpuyard.brain.engine.reserving import reservations
from gpuyard.brain.engine.settling import billing, evacuation
from gpuyard.model.actions import Action
from gpuyard.model.bill import NO_BILL, Bill
from gpuyard.model.job import JobClass
from gpuyard.model.reasons import Code, Reason


@dataclass(frozen=True, slots=True)
class Drained:
    """What is drained: a node, or one GPU of it. With `force` also those go who have a right to stay."""

    node: str
    gpu: int | None = None
    force: bool = False

    def __str__(self) -> str:
        return self.node if self.gpu is None else f"{self.node}:{self.gpu}"


@dataclass(frozen=True, slots=True)
class Drainage:
    """What a drain does now, what that costs, and why the others stay for the time being."""

    actions: tuple[Action, ...] = ()
    bill: Bill = NO_BILL
    stays: dict[str, str] = field(default_factory=dict)


def decide(fleet: Fleet, memory: Memory, now: float, places: Collection[Drained]) -> Drainage:
    """Who goes now; the fleet is left as it was."""
    struck = _struck(fleet, places)
    if not struck:
        return Drainage()
    draft = Draft(fleet, memory, now)
    follow_demand(fleet)
    reservations.restore(draft)
    kept = draft.tx.checkpoint()
    stays = {}
    for row, place in sorted(struck.values(), key=lambda each: _rank(each[0])):
        told = _refuses(draft, row, place) or _clear(draft, row, place)
        if told:
            stays[row.name] = told
    story = evacuation.Story(draft.because, draft.served)
    actions = evacuation.net_actions(fleet, draft.before, story)
    bill = billing.bill(draft, actions, draft.before)
    draft.tx.rollback(kept)
    draft.tx.rollback()
    return Drainage(actions, bill, stays)


def _struck(fleet: Fleet, places: Collection[Drained]) -> dict[str, tuple[JobRow, Drained]]:
    """Every job with a task there that is not going already, once."""
    found: dict[str, tuple[JobRow, Drained]] = {}
    for place in places:
        node = fleet.columns.index.get(place.node)
        for row in fleet.tenants[node] if node is not None else ():
            if row.name not in found and _there(fleet, row, place):
                found[row.name] = (row, place)
    return found


def _there(fleet: Fleet, row: JobRow, place: Drained) -> list[Held]:
    node = fleet.columns.index.get(place.node, -1)
    return [
        held
        for held in row.held
        if held.node == node and not held.terminating and (place.gpu is None or place.gpu in held.gpus)
    ]


def _rank(row: JobRow) -> tuple[object, ...]:
    """The more important first: they shall find the places that are left."""
    return -row.priority, row.job.submitted, row.name


# --- who may be disturbed ------------------------------------------------------------------------


def _refuses(draft: Draft, row: JobRow, place: Drained) -> str:
    """Why it may not be disturbed now; nothing if it may."""
    if row.job.foreign:
        return "is not ours to move"
    if place.force:
        return ""
    if row.firm and row.job.job_class is not JobClass.INFERENCE:
        return "is not preemptible; it stays until it ends"
    if victims.in_min_runtime(draft, row):
        return "is inside its minimum runtime"
    if not row.firm and victims.spared(draft, row):
        return "was evicted too often or too lately to be disturbed again now"
    if not victims.budgets_allow(draft, [_going(draft, row, place)]):
        return "its disruption budget allows no more now"
    return ""


def _going(draft: Draft, row: JobRow, place: Drained) -> Unit:
    """What would be disturbed: the extras that stand there, or the gang as a whole."""
    there = _there(draft.fleet, row, place)
    if _spares(row, there):
        return Unit(row, tuple(there), True, sum(held.cost for held in there))
    return victims.whole(row)


def _spares(row: JobRow, there: list[Held]) -> bool:
    """Whether the job goes on without these tasks."""
    leaves = [held.leaf for held in there]
    return row.complete() and all(victims.spare_tasks(row, leaf) >= leaves.count(leaf) for leaf in set(leaves))


# --- where they go -------------------------------------------------------------------------------


def _clear(draft: Draft, row: JobRow, place: Drained) -> str:
    """Take the job away from there; if it can neither move nor stop, why not."""
    draft.remember(row)
    there = _there(draft.fleet, row, place)
    reason = Reason(Code.DRAINED, where=str(place), message=f"{place} is being drained")
    draft.because[row.name] = reason
    if _spares(row, there):
        draft.tx.lift_all(row, there)  # it grows again elsewhere when there is room, without a restart
        return ""
    for leaving in (there, list(victims.whole(row).places)):
        mark = draft.tx.checkpoint()
        live = list(row.live)
        draft.tx.lift_all(row, leaving)
        if gang.place(draft, row):
            _regrow(draft, row, live)
            return ""
        draft.tx.rollback(mark)
    if row.firm and not place.force:
        return "has no other place now, and may not be stopped"
    draft.tx.lift_all(row, victims.whole(row).places)
    return ""


def _regrow(draft: Draft, row: JobRow, live: list[int]) -> None:
    """It has its minimum again; as many extras as there is room for come too."""
    while sum(row.live) < sum(live) and gang.grow(draft, row):
        pass
