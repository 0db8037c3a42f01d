"""Room kept for a blocked gang, and who may use the gap meanwhile (rule 20).

A reservation holds free GPUs by a stand-in that nobody can move or evict, so every later step simply sees less free.
It is made at the job's turn, stepped aside from when the job itself or a job that may use the gap is tried, and taken
off the fleet before the cycle ends: what stays is the `Reserve` action.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from gpuyard.brain.engine.nodes.columns import Held, Region
from gpuyard.brain.engine.nodes.feasibility import Shape
from gpuyard.brain.engine.nodes.requests import STATIC_CHECKERS
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.job_rows import NO_QUEUE, JobRow
from gpuyard.brain.engine.placing import gang, neighbours
from gpuyard.brain.engine.placing.devices import stands_free
from gpuyard.brain.engine.reserving import eta
from gpuyard.brain.engine.sharing.amounts import Amounts
from gpuyard.model.actions import Reserve
from gpuyard.model.reasons import Code, Reason
from gpuyard.model.resources import WHOLE
from gpuyard.model.topology import NODE, NVLINK

MOST_PROMISES = 16
"""How many jobs a cycle looks at for a reservation; the first in order come first."""


@dataclass(slots=True)
class Kept:
    """One reservation in force: for whom, the places wanted, and the stand-in that holds those free now."""

    row: JobRow
    places: tuple[Held, ...]
    until: float | None
    borrower: bool
    stand_in: JobRow
    known: bool = False
    """Whether it stood already when the plan began."""


def restore(draft: Draft) -> None:
    """Put the reservations that stand already back in force."""
    for given in draft.fleet.reservations:
        row = draft.fleet.short.get(given.job)
        if row is None or (given.until is not None and given.until < draft.now):
            continue
        places = tuple(draft.fleet.held_from(row, given.placements))
        _keep(draft, Kept(row, places, given.until, _borrows(draft, row), _stand_in(draft, row), known=True))


def try_aside(draft: Draft, row: JobRow, attempt: Callable[[], bool]) -> bool:
    """Try to start a job with those reservations stepping aside that do not bind it."""
    aside = [kept for kept in draft.kept.values() if not _binds(draft, kept, row)]
    if not aside:
        return attempt()
    mark = draft.tx.checkpoint()
    for kept in aside:
        draft.tx.lift_all(kept.stand_in, kept.stand_in.held)
    if attempt():
        for kept in aside:
            if kept.row is row:
                del draft.kept[row.name]
            else:
                _hold(draft, kept)
        return True
    draft.tx.rollback(mark)
    return False


def hold_against(draft: Draft, row: JobRow) -> None:
    """Put the reservations of this plan that bind the job back in force, once the cycle has taken them off."""
    for kept in draft.kept.values():
        if not kept.stand_in.held and _binds(draft, kept, row):
            _hold(draft, kept)


def _binds(draft: Draft, kept: Kept, row: JobRow) -> bool:
    """Whether the reservation holds this job off: not its owner, not who is gone in time, not who is within quota."""
    if kept.row.name == row.name:
        return False
    limit = row.job.time_limit
    if kept.until is not None and limit is not None and draft.now + limit <= kept.until:
        return False
    return not (kept.borrower and not _borrows(draft, row))


def _borrows(draft: Draft, row: JobRow) -> bool:
    """Whether the job would stand above the quota of its queue."""
    return not draft.fleet.tree.within_quota(row.queue, draft.fleet.shortfall(row))


# --- making one -------------------------------------------------------------------------------------------------------


def consider(draft: Draft, rows: Iterable[JobRow], asked: Amounts) -> None:
    """Equal jobs were blocked at their turn: keep room for as many as may have it, the first first."""
    if asked[0] > WHOLE:
        for row in rows:
            if not _pools_left(draft) or draft.promises >= MOST_PROMISES or not _consider(draft, row):
                return


def _consider(draft: Draft, row: JobRow) -> bool:
    """Keep room for one job if its start follows from limits or it waited long enough; whether it has room now."""
    if row.name in draft.kept:
        return True
    draft.promises += 1
    if row.alive() or not (draft.fleet.any_limits or _waited(draft, row)):
        return False
    if not gang.could_ever_fit(draft, row):
        return False
    start = eta.surely(draft, row) if draft.fleet.any_limits else None
    places = start.places if start is not None else ()
    if start is None:
        if not _waited(draft, row):
            return False
        places = _likeliest(draft, row)
    if not places or _pools(draft, places) & _full_pools(draft):
        return False
    until = start.at if start is not None else None
    _keep(draft, Kept(row, places, until, _borrows(draft, row), _stand_in(draft, row)))
    return True


def _waited(draft: Draft, row: JobRow) -> bool:
    return draft.now - row.job.submitted >= draft.policy.reserve_after


def _likeliest(draft: Draft, row: JobRow) -> tuple[Held, ...]:
    """Where the job could be complete soonest when nobody knows: in the domain with most free GPUs, on its emptiest
    nodes; free devices first, then those that must still fall free."""
    if len(row.groups) > 1 or not row.asks[0].gpus:
        return ()
    shape = next(iter(gang.shapes(draft, row, 0)))
    for region in _emptiest(draft, row, shape):
        places = _places_in(draft, row, shape, region)
        if places:
            return places
    return ()


def _emptiest(draft: Draft, row: JobRow, shape: Shape) -> list[Region]:
    """The domains the job must fit into that would hold it when empty, most free GPUs first."""
    columns, lacks = draft.fleet.columns, row.missing(0)
    required = gang.required_level(draft, row)
    if not required:
        return [columns.everywhere]
    level = columns.level(NODE if required == NVLINK else required)
    idle = np.bincount(level.domain, weights=np.where(shape.eligible, columns.idle, 0), minlength=len(level.names))
    room = np.bincount(level.domain, weights=np.minimum(shape.empty_room, lacks), minlength=len(level.names))
    order = np.lexsort((np.arange(len(idle)), -idle))
    return [level.region(int(i)) for i in order if level.known[i] and room[i] >= lacks]


def _places_in(draft: Draft, row: JobRow, shape: Shape, region: Region) -> tuple[Held, ...]:
    columns, gpus = draft.fleet.columns, row.asks[0].gpus
    nodes = np.flatnonzero(shape.empty_room[region.start : region.stop]) + region.start
    order = nodes[np.lexsort((nodes, -columns.idle[nodes]))]
    tasks = iter(row.lowest_free_tasks(0, row.missing(0)))
    places: list[Held] = []
    for node in order.tolist():
        free, usable = columns.free_mask[node], columns.usable[node]
        devices = sorted((g for g in range(usable.bit_length()) if usable >> g & 1), key=lambda g: not free >> g & 1)
        for first in range(0, int(shape.empty_room[node]) * gpus, gpus):
            task = next(tasks, None)
            if task is None:
                return tuple(places)
            ask = row.asks[0]
            cost, request = ask.cost_on(columns.nodes[node]), ask.request
            taken = tuple(sorted(devices[first : first + gpus]))
            places.append(Held(0, task, node, taken, 0, (), cost, request.cpu, request.memory, False))
    return () if next(tasks, None) is not None else tuple(places)


def _pools(draft: Draft, places: Iterable[Held]) -> set[str]:
    nodes = draft.fleet.columns.nodes
    return {nodes[held.node].pool or nodes[held.node].model for held in places}


def _full_pools(draft: Draft) -> set[str]:
    counts: dict[str, int] = {}
    for kept in draft.kept.values():
        for pool in _pools(draft, kept.places):
            counts[pool] = counts.get(pool, 0) + 1
    return {pool for pool, count in counts.items() if count >= draft.policy.reservations_per_pool}


def _pools_left(draft: Draft) -> bool:
    """Whether any pool could still take a reservation."""
    return len(_full_pools(draft)) < len(draft.fleet.pool_names)


def _stand_in(draft: Draft, row: JobRow) -> JobRow:
    """Who holds the places of a reservation; made once for a job, for reservations are made anew in every cycle."""
    if row.stand_in is None:
        job = replace(row.job, name=f"reserved for {row.name}", foreign=True, placements=())
        row.stand_in = JobRow(job, row.asks, NO_QUEUE, draft.policy)
    assert not row.stand_in.held
    return row.stand_in


def _keep(draft: Draft, kept: Kept) -> None:
    draft.kept[kept.row.name] = kept
    _hold(draft, kept)


def _hold(draft: Draft, kept: Kept) -> None:
    """Hold those of the places that are free now, device by device."""
    for held in kept.places:
        if kept.row.asks[held.leaf].gpus:
            free = draft.fleet.columns.free_mask[held.node]
            gpus = tuple(g for g in held.gpus if free >> g & 1)
            part = held._replace(gpus=gpus, cpu=0, memory=0, cost=0)
            if gpus:
                draft.tx.put(kept.stand_in, part)
        elif stands_free(draft.fleet.columns, held):
            draft.tx.put(kept.stand_in, held)


# --- ending -----------------------------------------------------------------------------------------------------------


def conclude(draft: Draft) -> None:
    """Take every stand-in off the fleet and turn new reservations into actions."""
    for name, kept in draft.kept.items():
        draft.tx.lift_all(kept.stand_in, list(kept.stand_in.held))
        if not kept.known and name in draft.fleet.short:
            draft.reserves.append(_action(draft, kept))


def _action(draft: Draft, kept: Kept) -> Reserve:
    places = tuple(draft.fleet.placement(kept.row, held) for held in sorted(kept.places))
    why = "its start follows from time limits" if kept.until is not None else "it has waited long enough"
    until = kept.until if kept.until is not None else draft.now + draft.policy.reserve_after
    return Reserve(kept.row.name, places, until, Reason(Code.RESERVED, where=kept.row.name, message=why))


def in_the_way(draft: Draft, row: JobRow) -> Reason | None:
    """The reason of a job that would fit but for reservations; None if they are not what holds it off."""
    usable = [draft.fleet.shapes.static(ask, STATIC_CHECKERS) for ask in row.asks] if draft.kept else []
    binding = [
        kept
        for kept in draft.kept.values()
        if kept.row is not row and any(mask[held.node] for mask in usable for held in kept.stand_in.held)
    ]
    if not binding or not _would_fit(draft, row, binding):
        return None
    names = ", ".join(sorted(kept.row.name for kept in binding))
    message = f"{row.name} would fit, but those GPUs are kept for {names}"
    return Reason(Code.RESERVED, needed=draft.fleet.shortfall(row)[0], where=names, message=message)


def _would_fit(draft: Draft, row: JobRow, aside: list[Kept]) -> bool:
    """Whether the job would fit if these reservations stepped aside."""
    if row.asks[0].gpus and len(row.groups) == 1:
        enough = _enough_aside(draft, row, aside)
        if not enough or _goes_anywhere(draft, row):
            return enough
    mark = draft.tx.checkpoint()
    for kept in aside:
        draft.tx.lift_all(kept.stand_in, list(kept.stand_in.held))
    fits = gang.might_fit(draft, row) and gang.place(draft, row)
    draft.tx.rollback(mark)
    return fits


def _enough_aside(draft: Draft, row: JobRow, aside: list[Kept]) -> bool:
    """Whether nodes have room for what the job lacks, counting what these reservations hold as free."""
    columns, ask, lacks = draft.fleet.columns, row.asks[0], row.missing(0)
    free = columns.whole.copy()
    for kept in aside:
        for held in kept.stand_in.held:
            free[held.node] += len(held.gpus)
    room = np.minimum(free // ask.gpus, lacks)
    if ask.request.cpu:
        room = np.minimum(room, columns.cpu // ask.request.cpu)
    if ask.request.memory:
        room = np.minimum(room, columns.memory // ask.request.memory)
    return int(np.add.reduce(room[draft.fleet.shapes.static(ask, STATIC_CHECKERS)])) >= lacks


def _goes_anywhere(draft: Draft, row: JobRow) -> bool:
    """Whether room is all it takes: one model, no level, nobody to keep away from."""
    alike = row.groups[0].tasks == 1 or len(draft.fleet.columns.models) == 1
    return alike and not gang.required_level(draft, row) and neighbours.limits(draft, row, 0) is None
