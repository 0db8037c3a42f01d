"""Who waits with nothing in hand, sorted into lines of jobs that the fleet would answer alike.

Kept by `Fleet` from event to event, so that a cycle pays for the lines there are and not for every job in them. Told of
a job whenever it may have begun or ceased to wait; `ordering` makes a cycle's buckets from the lines.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from gpuyard.brain.engine.picture.job_rows import JobRow, rank_in_queue


class WaitingLine:
    """Jobs of one queue that are answered alike, first come first."""

    __slots__ = ("_rows", "_seen", "key")

    def __init__(self, key: object) -> None:
        self.key = key
        self._rows: list[JobRow] = []
        self._seen: tuple[JobRow, ...] | None = None

    def rows(self) -> tuple[JobRow, ...]:
        """The jobs as they stand now; the same tuple until one joins or leaves."""
        if self._seen is None:
            self._seen = tuple(self._rows)
        return self._seen

    def join(self, row: JobRow) -> None:
        """Stand where the job's rank puts it."""
        insort(self._rows, row, key=rank_in_queue)
        self._seen = None

    def leave(self, row: JobRow) -> None:
        """Out of the line; the rest keep their order."""
        at = bisect_left(self._rows, rank_in_queue(row), key=rank_in_queue)
        assert self._rows[at] is row
        del self._rows[at]
        self._seen = None

    def __bool__(self) -> bool:
        return bool(self._rows)


class WaitingLines:
    """Every line there is."""

    def __init__(self) -> None:
        self._lines: dict[object, WaitingLine] = {}

    def __iter__(self) -> Iterator[WaitingLine]:
        return iter(self._lines.values())

    def join(self, row: JobRow) -> None:
        """The job waits; joining twice is joining once."""
        if row.line is None:
            key = row.likeness
            line = self._lines.get(key)
            if line is None:
                line = self._lines[key] = WaitingLine(key)
            line.join(row)
            row.line = line

    def leave(self, row: JobRow) -> None:
        """The job waits no longer, or holds something meanwhile."""
        line = row.line
        if line is not None:
            line.leave(row)
            row.line = None
            if not line:
                del self._lines[line.key]
