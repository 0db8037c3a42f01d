"""What the loop of a live world calls, from a snapshot in memory until nothing changes: the time that counts.

The collector rests as it does there. Whatever a plan says has happened by the next moment, and `now` stands still.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gpuyard.brain import foresee
from gpuyard.brain.decide import decide, observe
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.model.actions import Action, Evict, Move, Plan, Start
from gpuyard.model.answers.outlook import Outlook
from gpuyard.model.events import Event, TasksEnded, TasksRunning
from gpuyard.model.outside.collector import collector_resting, made_to_stay
from gpuyard.model.snapshot import Snapshot

MOST_TURNS = 20


class Settled(NamedTuple):
    """The fleet at its fixed point, and what was done on the way."""

    fleet: Fleet
    plans: list[Plan]

    def running(self) -> set[str]:
        """Who runs at the end."""
        return {name for name, row in self.fleet.jobs.items() if row.placements}

    def count(self, kind: type[Action]) -> int:
        """How many actions of a kind were taken."""
        return sum(isinstance(action, kind) for plan in self.plans for action in plan.actions)


def settle(snapshot: Snapshot) -> Settled:
    """Build the fleet, then decide and let the plan happen until a plan is empty."""
    with collector_resting():
        fleet, memory = Fleet(snapshot), Memory.from_document(snapshot.memory)
        made_to_stay()
        plans: list[Plan] = []
        while len(plans) < MOST_TURNS:
            plan, memory = decide(fleet, memory, snapshot.now)
            plans.append(plan)
            events = list(happening(fleet, plan, snapshot.now))
            if not events:
                break
            memory, _ = observe(fleet, memory, events, snapshot.now)
        return Settled(fleet, plans)


def happening(fleet: Fleet, plan: Plan, now: float) -> Iterator[Event]:
    """What the world reports once the plan is carried out."""
    for action in plan.actions:
        match action:
            case Evict(job, placements=places):
                yield TasksEnded(job, places or fleet.jobs[job].placements)
            case Move(job, source, target):
                yield TasksEnded(job, source)
                yield TasksRunning(job, target, now)
            case Start(job, placements):
                yield TasksRunning(job, placements, now)


def told(snapshot: Snapshot) -> Outlook:
    """What `yard plan` does between reading the file and printing."""
    with collector_resting():
        outlook = foresee.outlook(snapshot)
        made_to_stay()
        return outlook


def agree(settled: Settled, outlook: Outlook) -> bool:
    """Whether the loop and `yard plan` end with the same jobs running."""
    return settled.running() == {line.job for line in outlook.running}
