"""Reservations: room kept for a blocked gang (rule 20).

A reservation is made at the job's turn and holds free GPUs by a stand-in, so every later step simply sees less free.
It is taken off the fleet before the cycle ends: what stays is the `Reserve` action. Who may use the gap meanwhile is
`backfill`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from gpuyard.brain.engine.nodes.columns import Held, Region
from gpuyard.brain.engine.nodes.feasibility import Shape
from gpuyard.brain.engine.nodes.layout import alignment
from gpuyard.brain.engine.picture.draft import Draft, Kept
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.brain.engine.placing import gang
from gpuyard.brain.engine.reserving import eta
from gpuyard.brain.engine.reserving.stand_ins import borrows, in_force, keep, stand_in
from gpuyard.brain.engine.sharing.amounts import GPUS, Amounts
from gpuyard.model.actions import Reserve
from gpuyard.model.reasons import Code, Reason
from gpuyard.model.resources import WHOLE
from gpuyard.model.topology import NODE, NVLINK

MOST_PROMISES = 16
"""How many jobs a cycle looks at for a reservation; the first in order come first."""


def restore(draft: Draft) -> None:
    """Put the reservations that stand already back in force."""
    for given in draft.fleet.reservations:
        row = draft.fleet.rolls.short.get(given.job)
        if row is None or (given.until is not None and given.until < draft.now):
            continue
        places = tuple(draft.fleet.held_from(row, given.placements))
        keep(draft, Kept(row, places, given.until, borrows(draft, row), stand_in(draft, row), known=True))


# --- making one -------------------------------------------------------------------------------------------------------


def consider(draft: Draft, rows: Iterable[JobRow], asked: Amounts) -> None:
    """Equal jobs were blocked at their turn: keep room for as many as may have it, the first first."""
    if asked[GPUS] > WHOLE:
        for row in rows:
            if draft.promises >= MOST_PROMISES or not _pools_left(draft) or not _consider(draft, row):
                return


def _consider(draft: Draft, row: JobRow) -> bool:
    """Keep room for one job if its start follows from limits or it waited long enough; whether it has room now."""
    if row.name in draft.kept:
        return True
    draft.promises += 1
    if row.alive() or not (draft.fleet.rolls.any_limits or _waited(draft, row)) or not gang.could_ever_fit(draft, row):
        return False
    start = eta.surely(draft, row) if draft.fleet.rolls.any_limits else None
    if start is not None:
        places = start.places
    else:
        places = _likeliest(draft, row) if _waited(draft, row) else ()
    if not places or _pools(draft, places) & _full_pools(draft):
        return False
    until = start.at if start is not None else None
    keep(draft, Kept(row, places, until, borrows(draft, row), stand_in(draft, row)))
    return True


def _waited(draft: Draft, row: JobRow) -> bool:
    """Long enough, since it was submitted or began to wait again; whom this plan stops has not waited yet."""
    if draft.origin(row):
        return False
    due = row.wait[0] + draft.policy.reserve_after
    draft.look_again(due)
    return draft.now >= due


def _likeliest(draft: Draft, row: JobRow) -> tuple[Held, ...]:
    """Where the job could be complete soonest when nobody knows: in the domain with most free GPUs, on its emptiest
    nodes; free devices first, then those that must still fall free."""
    if not row.single or not row.request.gpus:
        return ()
    shape = next(iter(gang.shapes(draft, row, 0)))
    for region in _emptiest(draft, row, shape):
        places = _places_in(draft, row, shape, region)
        if places:
            return places
    return ()


def _emptiest(draft: Draft, row: JobRow, shape: Shape) -> list[Region]:
    """The domains the job must fit into that would hold it when empty, most free GPUs first."""
    columns, lacks = draft.fleet.columns, row.missing()
    required = gang.required_level(draft.fleet.columns, row)
    if not required:
        return [columns.everywhere]
    level = columns.level(NODE if required == NVLINK else required)
    idle = np.bincount(level.domain, weights=np.where(shape.eligible, columns.idle, 0), minlength=len(level.names))
    room = np.bincount(level.domain, weights=np.minimum(shape.empty_room, lacks), minlength=len(level.names))
    order = np.lexsort((np.arange(len(idle)), -idle))
    return [level.region(int(i)) for i in order if level.known[i] and room[i] >= lacks]


def _places_in(draft: Draft, row: JobRow, shape: Shape, region: Region) -> tuple[Held, ...]:
    columns, gpus = draft.fleet.columns, row.request.gpus
    nodes = np.flatnonzero(shape.empty_room[region.start : region.stop]) + region.start
    order = nodes[np.lexsort((nodes, -columns.idle[nodes]))]
    tasks = iter(row.lowest_free_tasks(0, row.missing()))
    places: list[Held] = []
    for node in order.tolist():
        sets = _device_sets(draft, row, node)
        for _ in range(int(shape.empty_room[node])):
            task = next(tasks, None)
            if task is None:
                return tuple(places)
            taken = next(sets)
            if len(taken) < gpus:
                return ()
            places.append(Held(0, task, node, taken))
    return () if next(tasks, None) is not None else tuple(places)


def _device_sets(draft: Draft, row: JobRow, node: int) -> Iterator[tuple[int, ...]]:
    """The devices of one task after another, those that are free now first; too few when there are no more."""
    columns, gpus = draft.fleet.columns, row.request.gpus
    free, left = columns.free_mask[node], _together(draft, row, node)
    aligned = columns.aligned.get(node) if row.request.aligns else None
    while True:
        usable = left if aligned is None else alignment.emptiest(aligned, left, free, gpus)
        devices = sorted((g for g in range(usable.bit_length()) if usable >> g & 1), key=lambda g: not free >> g & 1)
        taken = tuple(sorted(devices[:gpus]))
        left &= ~sum(1 << g for g in taken)
        yield taken


def _together(draft: Draft, row: JobRow, node: int) -> int:
    """The devices of a node that the job could have: all that are usable, or those of one island if it must stay in
    one; none where no island is large enough."""
    columns = draft.fleet.columns
    if gang.required_level(columns, row) != NVLINK:
        return columns.usable[node]
    need = row.missing() * row.request.gpus
    islands = [mask & columns.usable[node] for mask in columns.islands[node]]
    large = [mask for mask in islands if mask.bit_count() >= need]
    return max(large, key=lambda mask: (mask & columns.free_mask[node]).bit_count(), default=0)


def _pools(draft: Draft, places: Iterable[Held]) -> set[str]:
    nodes = draft.fleet.columns.nodes
    return {nodes[held.node].pool or nodes[held.node].model for held in places}


def _full_pools(draft: Draft) -> set[str]:
    counts: dict[str, int] = {}
    for kept in in_force(draft):
        for pool in _pools(draft, kept.places):
            counts[pool] = counts.get(pool, 0) + 1
    return {pool for pool, count in counts.items() if count >= draft.policy.reservations_per_pool}


def _pools_left(draft: Draft) -> bool:
    """Whether any pool could still take a reservation."""
    return len(_full_pools(draft)) < len(draft.fleet.pool_names)


# --- ending -----------------------------------------------------------------------------------------------------------


def conclude(draft: Draft) -> None:
    """Take every stand-in off the fleet and turn new reservations into actions."""
    for name, kept in draft.kept.items():
        draft.tx.lift_all(kept.stand_in, list(kept.stand_in.held))
        if not kept.known and name in draft.fleet.rolls.short:
            draft.said.reserves.append(_action(draft, kept))


def _action(draft: Draft, kept: Kept) -> Reserve:
    places = tuple(draft.fleet.placement(kept.row, held) for held in sorted(kept.places))
    why = "its start follows from time limits" if kept.until is not None else "it has waited long enough"
    return Reserve(kept.row.name, places, kept.until, Reason(Code.RESERVED, where=kept.row.name, message=why))
