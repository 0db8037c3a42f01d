"""Deadlock: half-placed gangs that each hold what the other needs (rule 23).

Called by `decide` before the cycle. Inside the brain it cannot arise, gangs start whole or not at all; around it it
can: foreign schedulers, members that died, limits that were lowered. The cycle is named, and by policy broken.
"""

from __future__ import annotations

from gpuyard.brain.controllers import Controller, Nothing
from gpuyard.brain.engine.giving_way import stale_gangs, victims
from gpuyard.brain.engine.nodes.requests import STATIC_CHECKERS
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.model.actions import Deadlock, Evict
from gpuyard.model.policy import DeadlockRule
from gpuyard.model.reasons import Code, Reason
from gpuyard.model.resources import as_gpus

Waits = dict[str, list[str]]
"""Who waits for whom."""


class Deadlocks(Controller[Nothing]):
    """Ends every deadlock, or says how it would."""

    part = Nothing

    def act(self, draft: Draft, part: Nothing) -> Nothing:
        """Name every cycle and, if the policy says so, let one gang after the other give way until none is left."""
        resolve(draft)
        return part


def resolve(draft: Draft) -> None:
    """One cycle after the other."""
    while (found := find(draft)) is not None:
        draft.deadlocks.append(found)
        row = draft.fleet.jobs[found.victim] if found.victim else None
        if row is None:
            return
        if draft.policy.deadlock is DeadlockRule.PROPOSE:
            draft.propose(Evict(row.name, Reason(Code.DEADLOCK, message=found.message)))
            return
        others = [draft.fleet.jobs[name] for name in found.jobs if name != row.name]
        saved = _who_is_helped(draft, row, [other for other in others if not other.job.foreign])
        stale_gangs.release(draft, row, Reason(Code.DEADLOCK, message=found.message))
        draft.served[row.name] = saved


def find(draft: Draft) -> Deadlock | None:
    """The first cycle of gangs that are stuck on each other; None if there is none."""
    if len(draft.fleet.halves) + len(draft.fleet.outside) < 2:
        return None
    stuck = {row.name: row for row in _half_placed(draft) if row.job.foreign or not _can_be_repaired(draft, row)}
    waits = {name: _waits_for(draft, row, stuck) for name, row in stuck.items()}
    knot = _knot(waits)
    if not knot:
        return None
    rows = [stuck[name] for name in knot]
    ours = [row for row in rows if not row.job.foreign]
    if not ours:
        return Deadlock(tuple(knot), _sentence(rows, waits), "")
    victim = min(ours, key=lambda row: _gives_way(draft, row))
    if not _who_is_helped(draft, victim, ours):
        return None
    return Deadlock(tuple(knot), _sentence(rows, waits), victim.name)


def _who_is_helped(draft: Draft, victim: JobRow, rows: list[JobRow]) -> str:
    """The gang that completes once this one has given way; "" if none does, and nothing is gained by breaking."""
    with draft.trial():
        draft.remember(victim)
        draft.tx.lift_all(victim, victims.whole(victim).places)
        others = (row for row in stale_gangs.in_order(rows) if row is not victim)
        return next((row.name for row in others if stale_gangs.repair(draft, row)), "")


def _half_placed(draft: Draft) -> list[JobRow]:
    rows = (*draft.fleet.halves.values(), *draft.fleet.outside.values())
    return sorted((row for row in rows if row.alive()), key=lambda row: row.age)


def _can_be_repaired(draft: Draft, row: JobRow) -> bool:
    """Whether the gang can be completed without disturbing another one that is half-placed itself."""
    others = {other.name: tuple(other.held) for other in _half_placed(draft) if other is not row}
    with draft.trial():
        repaired = stale_gangs.repair(draft, row)
        disturbed = any(sorted(draft.fleet.jobs[name].held) != sorted(held) for name, held in others.items())
        return repaired and not disturbed


def _waits_for(draft: Draft, row: JobRow, stuck: dict[str, JobRow]) -> list[str]:
    """The other stuck gangs that hold GPUs on nodes this one could use, or room in its queues."""
    found = []
    usable = [draft.fleet.shapes.static(request, STATIC_CHECKERS) for request in row.requests]
    for name, other in stuck.items():
        if other is not row and any(mask[held.node] for held in other.held for mask in usable):
            found.append(name)
    return found


def _knot(waits: Waits) -> list[str]:
    """Gangs that all wait for each other, directly or through others; the one with the first name."""
    reach = {name: _reachable(waits, name) for name in waits}
    for name in waits:
        knot = [other for other in waits if other in reach[name] and name in reach[other]]
        if len(knot) > 1:
            return knot
    return []


def _reachable(waits: Waits, start: str) -> set[str]:
    found: set[str] = set()
    ahead = [start]
    while ahead:
        for name in waits[ahead.pop()]:
            if name not in found:
                found.add(name)
                ahead.append(name)
    return found


def _gives_way(draft: Draft, row: JobRow) -> tuple[object, ...]:
    """The lower priority, then the cheaper, then the younger."""
    return (row.priority, victims.lost_work(draft, victims.whole(row)), row.youth)


def _sentence(rows: list[JobRow], waits: Waits) -> str:
    inside = [row.name for row in rows]
    parts = []
    for row in rows:
        gpus = as_gpus(sum(held.cost for held in row.held))
        others = [name for name in inside if name in waits[row.name]]
        parts.append(f"{row.name} holds {gpus} and waits for {' and '.join(others)}")
    return "; ".join(parts)
