"""Moving jobs that nobody waits for: the new place is free while the old one still runs, and nobody is worse off.

Called by defragmentation. Unlike `room_making` no claimant takes the place of those who leave: their old places stay
held by stand-ins until everybody stands, so that a target can be reserved before its source is disturbed (rule 15).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gpuyard.brain.engine.giving_way.victims import Unit
from gpuyard.brain.engine.nodes.columns import Columns, Held
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.job_rows import NO_QUEUE, JobRow
from gpuyard.brain.engine.placing import adding, gang
from gpuyard.model.policy import Style


def relocate(draft: Draft, units: Iterable[Unit], kept_free: Iterable[tuple[int, int]]) -> Unit | None:
    """Find new places for all units outside of `kept_free` (node, devices); the unit that has none, if there is one.

    What has landed before it is left for the caller to undo.
    """
    stand_ins: list[JobRow] = []
    for unit in units:
        blocker = _stand_in(draft, unit.row)
        stand_ins.append(blocker)
        if len(stand_ins) == 1:
            _hold_free(draft, blocker, kept_free)
        if not _land(draft, unit, blocker):
            return unit
    for stand_in in stand_ins:
        draft.tx.lift_all(stand_in, stand_in.held)
    return None


def _stand_in(draft: Draft, row: JobRow) -> JobRow:
    job = replace(row.job, name=f"place of {row.name}", foreign=True, placements=())
    found = JobRow(job, row.requests, NO_QUEUE, draft.policy)
    found.is_stand_in = True
    return found


def _hold_free(draft: Draft, stand_in: JobRow, kept_free: Iterable[tuple[int, int]]) -> None:
    """Hold the free devices of the place that is being cleared: nobody may land there."""
    for node, mask in kept_free:
        free = draft.fleet.columns.free_mask[node] & mask
        gpus = tuple(g for g in range(free.bit_length()) if free >> g & 1)
        if gpus:
            draft.tx.put(stand_in, Held(0, 0, node, gpus))


def _land(draft: Draft, unit: Unit, stand_in: JobRow) -> bool:
    """Find it a place where it is no worse off, while a stand-in keeps the one it leaves; else all is as it was."""
    row, live = unit.row, unit.row.live
    with draft.trial() as trial:
        draft.remember(row)
        for held in unit.places:
            draft.tx.lift(row, held)
            draft.tx.put(stand_in, held._replace(cost=0))
        if unit.extra:
            landed = adding.add_task(draft, row, unit.place.leaf)
        else:
            landed = gang.place(draft, row) and _regrown(draft, row, live)
        new = [held for held in draft.tx.added(row, trial.mark) if held in row.held]
        if landed and row.live == live and not _worse_off(draft.fleet.columns, row, unit.places, new):
            trial.keep()
            return True
    return False


def _regrown(draft: Draft, row: JobRow, live: tuple[int, ...]) -> bool:
    """Bring an elastic job back to as many tasks as it had."""
    while sum(row.live) < sum(live):
        if not adding.grow(draft, row):
            return False
    return True


# --- nobody is worse off ----------------------------------------------------------------------------------------------


def _worse_off(columns: Columns, row: JobRow, before: Iterable[Held], after: Iterable[Held]) -> bool:
    """Whether the new places are another model, farther apart, cut across islands, or less healthy."""
    before, after = list(before), list(after)
    if {int(columns.model[held.node]) for held in after} - {int(columns.model[held.node]) for held in before}:
        return True
    if _suspects(columns, after) > _suspects(columns, before):
        return True
    if _islands_used(columns, after) > _islands_used(columns, before):
        return True
    others = [held for held in row.held if held not in after]
    sign = -1 if any(request.style is Style.SPREAD for request in row.requests) else 1
    was, now = _domains_used(columns, before + others), _domains_used(columns, after + others)
    return any(sign * new > sign * old for new, old in zip(now, was, strict=True))


def _domains_used(columns: Columns, places: list[Held]) -> list[int]:
    """Domains per level that the tasks lie in, outermost first."""
    return [len({int(columns.level(name).domain[held.node]) for held in places}) for name in columns.level_names]


def _islands_used(columns: Columns, places: list[Held]) -> int:
    """Islands that tasks reach into, summed over the tasks."""
    return sum(
        any(mask >> g & 1 for g in held.gpus) for held in places for mask in columns.islands[held.node]
    )  # fmt: skip


def _suspects(columns: Columns, places: list[Held]) -> int:
    return sum(columns.suspect[held.node] >> g & 1 for held in places for g in held.gpus)
