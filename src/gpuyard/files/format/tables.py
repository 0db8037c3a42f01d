"""Entries: mappings with known keys, declared as dataclasses. One declaration gives the reader and the JSON Schema.

`entries` and `policies` declare with `slot`; the readers call `read_entry`. Unknown keys are errors, with a hint.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from gpuyard.files.format.kinds import Definitions, Kind, Scalar, Schema
from gpuyard.files.problems import Path, Problems, inside_of, nearest, shown
from gpuyard.files.units import Wrong
from gpuyard.model.resources import UNLIMITED

_REQUIRED = dataclasses.MISSING


@dataclass(frozen=True)
class EntryOf(Kind):
    """A mapping with known keys, declared as a dataclass whose fields are made by `slot`."""

    entry: Callable[[], type[Any]]
    """A function, so that an entry may contain its own kind."""

    def read(self, value: Any, at: Path, problems: Problems) -> Any:
        return read_entry(self.entry(), value, at, problems)

    def schema(self, definitions: Definitions) -> Schema:
        entry = self.entry()
        name = entry.__name__.removesuffix("Entry")
        if name not in definitions:
            definitions[name] = {}  # so that an entry inside itself ends
            definitions[name].update(entry_schema(entry, definitions))
        return {"$ref": f"#/$defs/{name}"}


def slot(kind: Kind, doc: str, default: Any = _REQUIRED, as_key: str = "") -> Any:
    """Declares one key of an entry; `as_key` where the file's word is not a good Python name."""
    return dataclasses.field(default=default, metadata={"kind": kind, "doc": doc, "key": as_key})


@dataclass(frozen=True)
class _Table:
    """An entry's keys, worked out once."""

    kinds: dict[str, tuple[str, Kind, Callable[[Any], Any] | None]]
    required: tuple[str, ...]


_TABLES: dict[type[Any], _Table] = {}


def _table(entry: type[Any]) -> _Table:
    if entry not in _TABLES:
        _TABLES[entry] = _make_table(entry)
    return _TABLES[entry]


def _make_table(entry: type[Any]) -> _Table:
    kinds: dict[str, tuple[str, Kind, Callable[[Any], Any] | None]] = {}
    required: list[str] = []
    for field in dataclasses.fields(entry):
        name, kind = field.metadata["key"] or field.name, field.metadata["kind"]
        kinds[name] = (field.name, kind, kind.check if isinstance(kind, Scalar) else None)
        if field.default is _REQUIRED:
            required.append(name)
    return _Table(kinds, tuple(required))


UNKNOWN_TOLD = 5
"""Unknown keys of one mapping that are told by name; looking for what each may have meant takes its time."""


def read_entry(entry: type[Any], value: Any, at: Path, problems: Problems) -> Any:
    """An instance of the entry, or None after noting everything that is wrong with it."""
    if not isinstance(value, dict):
        problems.tell(at, f"must be a mapping, not {shown(value)}")
        return None
    before = problems.count
    found = read_keys(entry, value, at, problems)
    return entry(**found) if problems.count == before else None


def read_keys(entry: type[Any], value: dict[Any, Any], at: Path, problems: Problems) -> dict[str, Any]:
    """The fields of an entry that are in the file and right, each for itself."""
    table, found = _table(entry), {}
    unknown = 0
    for name, item in value.items():
        known = table.kinds.get(name)
        if known is None:
            unknown += 1
            if unknown <= UNKNOWN_TOLD:
                _note_unknown(name, tuple(table.kinds), at, problems)
            continue
        field, kind, check = known
        if check is None:
            found[field] = kind.read(item, (*at, name), problems)
            continue
        try:
            found[field] = check(item)
        except Wrong as wrong:
            problems.tell((*at, name), str(wrong))
    if unknown > UNKNOWN_TOLD:
        problems.tell(at, f"has {unknown - UNKNOWN_TOLD:,} more unknown keys")
    for name in table.required:
        if name not in value:
            problems.tell(at, f"has no {name}")
    return found


_ELSEWHERE = {
    "replicas": "tasks", "count": "tasks", "size": "tasks", "gpu": "gpus", "minMember": "min", "minAvailable": "min",
    "min_replicas": "min", "max_replicas": "tasks", "memory_gpu": "gpu_memory", "vram": "gpu_memory", "ram": "memory",
    "priorityClass": "priority", "type": "class", "limits": "limit", "guaranteed": "quota", "timeout": "time_limit",
    "walltime": "time_limit", "deadline": "time_limit", "unschedulable": "cordoned", "team": "queue",
}  # fmt: skip
"""What people call our keys in other systems, where the spelling alone gives no hint."""


def _note_unknown(name: Any, known: tuple[str, ...], at: Path, problems: Problems) -> None:
    near = nearest(_snake(name), known) if isinstance(name, str) else None
    if isinstance(name, str) and _ELSEWHERE.get(name) in known:
        near = _ELSEWHERE[name]
    hint = f"; did you mean {near}?" if near else ""
    inside = inside_of(at)
    # Told at the key's own line, as a fault of what holds it.
    told = f"has an unknown key {shown_key(name)}{hint}"
    if inside:
        problems.add((*at, name), f"{inside} {told}")
    else:
        problems.blame((*at, name), told)


def shown_key(name: Any) -> str:
    """A key as it is quoted back."""
    return name if isinstance(name, str) and name.isprintable() and len(name) <= 60 and name else shown(name)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name[:60]).lower()


def entry_schema(entry: type[Any], definitions: Definitions) -> Schema:
    """JSON Schema of an entry."""
    properties = {}
    for field in dataclasses.fields(entry):
        shape = {**field.metadata["kind"].schema(definitions), "description": field.metadata["doc"]}
        properties[field.metadata["key"] or field.name] = shape | _default(field.default)
    schema: Schema = {"type": "object", "description": (entry.__doc__ or "").splitlines()[0], "properties": properties}
    required = list(_table(entry).required)
    return schema | ({"required": required} if required else {}) | {"additionalProperties": False}


def _default(default: Any) -> Schema:
    """Said where a plain value says it; elsewhere the description does."""
    if isinstance(default, Enum):
        return {"default": default.value}
    if default == UNLIMITED and isinstance(default, int):
        return {"default": "unlimited"}
    return {"default": default} if isinstance(default, bool | int | float | str) else {}
