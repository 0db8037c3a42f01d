"""JSON text to plain data, with the line of every value on demand.

Called by `documents`. Parsed by the standard library's C scanner: fast enough, and unlike faster ones it can tell a
doubled key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from gpuyard.files.problems import DEPTH_MAX, Path, shown, shown_path, unreadable

_BLANK = re.compile(r"[ \t\r\n]*")


class _Doubled(dict[str, Any]):
    """An object in which a key stood twice; `key` is that key."""

    key = ""


class _NotANumber(ValueError):
    """NaN or Infinity, which JSON does not have and Python reads all the same."""


class JsonDocument:
    """Plain data and its text. Raises `json.JSONDecodeError` if it is no JSON at all."""

    def __init__(self, text: str, name: str) -> None:
        self.name = name
        self._text = text
        self._starts: dict[Path, list[int]] = {}
        self._doubled = False
        try:
            self.data = json.loads(text, object_pairs_hook=self._object, parse_constant=_refuse_constant)
        except json.JSONDecodeError:
            raise  # a ValueError too, but perhaps YAML: that is for `documents` to find out
        except RecursionError:
            raise unreadable(name, f"nested deeper than {DEPTH_MAX} levels") from None
        except ValueError as error:
            raise unreadable(name, _number_complaint(error)) from None
        if self._doubled:
            self._refuse_doubled()

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) == len(pairs):
            return made
        self._doubled = True
        doubled = _Doubled(made)
        keys = [key for key, _ in pairs]
        doubled.key = next(key for key in keys if keys.count(key) > 1)
        return doubled

    def _refuse_doubled(self) -> NoReturn:
        at, key = next(_doubled_in(self.data, ()))
        where = f" in {shown_path(at)}" if at else ""
        raise unreadable(self.name, f"the key {shown(key)} stands twice{where}", self.line(at))

    def line(self, at: Path) -> int:
        """Walks the text again with the C scanner, value by value, down to the place asked for."""
        position = self._skip(0)
        for depth, part in enumerate(at):
            step = self._item(at[:depth], position, part) if isinstance(part, int) else self._member(position, part)
            if step is None:
                break
            position = step
        return self._text.count("\n", 0, position) + 1

    def _skip(self, position: int) -> int:
        found = _BLANK.match(self._text, position)
        return found.end() if found else position

    def _after(self, position: int) -> int:
        return self._skip(_SCAN.raw_decode(self._text, position)[1])

    def _item(self, prefix: Path, position: int, index: int) -> int | None:
        if self._text[position] != "[":
            return self._member(position, str(index))
        starts = self._starts.setdefault(prefix, [self._skip(position + 1)])
        while len(starts) <= index:
            end = self._after(starts[-1])
            if self._text[end] != ",":
                return None
            starts.append(self._skip(end + 1))
        return starts[index]

    def _member(self, position: int, key: str) -> int | None:
        if self._text[position] != "{":
            return None
        position = self._skip(position + 1)
        while self._text[position] == '"':
            found, end = _SCAN.raw_decode(self._text, position)
            value = self._skip(self._skip(end) + 1)
            if found == key:
                return value
            position = self._after(value)
            position = self._skip(position + 1) if self._text[position] == "," else position
        return None


_SCAN = json.JSONDecoder()


def _refuse_constant(name: str) -> NoReturn:
    raise _NotANumber(f"{name} is not a number that JSON has")


def _number_complaint(error: ValueError) -> str:
    return str(error) if isinstance(error, _NotANumber) else "holds a number with too many digits"


def _doubled_in(value: Any, at: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, _Doubled):
        yield at, value.key
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for part, inner in parts:
        yield from _doubled_in(inner, (*at, part))
