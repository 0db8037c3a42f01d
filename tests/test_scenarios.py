"""Every scenario under tests/scenarios is a test of its own, named by its sentence.

Beside what the scenario expects, each plan is held to the invariants, to the same answer for the same moment written
in another order, and to rest: planning again in its end state changes nothing. And it is answered as it was when
somebody last looked (tests/support/answers.py).
The folder `giving_way` holds rules 15 to 23.
"""

from __future__ import annotations

import pytest

from gpuyard.model.answers.outlook import Outlook
from tests.support.judging import judged
from tests.support.scenario import FOLDER, Scenario, load_all
from tests.support.telling import told


@pytest.mark.parametrize("scenario", load_all(FOLDER), ids=lambda s: s.name)
def test_scenario(scenario: Scenario):
    problems, found = judged(scenario)
    if problems:
        pytest.fail(report(scenario, problems, found), pytrace=False)


def report(scenario: Scenario, problems: list[str], found: Outlook) -> str:
    """What a person needs to see: the promise, what is wrong, and the whole outlook."""
    rules = ", ".join(map(str, scenario.rules))
    wrong = "\n".join(f"  - {problem}" for problem in problems)
    return f"{scenario.name}\n(rule {rules}, {scenario.file})\n{wrong}\n\n{told(found)}"
