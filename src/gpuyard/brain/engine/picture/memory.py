"""What the brain remembers between turns: one frozen value for each part that must, saved by worlds, in every snapshot.

A part is a frozen dataclass with a name; it is written as plain data and reads back equal. Whoever needs to remember
something defines one beside its code; nothing has to be added here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, TypeVar

from gpuyard.model.errors import Refused
from gpuyard.model.outside.plain_data import hints, typed

P = TypeVar("P", bound="Part")


class Part:
    """One thing to remember. Subclasses are frozen dataclasses of numbers, words, tuples and mappings by name.

    A part with a single field is written as that field's value alone.
    """

    name: ClassVar[str] = ""
    kinds: ClassVar[dict[str, type[Part]]] = {}
    """Every part there is, by name."""

    _blanks: ClassVar[dict[type[Part], Any]] = {}

    def __init_subclass__(cls) -> None:
        Part.kinds[cls.name] = cls

    @classmethod
    def blank(cls: type[P]) -> P:
        """One that remembers nothing yet: the same for all who ask, for it is frozen and asked for in every turn."""
        if cls not in Part._blanks:
            Part._blanks[cls] = cls()
        found: P = Part._blanks[cls]
        return found

    @classmethod
    def from_document(cls: type[P], document: Any) -> P:
        """As `to_document` wrote it; keys that it does not know are left out, and other data is a ValueError."""
        names = [each.name for each in fields(cls)]  # type: ignore[arg-type]
        given = {names[0]: document} if len(names) == 1 else typed(document, Mapping[str, Any])
        known = {name: given[name] for name in names if name in given}
        types = hints(cls)
        part = cls(**{name: typed(each, types[name]) for name, each in known.items()})
        part.check()
        return part

    def check(self) -> None:
        """Where values that were read have the right type and mean nothing all the same, a ValueError says so."""

    def to_document(self) -> Any:
        """Plain data, the same for equal parts."""
        written = {each.name: _plain(getattr(self, each.name)) for each in fields(self)}  # type: ignore[arg-type]
        return next(iter(written.values())) if len(written) == 1 else written


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(value[key]) for key in sorted(value)}
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


@dataclass(frozen=True, slots=True)
class Memory:
    """All parts by name. One that nobody here knows is kept as it was read."""

    parts: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def from_document(document: Mapping[str, Any]) -> Memory:
        """As a snapshot carries it; its author hears what in it is not as it was written."""
        memory, unreadable = Memory.recalled(document)
        for name, why in sorted(unreadable.items()):
            raise Refused(
                f"`memory` cannot be used: {name}: {why}; leave {name} out, or take the snapshot anew "
                "with the version that reads it"
            )
        return memory

    @staticmethod
    def recalled(document: Mapping[str, Any]) -> tuple[Memory, dict[str, str]]:
        """As much of it as can be read, and why each other part cannot: that is as if it had not been remembered."""
        parts: dict[str, Any] = {}
        unreadable: dict[str, str] = {}
        for name, each in document.items():
            kind = Part.kinds.get(name)
            try:
                parts[name] = each if kind is None else kind.from_document(each)
            except ValueError as error:
                unreadable[name] = str(error)
        return Memory(parts), unreadable

    def without(self, name: str) -> Memory:
        """The same with this part forgotten."""
        return Memory({other: part for other, part in self.parts.items() if other != name})

    def to_document(self) -> dict[str, Any]:
        """For a snapshot."""
        parts = sorted(self.parts.items())
        return {name: part.to_document() if isinstance(part, Part) else part for name, part in parts}

    def of(self, kind: type[P]) -> P:
        """What this part remembers; nothing yet, if it never did."""
        found = self.parts.get(kind.name)
        return found if isinstance(found, kind) else kind.blank()

    def keeping(self, *parts: Part) -> Memory:
        """The same with these parts as they are now; one that remembers nothing is not kept."""
        kept: dict[str, Any] | None = None
        for part in parts:
            if part != self.of(type(part)):
                kept = dict(self.parts) if kept is None else kept
                kept[part.name] = part
                if part == part.blank():
                    del kept[part.name]
        return self if kept is None else Memory(kept)


# --- what the engine itself asks for ----------------------------------------------------------------------------------

Times = Mapping[str, tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class Evictions(Part):
    """When each job was evicted, as far as that counts still (rule 21)."""

    name: ClassVar[str] = "evictions"
    times: Times = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Durations(Part):
    """How long jobs took that ended well, seconds per queue and class."""

    name: ClassVar[str] = "durations"
    seconds: Times = field(default_factory=dict)


Headway = tuple[float, float, float, float, float, float]
"""When a job started, when it first told of progress and how far it was, the same of the last time, and the total."""


@dataclass(frozen=True, slots=True)
class Progresses(Part):
    """How far jobs are that tell it, and what jobs of like work have shown: those of one queue, class and shape."""

    name: ClassVar[str] = "progress"
    jobs: Mapping[str, Headway] = field(default_factory=dict)
    warm_ups: Times = field(default_factory=dict)
    """What restarts cost: seconds from start to first progress."""
    paces: Times = field(default_factory=dict)
    """Seconds that a step took, of jobs that are gone."""
    saved: Mapping[str, float] = field(default_factory=dict)
    """When jobs last said that their work is saved."""


@dataclass(frozen=True, slots=True)
class Refusals(Part):
    """Claims that found no room, and when they were first asked in vain."""

    name: ClassVar[str] = "refused"
    at: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TimeSlices(Part):
    """When running jobs were last weighed against waiting ones."""

    name: ClassVar[str] = "time_slices"
    weighed_at: float | None = None


def only_recent(times: Times, now: float, span: float) -> dict[str, tuple[float, ...]]:
    """Without what is older than the span."""
    recent = {name: _since(moments, now - span) for name, moments in times.items()}
    return {name: moments for name, moments in recent.items() if moments}


def _since(moments: Iterable[float], begin: float) -> tuple[float, ...]:
    return tuple(at for at in moments if at > begin)
