"""Overrides of the policy, read by the policy's own fields: their types, units and sentences are the only source.

Called by `snapshots` and by whoever reads a policy file; `schema` describes the same tables.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, get_type_hints

from gpuyard.files.format.kinds import (
    Choice,
    Definitions,
    Duration,
    Flag,
    Kind,
    ListOf,
    MapOf,
    Number,
    Schema,
    Text,
    Whole,
)
from gpuyard.files.format.tables import entry_schema, read_keys, slot
from gpuyard.files.problems import Path, Problems, shown
from gpuyard.model.job import JobClass
from gpuyard.model.policy import Policy

NUMBER_MAX = 2_000_000_000
SIGNED = {"priority", "critical_priority", "stale_grace"}
"""Knobs whose sign means something; all others count from 0."""
NAMED = {"priorities"}
"""Numbers by names that whoever writes the policy chooses; those of the default stay."""


@dataclass(frozen=True)
class OverridesOf(Kind):
    """A mapping of knobs; read as those that are given, so that the others keep their value."""

    title: str
    doc: str
    defaults: Any
    """A frozen value of the model; its fields' metadata say the rest."""

    def read(self, value: Any, at: Path, problems: Problems) -> dict[str, Any]:
        if not isinstance(value, dict):
            problems.tell(at, f"must be a mapping, not {shown(value)}")
            return {}
        return read_keys(self.entry, value, at, problems)

    def schema(self, definitions: Definitions) -> Schema:
        definitions[self.title] = entry_schema(self.entry, definitions)
        return {"$ref": f"#/$defs/{self.title}"}

    @cached_property
    def entry(self) -> type[Any]:
        """The table of keys."""
        made = dataclasses.make_dataclass(self.title.replace(".", "_"), self.knobs(), kw_only=True)
        made.__doc__ = self.doc
        return made

    def knobs(self) -> list[tuple[str, Any, Any]]:
        """Name, type and declaration of each key: a class's name, or a field's."""
        if isinstance(self.defaults, dict):
            return [(of.value, Any, self._treatment(of)) for of in self.defaults]
        types = get_type_hints(type(self.defaults))
        return [(field.name, Any, self._knob(field, types[field.name])) for field in dataclasses.fields(self.defaults)]

    def _treatment(self, of: JobClass) -> Any:
        doc = f"How {of.value} jobs are treated."
        return slot(OverridesOf(f"{self.title}.{of.value}", doc, self.defaults[of]), doc, None)

    def _knob(self, field: dataclasses.Field[Any], of: Any) -> Any:
        default, unit = getattr(self.defaults, field.name), field.metadata["unit"]
        doc = field.metadata["doc"]
        if field.name in NAMED:
            return slot(MapOf(Whole(-NUMBER_MAX, NUMBER_MAX)), doc, None)
        if dataclasses.is_dataclass(default) or isinstance(default, dict):
            return slot(OverridesOf(f"{self.title}.{field.name}", doc, default), doc, None)
        told = f"{doc} Unit: {unit}." if unit else doc
        return slot(_kind(field.name, of, unit), told, default if isinstance(default, _PLAIN) else None)


_PLAIN = bool | int | float | str | Enum


def _kind(name: str, of: Any, unit: str) -> Kind:
    """The kind of a knob, from its type and unit."""
    if isinstance(of, type) and issubclass(of, Enum):
        return Choice(of)
    if of is bool:
        return Flag()
    if of is int:
        return Whole(-NUMBER_MAX if name in SIGNED else 0, NUMBER_MAX)
    if of is float:
        return Duration(negative=name in SIGNED) if unit == "seconds" else Number()
    return ListOf(Text(least=1), distinct=True)


POLICY = OverridesOf("Policy", "All knobs of the brain.", Policy())


def policy_of(given: dict[str, Any]) -> Policy:
    """The default policy with these overrides, as `POLICY` read them."""
    base = Policy()
    classes = {
        of: dataclasses.replace(treatment, **given.get("classes", {}).get(of.value, {}))
        for of, treatment in base.classes.items()
    }
    rest = {name: _over(getattr(base, name), value) for name, value in given.items() if name != "classes"}
    return dataclasses.replace(base, classes=classes, **rest)


def _over(default: Any, value: Any) -> Any:
    """A knob's new value; a group of knobs, or of names, keeps those that are not given."""
    if isinstance(default, dict):
        return {**default, **dict(value)}
    nested = dataclasses.is_dataclass(default) and not isinstance(default, type)
    return dataclasses.replace(default, **value) if nested else value
