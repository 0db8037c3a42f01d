"""Who stands where by their labels: how many tasks on each node a selector means, and who keeps apart from whom.

Owned by `Fleet`. Counts are kept per question and brought up to date where nodes changed; in a fleet where nobody asks
for neighbours there are none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from gpuyard.brain.engine.nodes.columns import Columns, Held, Ints
from gpuyard.brain.engine.nodes.requests import TaskRequest, selects
from gpuyard.model.job import Evenness, Expression, Neighbour


class Tenant(Protocol):
    """A job that holds places."""

    @property
    def requests(self) -> Sequence[TaskRequest]:
        """What each of its groups asks for."""

    @property
    def held(self) -> Sequence[Held]:
        """Its places."""

    @property
    def is_stand_in(self) -> bool:
        """Whether nobody is there yet, and the place is only kept."""


Meant = tuple[Expression, ...] | Neighbour | Evenness
"""Tasks by their labels, those that keep apart by this term, or those that count for this evenness: who leaves does
not."""


class Company:
    """Counts of tasks by node."""

    def __init__(self) -> None:
        self.heeded = True
        """Whether neighbours matter; not while it is tried whether they stand in the way."""
        self.apart: dict[Neighbour, int] = {}
        """Terms by which somebody keeps apart from others, and in how many groups."""
        self._columns: Columns | None = None
        self._tenants: Sequence[Mapping[Any, int]] = ()
        self._counts: dict[Meant, tuple[int, Ints]] = {}
        self._known: dict[tuple[Meant, int], bool] = {}
        self._against: dict[int, tuple[Neighbour, ...]] = {}

    def lay(self, columns: Columns, tenants: Sequence[Mapping[Any, int]]) -> None:
        """Other nodes, with their tenants and how many places each holds: nothing that was counted holds."""
        self._columns, self._tenants = columns, tenants
        self._counts.clear()

    def enter(self, requests: Sequence[TaskRequest], sign: int) -> None:
        """A job is there from now on (1), or not any more (-1)."""
        for request in requests:
            for term in request.apart:
                count = self.apart.get(term, 0) + sign
                if count == sign == 1 or not count:
                    self._against.clear()
                if count:
                    self.apart[term] = count
                else:
                    del self.apart[term]

    def against(self, request: TaskRequest) -> tuple[Neighbour, ...]:
        """The terms by which others keep apart from such a task."""
        if not self.apart:
            return ()
        found = self._against.get(request.id)
        if found is None:
            labels = dict(request.labels)
            found = tuple(term for term in self.apart if selects(term.labels, labels))
            self._against[request.id] = found
        return found

    def concerns(self, request: TaskRequest) -> bool:
        """Whether neighbours have a say in where such a task goes."""
        return self.heeded and (request.social or bool(self.against(request)))

    def counts(self, meant: Meant) -> Ints:
        """How many of those meant stand on each node."""
        columns = self._columns
        assert columns is not None
        version, counts = self._counts.get(meant, (-1, np.zeros(len(columns.nodes), dtype=np.int64)))
        if version != columns.version:
            for n in range(len(counts)) if version < 0 else columns.touched.since(version):
                counts[n] = sum(self._of(meant, row, n, count) for row, count in self._tenants[n].items())
            self._counts[meant] = (columns.version, counts)
        return counts

    def _of(self, meant: Meant, row: Tenant, n: int, count: int) -> int:
        if row.is_stand_in and not isinstance(meant, Neighbour):
            return 0
        means = [self.means(meant, request) for request in row.requests]
        if not any(means):
            return 0
        if isinstance(meant, Evenness):
            return sum(means[held.leaf] for held in row.held if held.node == n and not held.terminating)
        return count if all(means) else sum(means[held.leaf] for held in row.held if held.node == n)

    def means(self, meant: Meant, request: TaskRequest) -> bool:
        """Whether tasks of this kind are meant."""
        key = (meant, request.id)
        known = self._known.get(key)
        if known is None:
            if isinstance(meant, Neighbour):
                known = meant in request.apart
            else:
                known = selects(meant.labels if isinstance(meant, Evenness) else meant, dict(request.labels))
            self._known[key] = known
        return known
