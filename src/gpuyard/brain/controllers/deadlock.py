"""Deadlock: half-placed gangs that each hold what the other needs (rule 23).

Called by `decide` before the cycle. Inside the brain it cannot arise, gangs start whole or not at all; around it it
can: foreign schedulers, members that died, limits that were lowered. The cycle is named, and by policy broken.
"""

from __future__ import annotations

from gpuyard.brain.engine import stale, victims
from gpuyard.brain.engine.asks import STATIC_CHECKERS
from gpuyard.brain.engine.draft import Draft
from gpuyard.brain.engine.fleet import JobRow
from gpuyard.model.actions import Deadlock
from gpuyard.model.policy import DeadlockRule
from gpuyard.model.reasons import Code, Reason
from gpuyard.model.resources import as_gpus

Waits = dict[str, list[str]]
"""Who waits for whom."""


def resolve(draft: Draft) -> None:
    """Name every cycle and, if the policy says so, let one gang after the other give way until none is left."""
    while (found := find(draft)) is not None:
        draft.deadlocks.append(found)
        row = draft.fleet.jobs[found.victim] if found.victim else None
        if row is None or draft.policy.deadlock is not DeadlockRule.BREAK:
            return
        stale.release(draft, row, Reason(Code.DEADLOCK, message=found.message))
        draft.served[row.name] = next(name for name in found.jobs if name != row.name)


def find(draft: Draft) -> Deadlock | None:
    """The first cycle of gangs that are stuck on each other; None if there is none."""
    stuck = {row.name: row for row in _half_placed(draft) if row.job.foreign or not _can_be_repaired(draft, row)}
    waits = {name: _waits_for(draft, row, stuck) for name, row in stuck.items()}
    cycle = _cycle(waits)
    if not cycle:
        return None
    rows = [stuck[name] for name in cycle]
    ours = [row for row in rows if not row.job.foreign]
    victim = min(ours, key=lambda row: _gives_way(draft, row)).name if ours else ""
    return Deadlock(tuple(cycle), _sentence(rows), victim)


def _half_placed(draft: Draft) -> list[JobRow]:
    rows = [row for row in draft.fleet.rows() if row.alive() and not row.complete()]
    return sorted(rows, key=lambda row: row.age)


def _can_be_repaired(draft: Draft, row: JobRow) -> bool:
    mark = draft.tx.checkpoint()
    saved = (dict(draft.because), dict(draft.served), dict(draft.waits))
    repaired = stale.repair(draft, row)
    draft.tx.rollback(mark)
    draft.because, draft.served, draft.waits = saved
    return repaired


def _waits_for(draft: Draft, row: JobRow, stuck: dict[str, JobRow]) -> list[str]:
    """The other stuck gangs that hold GPUs on nodes this one could use, or room in its queues."""
    found = []
    usable = [draft.fleet.shapes.static(ask, STATIC_CHECKERS) for ask in row.asks]
    for name, other in stuck.items():
        if other is not row and any(mask[held.node] for held in other.held for mask in usable):
            found.append(name)
    return found


def _cycle(waits: Waits) -> list[str]:
    """A shortest cycle through the first name that is in one."""
    for start in waits:
        paths = [[start]]
        seen = {start}
        while paths:
            path = paths.pop(0)
            for name in waits[path[-1]]:
                if name == start:
                    return path
                if name not in seen:
                    seen.add(name)
                    paths.append([*path, name])
    return []


def _gives_way(draft: Draft, row: JobRow) -> tuple[object, ...]:
    """The lower priority, then the cheaper, then the younger."""
    return (row.priority, victims.lost_work(draft, victims.whole(row)), victims.youth(row))


def _sentence(rows: list[JobRow]) -> str:
    parts = []
    for i, row in enumerate(rows):
        following = rows[(i + 1) % len(rows)]
        gpus = as_gpus(sum(held.cost for held in row.held))
        parts.append(f"{row.name} holds {gpus} and waits for {following.name}")
    return "; ".join(parts)
