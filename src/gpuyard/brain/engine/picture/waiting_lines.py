"""Who waits with nothing in hand, sorted into lines of jobs that the fleet would answer alike.

Kept by `Fleet` from event to event, so that a cycle pays for the lines there are and not for every job in them. Told of
a job whenever it may have begun or ceased to wait; `ordering` makes a cycle's buckets from the lines.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuyard.brain.engine.picture.job_rows import JobRow, WaitingLine


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
