"""What is wrong with the plan of a scenario: the test of all scenarios and the mutants ask the same questions."""

from __future__ import annotations

from collections.abc import Iterator

from gpuyard.brain.foresee import outlook
from gpuyard.files import parse_snapshot
from gpuyard.model.answers.outlook import Outlook
from tests.support import answers, work
from tests.support.expectations import Result, differences
from tests.support.invariants import restless, violations
from tests.support.scenario import Scenario
from tests.support.telling import told


def judged(scenario: Scenario) -> tuple[list[str], Outlook]:
    """Every problem in a sentence, another answer than is kept among them, and the outlook that has them."""
    result, steps = worked_out(scenario)
    return [*problems(scenario, result), *changes(scenario, result, steps)], result.outlook


def changes(scenario: Scenario, result: Result, steps: work.Counted) -> list[str]:
    """In what it is answered otherwise, or with other work, than is kept."""
    answer = answers.of_outlook(result.outlook)
    return [*answers.differences(scenario.name, answer), *work.differences(scenario.name, steps)]


def first_problem(scenario: Scenario) -> str | None:
    """The first of them, found with no more work than it takes."""
    return next(problems(scenario, planned(scenario)), None)


def planned(scenario: Scenario) -> Result:
    return worked_out(scenario)[0]


def worked_out(scenario: Scenario) -> tuple[Result, work.Counted]:
    """The plan, and what it takes."""
    snapshot = parse_snapshot(scenario.text(), scenario.file, scenario.now)
    said, steps = work.counted(lambda: outlook(snapshot, cycles=scenario.cycles))
    return Result(snapshot, said), steps


def problems(scenario: Scenario, result: Result) -> Iterator[str]:
    """What is wrong, the cheapest question first."""
    yield from differences(scenario.expect, result)
    yield from violations(result.snapshot, result.outlook)
    yield from turned(scenario, result.outlook)
    if scenario.cycles is None:
        yield from restless(result.snapshot, result.outlook, outlook)


def turned(scenario: Scenario, first: Outlook) -> list[str]:
    """Nothing depends on input order: the same moment written backwards gives the same outlook."""
    snapshot = parse_snapshot(scenario.text(turned=True), scenario.file, scenario.now)
    second = outlook(snapshot, cycles=scenario.cycles)
    if second == first:
        return []
    parts = [part for part in Outlook.__slots__ if getattr(first, part) != getattr(second, part)]
    return [f"the same moment written backwards gives other {', '.join(parts)}:\n{told(second)}"]
