"""Emptying what is being drained: who moves, who stops and waits again, who stays until it ends by itself.

What is drained the picture knows: a node or a GPU whose closure says so. Nothing new goes there anyway; this is about
those who are there already, and who may not always be disturbed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gpuyard.brain.controllers import Controller, Nothing
from gpuyard.brain.engine.giving_way import victims
from gpuyard.brain.engine.giving_way.victims import Unit
from gpuyard.brain.engine.nodes.columns import Held
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.brain.engine.placing import adding, gang
from gpuyard.model.job import JobClass
from gpuyard.model.node import Closure, Place
from gpuyard.model.reasons import Code, Reason


class Drains(Controller[Nothing]):
    """Lets those go who stand on what is being drained, as far as they may now."""

    part = Nothing

    def act(self, draft: Draft, part: Nothing) -> Nothing:
        """The more important go first: they shall find the places that are left."""
        if draft.fleet.any_odd:
            clear(draft)
        return part


class Struck(NamedTuple):
    """A job with tasks on what is being drained."""

    row: JobRow
    place: Place
    closure: Closure


def clear(draft: Draft) -> dict[str, str]:
    """Take everybody away who may go now; the others, each with why it stays."""
    stays = {}
    for struck in sorted(_struck(draft.fleet), key=_rank):
        told = _refuses(draft, struck) or _take_away(draft, struck)
        if told:
            stays[struck.row.name] = told
    return stays


def _struck(fleet: Fleet) -> list[Struck]:
    """Every job with a task there that is not going already, once."""
    found: dict[str, Struck] = {}
    for place, closure in _drained(fleet):
        for row in fleet.tenants[fleet.columns.index[place.node]]:
            if row.name not in found and _there(fleet, row, place):
                found[row.name] = Struck(row, place, closure)
    return list(found.values())


def _drained(fleet: Fleet) -> Iterator[tuple[Place, Closure]]:
    for node in fleet.odd_nodes():
        if node.closed is not None and node.closed.drains:
            yield Place(node.name), node.closed
        for gpu in node.gpus:
            if gpu.closed is not None and gpu.closed.drains:
                yield Place(node.name, gpu.index), gpu.closed


def _there(fleet: Fleet, row: JobRow, place: Place) -> list[Held]:
    node = fleet.columns.index[place.node]
    return [
        held
        for held in row.held
        if held.node == node and not held.terminating and (place.gpu is None or place.gpu in held.gpus)
    ]


def _rank(struck: Struck) -> tuple[object, ...]:
    return -struck.row.priority, struck.row.job.submitted, struck.row.name


# --- who may be disturbed ---------------------------------------------------------------------------------------------


def _refuses(draft: Draft, struck: Struck) -> str:
    """Why it may not be disturbed now; nothing if it may."""
    row = struck.row
    if row.job.foreign:
        return "is not ours to move"
    if struck.closure.force:
        return ""
    if row.firm and row.job.job_class is not JobClass.INFERENCE:
        return "is not preemptible; it stays until it ends"
    if victims.in_min_runtime(draft, row):
        return "is inside its minimum runtime"
    if not row.firm and victims.spared(draft, row):
        return "was evicted too often or too lately to be disturbed again now"
    if not victims.budgets_allow(draft, [_going(draft, struck)]):
        budget = victims.forbids(draft, row)
        return f"its disruption budget {budget} allows no more now".replace("  ", " ")
    return ""


def _going(draft: Draft, struck: Struck) -> Unit:
    """What would be disturbed: the extras that stand there, or the gang as a whole."""
    there = _there(draft.fleet, struck.row, struck.place)
    if _spares(struck.row, there):
        return Unit(struck.row, tuple(there), True, sum(held.cost for held in there))
    return victims.whole(struck.row)


def _spares(row: JobRow, there: list[Held]) -> bool:
    """Whether the job goes on without these tasks."""
    leaves = [held.leaf for held in there]
    return row.complete() and all(victims.spare_tasks(row, leaf) >= leaves.count(leaf) for leaf in set(leaves))


# --- where they go ----------------------------------------------------------------------------------------------------


def _take_away(draft: Draft, struck: Struck) -> str:
    """Take the job away from there; if it can neither move nor stop, why not."""
    row, there = struck.row, _there(draft.fleet, struck.row, struck.place)
    draft.remember(row)
    by = f" by {struck.closure.by}" if struck.closure.by else ""
    draft.because[row.name] = Reason(
        Code.DRAINED, where=str(struck.place), message=f"{struck.place} is being drained{by}"
    )
    if _spares(row, there):
        draft.tx.lift_all(row, there)  # it grows again elsewhere when there is room, without a restart
        return ""
    for leaving in (there, list(victims.whole(row).places)):
        live = row.live
        with draft.trial() as trial:
            draft.tx.lift_all(row, leaving)
            if gang.place(draft, row):
                _regrow(draft, row, live)
                trial.keep()
                return ""
    if row.firm and not struck.closure.force:
        return "has no other place now, and may not be stopped"
    draft.tx.lift_all(row, victims.whole(row).places)
    return ""


def _regrow(draft: Draft, row: JobRow, live: tuple[int, ...]) -> None:
    """It has its minimum again; as many extras as there is room for come too."""
    while sum(row.live) < sum(live) and adding.grow(draft, row):
        pass
