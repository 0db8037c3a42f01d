"""What is wrong with the plan of a scenario: the test of all scenarios and the mutants ask the same questions."""

from __future__ import annotations

from collections.abc import Iterator

from gpuyard.brain.foresee import outlook
from gpuyard.files import parse_snapshot
from gpuyard.model.answers.outlook import Outlook
from tests.support import answers
from tests.support.expectations import Result, differences
from tests.support.invariants import restless, violations
from tests.support.scenario import Scenario
from tests.support.telling import told


def judged(scenario: Scenario) -> tuple[list[str], Outlook]:
    """Every problem in a sentence, another answer than is kept among them, and the outlook that has them."""
    result = planned(scenario)
    changed = answers.differences(scenario.name, answers.of_outlook(result.outlook))
    return [*problems(scenario, result), *changed], result.outlook


def first_problem(scenario: Scenario) -> str | None:
    """The first of them, found with no more work than it takes."""
    return next(problems(scenario, planned(scenario)), None)


def planned(scenario: Scenario) -> Result:
    snapshot = parse_snapshot(scenario.text(), scenario.file, scenario.now)
    return Result(snapshot, outlook(snapshot, cycles=scenario.cycles))


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
