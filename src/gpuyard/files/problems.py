"""Mistakes in a file, as values: collected while reading, told all together, each in one sentence with its place.

Every reader in this room adds to a `Problems`; the command line prints what `Unreadable` carries. Nothing here knows
what a good file looks like.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from gpuyard.model.errors import Refused

Path = tuple[str | int, ...]
"""Where a value stands in its document: keys and list positions, outermost first."""

TOLD_MAX = 50
"""So many problems are told; the rest are counted."""

DEPTH_MAX = 100
"""Nesting beyond this is refused: no real file comes near, and the C parsers would overflow their stack."""

SCANNED_MAX = 2_000
"""A hint is looked for among at most so many names: comparing with every name of a large fleet takes seconds."""

SHOWN_MAX = 60
"""So much of a wrong value or key is quoted back."""

SECTIONS = {
    "nodes": "node", "queues": "queue", "jobs": "job", "pools": "pool", "budgets": "budget",
    "reservations": "reservation",
}  # fmt: skip
"""Lists of the document whose entries have a name to speak of them by."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake: a sentence, and where. `line` counts from 1; 0 is not known."""

    file: str
    line: int
    path: str
    message: str

    def __str__(self) -> str:
        if self.line:
            return f"{self.file}:{self.line}: {self.message}"
        return f"{self.file}: {self.message}" + (f" (at {self.path})" if self.path else "")


class Unreadable(Refused):
    """A file that cannot be accepted. `problems` are told, `more` were found besides."""

    def __init__(self, problems: Iterable[Problem], more: int = 0) -> None:
        self.problems = tuple(problems)
        self.more = more
        lines = [str(problem) for problem in self.problems]
        super().__init__("\n".join([*lines, f"... and {more} more"] if more else lines))


def unreadable(file: str, message: str, line: int = 0) -> Unreadable:
    """For mistakes that end the reading at once: no such file, broken syntax."""
    return Unreadable([Problem(file, line, "", message)])


class Problems:
    """Collects what is wrong with one document. Lines and hints are worked out only for what will be told."""

    def __init__(self, file: str, document: Any = None) -> None:
        self.file = file
        self.count = 0
        self._document = document
        self._told: list[tuple[Path, str]] = []

    def add(self, at: Path, sentence: str, name: str = "", known: Iterable[str] = ()) -> None:
        """Note a mistake at a place; `name` is hinted at from `known` if one of them is near."""
        self._note(at, f": {sentence}", name, known)

    def blame(self, at: Path, predicate: str, name: str = "", known: Iterable[str] = ()) -> None:
        """Note a mistake as a predicate of the whole entry: "stands in ..." follows the job's name."""
        self._note(at, f" {predicate}", name, known)

    def tell(self, at: Path, predicate: str) -> None:
        """Note a mistake as a predicate of the place itself: "must be ..." follows its key."""
        inside = inside_of(at)
        self._note(at, f": {inside} {predicate}" if inside else f" {predicate}", "", ())

    def _note(self, at: Path, ending: str, name: str, known: Iterable[str]) -> None:
        self.count += 1
        if len(self._told) < TOLD_MAX:
            self._told.append((at, ending + did_you_mean(name, known)))

    def refuse_if_any(self, line_of: Callable[[Path], int]) -> None:
        """End the reading if anything is wrong."""
        if self.count:
            told = [self._problem(at, ending, line_of(at)) for at, ending in self._told]
            told.sort(key=lambda problem: problem.line)
            raise Unreadable(told, self.count - len(told))

    def _problem(self, at: Path, ending: str, line: int) -> Problem:
        subject = self._subject(at) or ("the file" if ending.startswith(" ") else "")
        return Problem(self.file, line, shown_path(at), (subject + ending).removeprefix(": "))

    def _subject(self, at: Path) -> str:
        """Whom the sentence is about: `job llm` if it has a name, else its place in the list."""
        if not _in_a_section(at):
            return ""
        entry = self._document[at[0]][at[1]]
        name = entry.get("name") if isinstance(entry, dict) else None
        named = isinstance(name, str) and name.isprintable() and 0 < len(name) <= 60
        return f"{SECTIONS[str(at[0])]} {name}" if named else shown_path(at[:2])


def _in_a_section(at: Path) -> bool:
    return len(at) >= 2 and at[0] in SECTIONS and isinstance(at[1], int)


def inside_of(at: Path) -> str:
    """The place inside its entry (with whose name the problem begins), or inside the document."""
    return shown_path(at[2:] if _in_a_section(at) else at)


def shown_path(at: Path) -> str:
    """A place as people write it: `jobs[3].placements[0].gpus`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{_shown_part(part)}" for part in at)
    return text.removeprefix(".")


def _shown_part(key: Any) -> str:
    """A key in a place: whoever wrote it may have meant it to hurt."""
    text = str(key)
    return text if text.isprintable() and len(text) <= SHOWN_MAX else f"[{text[:SHOWN_MAX]!a}]"


def shown(value: Any) -> str:
    """A wrong value as it is quoted back to its author, cut short."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case dict():
            return "a mapping"
        case list():
            return "a list"
    text = str(value) if isinstance(value, int | float) else repr(value)
    return text if len(text) <= SHOWN_MAX else f"{text[: SHOWN_MAX - 3]}..."


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint to the nearest known name, or nothing."""
    found = nearest(name, known) if name else None
    return f"; did you mean {found}?" if found else ""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like this one, if any is like it at all."""
    names = sorted(set(known))
    if len(names) > SCANNED_MAX:
        names = [other for other in names if abs(len(other) - len(name)) <= 1 and other[:2] == name[:2]]
    by_small = {other.lower(): other for other in reversed(names[:SCANNED_MAX])}
    close = difflib.get_close_matches(name.lower(), sorted(by_small), n=1, cutoff=0.6)
    return by_small[close[0]] if close else None
