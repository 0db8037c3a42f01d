"""Lines of a table that know where they stand, so that a bad cell is told by file, line and column.

Made by `reading`, read by the readers of each format.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from math import inf, isfinite
from typing import Any

from gpuyard.model.errors import Refused


class TableLine:
    """One line of a table."""

    __slots__ = ("_cells", "_file", "line")

    def __init__(self, file: str, line: int, cells: Mapping[str, Any]) -> None:
        self._file = file
        self.line = line
        self._cells = cells

    def __contains__(self, column: str) -> bool:
        return column in self._cells

    @property
    def columns(self) -> set[str]:
        """What the line has."""
        return {column for column in self._cells if column}

    def get(self, column: str, default: Any = None) -> Any:
        """The cell as it is; the default where it is missing or empty."""
        found = self._cells.get(column)
        return default if found is None or found == "" else found

    def text(self, column: str) -> str:
        """A cell that must be there."""
        found = self.get(column)
        if found is None:
            raise self.wrong(f"there is no {column}")
        return str(found)

    def number(self, column: str, least: float = -inf) -> float:
        """A cell that must be a number."""
        word = self.text(column)
        try:
            value = float(word)
        except ValueError:
            raise self.wrong(f"{column} is {word!r}, which is no number") from None
        if not isfinite(value) or value < least:
            bound = f"at least {least:g}" if isfinite(least) else "finite"
            raise self.wrong(f"{column} is {word}; it must be {bound}")
        return value

    def whole(self, column: str, least: int = 0, default: int | None = None) -> int:
        """A cell that must be a whole number."""
        if default is not None and self.get(column) is None:
            return default
        value = self.number(column, least)
        if value != int(value):
            raise self.wrong(f"{column} is {self.text(column)}, which is no whole number")
        return int(value)

    def wrong(self, what: str) -> Refused:
        """The error of this line."""
        return Refused(f"{self._file}:{self.line}: {what}")


def parse(text: str, file: str) -> list[TableLine]:
    """A CSV table with a header, or one JSON document a line."""
    if text.lstrip()[:1] == "{":
        lines = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
        return [TableLine(file, number, _document(line, file, number)) for number, line in lines]
    try:
        return [
            TableLine(file, number, cells) for number, cells in enumerate(csv.DictReader(io.StringIO(text)), start=2)
        ]
    except csv.Error as wrong:
        raise Refused(f"{file} is no table: {wrong}") from None


def _document(line: str, file: str, number: int) -> Mapping[str, Any]:
    try:
        found = json.loads(line)
    except json.JSONDecodeError as wrong:
        raise Refused(f"{file}:{number}: this is no JSON: {wrong.msg}") from None
    if not isinstance(found, dict):
        raise Refused(f"{file}:{number}: a line of a journal is an object")
    return found
