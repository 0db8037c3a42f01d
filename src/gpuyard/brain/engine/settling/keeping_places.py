"""Nobody moves who could have stayed (rule 26): jobs that run before and after a plan keep their GPUs wherever the rest
fits around them.

Called once a plan has settled, before its net change is told. Cycles move and evict step by step; only the end counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpuyard.brain.engine.nodes.columns import Held
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.job_rows import JobRow, rank_in_queue
from gpuyard.brain.engine.placing import gang, neighbours
from gpuyard.brain.engine.placing.devices import stands_free

Origin = Mapping[str, tuple[Held, ...]]


def keep_places(draft: Draft, origin: Origin) -> bool:
    """Let every job that was moved stand where it stood, if all that runs still runs then; whether any does."""
    displaced = [row for row in _rows(draft, origin) if _displaced(row, origin[row.name])]
    if not displaced:
        return False
    if _all_back(draft, origin, displaced):
        return True
    back = [_all_back(draft, origin, [row]) for row in displaced]
    return any(back)


def _rows(draft: Draft, origin: Origin) -> list[JobRow]:
    rows = [draft.fleet.jobs[name] for name in origin if name in draft.fleet.jobs]
    return sorted(rows, key=rank_in_queue)


def _displaced(row: JobRow, before: tuple[Held, ...]) -> bool:
    """Whether it runs before and after with at least as many tasks, but not where it ran."""
    standing = [held for held in before if not held.terminating]
    return bool(standing) and len(row.held) >= len(before) and not all(held in row.held for held in before)


def _all_back(draft: Draft, origin: Origin, back: list[JobRow]) -> bool:
    """Lift what is new and in the way, put these jobs where they were, place the others anew; all or nothing."""
    mark = draft.tx.checkpoint()
    others = [row for row in _rows(draft, origin) if row not in back and _has_new(row, origin[row.name])]
    sizes = {row.name: len(row.held) for row in (*back, *others)}
    for row in (*back, *others):
        before = origin[row.name]
        draft.tx.lift_all(row, [held for held in row.held if held not in before])
    fits = all(_put_back(draft, row, origin[row.name]) for row in back)
    fits = fits and all(_refill(draft, row, sizes[row.name]) for row in (*back, *others))
    if not fits:
        draft.tx.rollback(mark)
    return fits


def _has_new(row: JobRow, before: tuple[Held, ...]) -> bool:
    return any(held not in before for held in row.held)


def _put_back(draft: Draft, row: JobRow, before: Iterable[Held]) -> bool:
    for held in before:
        if held not in row.held:
            if not stands_free(draft.fleet.columns, held) or not neighbours.welcome(draft.fleet, row, held):
                return False
            draft.tx.put(row, held)
    return True


def _refill(draft: Draft, row: JobRow, size: int) -> bool:
    """Bring the job back to as many tasks as the plan gave it."""
    if not row.complete() and not gang.start(draft, row):
        return False
    while len(row.held) < size:
        if not gang.grow(draft, row):
            return False
    return len(row.held) == size
