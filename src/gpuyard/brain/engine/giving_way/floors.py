"""Bounds before the search: what it costs at least that somebody leaves.

Of a node it is told from who stands there without weighing any set of them, so that `clearing` weighs only nodes that
could be the cheapest and leaves out those that no set of leavers would clear. Of few leavers, only those sets are tried
that could be better than what is known already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from math import inf
from typing import NamedTuple

from gpuyard.brain.engine.giving_way import victims
from gpuyard.brain.engine.giving_way.clearing import Key
from gpuyard.brain.engine.giving_way.victims import Unit
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.brain.engine.sharing.amounts import GPUS


def least_key(draft: Draft, claimant: JobRow, rows: Iterable[JobRow], node: int, short: int) -> Key | None:
    """A key of rule 19 that no set of these jobs is below which leaves `short` more devices free.

    () where they must be weighed, None where there is no such set.
    """
    if short <= 0:
        return ()
    there, devices, grains = on_devices((row for row in rows if not row.firm and not row.job.foreign), node)
    if sum(devices) < short:
        return None
    gangs, least = -(-short // max(devices)), min(grains)
    if not least:
        return ()  # a stand-in holds devices at no cost
    own, priority, lost_s, youth = True, there[0].priority, inf, there[0].youth
    for row in there:
        if not row.rigid:
            return ()  # it may give extras alone
        own = own and row.queue == claimant.queue
        priority = min(priority, row.priority)
        lost_s = min(lost_s, lost(draft, row))
        youth = min(youth, row.youth)
    pushes = (False, False) if own else _pushes(draft, claimant, zip(there, devices, strict=True), short, least)
    return own, True, *pushes, priority, 0, lost_s * short * least, gangs, gangs, youth


def on_devices(rows: Iterable[JobRow], node: int) -> tuple[list[JobRow], list[int], list[float]]:
    """Those of the jobs that have devices of the node, how many fall free at most when each leaves, what each costs."""
    there: list[JobRow] = []
    devices: list[int] = []
    grains: list[float] = []
    for row in rows:
        count = cost = 0
        for held in row.held:
            if held.gpus and held.node == node and not held.mig and not held.terminating:
                count += len(held.gpus)
                cost += held.cost
        if count:
            there.append(row)
            devices.append(count)
            grains.append(cost / count)
    return there, devices, grains


def lost(draft: Draft, row: JobRow) -> float:
    """What stopping the job loses for each of its GPUs, in seconds."""
    return victims.unsaved(draft, row) + victims.warm_up(draft, row)


def _pushes(
    draft: Draft, claimant: JobRow, devices: Iterable[tuple[JobRow, int]], short: int, least: float
) -> tuple[bool, bool]:
    """Whether other queues must fall below their quota, and below their fair share, to give what the own cannot."""
    by_queue: Counter[int] = Counter()
    for row, count in devices:
        by_queue[row.queue] += count
    below_quota: float = short - by_queue.pop(claimant.queue, 0)
    below_share = below_quota
    used, quota, shares = draft.fleet.tree.used, draft.fleet.tree.quota, draft.shares
    for q, count in by_queue.items():
        held = used[q][GPUS]
        below_quota -= min(count, max(0, held - quota[q][GPUS]) // least)
        below_share -= min(count, max(0, held - shares[q][GPUS]) // least)
    return below_quota > 0, below_share > 0


# --- few leavers ------------------------------------------------------------------------------------------------------


class Weighing(NamedTuple):
    """How sets are weighed."""

    key: Callable[[tuple[Unit, ...]], Key]
    """Never falls when somebody joins."""
    suffice: Callable[[tuple[Unit, ...]], bool]
    """A bound: whether what is free and what these hold is as much as lacks."""
    may_stop: Callable[[tuple[Unit, ...]], bool]
    """A bound: whether these, and nobody else, may be those who stop in the end."""
    better: Callable[[Key], bool]
    """Whether an outcome that stops a set of this key could be better than the best so far; () if it stops nobody."""


class FewSets:
    """Sets of units that may suffice, in order of their keys.

    Whoever stops in the end must suffice, for who moves takes as much elsewhere as was freed here. All sets within
    another have smaller keys and are met before it, so it is worth a try only if one of them suffices, may stop, and
    could be better than the best so far. That is not known of gangs that give single tasks, and of tasks that take more
    of one card than of another: where there are any, every set that may suffice is worth a try.
    """

    def __init__(self, units: list[Unit], most: int, weigh: Weighing) -> None:
        self.units = units
        self.most = most
        self.weigh = weigh
        self._bounded = all(_as_much_anywhere(unit) for unit in units)
        self._enough: list[tuple[Key, frozenset[int]]] = []
        if weigh.suffice(()) and weigh.may_stop(()):
            self._enough.append(((), frozenset()))

    def cheapest_first(self) -> Iterator[tuple[Unit, ...]]:
        """Those worth a try, of so many units at most."""
        heap: list[tuple[Key, tuple[int, ...]]] = [(self.weigh.key((unit,)), (i,)) for i, unit in enumerate(self.units)]
        heapify(heap)
        while heap:
            key, chosen = heappop(heap)
            if self._bounded and not self._any_better_than(key):
                return
            those = tuple(self.units[i] for i in chosen)
            if self.weigh.suffice(those) and self._worth_a_try(key, those, frozenset(chosen)):
                yield those
            for i in range(chosen[-1] + 1, len(self.units) if len(chosen) < self.most else 0):
                if not _covered(self.units[i], those):
                    heappush(heap, (self.weigh.key((*those, self.units[i])), (*chosen, i)))

    def _any_better_than(self, key: Key) -> bool:
        """Whether anything that is left, this key and dearer ones, could still be better."""
        self._enough = [known for known in self._enough if self.weigh.better(known[0])]
        return bool(self._enough) or self.weigh.better(key)

    def _worth_a_try(self, key: Key, those: tuple[Unit, ...], chosen: frozenset[int]) -> bool:
        if not self._bounded:
            return True
        if self.weigh.better(key) and self.weigh.may_stop(those):
            self._enough.append((key, chosen))
        return any(stopped <= chosen for _, stopped in self._enough)


def _as_much_anywhere(unit: Unit) -> bool:
    """Whether it goes whole or not at all, and takes as much wherever it stands."""
    return unit.row.rigid and all(request.cost is not None for request in unit.row.requests)


def _covered(unit: Unit, those: Iterable[Unit]) -> bool:
    """Whether the unit, an extra, goes with its gang already, or is a gang one of whose extras is listed."""
    return any(other.row is unit.row and not (other.extra and unit.extra) for other in those)
