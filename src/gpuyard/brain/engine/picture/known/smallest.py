"""The smallest jobs that run and could be moved, without a look at every job.

Owned by `Fleet`: a few more than anybody asks for are known in order, and whoever has changed since is looked at anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import nsmallest
from operator import attrgetter

from gpuyard.brain.engine.picture.job_rows import JobRow

Size = tuple[int, tuple[float, str]]
"""GPUs in grains, then age: no two are equal."""

MOST_KNOWN = 512
MOST_CHANGED = 1024
"""So many are looked at anew when somebody asks; more are so at once."""


def _could_move(row: JobRow) -> bool:
    return not row.firm and not row.job.foreign and row.complete()


class SmallestJobs:
    """Those known are smaller than all others that have not changed since."""

    def __init__(self, jobs: Mapping[str, JobRow]) -> None:
        self._jobs = jobs
        self._known: list[tuple[Size, JobRow]] | None = None
        """None: nobody has looked, and nothing needs to be noted."""
        self._largest: Size | None = None
        """Nobody unchanged who is not known is smaller than this; None if all are known."""
        self._changed: set[JobRow] = set()

    def note(self, row: JobRow) -> None:
        """The job came, went, or stands elsewhere than it did; it may be about to."""
        if self._known is None:
            return
        if len(self._changed) >= MOST_CHANGED:
            self._known, self._changed = self._with(self._changed), set()  # no plan is being made while events come
        self._changed.add(row)

    def first(self, count: int, tried: Iterable[JobRow] = ()) -> list[JobRow]:
        """So many of those who could be moved, the smallest first; `tried`: jobs of which a plan has it otherwise than
        the world, and may undo that."""
        tried = set(tried)
        found = None if self._known is None else self._with(self._changed | tried)
        if found is None or (len(found) < count and self._largest is not None):
            found = self.look(max(count, MOST_KNOWN))
            self._changed = tried
        return [row for _, row in found[:count]]

    def _with(self, changed: set[JobRow]) -> list[tuple[Size, JobRow]]:
        """Those known, and those of the changed that belong among them, as they are now."""
        there = (row for row in changed if row.held and self._jobs.get(row.name) is row and _could_move(row))
        new = ((_size(row), row) for row in there)
        near = [pair for pair in new if self._largest is None or pair[0] <= self._largest]
        same = [pair for pair in self._known or () if pair[1] not in changed]
        return sorted([*same, *near], key=_its_size)

    def look(self, count: int = MOST_KNOWN) -> list[tuple[Size, JobRow]]:
        """Look at every job, by its size first: most are too large to be asked more."""
        by_cost: dict[int, list[JobRow]] = {}
        for row in self._jobs.values():
            if row.held:
                by_cost.setdefault(row.cost(), []).append(row)
        found: list[JobRow] = []
        for cost in sorted(by_cost):
            if len(found) >= count:
                break
            found += nsmallest(count - len(found), filter(_could_move, by_cost[cost]), key=attrgetter("age"))
        self._known = known = [(_size(row), row) for row in found]
        self._largest = known[-1][0] if len(known) >= count else None
        self._changed = set()
        return known


def _size(row: JobRow) -> Size:
    return row.cost(), row.age


def _its_size(pair: tuple[Size, JobRow]) -> Size:
    return pair[0]
