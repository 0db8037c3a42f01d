"""What a job is told that is stopped or moved for another: for whom, why, and what it loses by it.

Called by `deeds` as it happens. The words are kept with the attempt and told to the job's owner and to operators, so
they name nobody whom that owner may not know of.
"""

from __future__ import annotations

from gpuyard.model.actions import Evict, Move
from gpuyard.model.outside.phrases import work_lost
from gpuyard.model.reasons import Code, without_names
from gpuyard.worlds.local.attempts.desk import Desk
from gpuyard.worlds.local.state.records import Attempt, Entry

STOPPED = "stopped"
FOR_ITSELF = frozenset((Code.DRAINED, Code.STALE, Code.DEADLOCK, Code.DEFRAGMENTED))
"""Reasons that say all there is to say: nobody in particular gets the place."""


def of(desk: Desk, entry: Entry, attempt: Attempt, action: Evict | Move) -> str:
    """`stopped for peek, 3m of work lost`, `moved so that big fits, told to save its work first`."""
    return f"{_verb(action)} {_for_whom(desk, entry, action)}, {_lost(desk, entry, attempt)}"


def tell_who_gains(desk: Desk, entry: Entry, attempt: Attempt, action: Evict | Move) -> None:
    """Whoever gets the place reads in its own history whom that cost what; of another's job no name."""
    gains = desk.book.find(action.beneficiary)
    if gains is None or gains is entry or action.reason.code in FOR_ITSELF:
        return
    own = gains.owner.identity == entry.owner.identity
    who = entry.name if own else f"a job of queue {entry.template.job.queue}"
    was = "was " if _verb(action) == STOPPED else ""
    desk.say("displaced", gains, message=f"{who} {was}{_verb(action)} for it, {_lost(desk, entry, attempt)}")


def _verb(action: Evict | Move) -> str:
    return "moved" if isinstance(action, Move) else "gave back tasks" if action.placements else STOPPED


def _lost(desk: Desk, entry: Entry, attempt: Attempt) -> str:
    since = attempt.unsaved_since
    worked = desk.now() - since if since is not None else 0.0
    return work_lost(worked, entry.description().checkpoint is not None)


def _for_whom(desk: Desk, entry: Entry, action: Evict | Move) -> str:
    if action.reason.code in FOR_ITSELF:
        reason = action.reason if entry.owner.uid < 0 else without_names(action.reason)
        return f"because {str(reason).removeprefix(f'{entry.key} ')}"
    gains = desk.book.find(action.beneficiary)
    if gains is None:
        return "to make room"
    if gains.owner.identity == entry.owner.identity:
        return f"for {gains.name}"
    return f"for a job of queue {gains.template.job.queue}"
