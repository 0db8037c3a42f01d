"""Whether a job may start at all, wherever it would run: held back, members gone, limits, quotas (rules 2 to 4)."""

from __future__ import annotations

from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.brain.engine.sharing.amounts import Amounts, add
from gpuyard.brain.engine.sharing.quota import CPU, GPU, MEMORY, Excess
from gpuyard.model.job import Bundle
from gpuyard.model.reasons import Code, Reason
from gpuyard.model.resources import as_gpus, gpu_words


def refuses(draft: Draft, row: JobRow, asked: Amounts) -> Reason | None:
    """The reason why the job may not start now, before any place is looked for; None if it may."""
    if row.job.on_hold:
        return held(row)
    if _members_ended(row):
        if any(group.absent for group in row.groups):
            return Reason(Code.MEMBERS_ABSENT, message=f"{row.name} waits for members that do not exist yet")
        return Reason(Code.MEMBERS_ENDED, message=f"{row.name} lost members that ended; it waits for new ones")
    return over(draft, row, asked)


def held(row: JobRow) -> Reason:
    """Of a job that is held back."""
    if row.job.held_for:
        return Reason(Code.HELD, where=row.job.held_for, message=f"{row.name} is held back: {row.job.held_for}")
    return Reason(Code.HELD, message=f"{row.name} is held back by its owner; `yard release {row.name}` lets it go")


def over(draft: Draft, row: JobRow, asked: Amounts) -> Reason | None:
    """The limit or quota in the way, if nothing else is."""
    excess = draft.fleet.tree.refuses(row.queue, asked, row.firm)
    return None if excess is None else over_reason(row, excess)


def _members_ended(row: JobRow) -> bool:
    """Whether members that ended leave too few to ever reach the minimum again (rule 22)."""
    if row.single:
        return row.pending() < row.missing()
    return not _completable(row, row.job.gang, 0)


def _completable(row: JobRow, bundle: Bundle, first: int) -> bool:
    done, leaf = 0, first
    for group in bundle.groups:
        if isinstance(group, Bundle):
            done += _completable(row, group, leaf)
            leaf += sum(1 for _ in group.leaves())
        else:
            done += row.pending(leaf) >= row.missing(leaf)
            leaf += 1
    return done >= bundle.min_groups


def allowed(draft: Draft, row: JobRow, mark: int) -> bool:
    """Whether what the job took since the mark keeps every limit, now that models are known.

    The check before placing counts what every node has in common; this one counts what the chosen nodes really cost.
    """
    tree = draft.fleet.tree
    if draft.quota_aside:
        return True
    if len(tree.resources) == 1 and not any(request.resources.gpu_memory for request in row.requests):
        return True
    return excess_of(draft, row, mark) is None


def excess_of(draft: Draft, row: JobRow, mark: int) -> Excess | None:
    """Where what the job took since the mark passes a limit or quota."""
    taken = draft.fleet.costs.nothing()
    for held in draft.tx.added(row, mark):
        add(taken, draft.fleet.price(held))
    return draft.fleet.tree.exceeds(row.queue, taken, row.firm)


def over_reason(row: JobRow, excess: Excess) -> Reason:
    """A limit or quota in the way, told with its numbers."""
    code = Code.OVER_LIMIT if excess.kind == "limit" else Code.OVER_QUOTA
    left = max(excess.allowed - excess.used, 0)
    what = "limit" if excess.kind == "limit" else "quota for non-preemptible jobs"
    model = f" ({excess.resource})" if excess.resource not in (GPU, CPU, MEMORY) else ""
    message = (
        f"{row.name} needs {_needs(excess)}; queue {excess.queue} has {_amount(left, excess)} left of its "
        f"{what} of {_amount(excess.allowed, excess)}{model}"
    )
    return Reason(code, needed=excess.asked, free=left, where=excess.queue, message=message)


def _needs(excess: Excess) -> str:
    if excess.resource in (CPU, MEMORY):
        return f"{_amount(excess.asked, excess)} {excess.resource}"
    return gpu_words(excess.asked)


def _amount(amount: int, excess: Excess) -> object:
    if excess.resource == CPU:
        return f"{amount / 1000:g}"
    if excess.resource == MEMORY:
        return f"{amount / 2**30:g}Gi"
    return as_gpus(amount)
