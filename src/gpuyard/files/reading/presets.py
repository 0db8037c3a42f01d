"""Policies as files: those that are shipped by name, and anybody's by path.

Called by the command line and the simulator. A policy file is a mapping of knobs (`yard schema policy`); what it does
not name keeps its default.
"""

from __future__ import annotations

import pathlib

from gpuyard.files.format.policies import POLICY, policy_of
from gpuyard.files.problems import Problems, did_you_mean
from gpuyard.files.text import documents
from gpuyard.model.errors import NotFound
from gpuyard.model.policy import Policy

SHIPPED = pathlib.Path(__file__).parents[1] / "data" / "policies"


def names() -> list[str]:
    """The shipped policies."""
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def read_policy(name: str) -> Policy:
    """A shipped policy by its name, or a file by its path."""
    path = SHIPPED / f"{name}.yaml"
    if not path.exists():
        path = pathlib.Path(name)
        if not path.exists() and not path.suffix:
            hint = did_you_mean(name, names())
            raise NotFound(f"there is no policy {name}; shipped are {', '.join(names())}{hint}")
    return parse_policy(documents.read_text(path), str(path))


def parse_policy(text: str, name: str) -> Policy:
    """The policy a text describes; everything wrong with it is told at once."""
    document = documents.parse(text, name)
    problems = Problems(name, document.data)
    given = POLICY.read(document.data, (), problems)
    problems.refuse_if_any(document.line)
    return policy_of(given)
