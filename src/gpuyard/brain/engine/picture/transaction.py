"""Checkpoint, try, roll back, commit: every change a plan tries goes through here and can be undone exactly.

Gang, preemption, consolidation, drain, reservation, ETA and the suggestions of `explain` all use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpuyard.brain.engine.nodes.columns import Held
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.job_rows import JobRow

MANY = 64
"""So many changes are undone together rather than one by one."""


class Transaction:
    """A log of changes to one fleet. Rolling back restores every column bit for bit."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self._log: list[tuple[int, JobRow, Held]] = []

    def put(self, row: JobRow, held: Held) -> None:
        """A task takes its place."""
        self._log.append((1, row, held))
        self.fleet.shift(row, held, 1)

    def lift(self, row: JobRow, held: Held) -> None:
        """A task leaves its place."""
        self._log.append((-1, row, held))
        self.fleet.shift(row, held, -1)

    def lift_all(self, row: JobRow, places: Iterable[Held]) -> None:
        """Several tasks of a job leave."""
        for held in list(places):
            self.lift(row, held)

    def lift_together(self, places: Sequence[tuple[JobRow, Held]]) -> None:
        """Tasks of several jobs leave at once."""
        changes = [(-1, row, held) for row, held in places]
        self._log += changes
        self.fleet.shift_all(changes)

    def checkpoint(self) -> int:
        """A mark to roll back to; marks nest."""
        return len(self._log)

    def rollback(self, mark: int = 0) -> None:
        """Undo every change since the mark, last first."""
        log = self._log
        if len(log) - mark > MANY:
            undone = [(-sign, row, held) for sign, row, held in reversed(log[mark:])]
            del log[mark:]
            self.fleet.shift_all(undone)
            return
        while len(log) > mark:
            sign, row, held = log.pop()
            self.fleet.shift(row, held, -sign)

    def __len__(self) -> int:
        """How many changes stand: whoever finds as many as it left knows that nobody has changed anything since."""
        return len(self._log)

    def commit(self) -> None:
        """Keep the changes; they can no longer be undone."""
        for row in self.touched():
            self.fleet.smallest.note(row)
        self._log.clear()

    def touched(self) -> list[JobRow]:
        """The jobs changed, each once, in the order of their first change."""
        return list({row.name: row for _, row, _ in self._log}.values())

    def added(self, row: JobRow, mark: int) -> list[Held]:
        """The places a job took since the mark."""
        return [held for sign, who, held in self._log[mark:] if who is row and sign > 0]
