"""Why jobs could not start: noted once for all that are alike, spelled out job by job when somebody reads it.

Written by the cycle, read by `explain` and by whoever gets the plan. Most plans are applied without being read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.model.actions import Waiting
from gpuyard.model.reasons import Reason, Rung


class Waits(Sequence[Waiting]):
    """A list of notes, the latest on a job counts; as a sequence, the jobs that wait, by name."""

    def __init__(self) -> None:
        self._notes: list[tuple[tuple[JobRow, ...], Reason | None]] = []
        self._reasons: dict[str, Reason] | None = None
        self._told: tuple[Waiting, ...] | None = None
        self.over_quota = 0
        """Jobs found waiting for a limit or quota only, each time anew, since somebody began to count."""

    def note(self, rows: tuple[JobRow, ...], reason: Reason | None) -> None:
        """These jobs wait, all for this reason; for none: they do not wait."""
        if reason is None and not self._notes:
            return  # nobody has been said to wait
        self._notes.append((rows, reason))
        self.over_quota += _over_quota(rows, reason)
        self._reasons = self._told = None

    def of(self, name: str) -> Reason | None:
        """Why this job waits, if it does."""
        return self._by_name().get(name)

    def checkpoint(self) -> int:
        """A mark to roll back to."""
        return len(self._notes)

    def rollback(self, mark: int) -> None:
        """Forget what was noted since the mark."""
        self.over_quota -= sum(_over_quota(rows, reason) for rows, reason in self._notes[mark:])
        del self._notes[mark:]
        self._reasons = self._told = None

    def _by_name(self) -> dict[str, Reason]:
        if self._reasons is None:
            latest = {row.name: reason for rows, reason in self._notes for row in rows}
            self._reasons = {name: reason for name, reason in latest.items() if reason is not None}
        return self._reasons

    def _all(self) -> tuple[Waiting, ...]:
        if self._told is None:
            self._told = tuple(Waiting(name, reason) for name, reason in sorted(self._by_name().items()))
        return self._told

    # --- as a sequence --------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._all())

    @overload
    def __getitem__(self, at: int) -> Waiting: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Waiting, ...]: ...
    def __getitem__(self, at: int | slice) -> Waiting | tuple[Waiting, ...]:
        return self._all()[at]

    def __iter__(self) -> Iterator[Waiting]:
        return iter(self._all())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._all() == tuple(other)

    def __hash__(self) -> int:
        return hash(self._all())


def _over_quota(rows: tuple[JobRow, ...], reason: Reason | None) -> int:
    return len(rows) if reason is not None and reason.code.rung is Rung.QUOTA else 0
