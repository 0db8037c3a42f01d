"""Submissions: a job file's content as the control plane takes it, with what is no property of the job itself.

Called by the command line, which tells mistakes before it asks anybody, and by the control plane, which trusts nobody.
"""

from __future__ import annotations

import pathlib
from dataclasses import dataclass
from typing import Any

from gpuyard.files.problems import Unreadable, unreadable
from gpuyard.files.reading.jobs import job_file
from gpuyard.files.text import documents
from gpuyard.model.job import Job

ARRAY_MAX = 100_000
"""Members of one array; a sweep of ten thousand is ordinary, a million is a slip of the finger."""


@dataclass(frozen=True, slots=True)
class After:
    """A job that must have ended first; `anyhow` if its success does not matter."""

    job: str
    anyhow: bool = False


@dataclass(frozen=True, slots=True)
class Submission:
    """A job, whom it waits for, and the members of its array (none: it is one job); `at_once` 0 is all of them."""

    job: Job
    after: tuple[After, ...] = ()
    members: tuple[int, ...] = ()
    at_once: int = 0

    def names(self) -> list[str]:
        """The jobs it stands for."""
        return [f"{self.job.name}-{member}" for member in self.members] if self.members else [self.job.name]


def read_submission(document: Any, now: float, name: str = "job") -> Submission:
    """What a job file's content asks for; `Unreadable` tells every mistake."""
    job, entry = job_file(document, name, now, lambda _at: 0)
    members, at_once = _array(entry.array, name)
    return Submission(job, tuple(map(_after, entry.after)), members, at_once)


def load_submission(path: pathlib.Path, now: float) -> dict[str, Any]:
    """A job file's content, checked, as it is sent to the control plane."""
    return parse_submission(documents.read_text(path), str(path), now)


def parse_submissions(text: str, name: str, now: float) -> list[dict[str, Any]]:
    """The jobs of a file, one for each YAML document in it; mistakes are told with their lines."""
    return [parse_submission(part, name, now) for part in _parts(text)]


def _parts(text: str) -> list[str]:
    """The documents of a file between its `---` lines, each behind as many empty lines as there were above it."""
    parts: list[list[str]] = [[]]
    for number, line in enumerate(text.splitlines()):
        if line.startswith("---") and line[3:].split("#")[0].strip() == "":
            parts.append([""] * (number + 1))
        else:
            parts[-1].append(line)
    said = [part for part in parts if any(line.strip() and not line.lstrip().startswith("#") for line in part)]
    return ["\n".join(part) for part in said] or [text]


def parse_submission(text: str, name: str, now: float) -> dict[str, Any]:
    """A job file's content from its text, checked; mistakes are told with their lines."""
    document = documents.parse(text, name)
    _, entry = job_file(document.data, name, now, document.line)
    _array(entry.array, name)
    data: dict[str, Any] = document.data
    return data


def _after(text: str) -> After:
    job, _, rule = text.partition(":")
    return After(job, rule == "any")


def _array(text: str, name: str) -> tuple[tuple[int, ...], int]:
    """`0-99,200%8`: its numbers, and how many may run at once."""
    numbers, _, at_once = text.partition("%")
    members: dict[int, None] = {}
    for part in filter(None, numbers.split(",")):
        first, _, last = part.partition("-")
        low, high = int(first), int(last or first)
        if high < low:
            raise unreadable(name, f"array: {part} runs backwards; write {high}-{low}")
        if high - low >= ARRAY_MAX or len(members) + high - low >= ARRAY_MAX:
            raise _too_many(name)
        members.update(dict.fromkeys(range(low, high + 1)))
    return tuple(members), int(at_once or 0)


def _too_many(name: str) -> Unreadable:
    return unreadable(name, f"array: more than {ARRAY_MAX:,} members; submit it in parts")
