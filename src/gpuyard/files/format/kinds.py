"""The kinds of values a file may hold: each reads one, says what is wrong with it, and describes itself as JSON Schema.

`entries` declares the keys of every entry with these kinds; that one table is both the reader and the schema. A
scalar's `check` returns the value or raises `Wrong`; what holds other values has `read`, which notes every problem
inside at its own place and goes on.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any, Generic, TypeVar

from gpuyard.files import units
from gpuyard.files.problems import Path, Problems, did_you_mean, shown
from gpuyard.files.units import Wrong
from gpuyard.model.outside import text
from gpuyard.model.resources import UNLIMITED

Schema = dict[str, Any]
Definitions = dict[str, Schema]


class Kind(ABC):
    """What every kind can do."""

    @abstractmethod
    def read(self, value: Any, at: Path, problems: Problems) -> Any:
        """The value as the model holds it; on a mistake a problem is noted and the result is not to be used."""

    @abstractmethod
    def schema(self, definitions: Definitions) -> Schema:
        """JSON Schema of what is accepted; shared parts go into `definitions`."""


class Scalar(Kind):
    """A kind without parts."""

    @abstractmethod
    def check(self, value: Any) -> Any:
        """The value as the model holds it, or `Wrong`."""

    def read(self, value: Any, at: Path, problems: Problems) -> Any:
        try:
            return self.check(value)
        except Wrong as wrong:
            problems.tell(at, str(wrong))
            return None


# --- scalars -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Text(Scalar):
    """Printable text of a bounded length, perhaps of a certain pattern."""

    least: int = 0
    most: int = 253
    pattern: str = ""
    example: str = ""

    def check(self, value: Any) -> str:
        if not isinstance(value, str):
            quoted = f'; write it in quotes: "{shown(value)}"' if isinstance(value, bool | int | float) else ""
            raise Wrong(f"must be text, not {shown(value)}{quoted}")
        if not self.least <= len(value) <= self.most:
            raise Wrong("must not be empty" if not value else f"must have at most {self.most} characters")
        if value != value.strip() or not value.isprintable():
            told = text.wrong_line(value, self.most)
            raise Wrong(told or f"must be printable text without blanks around it, not {shown(value)}")
        if self.pattern and not _compiled(self.pattern).search(value):
            raise Wrong(f"must look like {self.example}, not {shown(value)}")
        return value

    def schema(self, definitions: Definitions) -> Schema:
        schema: Schema = {"type": "string", "minLength": self.least, "maxLength": self.most}
        return schema | ({"pattern": self.pattern, "examples": [self.example]} if self.pattern else {})


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


@dataclass(frozen=True)
class Gated(Scalar):
    """Text that is right if a question of the gate has no answer: any prose, a path, a variable's name."""

    wrong: Callable[[str], str]

    def check(self, value: Any) -> str:
        if not isinstance(value, str):
            raise Wrong(f"must be text, not {shown(value)}" + ("" if value is None else "; write it in quotes"))
        if told := self.wrong(value):
            raise Wrong(told)
        return value

    def schema(self, definitions: Definitions) -> Schema:
        return {"type": "string", "maxLength": text.PROSE_MAX}


PROSE = Gated(text.wrong_prose)
"""A command's argument, the value of an environment variable."""
PATH = Gated(text.wrong_path)
VARIABLE = Gated(text.wrong_variable)


@dataclass(frozen=True)
class Flag(Scalar):
    """True or false."""

    def check(self, value: Any) -> bool:
        if not isinstance(value, bool):
            raise Wrong(f"must be true or false, not {shown(value)}")
        return value

    def schema(self, definitions: Definitions) -> Schema:
        return {"type": "boolean"}


@dataclass(frozen=True)
class Whole(Scalar):
    """A whole number between bounds."""

    least: int = 0
    most: int = 1_000_000

    def check(self, value: Any) -> int:
        # type() and not isinstance(): True is no number here.
        if type(value) is not int:
            raise Wrong(f"must be a whole number, not {shown(value)}")
        if not self.least <= value <= self.most:
            bound = f"at least {self.least}" if value < self.least else f"at most {self.most}"
            raise Wrong(f"must be {bound}, not {shown(value)}")
        return value

    def schema(self, definitions: Definitions) -> Schema:
        return {"type": "integer", "minimum": self.least, "maximum": self.most}


@dataclass(frozen=True)
class Number(Scalar):
    """A finite number, not below zero."""

    least: float = 0.0
    most: float = 1e12

    def check(self, value: Any) -> float:
        if type(value) not in (int, float) or not math.isfinite(value):
            raise Wrong(f"must be a number, not {shown(value)}")
        if not self.least <= value <= self.most:
            bound = f"at least {self.least:g}" if value < self.least else f"at most {self.most:g}"
            raise Wrong(f"must be {bound}, not {shown(value)}")
        return float(value)

    def schema(self, definitions: Definitions) -> Schema:
        return {"type": "number", "minimum": self.least, "maximum": self.most}


E_ = TypeVar("E_", bound=Enum)


@dataclass(frozen=True)
class Choice(Scalar, Generic[E_]):
    """One of an enum's values."""

    of: type[E_]

    def check(self, value: Any) -> E_:
        found: E_ | None = _by_value(self.of).get(value) if isinstance(value, str) else None
        if found is None:
            names = [str(member.value) for member in self.of]
            hint = did_you_mean(value, names) if isinstance(value, str) else ""
            raise Wrong(f"must be one of {', '.join(names)}, not {shown(value)}{hint}")
        return found

    def schema(self, definitions: Definitions) -> Schema:
        return {"enum": [member.value for member in self.of]}


@cache
def _by_value(of: Any) -> dict[Any, Any]:
    return {member.value: member for member in of}


@dataclass(frozen=True)
class Word(Scalar):
    """One of a few words, kept as text."""

    words: tuple[str, ...]

    def check(self, value: Any) -> str:
        if value not in self.words or not isinstance(value, str):
            hint = did_you_mean(value, self.words) if isinstance(value, str) else ""
            raise Wrong(f"must be one of {', '.join(filter(None, self.words))}, not {shown(value)}{hint}")
        return value

    def schema(self, definitions: Definitions) -> Schema:
        return {"enum": list(self.words)}


@dataclass(frozen=True)
class NumberOr(Scalar):
    """A number, or a name that stands for one."""

    number: Scalar
    name: Scalar

    def check(self, value: Any) -> Any:
        return (self.name if isinstance(value, str) else self.number).check(value)

    def schema(self, definitions: Definitions) -> Schema:
        return {"anyOf": [self.number.schema(definitions), self.name.schema(definitions)]}


@dataclass(frozen=True)
class Bytes(Scalar):
    """A size; `unlimited` where that makes sense."""

    unlimited: bool = False

    def check(self, value: Any) -> int:
        return UNLIMITED if self.unlimited and value == "unlimited" else units.read_bytes(value)

    def schema(self, definitions: Definitions) -> Schema:
        return _quantity("Size", units.SIZE_PATTERN, "A size: 80Gi, 1G or plain bytes.", self.unlimited, definitions)


@dataclass(frozen=True)
class Cpu(Scalar):
    """Cores; `unlimited` where that makes sense."""

    unlimited: bool = False

    def check(self, value: Any) -> int:
        return UNLIMITED if self.unlimited and value == "unlimited" else units.read_cpu(value)

    def schema(self, definitions: Definitions) -> Schema:
        return _quantity("Cpu", units.CPU_PATTERN, "Cores: 8, 0.5 or 500m.", self.unlimited, definitions)


def _quantity(name: str, pattern: str, doc: str, unlimited: bool, definitions: Definitions) -> Schema:
    shapes = [{"type": "number", "minimum": 0}, {"type": "string", "pattern": pattern}]
    definitions[name] = {"description": doc, "anyOf": shapes}
    reference = {"$ref": f"#/$defs/{name}"}
    return {"anyOf": [reference, {"const": "unlimited"}]} if unlimited else reference


@dataclass(frozen=True)
class Duration(Scalar):
    """A span of time in seconds."""

    negative: bool = False
    zero: bool = True

    def check(self, value: Any) -> float:
        seconds = units.read_duration(value)
        if seconds < 0 and not self.negative:
            raise Wrong(f"must not be negative, and is {shown(value)}")
        if seconds == 0 and not self.zero:
            raise Wrong("must be more than 0; leave it out for none")
        return seconds

    def schema(self, definitions: Definitions) -> Schema:
        name = "SignedDuration" if self.negative else "Duration"
        number: Schema = {"type": "number"} if self.negative else {"type": "number", "minimum": 0}
        pattern = units.DURATION_PATTERN.replace("^", "^-?" if self.negative else "^")
        definitions[name] = {
            "description": "A duration: 90s, 10m, 2h, 1d, 1h30m or plain seconds.",
            "anyOf": [number, {"type": "string", "pattern": pattern}],
        }
        return {"$ref": f"#/$defs/{name}"}


@dataclass(frozen=True)
class Time(Scalar):
    """A moment, RFC 3339 with its zone."""

    def check(self, value: Any) -> float:
        return units.read_time(value)

    def schema(self, definitions: Definitions) -> Schema:
        definitions["Time"] = {
            "description": "A moment, RFC 3339 with its zone: 2026-01-01T00:00:00Z.",
            "type": "string",
            "pattern": units.TIME_PATTERN,
        }
        return {"$ref": "#/$defs/Time"}


@dataclass(frozen=True)
class Opaque(Scalar):
    """A mapping that is kept as it is."""

    def check(self, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Wrong(f"must be a mapping, not {shown(value)}")
        return value

    def schema(self, definitions: Definitions) -> Schema:
        return {"type": "object"}


# --- what holds other values ---------------------------------------------------------------------


@dataclass(frozen=True)
class ListOf(Kind):
    """A list; read as a tuple."""

    of: Kind
    least: int = 0
    distinct: bool = False
    most: int = 0
    """How many it may have; 0: any number."""

    def read(self, value: Any, at: Path, problems: Problems) -> tuple[Any, ...]:
        if not isinstance(value, list):
            problems.tell(at, f"must be a list, not {shown(value)}")
            return ()
        if self.most and len(value) > self.most:
            problems.tell(at, f"must have at most {self.most} entries, not {len(value)}")
            return ()
        if len(value) < self.least:
            problems.tell(at, "must not be empty")
        before = problems.count
        items = self._items(value, at, problems)
        if self.distinct and problems.count == before and len(set(items)) < len(items):
            doubled = next(item for item, times in Counter(items).items() if times > 1)
            problems.tell(at, f"names {shown(doubled)} twice")
        return items

    def _items(self, value: list[Any], at: Path, problems: Problems) -> tuple[Any, ...]:
        if isinstance(self.of, Scalar):
            try:
                return tuple(map(self.of.check, value))
            except Wrong:
                pass  # now one by one, to note each at its place
        return tuple([self.of.read(item, (*at, place), problems) for place, item in enumerate(value)])

    def schema(self, definitions: Definitions) -> Schema:
        schema: Schema = {"type": "array", "items": self.of.schema(definitions)}
        bounds = {"minItems": self.least, "maxItems": self.most, "uniqueItems": self.distinct}
        return schema | {key: bound for key, bound in bounds.items() if bound}


@dataclass(frozen=True)
class MapOf(Kind):
    """A mapping from text; read as pairs, sorted by key."""

    of: Kind
    keys: Scalar = Text(least=1)

    def read(self, value: Any, at: Path, problems: Problems) -> tuple[tuple[Any, Any], ...]:
        if not isinstance(value, dict):
            problems.tell(at, f"must be a mapping, not {shown(value)}")
            return ()
        before = problems.count
        pairs = [(self.key(key, at, problems), self.of.read(item, (*at, key), problems)) for key, item in value.items()]
        if problems.count > before:
            return ()
        if len({key for key, _ in pairs}) < len(pairs):
            problems.tell(at, "names a key twice, as a number and as text")
        return tuple(sorted(pairs, key=lambda pair: pair[0]))

    def key(self, key: Any, at: Path, problems: Problems) -> Any:
        """The key as the model holds it."""
        if not isinstance(key, str) or not key:
            problems.tell(at, f"has the key {shown(key)}, which must be text; write it in quotes")
            return key
        try:
            return self.keys.check(key)
        except Wrong as wrong:
            problems.tell(at, f"has a key that {wrong}")
        return key

    def schema(self, definitions: Definitions) -> Schema:
        return {"type": "object", "additionalProperties": self.of.schema(definitions)}


@dataclass(frozen=True)
class ByIndex(MapOf):
    """A mapping from GPU numbers, which may be written as numbers or as text (JSON has no other way)."""

    def key(self, key: Any, at: Path, problems: Problems) -> Any:
        if isinstance(key, str) and key.isdecimal() and len(key) < 4:
            return int(key)
        if type(key) is not int or key < 0:
            problems.tell(at, f"has the key {shown(key)}, which must be the number of a GPU")
        return key

    def schema(self, definitions: Definitions) -> Schema:
        inner = self.of.schema(definitions)
        return {"type": "object", "patternProperties": {"^[0-9]+$": inner}, "additionalProperties": False}


@dataclass(frozen=True)
class AllOr(Kind):
    """All (true), none (false), or those listed."""

    listed: Kind

    def read(self, value: Any, at: Path, problems: Problems) -> Any:
        if isinstance(value, bool):
            return value
        if not isinstance(value, list):
            problems.tell(at, f"must be true, false or a list, not {shown(value)}")
            return False
        return self.listed.read(value, at, problems)

    def schema(self, definitions: Definitions) -> Schema:
        return {"oneOf": [{"type": "boolean"}, self.listed.schema(definitions)]}
