"""One driver for every world: a turn that fails never ends scheduling, and nobody acts who does not lead."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from gpuyard.brain.controllers import Controller
from gpuyard.brain.decide import STEPS, Steps
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Evictions, Memory, Part, TimeSlices
from gpuyard.model.actions import Plan, Reserve, Scale
from gpuyard.model.events import Event, GpuHealthChanged, JobGone, NodeLost, TasksRunning
from gpuyard.model.job import Job, Placement, TaskGroup, one_group
from gpuyard.model.node import Health
from gpuyard.model.reasons import Code, Outcome, Reason
from gpuyard.model.resources import Request
from gpuyard.runtime.driving import loop
from gpuyard.runtime.driving.driver import STAND_BY_S, Driver
from gpuyard.runtime.driving.journal import Journal, read, replay
from gpuyard.runtime.driving.loop import Loop
from gpuyard.runtime.driving.recovery import Recovery
from tests.support import toy_world, yards
from tests.support.pretend import StillClock
from tests.support.toy_world import ToyWorld

FLEET = "nodes: [{name: n0, gpus: 4, model: H100}, {name: n1, gpus: 4, model: H100}]"


class Shelf:
    """Implements `worlds.base.Archive` in memory."""

    def __init__(self) -> None:
        self.line: list[tuple[float, bytes]] = []
        self.facts: dict[str, Any] = {}
        self.reports: dict[str, Any] = {}

    def begin(self, at: float, content: bytes) -> None:
        self.line = [(at, content)]

    def append(self, at: float, content: bytes) -> None:
        self.line.append((at, content))

    def last_line(self) -> list[tuple[float, bytes]]:
        return self.line

    def keep(self, name: str, document: Any) -> None:
        self.facts[name] = document

    def kept(self, name: str) -> Any:
        return self.facts.get(name)

    def report(self, name: str, document: Any) -> str:
        self.reports[name] = document
        return name


class Crown:
    """A `Leadership` that can be lost."""

    def __init__(self) -> None:
        self.worn = True

    def held(self) -> bool:
        return self.worn


class Place:
    """A toy world under a driver that forgives."""

    def __init__(self, steps: Steps = STEPS, world: ToyWorld | None = None) -> None:
        self.world = world or ToyWorld(yards.fleet(FLEET))
        self.shelf, self.crown, self.clock = Shelf(), Crown(), StillClock()
        journal = Journal(self.shelf)
        self.loop = Loop(self.world, self.clock, journal, self.crown, steps)
        self.recovery = Recovery(self.loop, self.shelf, steps)
        self.driver = Driver(self.loop, self.clock, journal=journal, recovery=self.recovery)
        self.loop.open()

    def submit(self, name: str, gpus: int = 1, work: float = 10.0, **keys: Any) -> None:
        self.world.submit(Job(name, one_group(TaskGroup(request=Request(gpus=gpus))), **keys), work)

    def turn(self, times: int = 1) -> None:
        for _ in range(times):
            self.driver.turn()

    def running(self) -> list[str]:
        return sorted(life.job.name for life in self.world.alive() if life.places)


def failing(part: str, times: int) -> tuple[Place, list[int]]:
    """A place whose world fails so many times at one part of a turn."""
    left = [times]

    class Failing(ToyWorld):
        def observe(self) -> Sequence[Event]:
            fail("observe")
            return super().observe()

        def apply(self, plan: Plan, turn: int) -> Sequence[Event]:
            fail("apply")
            return super().apply(plan, turn)

    class Brain(Controller[Any]):
        part = STEPS.before[0].part

        def act(self, draft: Draft, part: Any) -> Any:
            fail("decide")
            return part

    def fail(here: str) -> None:
        if here == part and left[0]:
            left[0] -= 1
            raise ZeroDivisionError(here)

    return Place(Steps((*STEPS.before, Brain())), Failing(yards.fleet(FLEET))), left


class Keeping(Controller[Any]):
    """Tells in every plan what is kept for somebody."""

    part = STEPS.before[0].part

    def act(self, draft: Draft, part: Any) -> Any:
        draft.said.reserves.append(Reserve("b", (), None, Reason(Code.RESERVED)))
        return part


@pytest.mark.parametrize("more", [(), (Keeping(),)], ids=["nothing to do", "nothing but to keep places"])
def test_the_loop_looks_around_once_it_is_at_rest_and_again_in_a_new_picture(
    more: tuple[Controller[Any], ...], monkeypatch: pytest.MonkeyPatch
):
    place, looked = Place(Steps((*STEPS.before, *more))), list[Fleet]()

    def seen(fleet: Fleet) -> None:
        looked.append(fleet)

    monkeypatch.setattr(Fleet, "look_around", seen)
    place.submit("a")
    place.turn()
    assert looked == [], "it had something to do"
    place.turn(3)
    assert looked == [place.loop.fleet]
    place.loop.open()
    place.turn(3)
    assert looked[1:] == [place.loop.fleet]
    assert looked[0] is not looked[1]


@pytest.mark.parametrize("part", ["observe", "decide", "apply"])
def test_a_turn_that_fails_once_costs_a_turn_and_nothing_else(part: str):
    place, _ = failing(part, 1)
    place.submit("a")
    place.turn()
    assert place.running() == []
    assert f"({part}: ZeroDivisionError: {part})" in place.driver.trouble()
    place.turn()
    assert place.running() == ["a"]
    assert place.driver.trouble() == ""


@pytest.mark.parametrize("part", ["observe", "decide", "apply"])
def test_the_exception_and_the_moment_are_kept_once_for_a_report(part: str):
    place, _ = failing(part, 3)
    place.submit("a")
    place.turn(3)
    (report,) = place.shelf.reports.values()
    assert "ZeroDivisionError" in report["traceback"]
    assert [job["name"] for job in report["snapshot"]["jobs"]] == ["a"]
    assert place.recovery.last is not None
    assert place.recovery.last.times >= 2


@pytest.mark.parametrize("part", ["observe", "decide", "apply"])
def test_what_fails_always_is_tried_ever_more_patiently_and_goes_on_when_it_is_mended(part: str):
    place, left = failing(part, 10**9)
    place.submit("a")
    rests = []
    for _ in range(10):
        before = place.clock.at
        place.turn()
        rests.append(place.driver.rest_until - before)
    assert rests == sorted(rests)
    assert rests[0] < 1
    assert rests[-1] == 60
    assert place.loop.set_apart == {}
    left[0] = 0
    place.turn()
    assert place.running() == ["a"]


def test_a_job_that_the_brain_fails_on_is_set_apart_and_everybody_else_goes_on():
    class Picky(Controller[Any]):
        part = STEPS.before[0].part

        def act(self, draft: Draft, part: Any) -> Any:
            if "bad" in draft.fleet.jobs:
                raise ZeroDivisionError("bad")
            return part

    place = Place(Steps((*STEPS.before, Picky())))
    for name in ("a", "b", "bad", "c"):
        place.submit(name)
    place.turn(3)
    assert place.running() == ["a", "b", "c"]
    assert place.driver.trouble() == ""
    (told,) = [each.reason for each in place.world.plan.waiting if each.job == "bad"]
    assert (told.code, told.outcome) == (Code.SET_APART, Outcome.BUG)
    assert "ZeroDivisionError" in str(told)
    place.world.end(place.world.jobs["bad"], "cancelled")
    place.turn()
    assert place.loop.set_apart == {}


class Choosy(ToyWorld):
    """Cannot carry out anything about some."""

    def __init__(self, *bad: str) -> None:
        super().__init__(yards.fleet(FLEET))
        self.bad = {*bad}

    def apply(self, plan: Plan, turn: int) -> Sequence[Event]:
        if any(getattr(action, "job", "") in self.bad for action in plan.actions):
            raise ZeroDivisionError("bad")
        return super().apply(plan, turn)


def test_a_job_whose_action_cannot_be_applied_is_set_apart_and_everybody_else_goes_on():
    place = Place(world=Choosy("bad"))
    for name in ("a", "bad", "c"):
        place.submit(name)
    place.turn(5)
    assert place.running() == ["a", "c"]
    assert place.driver.trouble() == ""
    assert list(place.loop.set_apart) == ["bad"]


def test_where_nobodys_action_can_be_applied_nobody_is_set_apart_and_all_start_once_that_is_over():
    world = Choosy("a", "b", "c")
    place = Place(world=world)
    for name in sorted(world.bad):
        place.submit(name)
    place.turn(8)
    assert place.loop.set_apart == {}
    assert "failed 8 times" in place.driver.trouble()
    world.bad.clear()
    place.turn(2)
    assert place.running() == ["a", "b", "c"]
    assert place.driver.trouble() == ""


def test_who_alone_cannot_be_started_is_found_out_when_somebody_else_comes():
    place = Place(world=Choosy("bad"))
    place.submit("bad")
    place.turn(6)
    assert place.loop.set_apart == {}, "it could be the world that fails"
    place.submit("a")
    place.turn()
    assert place.running() == ["a"]
    assert list(place.loop.set_apart) == ["bad"]
    place.turn(2)
    assert place.driver.trouble() == ""


def test_without_recovery_a_failure_ends_the_run():
    place, _ = failing("observe", 1)
    with pytest.raises(ZeroDivisionError):
        Driver(place.loop, place.clock).turn()


UNKNOWN = [
    JobGone("nobody"),
    TasksRunning("nobody", (Placement("n0", (0,)),), 0.0),
    NodeLost("nowhere"),
    GpuHealthChanged("nowhere", 0, Health.SICK),
]


@pytest.mark.parametrize("event", UNKNOWN, ids=lambda event: type(event).__name__)
def test_an_event_about_somebody_unknown_is_reported_and_the_rest_is_heard(event: Event):
    place = Place()
    place.submit("a")
    place.world.events.insert(0, event)
    place.submit("b")
    place.turn()
    assert place.running() == ["a", "b"]
    assert place.driver.trouble() == ""
    assert [told for told in place.loop.unknown if "nobody" in told or "nowhere" in told] == place.loop.unknown != []


def test_of_events_about_nobody_only_the_latest_are_kept():
    place = Place()
    for number in range(50):
        place.world.events.append(JobGone(f"nobody-{number}"))
        place.turn()
    assert len(place.loop.unknown) == loop.UNKNOWN_KEPT
    assert place.loop.left_out() == "an event speaks of job nobody-49, which nobody submitted; that was left out"
    place.clock.at += loop.UNKNOWN_TOLD_S
    assert place.loop.left_out() == "", "it is told for an hour"


def test_a_job_in_a_queue_that_does_not_exist_is_reported_and_the_rest_goes_on():
    place = Place()
    place.submit("a", queue="gone")
    place.submit("b")
    place.turn()
    assert place.running() == ["b"]
    assert "queue gone" in place.loop.unknown[0]


def test_who_lost_the_lead_between_deciding_and_applying_applies_nothing():
    place = Place()
    place.submit("a")
    place.crown.worn = False
    place.turn(2)
    assert place.running() == []
    assert "another control plane" in place.driver.trouble()
    assert place.driver.rest_until == place.clock.at + STAND_BY_S, "it looks now and then whether it leads again"
    place.crown.worn = True
    place.turn()
    assert place.running() == ["a"]
    assert place.driver.trouble() == ""


def test_who_has_the_lead_again_decides_again_though_nothing_happened():
    """Once the plan that was dropped was never made again until somebody came or went."""
    place = Place()
    place.submit("a")
    place.turn()
    place.world.wait = lambda not_before=0.0: pytest.fail("the world has nothing to tell")  # type: ignore[method-assign]
    place.crown.worn = False
    place.submit("b")
    place.turn()
    place.driver.rest_until = place.clock.monotonic()
    assert place.driver._wait(), "it turns again to see whether it leads"
    place.crown.worn = True
    place.turn()
    assert place.running() == ["a", "b"]
    place.submit("c")
    place.turn()
    _, turns = read(place.shelf)
    assert [len(turn.actions) for turn in turns] == [1], "what came to nothing is not in the journal"


@pytest.mark.parametrize("how", ["applying fails", "another leads"])
def test_whoever_was_not_told_to_end_is_told_in_the_next_turn(how: str):
    """Once it was remembered as told, and a job ran on for its limit's grace and more."""
    world = Choosy()
    place = Place(world=world)
    place.submit("a", work=1e6, time_limit=100.0)
    place.turn()
    world.time += 100.0
    world.bad, place.crown.worn = ({"a"} if how == "applying fails" else set()), how == "applying fails"
    place.turn()
    assert not world.jobs["a"].over
    world.bad, place.crown.worn = set(), True
    place.turn(2)
    assert world.jobs["a"].over


def test_a_job_set_apart_that_goes_while_the_picture_is_rebuilt_is_forgotten():
    """Once a later job of that name was never looked at."""
    world = Choosy("bad")
    place = Place(world=world)
    for name in ("a", "bad"):
        place.submit(name)
    place.turn(5)
    assert list(place.loop.set_apart) == ["bad"]
    world.end(world.jobs["bad"], "cancelled")
    place.loop.open()
    assert place.loop.set_apart == {}
    world.bad.clear()
    place.submit("bad")
    place.turn(2)
    assert place.running() == ["a", "bad"]


def test_who_is_set_apart_because_its_start_fails_costs_no_further_turn():
    place = Place(world=Choosy("bad"))
    for name in ("a", "bad"):
        place.submit(name)
    turns = 0
    while not place.loop.set_apart and turns < 9:
        place.turn()
        turns += 1
    place.turn()
    assert not place.driver.failing
    assert place.running() == ["a"]


def test_a_part_of_memory_that_lets_every_plan_fail_is_forgotten_and_told():
    class Touchy(Controller[Sizes]):
        part = Sizes

        def act(self, draft: Draft, part: Sizes) -> Sizes:
            return Sizes(1 // (part.wanted - 7))

    place = Place(Steps((*STEPS.before, Touchy())))
    place.loop.memory = place.loop.memory.keeping(Sizes(7), TimeSlices(5.0))
    place.submit("a")
    place.turn(4)
    assert place.running() == ["a"]
    assert place.driver.trouble() == ""
    assert "remembered as toy (ZeroDivisionError" in place.loop.left_out()
    assert place.loop.memory.of(TimeSlices) == TimeSlices(5.0)


def test_a_turn_is_written_down_before_anything_of_it_is_applied():
    turns: list[int] = []

    class Watched(ToyWorld):
        def apply(self, plan: Plan, turn: int) -> Sequence[Event]:
            turns.append(len(place.shelf.line) - 1)
            return super().apply(plan, turn)

    place = Place(world=Watched(yards.fleet(FLEET)))
    place.submit("a")
    place.turn(3)
    assert turns == [1, 2, 3]


def test_a_world_that_fails_while_it_waits_is_given_its_turn_all_the_same():
    left = [1]

    class Failing(ToyWorld):
        def wait(self, not_before: float = 0.0) -> bool:
            if left[0]:
                left[0] -= 1
                raise ZeroDivisionError("wait")
            return not place.running()

    place = Place(world=Failing(yards.fleet(FLEET)))
    place.submit("a")
    place.driver.run()
    assert place.running() == ["a"]
    assert place.recovery.last is not None
    assert place.recovery.last.stage == "wait"


def test_a_job_that_is_set_apart_while_it_runs_keeps_its_gpus():
    class Picky(Controller[Any]):
        part = STEPS.before[0].part

        def act(self, draft: Draft, part: Any) -> Any:
            row = draft.fleet.jobs.get("bad")
            if row is not None and "late" in draft.fleet.jobs and not row.job.foreign:
                raise ZeroDivisionError("bad")
            return part

    place = Place(Steps((*STEPS.before, Picky())))
    place.submit("bad", gpus=3)
    place.turn(2)
    place.submit("late", gpus=4)
    place.submit("later", gpus=4)
    place.turn(4)
    assert list(place.loop.set_apart) == ["bad"]
    assert place.running() == ["bad", "late"], "of eight GPUs three are taken"


def test_a_replayed_journal_leads_to_the_same_plans():
    place = Place()
    for number in range(6):
        place.submit(f"j{number}", gpus=3, work=5.0 + number)
    for _ in range(40):  # what is free is measured for ever
        if place.world.wait():
            place.turn()
    moment, turns = read(place.shelf)
    assert len(turns) > 5
    assert all(turn.actions == decided for turn, decided in replay(moment, turns))


def test_a_journal_that_is_begun_anew_is_replayed_with_what_was_remembered_then():
    place = Place()
    for name in ("low", "lower"):
        place.submit(name, gpus=4, priority=1)
    place.turn()
    place.submit("high", gpus=4, priority=90)
    place.turn(2)
    place.loop.open()
    remembered = place.loop.memory
    assert list(remembered.of(Evictions).times) == ["lower"]
    place.submit("higher", gpus=4, priority=90)
    place.turn(3)
    moment, turns = read(place.shelf)
    assert Memory.from_document(moment.memory) == remembered
    assert all(turn.actions == decided for turn, decided in replay(moment, turns))


def test_what_is_remembered_is_there_again_after_a_start():
    place = Place()
    place.submit("low", gpus=4, priority=1)
    place.submit("lower", gpus=4, priority=1)
    place.turn()
    place.submit("high", gpus=4, priority=90)
    place.turn(2)
    place.driver.close()
    memory, unreadable = Journal(place.shelf).memory()
    assert not unreadable
    assert memory == place.loop.memory
    assert len(memory.of(Evictions).times) == 1


# --- a controller in a page --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sizes(Part):
    """How large the pool was last wanted."""

    name: ClassVar[str] = "toy"
    wanted: int = 0


class Autoscaler(Controller[Sizes]):
    """One node more while somebody waits, at most every minute; in shadow mode it only says so."""

    part = Sizes

    def __init__(self, shadow: bool) -> None:
        self.shadow = shadow

    def act(self, draft: Draft, part: Sizes) -> Sizes:
        if not draft.fleet.rolls.short:
            return part
        wanted = max(part.wanted, len(draft.fleet.columns.nodes)) + 1
        action = Scale("h100", wanted, Reason(Code.NOT_ENOUGH_GPUS))
        (draft.propose if self.shadow else draft.emit)(action)
        draft.look_again(draft.now + 60.0)
        return Sizes(wanted)


@pytest.mark.parametrize("shadow", [False, True])
def test_a_controller_emits_or_proposes_and_remembers(shadow: bool):
    place = Place(Steps(STEPS.before, (Autoscaler(shadow),)))
    place.submit("wide", gpus=8)
    place.turn()
    told: Callable[[], Sequence[Any]] = lambda: place.world.plan.proposed if shadow else place.world.plan.actions  # noqa: E731
    assert [action.nodes for action in told()] == [3]
    place.turn()
    assert [action.nodes for action in told()] == [4]
    assert place.world.plan.look_again_at == place.world.now() + 60.0
    assert place.loop.memory.of(Sizes) == Sizes(4)


def test_a_world_takes_a_page_and_a_controller_half_of_one():
    """What the seams ask for is little, and stays so."""
    assert len(inspect.getsource(toy_world).splitlines()) < 150
    assert sum(len(inspect.getsource(part).splitlines()) for part in (Sizes, Autoscaler)) < 40


def test_a_turn_that_does_not_end_is_told():
    place = Place()
    told: list[str] = []

    def chores() -> None:
        told.append(place.driver.trouble())
        place.clock.at += 600.0
        told.append(place.driver.trouble())

    place.driver.chores = chores
    place.driver.turn()
    assert told == ["", "the turn that began 600 s ago does not end"]
    assert place.driver.trouble() == ""


def test_the_first_picture_counts_as_old_once_it_is_filled_and_what_turns_and_failures_make_does_not(
    monkeypatch: pytest.MonkeyPatch,
):
    filled: list[int] = []
    place = Place()
    monkeypatch.setattr(loop, "made_to_stay", lambda: filled.append(len(place.loop.fleet.jobs)))
    place.submit("a")
    place.turn(3)
    assert filled == [1]
    place.submit("b")
    place.loop.open()
    place.turn(2)
    assert filled == [1]
