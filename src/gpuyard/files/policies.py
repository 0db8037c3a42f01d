"""Overrides of the policy, read by the policy's own fields: their types, units and sentences are the only source.

Called by `snapshots` and by whoever reads a policy file; `schema` describes the same tables.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any, get_type_hints

from gpuyard.files.kinds import Choice, Definitions, Duration, Flag, Kind, ListOf, Number, Schema, Text, Whole
from gpuyard.files.problems import Path, Problems, shown
from gpuyard.files.tables import entry_schema, read_keys, slot
from gpuyard.model.job import JobClass
from gpuyard.model.policy import Policy

NUMBER_MAX = 2_000_000_000
SIGNED = {"priority", "critical_priority", "stale_grace"}
"""Knobs whose sign means something; all others count from 0."""


@dataclass(frozen=True)
class OverridesOf(Kind):
    """A mapping of knobs; read as those that are given, so that the others keep their value."""

    title: str
    defaults: Any
    """A frozen value of the model; its fields' metadata say the rest."""

    def read(self, value: Any, at: Path, problems: Problems) -> dict[str, Any]:
        if not isinstance(value, dict):
            problems.tell(at, f"must be a mapping, not {shown(value)}")
            return {}
        return read_keys(self.entry(), value, at, problems)

    def schema(self, definitions: Definitions) -> Schema:
        definitions[self.title] = entry_schema(self.entry(), definitions)
        return {"$ref": f"#/$defs/{self.title}"}

    def entry(self) -> type[Any]:
        """The table of keys."""
        return _entry(self.title)

    def knobs(self) -> list[tuple[str, Any, Any]]:
        """Name, type and declaration of each field."""
        if isinstance(self.defaults, dict):
            doc = "How jobs of this class are treated."
            return [
                (of.value, Any, slot(OverridesOf(f"Policy.{of.value}", treatment), doc, None))
                for of, treatment in self.defaults.items()
            ]
        types = get_type_hints(type(self.defaults))
        return [(field.name, Any, self._knob(field, types[field.name])) for field in dataclasses.fields(self.defaults)]

    def _knob(self, field: dataclasses.Field[Any], of: Any) -> Any:
        default, unit = getattr(self.defaults, field.name), field.metadata["unit"]
        doc = field.metadata["doc"] + (f" Unit: {unit}." if unit else "")
        return slot(_kind(field.name, of, unit, default), doc, default if isinstance(default, _PLAIN) else None)


_PLAIN = bool | int | float | str | Enum


def _kind(name: str, of: Any, unit: str, default: Any) -> Kind:
    """The kind of a knob, from its type and unit."""
    if dataclasses.is_dataclass(default) or isinstance(default, dict):
        return OverridesOf(f"Policy.{name}", default)
    if isinstance(default, Enum):
        return Choice(type(default))
    if of is bool:
        return Flag()
    if of is int:
        return Whole(-NUMBER_MAX if name in SIGNED else 0, NUMBER_MAX)
    if of is float:
        return Duration(negative=name in SIGNED) if unit == "seconds" else Number()
    return ListOf(Text(least=1), distinct=True)


POLICY = OverridesOf("Policy", Policy())
_ALL = {POLICY.title: POLICY}


@cache
def _entry(title: str) -> type[Any]:
    overrides = _ALL[title]
    knobs = overrides.knobs()
    for _, _, field in knobs:
        if isinstance(field.metadata["kind"], OverridesOf):
            _ALL[field.metadata["kind"].title] = field.metadata["kind"]
    made = dataclasses.make_dataclass(title.replace(".", "_"), knobs, kw_only=True)
    made.__doc__ = (
        (type(overrides.defaults).__doc__ or "") if not isinstance(overrides.defaults, dict) else "Per class."
    )
    return made


def policy_of(data: Any, at: Path, problems: Problems) -> Policy:
    """The default policy with these overrides."""
    given = POLICY.read(data, at, problems)
    base = Policy()
    classes = {
        of: dataclasses.replace(treatment, **given.get("classes", {}).get(of.value, {}))
        for of, treatment in base.classes.items()
    }
    weights = dataclasses.replace(base.weights, **given.get("weights", {}))
    rest = {name: value for name, value in given.items() if name not in ("classes", "weights")}
    return dataclasses.replace(base, classes=classes, weights=weights, **rest)


assert set(Policy().classes) == set(JobClass)
