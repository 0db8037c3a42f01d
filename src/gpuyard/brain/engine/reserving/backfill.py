"""Backfill: who may run in the gap before a reservation begins, and who is held off by it (rule 20).

Asked by the cycle whenever a job is tried. A reservation steps aside for its owner, for jobs that their time limit
ends before it begins, and for jobs within quota if its owner borrows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gpuyard.brain.engine.nodes.requests import STATIC_CHECKERS
from gpuyard.brain.engine.picture.draft import Draft, Kept
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.brain.engine.placing import gang
from gpuyard.brain.engine.placing.keeping import hold
from gpuyard.brain.engine.reserving.stand_ins import borrows, in_force
from gpuyard.brain.engine.sharing.amounts import GPUS
from gpuyard.model.reasons import Code, Reason


def enough_idle(draft: Draft, row: JobRow) -> bool:
    """A bound that costs an addition: whether as many whole GPUs are idle as the job lacks, those kept for somebody
    included. Of other requests it says nothing."""
    if not row.single or not row.request.gpus:
        return True
    return row.missing() * row.request.gpus <= draft.fleet.columns.whole_total + idle_but_kept(draft)


def idle_but_kept(draft: Draft) -> int:
    """GPUs that nobody uses and that are kept for somebody."""
    return sum(len(held.gpus) for each in draft.kept.values() for held in each.stand_in.held) if draft.kept else 0


def try_aside(draft: Draft, row: JobRow, attempt: Callable[[], bool]) -> bool:
    """Try to start a job with those reservations stepping aside that do not bind it; what the others keep is closed to
    it, also what falls free meanwhile."""
    if not draft.kept:
        return attempt()
    standing = in_force(draft)
    aside = [kept for kept in standing if not _binds(draft, kept, row)]
    with draft.bound(kept for kept in standing if kept not in aside) as trial:
        for kept in aside:
            draft.tx.lift_all(kept.stand_in, kept.stand_in.held)
        if not attempt():
            return False
        for kept in aside:
            if kept.row is not row:
                hold(draft, kept)
        trial.keep()
        return True


def with_all_binding(draft: Draft, step: Callable[[], None]) -> None:
    """Meanwhile nobody gets anything that is kept: extras do not fill gaps."""
    with draft.bound(in_force(draft)) as trial:
        step()
        trial.keep()


def hold_again(draft: Draft) -> None:
    """Others gave way: what fell free of the places that are kept is held as well, all of them where their owner had
    started and does not run any more."""
    for kept in in_force(draft):
        hold(draft, kept)


def hold_against(draft: Draft, row: JobRow, extras: bool = False) -> list[Kept]:
    """Put the reservations of this plan that bind the job back in force, once the cycle has taken them off; all of them
    bind its extras. Returns those that were."""
    found = [kept for kept in in_force(draft) if not kept.stand_in.held and (extras or _binds(draft, kept, row))]
    for kept in found:
        hold(draft, kept)
    return found


@contextmanager
def held_against(draft: Draft, row: JobRow, extras: bool = False) -> Iterator[None]:
    """The same for a while."""
    found = hold_against(draft, row, extras)
    yield
    for kept in found:
        draft.tx.lift_all(kept.stand_in, list(kept.stand_in.held))


def _binds(draft: Draft, kept: Kept, row: JobRow) -> bool:
    """Whether the reservation holds this job off: not its owner, not who is gone in time, not who is within quota."""
    if kept.row.name == row.name:
        return False
    limit = row.job.time_limit
    if kept.until is not None and limit is not None and draft.now + limit <= kept.until:
        return False
    return not (kept.borrower and not borrows(draft, row))


def in_the_way(draft: Draft, row: JobRow) -> Reason | None:
    """The reason of a job that would fit but for reservations; None if they are not what holds it off."""
    usable = [draft.fleet.shapes.static(request, STATIC_CHECKERS) for request in row.requests] if draft.kept else []
    binding = [
        kept
        for kept in draft.kept.values()
        if kept.row is not row and any(mask[held.node] for mask in usable for held in kept.stand_in.held)
    ]
    if not binding or not _would_fit(draft, row, binding):
        return None
    names = ", ".join(sorted(kept.row.name for kept in binding))
    message = f"{row.name} would fit, but those GPUs are kept for {names}"
    return Reason(Code.RESERVED, needed=draft.fleet.shortfall(row)[GPUS], where=names, message=message)


def _would_fit(draft: Draft, row: JobRow, aside: list[Kept]) -> bool:
    """Whether the job would fit if these reservations stepped aside."""
    with draft.trial():
        for kept in aside:
            draft.tx.lift_all(kept.stand_in, list(kept.stand_in.held))
        return gang.might_fit(draft, row) and gang.place(draft, row)
