"""Whom a job will not share a domain with, and how much of a pool may be busy in one (rule 14).

These depend on who runs where, so they are asked anew for every task. Most fleets name neither; then nothing is paid.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np

from gpuyard.brain.engine.nodes.columns import Bools, Columns, Held, Ints, Region
from gpuyard.brain.engine.nodes.requests import TaskRequest, has_labels
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.job_rows import NO_QUEUE, JobRow
from gpuyard.brain.engine.placing import devices
from gpuyard.model.job import Avoid, Evenness, Neighbour
from gpuyard.model.node import Pool
from gpuyard.model.reasons import Code
from gpuyard.model.resources import WHOLE
from gpuyard.model.topology import NODE


class ClosedNodes:
    """Nodes closed to the next task, by reason, and whether a node takes at most one task of the job."""

    def __init__(self, closed: dict[Code, Bools], single: bool) -> None:
        self.closed = closed
        self.single = single

    def cut(self, room: Ints, region: Region) -> Ints:
        """The room that remains."""
        if self.single:
            room = np.minimum(room, 1)
        for mask in self.closed.values():
            room = np.where(mask[region.start : region.stop], 0, room)
        return room


def limits(fleet: Fleet, row: JobRow, leaf: int) -> ClosedNodes | None:
    """What neighbours and caps forbid to the next task of a group; None if nothing does. Asked again before anybody
    has moved, the last answer holds."""
    company = fleet.company.concerns(row.requests[leaf])
    if not (fleet.avoiders or fleet.capped or company):
        return None
    asked = (row, leaf, fleet.columns.version, company, fleet.avoiders, fleet.capped)
    last, closed = fleet.closed_last
    if last != asked or not isinstance(closed, ClosedNodes):
        closed = _limits(fleet, row, leaf, company)
        fleet.closed_last = (asked, closed)
    return closed


def closed_for_good(fleet: Fleet, row: JobRow, leaf: int) -> ClosedNodes | None:
    """The same, where it stays forbidden whatever other tasks of the job are placed before; None if nothing does, or if
    one of them may be the neighbour that is sought."""
    opens = fleet.company.heeded and (row.requests[leaf].near or row.requests[leaf].even)
    return None if opens else limits(fleet, row, leaf)


def _limits(fleet: Fleet, row: JobRow, leaf: int, company: bool) -> ClosedNodes:
    caps = fleet.capped
    closed: dict[Code, Bools] = {}
    if fleet.avoiders or company:
        masks = chain(_avoided(fleet, row), _ill_at_ease(fleet, row.requests[leaf]) if company else ())
        closed[Code.NEIGHBOURS] = _union(fleet, masks)
    if caps and not row.requests[leaf].resources.cpu_only:
        opens = _devices_opened(fleet, row, leaf)
        closed[Code.POWER_CAP] = _union(fleet, (_capped(fleet, pool, opens) for pool in caps))
    own = row.avoids is not None and row.avoids.own
    return ClosedNodes(closed, single=own)


def welcome(fleet: Fleet, row: JobRow, held: Held) -> bool:
    """Whether neighbours and caps let a task stand again where it stood, on those very devices."""
    closed = limits(fleet, row, held.leaf)
    if closed is not None and Code.NEIGHBOURS in closed.closed and closed.closed[Code.NEIGHBOURS][held.node]:
        return False
    if not (fleet.capped and held.gpus):
        return True
    opens = np.full(len(fleet.columns.nodes), _opened(fleet.columns, held.node, held.gpus), dtype=np.int64)
    return not any(_capped(fleet, pool, opens)[held.node] for pool in fleet.capped)


def _union(fleet: Fleet, masks: Iterable[Bools]) -> Bools:
    union = np.zeros(len(fleet.columns.nodes), dtype=bool)
    for mask in masks:
        union |= mask
    return union


# --- avoid ------------------------------------------------------------------------------------------------------------


def _avoided(fleet: Fleet, row: JobRow) -> Iterator[Bools]:
    """Domains the job stays out of: because of whom it avoids, and because of who avoids it."""
    if row.avoids is not None:
        yield _domains_of(fleet.columns, row.avoids, _disliked(fleet, row, row.avoids))
        if row.avoids.own:
            yield _domains_of(fleet.columns, row.avoids, fleet.rolls.family(row))
    for name in sorted(fleet.avoiders):
        other = fleet.avoiders[name]
        if other is row or other.avoids is None:
            continue
        akin = other.avoids.own and bool(row.job.family) and row.job.family == other.job.family
        if akin or _named(fleet, row, other.avoids):
            yield _domains_of(fleet.columns, other.avoids, [other])


def _disliked(fleet: Fleet, row: JobRow, avoid: Avoid) -> list[JobRow]:
    return [other for other in fleet.jobs.values() if other is not row and other.held and _named(fleet, other, avoid)]


def _named(fleet: Fleet, row: JobRow, avoid: Avoid) -> bool:
    """Whether the job stands in one of the queues, or below it."""
    if row.queue == NO_QUEUE:
        return False
    path = {fleet.tree.queues[q].name for q in fleet.tree.paths[row.queue]}
    return any(queue in path for queue in avoid.queues)


def _domains_of(columns: Columns, avoid: Avoid, rows: Iterable[JobRow]) -> Bools:
    level = columns.levels.get(avoid.level, columns.levels[NODE])
    taken = np.zeros(len(level.names), dtype=bool)
    for row in rows:
        for held in row.held:
            taken[level.domain[held.node]] = True
    return taken[level.domain]


# --- company ----------------------------------------------------------------------------------------------------------


def _ill_at_ease(fleet: Fleet, request: TaskRequest) -> Iterator[Bools]:
    """Nodes where the next task would lack a neighbour, have one too many, or lie unevenly."""
    company, columns = fleet.company, fleet.columns
    for term in request.apart:
        yield _domains_with(columns, term.level, company.counts(term.labels))
    for term in company.against(request):
        yield _domains_with(columns, term.level, company.counts(term))
    for term in request.near:
        counts, levels = (
            company.counts(term.labels),
            {each.level for each in request.near if each.labels == term.labels},
        )
        known = [_known(columns, level) for level in sorted(levels)]  # one who is sought at several levels is one
        if not counts[_union(fleet, known)].any() and company.means(term.labels, request):
            yield ~_known(columns, term.level)  # the first who seek each other; in no domain of theirs nobody counts
        else:
            yield ~_domains_with(columns, term.level, counts)
    for even in request.even:
        yield _uneven(fleet, request, even)


def _domains_with(columns: Columns, name: str, counts: Ints) -> Bools:
    """Nodes of those domains where at least one stands; a node without a domain is in none."""
    level = columns.levels.get(name)
    if level is None:
        return np.zeros(len(columns.nodes), dtype=bool)
    there: Bools = (np.bincount(level.domain, weights=counts, minlength=len(level.names)) > 0) & level.known
    return there[level.domain]


def _known(columns: Columns, name: str) -> Bools:
    level = columns.levels.get(name)
    return np.zeros(len(columns.nodes), dtype=bool) if level is None else level.known[level.domain]


def _uneven(fleet: Fleet, request: TaskRequest, even: Evenness) -> Bools:
    """Nodes of domains that would have too many above the least. Nodes that it does not ask for are not compared, nor
    those that lack a level of any of its wishes for evenness, and nobody on them counts: as Kubernetes has it."""
    columns = fleet.columns
    level = columns.levels.get(even.level)
    if level is None:
        return np.ones(len(columns.nodes), dtype=bool)
    among = _compared(fleet, request, even)
    compared = np.bincount(level.domain, weights=among, minlength=len(level.names)) > 0
    sums = np.bincount(level.domain, weights=fleet.company.counts(even) * among, minlength=len(level.names))
    least = int(sums[compared].min()) if compared.any() and compared.sum() >= even.least_domains else 0
    one = fleet.company.means(even, request)
    closed: Bools = ~compared | (sums + one - least > even.skew)
    return closed[level.domain]


def _compared(fleet: Fleet, request: TaskRequest, even: Evenness) -> Bools:
    shapes = fleet.shapes
    found = shapes.static(request, (has_labels,)) if even.among is None else shapes.meeting(even.among)
    for other in request.even:
        found = found & _known(fleet.columns, other.level)
    return found


def words(fleet: Fleet, row: JobRow) -> str:
    """Who has a say in where the job's tasks stand, for people."""
    told = []
    for request in row.requests:
        told += [f"having to stand near {_tasks(term)}" for term in request.near]
        told += [f"having to stand apart from {_tasks(term)}" for term in request.apart]
        told += [f"having to lie evenly among {_tasks(term)}" for term in request.even]
        told += [f"those who keep apart from {_tasks(term)}" for term in fleet.company.against(request)]
    if row.avoids is not None or fleet.avoiders:
        told.append("those it avoids or who avoid it")
    return " and ".join(dict.fromkeys(told))


def _tasks(term: Neighbour | Evenness) -> str:
    """Tasks by their labels, and the level."""
    named = " and ".join(" ".join(filter(None, (e.key, e.operator, ", ".join(e.values)))) for e in term.labels)
    return f"tasks with {named or 'any labels'} by {term.level}"


# --- caps -------------------------------------------------------------------------------------------------------------


def _capped(fleet: Fleet, pool: Pool, opens: Ints) -> Bools:
    """Nodes of the pool where so many devices more would be too many."""
    columns = fleet.columns
    members = np.array([node.pool == pool.name for node in columns.nodes], dtype=bool)
    closed = np.zeros(len(columns.nodes), dtype=bool)
    for name, cap in pool.max_busy:
        level = columns.levels.get(name)
        if level is not None:
            busy = np.bincount(level.domain, weights=columns.opened * members, minlength=len(level.names))
            closed |= members & (busy[level.domain] + opens > cap)
    return closed


def _devices_opened(fleet: Fleet, row: JobRow, leaf: int) -> Ints:
    """Devices the next task would newly put to use on each node; a share or a slice may join one already in use."""
    request, columns = row.requests[leaf], fleet.columns
    if request.gpus:
        return np.full(len(columns.nodes), request.gpus, dtype=np.int64)
    if request.shared:
        need = fleet.shapes.need(request)
        shared = (columns.shares < WHOLE) & (columns.shares >= need[:, None])
        joins = (shared & (columns.trusted > 0)).any(axis=1)  # a free healthy device comes before a suspect shared one
        return np.where(joins, 0, 1)
    picks = (devices.pick(columns, request, n, -1) if columns.sliced[n] else None for n in range(len(columns.nodes)))
    opened = [0 if pick is None else _opened(columns, n, pick[0]) for n, pick in enumerate(picks)]
    return np.array(opened, dtype=np.int64)


def _opened(columns: Columns, node: int, gpus: Iterable[int]) -> int:
    """How many of these devices nobody uses."""
    return sum(not columns.used[node][g] for g in set(gpus))
