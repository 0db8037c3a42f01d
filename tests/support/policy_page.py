"""The reference of the policy's knobs, as docs/policy.md must have it: `python -m tests.support.policy_page` writes it.

Names, defaults and sentences come from the model's fields, from which `yard schema policy` is made too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import Field, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from gpuyard.files.units import write_duration
from gpuyard.model.job import JobClass
from gpuyard.model.policy import Policy

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "policy.md"
MARK = "<!-- below: written by tests/support/policy_page.py -->\n"


def knobs(value: Any, prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """Key, default and sentence of every knob; what classes have in common is told once."""
    for field in fields(value):
        default = getattr(value, field.name)
        if field.name == "classes":
            yield from _classes(default)
        elif is_dataclass(default):
            yield from knobs(default, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}", _told(default, field), field.metadata["doc"]


def _classes(of: dict[JobClass, Any]) -> Iterator[tuple[str, str, str]]:
    for field in fields(next(iter(of.values()))):
        by_class = {each.value: _told(getattr(policy, field.name), field) for each, policy in of.items()}
        alike = len(set(by_class.values())) == 1
        default = next(iter(by_class.values())) if alike else "; ".join(f"{name} {by_class[name]}" for name in by_class)
        yield f"classes.CLASS.{field.name}", default, field.metadata["doc"]


def _told(default: Any, field: Field[Any]) -> str:
    if isinstance(default, Enum):
        return str(default.value)
    if isinstance(default, bool):
        return str(default).lower()
    if field.metadata["unit"] == "seconds":
        return f"{default:g}" if default <= 0 else str(write_duration(default))
    if isinstance(default, dict):
        return ", ".join(f"{name}: {number}" for name, number in default.items())
    if isinstance(default, tuple):
        return ", ".join(default) or "none"
    return f"{default:.9g}"


def table() -> str:
    """Every knob, a line each."""
    lines = ["| key | default | what it does |", "|---|---|---|"]
    lines += [f"| `{key}` | {default} | {doc} |" for key, default, doc in knobs(Policy())]
    return "\n".join(lines) + "\n"


def expected() -> str:
    """The page with its table as it should be."""
    return PAGE.read_text(encoding="utf-8").partition(MARK)[0] + MARK + "\n" + table()


if __name__ == "__main__":
    PAGE.write_text(expected(), encoding="utf-8")
