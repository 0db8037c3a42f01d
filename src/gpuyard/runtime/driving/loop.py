"""One turn of any world: observe, decide, record, apply. It decides nothing itself and forgives nothing.

Driven by `driver`, which knows when to turn and what to do when a turn fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from gpuyard.brain.decide import STEPS, Decision, Steps, decide, observe
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.model.actions import Plan, Reserve, Waiting
from gpuyard.model.events import Event, JobGone, JobSeen
from gpuyard.model.outside.collector import collector_resting, made_to_stay
from gpuyard.model.outside.ports import Clock
from gpuyard.model.reasons import Code, Outcome, Reason
from gpuyard.runtime.driving.journal import Journal
from gpuyard.worlds.base import ALONE, Leadership, World

UNKNOWN_KEPT = 20
UNKNOWN_TOLD_S = 3600.0
"""How long it is told that an event spoke of somebody unknown."""


class NotLeading(Exception):
    """Somebody else has the right to act by now; nothing was applied."""


class Loop:
    """One world, its picture, what is remembered of it, and who is set apart from it."""

    fleet: Fleet

    def __init__(
        self,
        world: World,
        clock: Clock,
        journal: Journal | None = None,
        leadership: Leadership = ALONE,
        steps: Steps = STEPS,
    ) -> None:
        self.world = world
        self.memory = Memory()
        self.turns = 0
        self.decide_s = 0.0
        """Seconds spent deciding."""
        self.stage = "open"
        """What a turn is about: open, observe, decide, apply."""
        self.set_apart: dict[str, str] = {}
        """Jobs that the brain is not shown because it fails on them, and how it does."""
        self.unknown: list[str] = []
        """The latest that was not heeded: events about somebody unknown, parts of memory that are of no use."""
        self._unknown_at = 0.0
        self._clock = clock
        self._journal = journal
        self._leadership = leadership
        self._steps = steps
        self._built = False
        """Whether a picture has been filled; those that take its place are left to the collector: more may follow."""
        self._looked_around = False
        """Whether the picture knows beforehand what turns may ask it."""
        self.assumed: Sequence[Event] = ()
        """What the last plan is taken to have done; told to the brain first thing in the next turn."""
        self.heard: Callable[[Plan], None] | None = None
        """Who else hears of every plan, once it was applied."""

    def open(self) -> None:
        """Build the picture from the world as it is now; the journal begins a new line."""
        self.stage = "open"
        moment = self.world.open()
        there = {job.name for job in moment.jobs}  # of a job that has gone meanwhile nobody will tell
        self.set_apart = {name: why for name, why in self.set_apart.items() if name in there}
        bare = replace(moment, jobs=(), memory=self.memory.to_document())
        self.fleet = Fleet(bare)
        self._looked_around = False
        self.assumed = [JobSeen(job) for job in moment.jobs]
        if self._journal is not None:
            self._journal.begin(bare)

    def turn(self, one_by_one: bool = False) -> Plan:
        """Observe, decide, record, apply; `one_by_one` finds out which action cannot be applied."""
        self.stage = "observe"
        events = [*self._shown([*self.assumed, *self.world.observe()])]
        self.assumed = ()
        now = self.world.now()
        self.stage = "decide"
        decision = self._decide(events, now)
        plan = self._told(decision.plan)
        self._lead()
        if self._journal is not None:
            self._journal.record(now, events, plan)
        self.stage = "apply"
        self._lead()
        self.turns += 1
        self.assumed = self._apply_each(plan) if one_by_one else self.world.apply(plan, self.turns)
        self.memory = decision.memory  # what was not applied nobody was told
        if self.heard is not None:
            self.heard(plan)
        if not self._looked_around and _rests(plan):  # for the first time: nobody waits for it
            self.fleet.look_around()
            self._looked_around = True
        return plan

    def _lead(self) -> None:
        """Whoever does not lead neither writes nor does anything."""
        if not self._leadership.held():
            raise NotLeading

    def _decide(self, events: Sequence[Event], now: float) -> Decision:
        begun = self._clock.monotonic()
        with collector_resting():
            self.memory, unknown = observe(self.fleet, self.memory, events, now, self._steps)
            if not self._built:
                made_to_stay()  # the picture, which was made just now; what a turn makes does not stay
                self._built = True
            decision = decide(self.fleet, self.memory, now, self._steps)
        self.decide_s += self._clock.monotonic() - begun
        if unknown:
            self.leave_out(*unknown)
        return decision

    def leave_out(self, *what: str) -> None:
        """Something that was heard or remembered is not heeded."""
        self.unknown = [*self.unknown, *what][-UNKNOWN_KEPT:]
        self._unknown_at = self._clock.monotonic()

    def left_out(self) -> str:
        """The latest of this hour that was not heeded, for whoever looks how it stands."""
        lately = bool(self.unknown) and self._clock.monotonic() < self._unknown_at + UNKNOWN_TOLD_S
        return f"{self.unknown[-1]}; that was left out" if lately else ""

    def _apply_each(self, plan: Plan) -> Sequence[Event]:
        """Every action by itself. Whose action cannot be applied while another's can is set apart; where none can be,
        it is no job's fault."""
        assumed: list[Event] = []
        failed: dict[str, str] = {}
        errors: list[Exception] = []
        applied = 0
        for action in plan.actions:
            try:
                assumed += self.world.apply(replace(plan, actions=(action,)), self.turns)
                applied += not isinstance(action, Reserve)  # which nobody carries out
            except Exception as error:
                name = getattr(action, "job", "")
                if not name:
                    raise
                failed[name] = f"applying {type(action).__name__} failed: {error!r}"
                errors.append(error)
        if errors and not applied:
            raise errors[0]
        if not failed:
            return assumed
        self.set_apart.update(failed)
        self.open()  # they are out of the picture at once, or the next plan would want the same of them
        return self.assumed

    # --- who is set apart ------------------------------------------------------------------------

    def _shown(self, events: Iterable[Event]) -> Iterable[Event]:
        """What the brain is to hear: of jobs set apart only that they hold what they hold."""
        if not self.set_apart:
            return events
        return [shown for event in events if (shown := self._of_those_apart(event)) is not None]

    def _of_those_apart(self, event: Event) -> Event | None:
        name = event.job.name if isinstance(event, JobSeen) else getattr(event, "job", getattr(event, "name", ""))
        if name not in self.set_apart:
            return event
        if isinstance(event, JobGone):
            del self.set_apart[name]
        elif isinstance(event, JobSeen):
            return JobSeen(replace(event.job, foreign=True)) if event.job.placements else None
        return event if name in self.fleet.jobs else None

    def _told(self, plan: Plan) -> Plan:
        """Their owners are told why nothing is decided about them."""
        if not self.set_apart:
            return plan
        apart = [Waiting(name, _set_apart(name, why)) for name, why in sorted(self.set_apart.items())]
        return replace(plan, waiting=(*(each for each in plan.waiting if each.job not in self.set_apart), *apart))


def _rests(plan: Plan) -> bool:
    """Whether nothing is to be done; what is kept for somebody is told in every plan."""
    return all(isinstance(action, Reserve) for action in plan.actions)


def _set_apart(name: str, why: str) -> Reason:
    told = f"{name} is set apart, because deciding about it fails ({why}); this is a bug of GPUYard: please report it"
    return Reason(Code.SET_APART, Outcome.BUG, message=told)
