"""What should happen: controllers in a fixed order around the cycle, each seeing the earlier ones' work as done.

`observe` takes in what happened, `decide` plans one moment for a live world, and foresight drives the same `plan` to
its end. Pure: picture, memory and `now` in, plan and new memory out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from gpuyard.brain.controllers import Controller
from gpuyard.brain.controllers.alarms import Alarms
from gpuyard.brain.controllers.deadlock import Deadlocks
from gpuyard.brain.controllers.defragmentation import Defragmentation
from gpuyard.brain.controllers.demand import DemandAsked
from gpuyard.brain.controllers.drain import Drains
from gpuyard.brain.controllers.durations import DurationsSeen
from gpuyard.brain.controllers.evictions import EvictionsSeen
from gpuyard.brain.controllers.progressing import ProgressSeen
from gpuyard.brain.controllers.time_limits import TimeLimits
from gpuyard.brain.engine import cycle
from gpuyard.brain.engine.nodes.columns import Held
from gpuyard.brain.engine.picture.draft import NOBODY, Draft
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Memory, Refusals
from gpuyard.brain.engine.settling import evacuation, keeping_places, stories
from gpuyard.model.actions import Plan
from gpuyard.model.events import Event


class Steps(NamedTuple):
    """The one order in which a moment is planned: controllers, the cycle, and what comes once nobody waits."""

    before: tuple[Controller[Any], ...]
    after: tuple[Controller[Any], ...] = ()
    watching: tuple[Controller[Any], ...] = ()
    """Look at the moment as the plan leaves it, and plan nothing."""


STEPS = Steps(
    before=(EvictionsSeen(), DurationsSeen(), DemandAsked(), ProgressSeen(), Deadlocks(), Drains()),
    after=(TimeLimits(), Defragmentation()),
    watching=(Alarms(),),
)


class Observation(NamedTuple):
    """What is remembered after events were taken in, and what in them spoke of somebody unknown."""

    memory: Memory
    unknown: list[str]


class Decision(NamedTuple):
    """A plan, and what to remember."""

    plan: Plan
    memory: Memory


def observe(fleet: Fleet, memory: Memory, events: Sequence[Event], now: float, steps: Steps = STEPS) -> Observation:
    """Take in what happened: controllers learn from it, then the picture is brought up to date."""
    for controller in _who_hears(steps, frozenset(map(type, events))):
        part = memory.of(controller.part)
        learnt = controller.observe(part, fleet, events, now)
        memory = memory if learnt is part else memory.keeping(learnt)
    return Observation(memory, fleet.apply(events))


@lru_cache(maxsize=256)
def _who_hears(steps: Steps, kinds: frozenset[type]) -> tuple[Controller[Any], ...]:
    """Those that learn from any of these kinds of events; the same few kinds come together turn after turn."""
    everyone = (*steps.before, *steps.after, *steps.watching)
    return tuple(each for each in everyone if any(issubclass(kind, each.hears) for kind in kinds))


def plan(
    fleet: Fleet,
    memory: Memory,
    now: float,
    steps: Steps = STEPS,
    timed: bool = False,
    began: Mapping[str, tuple[Held, ...]] = NOBODY,
) -> Draft:
    """One moment's draft; the fleet is left as the plan would make it. A plan of several cycles tells the later ones
    what those held, when it began, whom the earlier ones have changed: budgets hold for all of it."""
    draft = cycle.open_draft(fleet, memory, now, began)
    _act(steps.before, draft, timed)
    cycle.run(draft)
    _act(steps.after, draft, timed)
    return draft


def _act(controllers: tuple[Controller[Any], ...], draft: Draft, timed: bool) -> None:
    for controller in _who_acts(controllers, timed):
        part = draft.memory.of(controller.part)
        kept = controller.act(draft, part)
        if kept is not part:
            draft.memory = draft.memory.keeping(kept)


@lru_cache(maxsize=256)
def _who_acts(controllers: tuple[Controller[Any], ...], timed: bool) -> tuple[Controller[Any], ...]:
    """Those that plan anything at all; half of them only learn."""
    acting = (each for each in controllers if type(each).act is not Controller.act)
    return tuple(each for each in acting if timed or not each.timed)


def decide(fleet: Fleet, memory: Memory, now: float, steps: Steps = STEPS) -> Decision:
    """Plan one moment and undo the trial: only the world can say what really happened, and it says so by events."""
    draft = plan(fleet, memory, now, steps, timed=True)
    if any(draft.before.values()):  # who only starts has no place to keep
        keeping_places.keep_places(draft, draft.before)
        keeping_places.untangle(draft, draft.before)
    _act(steps.watching, draft, timed=True)
    story, said, claims = stories.Story(draft.because, draft.served), draft.said, draft.claims
    actions = (*said.actions, *evacuation.net_actions(fleet, draft.before, story), *said.reserves)
    draft.tx.rollback()
    draft.rest()
    fleet.fresh = False
    told = Plan(actions, draft.waits, tuple(said.deadlocks), tuple(said.proposed), said.alerts, said.look_again_at)
    nobody_asked = not claims.refused and not claims.refused_before
    return Decision(told, draft.memory if nobody_asked else draft.memory.keeping(Refusals(claims.refused)))
