"""Of few who could leave, the sets of them that could be better than what is known already, the cheapest first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from gpuyard.brain.engine.giving_way.clearing import Key
from gpuyard.brain.engine.giving_way.victims import Unit
from gpuyard.brain.engine.picture.job_rows import JobRow


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
        self._bounded = all(takes_as_much_anywhere(unit.row) for unit in units)
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


def takes_as_much_anywhere(row: JobRow) -> bool:
    """Whether the job goes whole or not at all, and takes as much wherever it stands."""
    return row.rigid and row.takes_alike


def _covered(unit: Unit, those: Iterable[Unit]) -> bool:
    """Whether the unit, an extra, goes with its gang already, or is a gang one of whose extras is listed."""
    return any(other.row is unit.row and not (other.extra and unit.extra) for other in those)
