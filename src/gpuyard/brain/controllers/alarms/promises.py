"""Promises that are not kept: a queue below its quota though it asks, a start that a reservation promised and that did
not come, a job that was evicted so often that it is protected now (rules 1, 20 and 21)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpuyard.brain.controllers.alarms.phrasing import duration, moment, some
from gpuyard.brain.engine.giving_way.victims import DAY
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.job_rows import NO_QUEUE, JobRow
from gpuyard.brain.engine.placing import gang
from gpuyard.brain.engine.sharing.amounts import GPUS
from gpuyard.model.alerts import Alert, AlertKind, Severity
from gpuyard.model.outside.phrases import agreeing, counted
from gpuyard.model.resources import UNLIMITED, as_gpus, gpu_words

LATE_S = 300.0
"""What stopping those in the way and starting may take beyond the promised moment."""
NO_MOMENT = 0.0
"""Stands for a reservation that promised room, but no moment."""

Since = Mapping[str, float]


# --- quotas -----------------------------------------------------------------------------------------------------------


def below_quota(draft: Draft, asking: Since) -> tuple[list[Alert], Since]:
    """Queues that have asked for a while for what their quota guarantees; and since when each of them asks."""
    after = draft.policy.alerts.below_quota_after
    if not after:
        return [], {}
    found, since = [], {}
    for q, row in _entitled(draft).items():
        name = draft.fleet.tree.queues[q].name
        since[name] = min(asking.get(name, draft.now), draft.now)
        if draft.now >= since[name] + after:
            found.append(_below(draft, q, row, since[name] + after))
        draft.look_again(since[name] + after)
    return found, since


def _entitled(draft: Draft) -> dict[int, JobRow]:
    """Queues with a job that waits for no more than their quota leaves, and one such job."""
    tree = draft.fleet.tree
    found: dict[int, JobRow] = {}
    for line in draft.fleet.rolls.waiting_lines:
        row = line.head
        if row.job.on_hold or row.queue == NO_QUEUE:
            continue
        guaranteed = [q for q in tree.paths[row.queue] if tree.used[q][GPUS] < tree.quota[q][GPUS] < UNLIMITED]
        asked = draft.fleet.shortfall(row) if guaranteed else [0]
        mine = [q for q in guaranteed if asked[GPUS] and tree.within_quota(q, asked)]
        if not mine or _shut(draft, row, asked) or not gang.could_ever_fit(draft, row):
            continue
        for q in mine:
            if q not in found or row.age < found[q].age:
                found[q] = row
    return found


def _shut(draft: Draft, row: JobRow, asked: list[int]) -> bool:
    """Whether a limit, and nobody's use of the fleet, keeps it waiting."""
    return draft.fleet.tree.refuses(row.queue, asked, row.firm) is not None


def _below(draft: Draft, q: int, row: JobRow, since: float) -> Alert:
    tree = draft.fleet.tree
    name = tree.queues[q].name
    used, quota = as_gpus(tree.used[q][GPUS]), gpu_words(tree.quota[q][GPUS])
    return Alert(
        f"below-quota/{name}",
        AlertKind.BELOW_QUOTA,
        Severity.WARNING,
        since,
        f"queue {name} has asked for longer than {duration(draft.policy.alerts.below_quota_after)} for what its quota "
        f"guarantees: it holds {used} of {quota}, and {row.name} waits",
        f"yard why {row.name}",
        about=(("queue", name),),
        jobs=(row.name,),
    )


# --- reservations -----------------------------------------------------------------------------------------------------


def broken(draft: Draft, promised: Since) -> tuple[list[Alert], Since]:
    """Jobs whose reservation cannot be met, and what each was promised; the first promise counts."""
    if not (promised or draft.kept):  # as in most plans
        return [], {}
    kept = {name: NO_MOMENT if kept.until is None else kept.until for name, kept in draft.kept.items()}
    known = {name: _first(promised.get(name), kept.get(name)) for name in sorted({*promised, *kept})}
    waiting = {name: at for name, at in known.items() if (row := draft.fleet.rolls.short.get(name)) and not row.alive()}
    found = []
    for name, at in waiting.items():
        if at and draft.now >= at + LATE_S:
            found.append(_broken(name, at + LATE_S, f"was to start by {moment(at)} and still waits"))
        elif name not in draft.kept and not gang.could_ever_fit(draft, draft.fleet.jobs[name]):
            found.append(_broken(name, draft.now, "had room reserved, and no place is left that could hold it"))
        if at:
            draft.look_again(at + LATE_S)
    return found, waiting


def _first(*moments: float | None) -> float:
    """The earliest promised moment; none of them may be one."""
    return min((at for at in moments if at), default=NO_MOMENT)


def _broken(name: str, since: float, what: str) -> Alert:
    sentence = f"the reservation of {name} cannot be met: it {what}"
    command = f"yard why {name}"
    return Alert(f"reservation/{name}", AlertKind.RESERVATION, Severity.WARNING, since, sentence, command, jobs=(name,))


# --- victims ----------------------------------------------------------------------------------------------------------


def protected(draft: Draft) -> Iterator[Alert]:
    """Jobs that were evicted so often in a day that nobody may do it again (rule 21), by queue."""
    most = max(draft.policy.protect_after, 1)  # who was never evicted is not spared for it, whatever the policy says
    queues: dict[str, list[tuple[str, float]]] = {}
    for name, times in draft.evictions.items():
        today = sorted(at for at in times if draft.now - at < DAY)
        if name in draft.fleet.jobs and len(today) >= most:
            queues.setdefault(draft.fleet.jobs[name].job.queue, []).append((name, today[most - 1]))
            draft.look_again(today[-most] + DAY)
    for queue, found in sorted(queues.items()):
        names = [name for name, _ in sorted(found)]
        were = f"{counted(len(names), 'job')} {agreeing(len(names), 'was', 'were')}"
        yield Alert(
            f"protected/{queue}",
            AlertKind.PROTECTED,
            Severity.WARNING,
            min(at for _, at in found),
            f"{were} evicted {counted(most, 'time')} in a day and may not be evicted again for now: {some(names)}",
            f"yard why {names[0]}",
            len(names),
            (("queue", queue),),
            tuple(names[:3]),
        )
