"""What a reservation holds while a plan is made: a stand-in that nobody can move or evict, on the places free now.

Put in force by `reservations`, stepped aside from by `backfill`. Every other step simply sees less free.
"""

from __future__ import annotations

from dataclasses import replace

from gpuyard.brain.engine.picture.draft import Draft, Kept
from gpuyard.brain.engine.picture.job_rows import NO_QUEUE, JobRow
from gpuyard.brain.engine.placing.keeping import hold


def keep(draft: Draft, kept: Kept) -> None:
    """Put a reservation in force."""
    draft.kept[kept.row.name] = kept
    hold(draft, kept)


def in_force(draft: Draft) -> list[Kept]:
    """The reservations whose owners still wait."""
    return [kept for kept in draft.kept.values() if not kept.row.complete()]


def stand_in(draft: Draft, row: JobRow) -> JobRow:
    """Who holds the places of a reservation; made once for a job, for reservations are made anew in every cycle."""
    if row.stand_in is None:
        job = replace(row.job, name=f"reserved for {row.name}", foreign=True, placements=())
        row.stand_in = JobRow(job, row.requests, NO_QUEUE, draft.policy)
        row.stand_in.is_stand_in = True
    assert not row.stand_in.held
    return row.stand_in


def borrows(draft: Draft, row: JobRow) -> bool:
    """Whether the job would stand above a quota, at any level of the tree."""
    tree, asked = draft.fleet.tree, draft.fleet.shortfall(row)
    return not all(tree.within_quota(q, asked) for q in tree.paths[row.queue])
