"""How much of what is free the demand seen could use: the value that timed defragmentation raises.

For each shape of the demand (tasks alike, so many together inside one domain) the free GPUs are counted that would be
used if that shape alone filled them; shapes count by their weight in the demand, and none for more than was asked for.
Stranded GPUs (`nodes.stranding`) look at single tasks on single nodes; this sees gangs, islands and racks too.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import fsum
from typing import NamedTuple

import numpy as np

from gpuyard.brain.engine.nodes.columns import Columns, Ints
from gpuyard.brain.engine.nodes.feasibility import room_on
from gpuyard.brain.engine.nodes.requests import STATIC_CHECKERS, TaskRequest
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.job_rows import NO_QUEUE, JobRow
from gpuyard.brain.engine.placing import gang
from gpuyard.model.resources import WHOLE, gpu_words
from gpuyard.model.topology import NODE, NVLINK

MOST_SHAPES = 12
"""The heaviest shapes stand for all: the tail moves the value by less than moves are worth."""


class Wanted(NamedTuple):
    """One shape of the demand: `tasks` of `request` inside one domain of `level` ("": task by task, anywhere)."""

    request: TaskRequest
    tasks: int
    level: str
    gpus: int
    """Per task, in grains."""
    weight: float
    """Its part of the demand; all of them sum to 1."""
    asked: int
    """Grains that jobs of this shape run on or wait for."""

    @property
    def size(self) -> int:
        """GPUs of one whole gang, in grains."""
        return self.gpus * self.tasks

    def told(self) -> str:
        """The shape in words."""
        if not self.level:
            return f"one more task of {gpu_words(self.gpus)}"
        return f"one more gang of {self.tasks}×{gpu_words(self.gpus)} in one {self.level} domain"


def shapes_wanted(draft: Draft) -> tuple[Wanted, ...]:
    """The heaviest shapes that run or wait, the heaviest first."""
    total: dict[tuple[object, ...], int] = {}
    example: dict[tuple[object, ...], tuple[int, Wanted]] = {}
    for wanted in _all_wanted(draft):
        request, resources = wanted.request, wanted.request.resources
        key = (wanted.tasks, wanted.level, resources.gpus, resources.share, resources.gpu_memory, request.models,
               request.min_gpu_memory, request.architectures, request.node_selector, request.terms)  # fmt: skip
        total[key] = total.get(key, 0) + wanted.asked
        # the least hungry for CPU speaks for those alike: defragmentation is about GPUs
        if key not in example or (resources.cpu, request.id) < (example[key][0], example[key][1].request.id):
            example[key] = (resources.cpu, wanted)
    heaviest = sorted(total, key=lambda key: (-total[key], example[key][1].request.id))[:MOST_SHAPES]
    whole = sum(total[key] for key in heaviest)
    return tuple(example[key][1]._replace(weight=total[key] / whole, asked=total[key]) for key in heaviest)


def _all_wanted(draft: Draft) -> Iterator[Wanted]:
    known: dict[tuple[object, ...], Wanted] = {}
    for row in draft.fleet.jobs.values():
        if row.queue == NO_QUEUE or (row.job.on_hold and not row.held):
            continue
        for leaf, group in enumerate(row.groups):
            count = group.tasks - group.failed - group.succeeded
            key = (row.requests[leaf].id, group.min, group.topology, row.job.gang.topology)
            if key not in known:
                known[key] = _wanted(draft, row, leaf)
            wanted = known[key]
            if wanted.gpus and count > 0:
                yield wanted._replace(asked=wanted.gpus * count)


def _wanted(draft: Draft, row: JobRow, leaf: int) -> Wanted:
    request, group = row.requests[leaf], row.groups[leaf]
    required = [row.job.gang.topology.required, group.topology.required]
    columns = draft.fleet.columns
    level = gang.required_level(columns, row) if row.single else gang.innermost(columns, required)
    tasks = max(group.min, 1)
    together = tasks > 1 or (level == NVLINK and request.gpus > 1)
    if not (request.gpus and together):
        level = ""  # a single task lies on one node anyway
    return Wanted(request, tasks if level else 1, level, _cost(draft, request), 0.0, 0)


def _cost(draft: Draft, request: TaskRequest) -> int:
    """Grains of one task; slices cannot be pushed together into whole devices, so they do not count."""
    if request.resources.mig or request.resources.cpu_only:
        return 0
    return request.gpus * WHOLE or min(int(draft.fleet.shapes.need(request).min(initial=WHOLE)), WHOLE)


class Usefulness:
    """The wanted shapes' room per node, kept up to date, and what all of it is worth."""

    def __init__(self, draft: Draft, wanted: tuple[Wanted, ...]) -> None:
        self.wanted = wanted
        self._columns = draft.fleet.columns
        self._needs = [draft.fleet.shapes.need(each.request) for each in wanted]
        self.eligible = [draft.fleet.shapes.static(each.request, STATIC_CHECKERS) for each in wanted]
        self.room: list[Ints] = [np.zeros(len(self._columns.nodes), dtype=np.int64) for _ in wanted]
        """Per shape and node: gangs that fit where a gang lies in one node or island, else tasks."""
        self._seen = self._columns.version
        self._refresh(np.arange(len(self._columns.nodes)))

    def sync(self) -> None:
        """Catch up with what changed."""
        version = self._columns.version
        if self._seen != version:
            changed = self._columns.touched.index_since(self._seen)
            self._seen = version
            self._refresh(changed)

    def _refresh(self, nodes: Ints) -> None:
        for i in range(len(self.wanted)):
            mine = nodes[self.eligible[i][nodes]]
            if len(mine):
                self.room[i][mine] = self._room(i, mine)

    def _room(self, i: int, nodes: Ints) -> Ints:
        each = self.wanted[i]
        room = room_on(self._columns, each.request, self._needs[i], nodes, False)
        if each.level in (NODE, NVLINK):
            room = room // each.tasks
        if each.level == NVLINK:
            room = np.minimum(room, _in_islands(self._columns, nodes, each.request.gpus * each.tasks))
        return room

    def room_at(self, i: int, node: int) -> int:
        """The room of one shape on one node at this very moment, whether or not `sync` was called."""
        return int(self._room(i, np.array([node]))[0])

    def fits(self, i: int) -> int:
        """How many gangs of a shape fit now."""
        each = self.wanted[i]
        if each.level in ("", NODE, NVLINK):
            return int(self.room[i].sum())
        level = self._columns.level(each.level)
        return int((self.tasks_per_domain(i)[level.known] // each.tasks).sum())

    def tasks_per_domain(self, i: int) -> Ints:
        """Room for tasks of a shape in each domain of its level."""
        level = self._columns.level(self.wanted[i].level)
        return np.bincount(level.domain, weights=self.room[i], minlength=len(level.names)).astype(np.int64)

    def saturated(self, i: int) -> bool:
        """Whether more room for the shape is worth nothing, since as much as was asked for fits already."""
        return self.fits(i) * self.wanted[i].size >= self.wanted[i].asked

    def usable(self) -> float:
        """Free GPUs that the demand could use, each shape by its weight; in grains."""
        return fsum(each.weight * min(self.fits(i) * each.size, each.asked) for i, each in enumerate(self.wanted))


def _in_islands(columns: Columns, nodes: Ints, gpus: int) -> Ints:
    """How many times so many GPUs are free inside one island, per node."""
    counts = [
        sum((columns.free_mask[n] & mask).bit_count() // gpus for mask in columns.islands[n]) for n in nodes.tolist()
    ]
    return np.array(counts, dtype=np.int64)
