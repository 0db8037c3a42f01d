"""Bounds before the search: what it costs at least that somebody leaves.

Of a node it is told from who stands there without weighing any set of them, so that `clearing` weighs only nodes that
could be the cheapest and leaves out those that no set of leavers would clear.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate
from math import fsum
from operator import attrgetter

from gpuyard.brain.engine.giving_way import victims
from gpuyard.brain.engine.giving_way.clearing import Key
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.brain.engine.picture.known.holders import DEVICE, is_on_devices, parts_of, sharers_of
from gpuyard.brain.engine.sharing.amounts import GPUS

HALF_A_PART = 0.5
"""Less than this is no lack: what a queue can give is divided, and comes out a hair above or below."""


A_HAIR_LESS = 1 - 2.0**-48
"""Losses are divided by parts and added up in another order than those of a set, and come out a hair above them."""


def least_key(draft: Draft, claimant: JobRow, rows: Iterable[JobRow], node: int, short: int) -> Key | None:
    """A key of rule 19 that no set of these jobs is below which leaves `short` more devices free.

    () where they must be weighed, None where there is no such set.
    """
    if short <= 0:
        return ()
    there, parts, costs = _parts_on(draft, (row for row in rows if not row.firm and not row.job.foreign), node)
    lacking = short * DEVICE
    if sum(parts) < lacking:
        return None
    gangs, least = -(-lacking // max(parts)), min(cost / part for cost, part in zip(costs, parts, strict=True))
    if not least:
        return ()  # a stand-in holds devices at no cost
    if not all(row.rigid for row in there):
        return ()  # somebody may give extras alone
    own, priority = all(row.queue == claimant.queue for row in there), min(row.priority for row in there)
    pushes = (False, False) if own else _pushes(draft, claimant, zip(there, parts, strict=True), lacking, least)
    losses = [(lost(draft, row), cost, part) for row, cost, part in zip(there, costs, parts, strict=True)]
    return own, True, *pushes, priority, 0, _least_lost(losses, lacking), gangs, gangs, there[0].youth


def least_stopped(draft: Draft, claimant: JobRow, rows: Sequence[JobRow], lacking: int) -> Key | None:
    """A key of rule 19 that no set of these jobs, who go whole, is below which hold `lacking` grains together; () where
    nobody has to stop, None where there is no such set."""
    if lacking <= 0:
        return ()  # perhaps nobody has to stop
    costs = [victims.whole(row).cost for row in rows]
    if sum(costs) < lacking:
        return None
    own, priority = all(row.queue == claimant.queue for row in rows), min(row.priority for row in rows)
    pushes = (False, False) if own else _pushes(draft, claimant, zip(rows, costs, strict=True), lacking, 1)
    losses = [(lost(draft, row), cost, cost) for row, cost in zip(rows, costs, strict=True) if cost]
    gangs = bisect_left(list(accumulate(sorted(costs, reverse=True))), lacking) + 1
    youth = min(row.youth for row in rows)
    return own, True, *pushes, priority, 0, _least_lost(losses, lacking), gangs, gangs, youth


def on_devices(rows: Iterable[JobRow], node: int) -> tuple[list[JobRow], list[int], list[float]]:
    """Those of the jobs that have devices of the node, how many fall free at most when each leaves, what each costs."""
    there: list[JobRow] = []
    devices: list[int] = []
    grains: list[float] = []
    for row in rows:
        count = cost = 0
        for held in row.held:
            if held.node == node and is_on_devices(held):
                count += len(held.gpus)
                cost += held.cost
        if count:
            there.append(row)
            devices.append(count)
            grains.append(cost / count)
    return there, devices, grains


def _parts_on(draft: Draft, rows: Iterable[JobRow], node: int) -> tuple[list[JobRow], list[int], list[int]]:
    """Those of the jobs that have devices of the node, the younger first, how many parts of them, and what these
    cost."""
    sharers = sharers_of(draft.fleet.tenants[node], node)
    found = [(row, *parts_of(row, node, sharers)) for row in sorted(rows, key=attrgetter("age"), reverse=True)]
    there = [each for each in found if each[1]]
    return [row for row, _, _ in there], [parts for _, parts, _ in there], [cost for _, _, cost in there]


def lost(draft: Draft, row: JobRow) -> float:
    """What stopping the job loses for each of its GPUs, in seconds."""
    return victims.unsaved(draft, row) + victims.warm_up(draft, row)


def _least_lost(losses: list[tuple[float, int, int]], lacking: int) -> float:
    """What is lost at least if so many parts fall free, of jobs that lose so much for each grain, cost so much and have
    so many: the cheapest, whoever else would have to go with them."""
    exact = len({parts for _, _, parts in losses}) == 1 and lacking % losses[0][2] == 0  # so many of them, undivided
    terms = []
    for each, cost, parts in sorted(losses, key=lambda loss: (loss[0] * loss[1] / loss[2], loss[0] * loss[1])):
        terms.append(each * cost if parts <= lacking else each * cost * (lacking / parts))
        lacking -= parts
        if lacking <= 0:
            break
    return fsum(terms) * (1 if exact else A_HAIR_LESS)


def _pushes(
    draft: Draft, claimant: JobRow, parts: Iterable[tuple[JobRow, int]], lacking: int, least: float
) -> tuple[bool, bool]:
    """Whether other queues must fall below their quota, and below their fair share, to give what the own cannot; each
    part costs so much at least."""
    by_queue: Counter[int] = Counter()
    for row, count in parts:
        by_queue[row.queue] += count
    below_quota: float = lacking - by_queue.pop(claimant.queue, 0)
    below_share = below_quota
    used, quota, shares = draft.fleet.tree.used, draft.fleet.tree.quota, draft.shares
    for q, count in by_queue.items():
        held = used[q][GPUS]
        below_quota -= min(count, max(0, held - quota[q][GPUS]) / least)
        below_share -= min(count, max(0, held - shares[q][GPUS]) / least)
    return below_quota > HALF_A_PART, below_share > HALF_A_PART
