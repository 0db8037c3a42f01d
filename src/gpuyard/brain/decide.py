"""What should happen: controllers in a fixed order, then the cycle, each seeing the earlier ones' actions as applied.

Called by the loop of a live world (`decide`) and by foresight (`plan`). Pure: fleet, memory and `now` in, plan and new
memory out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from gpuyard.brain.controllers import deadlock
from gpuyard.brain.engine import cycle
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.brain.engine.settling import evacuation, keeping_places
from gpuyard.model.actions import Plan


class Decision(NamedTuple):
    """A plan, and what to remember."""

    plan: Plan
    memory: Memory


def plan(fleet: Fleet, memory: Memory, now: float) -> Draft:
    """One moment's draft; the fleet is left as the plan would make it."""
    draft = cycle.open_draft(fleet, memory, now)
    deadlock.resolve(draft)
    cycle.run(draft)
    return draft


def decide(fleet: Fleet, memory: Memory, now: float) -> Decision:
    """Plan one moment and undo the trial: only the world can say what really happened, and it says so by events."""
    draft = plan(fleet, memory, now)
    keeping_places.keep_places(draft, draft.before)
    actions = evacuation.net_actions(fleet, draft.before, evacuation.Story(draft.because, draft.served))
    draft.tx.rollback()
    actions = (*actions, *draft.reserves)
    return Decision(Plan(actions, draft.waits, tuple(draft.deadlocks)), _remembered(draft))


def _remembered(draft: Draft) -> Memory:
    if not draft.refused and not draft.memory.refused:
        return draft.memory
    return replace(draft.memory, refused=draft.refused)
