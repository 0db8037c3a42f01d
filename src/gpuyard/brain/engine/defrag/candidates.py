"""Where one more gang of a wanted shape could be made to fit, and what clearing that would cost at least.

Called by defragmentation, which then tries the most promising candidates for real. Costs are GPU-seconds per device,
worked out once for all nodes, so that every node, island and domain is weighed by array arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from gpuyard.brain.engine.defrag.usefulness import Usefulness
from gpuyard.brain.engine.giving_way import victims
from gpuyard.brain.engine.giving_way.victims import Unit
from gpuyard.brain.engine.nodes.columns import Columns, Held, Ints
from gpuyard.brain.engine.nodes.demand import Floats
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.model.resources import WHOLE
from gpuyard.model.topology import NODE, NVLINK

PER_SHAPE = 6
"""Spots that are worth a closer look, per shape."""

BOTHER = 1.0
"""GPU-seconds that disturbing a job counts in the order of candidates, so that free moves are as few as can be."""

UnitAt = Callable[[JobRow, Held], Unit | None]
"""What would have to leave so that a task gives its place back; None if it may not."""


class NodeGoal(NamedTuple):
    """Room for so many of the shape on a node, by freeing devices of `mask`."""

    node: int
    mask: int
    room: int


class Candidate(NamedTuple):
    """Goals that together let one more gang of the shape fit; the least it costs, the most it gains a second."""

    shape: int
    goals: tuple[NodeGoal, ...]
    cost_gpu_s: float
    worth_gpus: float


class DeviceCosts:
    """GPU-seconds lost per device if everybody on it leaves: 0 where free, infinite where somebody must stay."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        columns = draft.fleet.columns
        self.costs = np.zeros((len(columns.nodes), columns.width))
        self._seen = -1

    def sync(self, unit_at: UnitAt) -> Floats:
        """The costs as they are now."""
        columns = self._draft.fleet.columns
        changed = sorted(columns.touched.since(self._seen))
        self._seen = columns.version
        self._refresh(changed, unit_at)
        return self.costs

    def _refresh(self, nodes: Sequence[int], unit_at: UnitAt) -> None:
        fleet, costs = self._draft.fleet, self.costs
        here = set(nodes)
        costs[nodes] = 0.0
        for row in {row.name: row for node in nodes for row in fleet.tenants[node]}.values():
            known: dict[tuple[Held, ...], float] = {}
            for held in row.held:
                if held.node in here and held.gpus and not held.mig:
                    cost = self._per_device(unit_at(row, held), known)
                    for g in held.gpus:
                        costs[held.node, g] += cost
        for node in nodes:
            closed = ~fleet.columns.usable[node]
            costs[node, [g for g in range(costs.shape[1]) if closed >> g & 1]] = np.inf

    def _per_device(self, unit: Unit | None, known: dict[tuple[Held, ...], float]) -> float:
        """An equal part of a unit's cost for each of its devices: all of them together never count for more."""
        if unit is None:
            return np.inf
        cost = known.get(unit.places)
        if cost is None:
            devices = sum(len(held.gpus) for held in unit.places)
            cost = known[unit.places] = (victims.lost_work(self._draft, unit) / WHOLE + BOTHER) / devices
        return cost


def promising(columns: Columns, useful: Usefulness, costs: Floats) -> list[Candidate]:
    """The cheapest few candidates of every shape that is still of use."""
    found: list[Candidate] = []
    for i, each in enumerate(useful.wanted):
        if useful.saturated(i):
            continue
        worth = each.weight * each.size / WHOLE
        if each.level == NVLINK:
            options = _islands(columns, useful, costs, i)
        elif each.level in ("", NODE):
            options = _nodes(columns, useful, costs, i)
        else:
            options = _domains(columns, useful, costs, i)
        cheapest = sorted(options, key=lambda option: (option[0], option[1]))[:PER_SHAPE]
        found += [Candidate(i, goals, cost, worth) for cost, goals in cheapest]
    return found


Option = tuple[float, tuple[NodeGoal, ...]]


def _nodes(columns: Columns, useful: Usefulness, costs: Floats, i: int) -> Iterator[Option]:
    prices = _price_of_next(columns, useful, costs, i)
    for node in np.argsort(prices, kind="stable")[:PER_SHAPE].tolist():
        if np.isfinite(prices[node]):
            yield float(prices[node]), (NodeGoal(node, columns.usable[node], int(useful.room[i][node]) + 1),)


def _price_of_next(columns: Columns, useful: Usefulness, costs: Floats, i: int) -> Floats:
    """Per node the least cost of room for one more gang of one node (or one more task)."""
    each, room = useful.wanted[i], useful.room[i]
    wanted = np.maximum(each.request.gpus * each.tasks * (room + 1), columns.whole + 1)
    prices = _sums(costs)[np.arange(len(room)), np.minimum(wanted, columns.width)]
    priced: Floats = np.where(useful.eligible[i] & (wanted <= columns.width), prices, np.inf)
    return priced


def _sums(costs: Floats) -> Floats:
    """The cost of freeing the k cheapest devices of each node, for every k from 0."""
    sums: Floats = np.cumsum(np.sort(costs, axis=1), axis=1)
    return np.concatenate([np.zeros((len(sums), 1)), sums], axis=1)


def _islands(columns: Columns, useful: Usefulness, costs: Floats, i: int) -> Iterator[Option]:
    """One more gang inside one NVLink island."""
    each = useful.wanted[i]
    size = each.request.gpus * each.tasks
    layouts = np.array(columns.layout)
    for layout, masks in enumerate(columns.island_masks):
        nodes = np.flatnonzero((layouts == layout) & useful.eligible[i])
        for mask in masks if len(nodes) else ():
            devices = np.array([g for g in range(columns.width) if mask >> g & 1], dtype=np.int64)
            inside = costs[nodes[:, None], devices]
            wanted = ((inside == 0).sum(axis=1) // size + 1) * size
            prices = _sums(inside)[np.arange(len(nodes)), np.minimum(wanted, inside.shape[1])]
            prices = np.where(wanted <= inside.shape[1], prices, np.inf)
            for at in np.argsort(prices, kind="stable")[:PER_SHAPE].tolist():
                if np.isfinite(prices[at]):
                    node = int(nodes[at])
                    yield float(prices[at]), (NodeGoal(node, mask, int(useful.room[i][node]) + 1),)


def _domains(columns: Columns, useful: Usefulness, costs: Floats, i: int) -> Iterator[Option]:
    """One more gang inside one domain of the shape's level: the cheapest further tasks of its nodes."""
    each = useful.wanted[i]
    level, rooms = columns.level(each.level), useful.tasks_per_domain(i)
    steps = _prices_of_further(columns, useful, costs, i)
    for domain in np.flatnonzero(level.known).tolist():
        region = level.region(domain)
        lacking = each.tasks - int(rooms[domain]) % each.tasks
        inside = steps[region.start : region.stop]
        order = np.argsort(inside, axis=None, kind="stable")[:lacking]
        price = float(inside.ravel()[order].sum()) if len(order) == lacking else np.inf
        if np.isfinite(price):
            picked = np.bincount(order // inside.shape[1], minlength=len(inside))
            yield price, _goals(columns, useful.room[i], region.start, picked)


def _prices_of_further(columns: Columns, useful: Usefulness, costs: Floats, i: int) -> Floats:
    """Per node what the first, second, ... further task costs more than the one before."""
    gpus, room = useful.wanted[i].request.gpus, useful.room[i]
    sums = _sums(costs)
    most = max(columns.width // gpus, 1)
    ends = gpus * (room[:, None] + np.arange(most + 1))
    # where not devices but CPU or memory are short, somebody must leave all the same
    ends[:, 1:] = np.maximum(ends[:, 1:], columns.whole[:, None] + 1)
    at = np.take_along_axis(sums, np.minimum(ends, columns.width), axis=1)
    at = np.where((ends <= columns.width) & useful.eligible[i][:, None], at, np.inf)
    at[:, 0] = 0.0
    with np.errstate(invalid="ignore"):
        steps: Floats = np.diff(at, axis=1)
    return np.where(np.isfinite(steps), steps, np.inf)


def _goals(columns: Columns, room: Ints, start: int, picked: Ints) -> tuple[NodeGoal, ...]:
    """Further tasks where they were picked; nodes that have room already must keep it."""
    inside = room[start : start + len(picked)]
    return tuple(
        NodeGoal(start + at, columns.usable[start + at], int(inside[at] + picked[at]))
        for at in np.flatnonzero((picked > 0) | (inside > 0)).tolist()
    )
