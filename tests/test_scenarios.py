"""Every scenario under tests/scenarios is a test of its own, named by its sentence.

Beside what the scenario expects, each plan is held to the invariants, to the same answer for the same moment written
in another order, and to rest: planning again in its end state changes nothing.
The folder `giving_way` holds rules 15 to 23.
"""

from __future__ import annotations

import pytest

from gpuyard.brain.foresee import outlook
from gpuyard.files import parse_snapshot
from gpuyard.model.outlook import Outlook
from tests.support.expectations import Result, differences
from tests.support.invariants import restless, violations
from tests.support.scenario import FOLDER, Scenario, load_all
from tests.support.telling import told


@pytest.mark.parametrize("scenario", load_all(FOLDER), ids=lambda s: s.name)
def test_scenario(scenario: Scenario):
    snapshot = parse_snapshot(scenario.text(), scenario.file, scenario.now)
    result = Result(snapshot, outlook(snapshot, cycles=scenario.cycles))
    problems = differences(scenario.expect, result) + violations(snapshot, result.outlook)
    problems += turned(scenario, result.outlook)
    if scenario.cycles is None:
        problems += restless(snapshot, result.outlook, outlook)
    if problems:
        pytest.fail(report(scenario, problems, result.outlook), pytrace=False)


def turned(scenario: Scenario, first: Outlook) -> list[str]:
    """Nothing depends on input order: the same moment written backwards gives the same outlook."""
    snapshot = parse_snapshot(scenario.text(turned=True), scenario.file, scenario.now)
    second = outlook(snapshot, cycles=scenario.cycles)
    if second == first:
        return []
    parts = [part for part in Outlook.__slots__ if getattr(first, part) != getattr(second, part)]
    return [f"the same moment written backwards gives other {', '.join(parts)}:\n{told(second)}"]


def report(scenario: Scenario, problems: list[str], found: Outlook) -> str:
    """What a person needs to see: the promise, what is wrong, and the whole outlook."""
    rules = ", ".join(map(str, scenario.rules))
    wrong = "\n".join(f"  - {problem}" for problem in problems)
    return f"{scenario.name}\n(rule {rules}, {scenario.file})\n{wrong}\n\n{told(found)}"
