"""What really happened, from the lines and locks of the tasks alone, against what was asked for.

Used by `storm` at the end, and while it blows for what can be seen at once. A task that wrote `done` has succeeded; it
may run again only if the storm itself struck that attempt, or its owner asked for it.
"""

from __future__ import annotations

import fcntl
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tests.chaos.ground import Key

LATE_S = 15.0
"""So long after an answer a task may still be seen to start: its supervisor may have stood still meanwhile."""
HALF_DONE_S = 0.5
"""A task that is stopped so soon after its last line may not have come to its end."""


@dataclass(frozen=True)
class Line:
    """One line of a task's."""

    kind: str
    at: float
    job: str
    rank: int
    key: Key
    pid: int
    more: str


@dataclass
class Wish:
    """A job that was asked for, and what was asked of it since. Times are those of the answers."""

    name: str
    mode: str
    tasks: int = 1
    least: int = 1
    retries: int = 0
    after: str = ""
    cancelled: float | None = None
    requeued: int = 0
    held: float | None = None
    holds: list[tuple[float, float]] = field(default_factory=list)


@dataclass(frozen=True)
class Blow:
    """The storm struck a process: its supervisor or the task itself."""

    key: Key
    at: float
    kills: bool


@dataclass
class Truth:
    """The folder that tasks write to."""

    folder: Path

    def __post_init__(self) -> None:
        (self.folder / "locks").mkdir(parents=True)
        (self.folder / "probe").touch()
        (self.folder / "lines").touch()
        (self.folder / "lines").chmod(0o666)

    def lines(self) -> list[Line]:
        return [_line(text) for text in (self.folder / "lines").read_text().splitlines()]

    def held_locks(self) -> Iterator[tuple[str, str]]:
        """(lock, what its holder wrote) of every lock that is taken; nothing while a task is just taking some."""
        with (self.folder / "probe").open("r+") as probe:
            if not _locked(probe):
                return
            for path in sorted((self.folder / "locks").iterdir()):
                with path.open("r+") as file:
                    if not _locked(file):
                        yield path.name, os.pread(file.fileno(), 200, 0).decode()

    def held_since_before(self, moment: float, uuids: Iterable[str]) -> list[str]:
        """Those of these GPUs that somebody had locked before a moment, and still has."""
        free = set(uuids)
        wrong = []
        for name, said in self.held_locks():
            since = float(said.split()[2]) if len(said.split()) == 3 else moment
            if name.rpartition(".")[0] in free and since < moment:
                wrong.append(f"{name} by {said}")
        return wrong


def _locked(file: IO[str]) -> bool:
    """Whether the lock was to be had."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _line(text: str) -> Line:
    kind, at, job, rank, mark, pid, more = text.split(" ")
    id_, attempt, serial = map(int, mark.split("-"))
    return Line(kind, float(at), job, int(rank), (id_, attempt, serial), int(pid), more)


# --- the verdict ---------------------------------------------------------------------------------


class Verdict:
    """Everything that is wrong, each in a sentence."""

    def __init__(
        self, lines: list[Line], wishes: dict[str, Wish], blows: list[Blow], stopped: Set[Key] = frozenset()
    ) -> None:
        """`stopped` is the one thing believed of the yard: who was told to stop and then ended with exit code 0. That
        crosses with a task's last line once in hundreds of stops, in the moment in which it ends; not more often."""
        self.lines = lines
        self.wishes = wishes
        self._killed = {blow.key for blow in blows if blow.kills}
        self._stopped: dict[Key, list[float]] = defaultdict(list)
        for blow in blows:
            if not blow.kills:
                self._stopped[blow.key].append(blow.at)
        self._told = {line.key for line in lines if line.kind == "told"}
        done = {line.key for line in lines if line.kind == "done"}
        self._crossed = (stopped & done) - self._told
        self._crossed_max = max(2, len(done) // 30)
        self._by_job: dict[str, list[Line]] = defaultdict(list)
        for line in lines:
            self._by_job[line.job].append(line)

    def wrong(self, phases: dict[str, str]) -> list[str]:
        """Of the whole storm, once everything has settled."""
        found = [*self.held_twice(), *self._strangers()]
        crossings = {(job, attempt) for job, attempt, _ in self._crossed}  # a gang is told to stop once
        if len(crossings) > self._crossed_max:
            found.append(f"DOUBLED: {len(crossings)} gangs had done their work and count as stopped")
        for name, wish in sorted(self.wishes.items()):
            found += self._lost(wish, phases.get(name, "unknown to the yard"))
            found += self._doubled(wish)
            found += self._disobeyed(wish)
        return found

    def held_twice(self) -> list[str]:
        return [
            f"HELD TWICE: {line.more} wanted by {line.job} {line.key}" for line in self.lines if line.kind == "conflict"
        ]

    def _strangers(self) -> list[str]:
        return [f"UNASKED: {name} ran, and was never accepted" for name in sorted(set(self._by_job) - set(self.wishes))]

    def _lost(self, wish: Wish, phase: str) -> list[str]:
        """Did the job end as it had to?"""
        due = _due(wish)
        if phase not in due:
            return [f"LOST: {wish.name} ({wish.mode}) is {phase}, not {' or '.join(sorted(due))}"]
        done = {line.rank for line in self._by_job[wish.name] if line.kind == "done"}
        if phase == "succeeded" and len(done) < self._needed(wish):
            return [f"LOST: {wish.name} has succeeded, but only ranks {sorted(done)} of {wish.tasks} did their work"]
        return []

    def _needed(self, wish: Wish) -> int:
        """How many must have done their work: all, but an elastic gang goes on without those that the storm killed."""
        ids = {line.key[0] for line in self._by_job[wish.name]}
        killed = sum(key[0] in ids for key in self._killed)
        return max(wish.least, wish.tasks - killed)

    def _doubled(self, wish: Wish) -> list[str]:
        """Was anything run again that had succeeded?"""
        found = []
        lines = self._by_job[wish.name]
        ends = Counter(line.rank for line in lines if line.kind == "done" and not self._is_excused(line))
        allowed = 1 + wish.requeued
        found += [
            f"DOUBLED: rank {rank} of {wish.name} succeeded {count} times, {allowed} allowed: {self._story(wish, rank)}"
            for rank, count in sorted(ends.items()) if count > allowed
        ]  # fmt: skip
        if not wish.requeued:
            found += self._run_after_success(wish, lines)
        twice = Counter(line.key for line in lines if line.kind == "start")
        return found + [f"DOUBLED: {wish.name} {key} began {n} times" for key, n in sorted(twice.items()) if n > 1]

    def _run_after_success(self, wish: Wish, lines: list[Line]) -> list[str]:
        found = []
        for end in lines:
            if end.kind == "done" and not self._is_excused(end):
                again = [line for line in lines if line.kind == "start" and line.rank == end.rank and line.at > end.at]
                found += [f"DOUBLED: rank {end.rank} of {wish.name} began again: {self._story(wish, end.rank)}"] * bool(
                    again
                )
        return found

    def _is_excused(self, line: Line) -> bool:
        """Whether nobody may know that the task had done its work: the storm hit it or its supervisor, or it was told
        to stop before it had ended."""
        if line.key in self._told | self._crossed | self._killed:
            return True
        return any(0 <= at - line.at < HALF_DONE_S for at in self._stopped[line.key])

    def _disobeyed(self, wish: Wish) -> list[str]:
        """Did it start after it was cancelled, or while it was held?"""
        starts = [line for line in self._by_job[wish.name] if line.kind == "start"]
        late = [f"{line.key} at {line.at}" for line in starts if wish.cancelled and line.at > wish.cancelled + LATE_S]
        found = [f"DISOBEYED: {wish.name}, cancelled at {wish.cancelled}, began {each}" for each in late]
        for since, until in wish.holds:
            held = [f"{line.key} at {line.at}" for line in starts if since + LATE_S < line.at < until]
            found += [f"DISOBEYED: {wish.name}, held from {since} to {until}, began {each}" for each in held]
        return found

    def _story(self, wish: Wish, rank: int) -> str:
        return ", ".join(f"{x.kind} {x.key} {x.at:.1f}" for x in self._by_job[wish.name] if x.rank == rank)


def _due(wish: Wish) -> set[str]:
    """The phases in which a job may end; one that is cancelled may have been quicker."""
    own = {"fail": "failed", "limit": "failed"}.get(wish.mode, "succeeded")
    return {own, "cancelled"} if wish.cancelled is not None else {own}
