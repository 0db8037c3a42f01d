"""What the brain is to remember of what happened: evictions (rule 21) and how long jobs took (for ETA).

Called by the loop around a decision; pure, so that a replayed journal leads to the same memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.brain.engine.reserving.eta import duration_key
from gpuyard.model.actions import Evict, Plan
from gpuyard.model.events import Event, JobGone, TasksEnded

DAY_S = 86400.0
KEPT = 50
"""Durations remembered per kind of job; older ones say little about tomorrow."""


def from_events(memory: Memory, fleet: Fleet, events: Sequence[Event], now: float) -> Memory:
    """How long jobs took that have just ended well; the fleet is as it was before these events."""
    well = {event.job for event in events if isinstance(event, TasksEnded) and event.succeeded}
    durations: dict[str, tuple[float, ...]] = {}
    for event in events:
        row = fleet.jobs.get(event.name) if isinstance(event, JobGone) and event.name in well else None
        if row is not None and row.started is not None:
            key = duration_key(row)
            seen = durations.get(key, memory.durations.get(key, ()))
            durations[key] = (*seen, round(now - row.started, 3))[-KEPT:]
    return replace(memory, durations={**memory.durations, **durations}) if durations else memory


def from_plan(memory: Memory, plan: Plan, now: float) -> Memory:
    """Who is evicted by this plan, whole gangs only; what is older than a day no longer counts."""
    victims = [action.job for action in plan.actions if isinstance(action, Evict) and not action.placements]
    if not victims:
        return memory
    evictions = _recent(memory.evictions, now)
    for name in victims:
        evictions[name] = (*evictions.get(name, ()), now)
    return replace(memory, evictions=evictions)


def _recent(evictions: Mapping[str, tuple[float, ...]], now: float) -> dict[str, tuple[float, ...]]:
    recent = {name: tuple(at for at in times if now - at < DAY_S) for name, times in evictions.items()}
    return {name: times for name, times in recent.items() if times}
