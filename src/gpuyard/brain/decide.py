"""What should happen: controllers in a fixed order, then the cycle, each seeing the earlier ones' actions as applied.

Called by the loop of a live world. Pure: fleet, memory and `now` in; plan and new memory out; the fleet is left as it
was, because only the world can say what really happened.
"""

from __future__ import annotations

from typing import NamedTuple

from gpuyard.brain.engine import evacuation
from gpuyard.brain.engine.cycle import cycle
from gpuyard.brain.engine.fleet import Fleet
from gpuyard.brain.engine.memory import Memory
from gpuyard.model.actions import Plan, Waiting


class Decision(NamedTuple):
    """A plan, and what to remember."""

    plan: Plan
    memory: Memory


def decide(fleet: Fleet, memory: Memory, now: float) -> Decision:
    """Plan one cycle and undo its trial; the world applies the plan and reports back by events."""
    draft = cycle(fleet, memory, now)
    actions = evacuation.net_actions(fleet, draft.before, evacuation.Story(draft.because, draft.served))
    waiting = tuple(Waiting(name, draft.waits[name]) for name in sorted(draft.waits))
    draft.tx.rollback()
    return Decision(Plan(actions, waiting, tuple(draft.deadlocks)), memory)
