"""The one loop: observe, decide, apply, record. It drives any world; the simulator is a world with a virtual clock.

Called by `yard up`, `yard serve` and `yard sim`. It decides nothing itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gpuyard.brain.decide import decide, observe
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.model.actions import Plan
from gpuyard.model.collector import collector_resting
from gpuyard.model.events import Event
from gpuyard.worlds.base import World


class Record(Protocol):
    """Writes down what was seen and decided, so that it can be replayed and explained."""

    def record(self, now: float, events: Sequence[Event], plan: Plan) -> None:
        """One turn of the loop; called before the plan is applied."""


class NoRecord:
    """Keeps nothing."""

    def record(self, now: float, events: Sequence[Event], plan: Plan) -> None:
        """Forget it."""


class Loop:
    """One world, one fleet, one memory."""

    def __init__(self, world: World, fleet: Fleet, memory: Memory, journal: Record | None = None) -> None:
        self.world = world
        self.fleet = fleet
        self.memory = memory
        self.journal = journal or NoRecord()

    def run(self) -> None:
        """Turn until the world is over."""
        while self.world.wait():
            self.turn()

    def turn(self) -> Plan:
        """Observe, decide, record, apply."""
        events = self.world.observe()
        now = self.world.now()
        plan = self.decide(events, now)
        self.journal.record(now, events, plan)
        self.world.apply(plan)
        return plan

    def decide(self, events: Sequence[Event], now: float) -> Plan:
        """Take in what happened and plan; a replay calls this with what was recorded."""
        with collector_resting():
            self.memory, _ = observe(self.fleet, self.memory, events, now)
            plan, self.memory = decide(self.fleet, self.memory, now)
        return plan
