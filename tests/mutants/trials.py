"""What a mutant is tried with: scenarios, moments for the oracle, and the fast tests with fixed seeds.

A trial says what is wrong, or nothing. All of this runs in a process of its own that has imported no brain before.
"""

from __future__ import annotations

import contextlib
import io
import resource
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from tests.mutants.reaching import Reached
from tests.support.scenario import Scenario

MOMENT = "oracle "
ANSWER = "as kept: "
ORACLE_SEEDS = range(40)
FOLDERS = (
    "tests/unit/brain",
    "tests/unit/cli",
    "tests/unit/runtime",
    "tests/unit/sim",
    "tests/properties",
    "tests/test_answers.py",
)
LEFT_OUT = (
    "tests/properties/test_oracle.py",
    "test_the_hash_seed_means_nothing",
    "test_a_yard_is_answered_as_it_was",
)
"""Judged here by themselves, or in other processes, which have no mutant."""

PYTEST = ["-q", "-m", "not slow", "-p", "no:cacheprovider", "-p", "no:xdist", "--timeout=0", "--assert=plain"]

USUAL_S = 0.05
"""What a trial costs at least, about."""

SLOWER = 20
"""A trial that takes so many times its usual time will never end, or is no use to anybody."""

PARTS = (0.2, 0.5, 0.05, 0.05)
"""Of the time for one mutant, what each kind gets; the tests get the rest. Whoever changes the answer to a scenario is
told by the answers that are kept: judging the same plans again has noticed next to nothing more."""

PATIENCE_S = 5.0
MEMORY_BYTES = 6 << 30


@dataclass(frozen=True)
class Trial:
    """One trial on the brain as it is: what it reaches and how much processor time it takes."""

    name: str
    reached: frozenset[str]
    seconds: float


Asked = Iterator[tuple[str, Callable[[], str | None]]]


class Endless(BaseException):
    """A trial took too long."""


# --- on the brain as it is -----------------------------------------------------------------------


def survey(scenarios: list[Scenario], reached: Reached, part: int, parts: int) -> list[Trial]:
    """One part of all trials but the tests; one that finds something wrong without any mutant is told and left out."""
    found: list[Trial] = []
    imported = start(reached)
    for name, ask in [trial for kind in kinds(scenarios) for trial in kind][part::parts]:
        began = time.process_time()
        wrong = ask()
        trial = Trial(name, reached.take() | imported, time.process_time() - began)
        if wrong:
            print(f"left out, for it fails without any mutant: {name}: {wrong}", flush=True)
        else:
            found.append(trial)
    return found


def survey_tests(reached: Reached) -> list[Trial]:
    """The same for the tests."""
    plugin = Survey(reached)
    run_pytest(plugin, stop=False)
    for name in plugin.wrong:
        print(f"left out, for it fails without any mutant: {name}", flush=True)
    return [trial for trial in plugin.found if trial.name not in plugin.wrong]


def start(reached: Reached) -> frozenset[str]:
    """What is reached by importing alone: everybody reaches it."""
    import tests.oracle.engine
    import tests.support.judging  # noqa: F401

    return reached.take()


class Survey:
    """A pytest plugin that notes what each test reaches."""

    def __init__(self, reached: Reached) -> None:
        self.reached = reached
        self.found: list[Trial] = []
        self.wrong: set[str] = set()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if not any(part in item.nodeid for part in LEFT_OUT)]
        self.reached.take()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        began = time.process_time()
        said = yield
        self.found.append(Trial(item.nodeid, self.reached.take(), time.process_time() - began))
        return said

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.wrong.add(report.nodeid)


# --- on a mutant ---------------------------------------------------------------------------------


def killer(trials: list[Trial], scenarios: list[Scenario], most_s: float) -> str | None:
    """The first trial that notices that something is wrong: of each kind as many as there is time for."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    signal.signal(signal.SIGPROF, give_up)
    rest = {trial.name: trial for trial in trials}
    for asked, part in zip(map(dict, kinds(scenarios)), PARTS, strict=True):
        mine = [rest.pop(trial.name) for trial in trials if trial.name in asked]
        for trial in within(mine, most_s * part):
            if wrong := bounded(asked[trial.name], trial.seconds):
                return f"{trial.name}: {wrong}"
    tests = [trial.name for trial in within(list(rest.values()), most_s * (1 - sum(PARTS)))]
    return bounded(lambda: noticed(tests), most_s) if tests else None


def within(trials: list[Trial], most_s: float) -> Iterator[Trial]:
    """The first of them, as many as usually take no longer than this."""
    for trial in trials:
        if trial.seconds <= most_s:
            most_s -= trial.seconds
            yield trial


def most_telling(trials: list[Trial], file: str) -> list[Trial]:
    """Those first that go where few others go in this file, for little time: they see most of what it does."""
    visits = Counter(place for trial in trials for place in trial.reached if place.startswith(file))
    worth = {t.name: sum(1 / visits[place] for place in t.reached if place.startswith(file)) for t in trials}
    return sorted(trials, key=lambda t: (-worth[t.name] / (t.seconds + USUAL_S), t.name))


def give_up(signum: int, frame: Any) -> None:
    raise Endless


def bounded(ask: Callable[[], str | None], usual_s: float) -> str | None:
    """What the trial says; that it never ends; or how it breaks."""
    signal.setitimer(signal.ITIMER_PROF, PATIENCE_S + SLOWER * usual_s)
    try:
        return ask()
    except Endless:
        return "never ends"
    except Exception as error:  # noqa: BLE001 - a mutant may break in any way, and every way is noticed
        return f"{type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def noticed_by(files: list[str], most_s: float) -> str | None:
    """The first test of these files that fails."""
    signal.signal(signal.SIGPROF, give_up)
    plugin = Choosing()
    return bounded(lambda: told(plugin, run_pytest(plugin, files)), most_s)


def noticed(names: list[str]) -> str | None:
    """The first of these tests that fails."""
    plugin = Choosing(names)
    files = sorted({name.partition("::")[0] for name in names})
    return told(plugin, run_pytest(plugin, files))


def told(plugin: Choosing, code: int) -> str | None:
    return plugin.wrong or (f"pytest ends with {code}" if code else None)


class Choosing:
    """A pytest plugin that runs these tests in this order (without any: all there are), until one fails."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.rank = {name: i for i, name in enumerate(names)}
        self.wrong: str | None = None

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self.rank:
            items[:] = sorted((i for i in items if i.nodeid in self.rank), key=lambda i: self.rank[i.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.wrong = report.nodeid


# --- the trials ----------------------------------------------------------------------------------


def kinds(scenarios: list[Scenario]) -> tuple[Asked, ...]:
    """All but the tests, those first that tell most for their time."""
    return of_answers(scenarios), of_yards(), of_scenarios(scenarios), of_moments()


def of_yards() -> Asked:
    """One for each question to a drawn moment: whether the answer, and the work for it, is the one that is kept."""
    from tests.support import answers, corners

    lines = answers.YARDS.read_text(encoding="utf-8").splitlines()
    drawn = {f"yard {i}": partial(answers.yard, line) for i, line in enumerate(lines)}
    drawn |= {f"corner {number}": partial(answers.corner, number) for number in range(corners.COUNT)}

    def changed(name: str, asked: str) -> str | None:
        return next(iter(answers.changes_to_question(name, drawn[name](), asked)), None)

    for name in drawn:
        for asked in answers.ASKED:
            yield f"{name}, {asked}", partial(changed, name, asked)


def of_answers(scenarios: list[Scenario]) -> Asked:
    """One for each scenario: whether it is answered as is kept. It takes one plan, so it comes first."""
    from tests.support import answers
    from tests.support.judging import planned

    def changed(scenario: Scenario) -> str | None:
        return next(iter(answers.differences(scenario.name, answers.of_outlook(planned(scenario).outlook))), None)

    for scenario in scenarios:
        yield f"{ANSWER}{scenario.name}", partial(changed, scenario)


def of_scenarios(scenarios: list[Scenario]) -> Asked:
    """One for each scenario: its first problem."""
    from tests.support.judging import first_problem

    for scenario in scenarios:
        yield scenario.name, partial(first_problem, scenario)


def of_moments() -> Asked:
    """One for each moment of the oracle: its first verdict."""
    from tests.oracle import engine, moments
    from tests.oracle.judge import judge

    for seed in ORACLE_SEEDS:
        yield (
            f"{MOMENT}{seed}",
            lambda seed=seed: next((v.sentence for v in judge(moments.draw(seed), engine.plan)), None),  # type: ignore[misc]
        )


def run_pytest(plugin: object, where: Sequence[str] = FOLDERS, stop: bool = True) -> int:
    """The fast tests, quietly; only the plugin's word counts."""
    options = [*PYTEST, *where, *(["-x"] if stop else [])]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return int(pytest.main(options, plugins=[plugin]))
