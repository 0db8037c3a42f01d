"""Which jobs wait, lack members, may grow, must end in time: lists that turns read instead of looking at every job.

Owned by `Fleet`, which tells of every job that comes, changes or goes. Plans change them like all that stands there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from gpuyard.brain.engine.nodes.requests import TaskRequest
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.brain.engine.picture.waiting_lines import WaitingLines

Rows = dict[str, JobRow]


class JobRolls:
    """Jobs by name, on every list that they belong on."""

    def __init__(self) -> None:
        self.short: Rows = {}
        """Jobs of ours below their minimum."""
        self.waiting_lines = WaitingLines()
        """Those of them that hold nothing, equals together."""
        self.halves: Rows = {}
        """Those of them that hold something."""
        self.outside: Rows = {}
        """Foreign loads below their minimum."""
        self.limited: Rows = {}
        """Jobs with a time limit."""
        self._running_limited: Rows = {}
        """Those of them that run."""
        self._elastic: Rows = {}
        self.by_memory: Counter[TaskRequest] = Counter()
        """What is asked for by memory of a card, and by how many groups of jobs."""
        self._families: dict[str, Rows] = {}
        """Jobs by their family, of those that have one."""

    def enter(self, row: JobRow) -> None:
        """It came; what it lacks is noted apart."""
        if row.job.family:
            self._families.setdefault(row.job.family, {})[row.name] = row
        if not row.rigid and not row.job.foreign:
            self._elastic[row.name] = row
        if not row.takes_alike:
            self.by_memory.update(_by_memory(row))
        if row.job.time_limit is not None:
            self.limited[row.name] = row
            if row.running:
                self._running_limited[row.name] = row

    def note(self, row: JobRow) -> None:
        """It has other places, or its tasks others to wait for."""
        lacks, holds = not row.complete(), bool(row.held)
        if row.job.foreign:
            _keep_if(self.outside, row, lacks)
            return
        _keep_if(self.short, row, lacks)
        if self.halves or (lacks and holds):
            _keep_if(self.halves, row, lacks and holds)
        if lacks and not holds:
            self.waiting_lines.join(row)
        elif row.line is not None:
            self.waiting_lines.leave(row)

    def note_run(self, row: JobRow) -> None:
        """It began to run where it did not, or ceased to, as the world has it."""
        if row.job.time_limit is not None:
            _keep_if(self._running_limited, row, row.running)

    def leave(self, row: JobRow) -> None:
        """It is gone, or is another by now, which enters anew."""
        self.waiting_lines.leave(row)
        for rows in (self.short, self.halves, self.outside, self.limited, self._running_limited, self._elastic):
            rows.pop(row.name, None)
        self._leave_family(row)
        if not row.takes_alike:
            self.by_memory -= Counter(_by_memory(row))

    def _leave_family(self, row: JobRow) -> None:
        family = self._families.get(row.job.family, {})
        family.pop(row.name, None)
        if not family:
            self._families.pop(row.job.family, None)

    # --- asked for ------------------------------------------------------------------------------------------------

    def family(self, row: JobRow) -> list[JobRow]:
        """The job, and those of its family."""
        return list(self._families[row.job.family].values()) if row.job.family in self._families else [row]

    @property
    def any_limits(self) -> bool:
        """Whether any job has a time limit that runs, or is started by the plan that is being made."""
        return any(row.held for row in self.limited.values())

    def running_limited(self) -> Iterable[JobRow]:
        """Jobs with a time limit that ran when the plan began."""
        return self._running_limited.values()

    @property
    def any_elastic(self) -> bool:
        """Whether there is any job whose size may change."""
        return bool(self._elastic)

    def elastic_rows(self) -> list[JobRow]:
        """Jobs whose size may change."""
        return list(self._elastic.values())

    def elastic(self) -> list[JobRow]:
        """Jobs that may still grow."""
        return [row for row in self._elastic.values() if row.open_groups()]


def _by_memory(row: JobRow) -> list[TaskRequest]:
    return [request for request in row.requests if request.cost is None]


def _keep_if(rows: Rows, row: JobRow, stays: bool) -> None:
    if stays:
        rows[row.name] = row
    else:
        rows.pop(row.name, None)
