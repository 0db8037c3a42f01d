"""What the free rest of a shared device is worth to the demand: prices from the best way to fill devices.

The fewest devices that hold the fractions asked for, in their proportions, is a cutting-stock programme; its dual
prices say what each fraction is worth, and a rest is worth the dearest set of fractions it holds. So a rest of 0.19
beside tasks of 0.81 is worth nothing if nobody asks for so little, and half a device is kept for its other half.
Asked by `demand` when the demand changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, reduce
from math import gcd

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

STEPS = 1000
"""Parts of a device that are told apart."""
MOST_PIVOTS = 500
"""Beyond this the prices are good enough; fifty are usual."""
NOTHING = 1e-9


@lru_cache(maxsize=256)
def values(demand: tuple[tuple[int, float], ...]) -> Floats:
    """Worth of a rest by its size, 0..STEPS, in devices; `demand` holds (size, tasks) of fractions, each size once."""
    found = np.zeros(STEPS + 1)
    found[STEPS] = 1.0
    if demand:
        unit = reduce(gcd, (size for size, _ in demand), STEPS)
        worth = _Stock(unit, demand).worth()
        found = worth[np.arange(STEPS + 1) // unit] / (worth[-1] or 1.0)
    found.flags.writeable = False
    return found


class _Stock:
    """The programme, solved by column generation: a pattern is how many fractions of each size one device holds."""

    def __init__(self, unit: int, demand: Sequence[tuple[int, float]]) -> None:
        self.sizes = np.array([size // unit for size, _ in demand], dtype=np.int64)
        self.tasks = np.array([tasks for _, tasks in demand], dtype=float)
        self.room = STEPS // unit
        self.basis = np.diag((self.room // self.sizes).astype(float))
        self.cost = np.ones(len(self.sizes))

    def worth(self) -> Floats:
        """The worth of every rest at the best prices."""
        for _ in range(MOST_PIVOTS):
            prices: Floats = np.linalg.solve(self.basis.T, self.cost).astype(np.float64)
            cheapest = int(prices.argmin())
            worth = _fill(self.sizes, np.maximum(prices, 0.0), self.room)
            if prices[cheapest] < -NOTHING:
                self._enter(-np.eye(len(prices))[cheapest], 0.0)  # serving more than is asked costs nothing
            elif worth[-1] > 1 + 1e-7:
                self._enter(self._pattern(worth, prices), 1.0)
            else:
                break
        return worth

    def _pattern(self, worth: Floats, prices: Floats) -> Floats:
        """A dearest way to fill one device."""
        pattern, room = np.zeros(len(prices)), self.room
        while room > 0:
            fitting = np.flatnonzero((self.sizes <= room) & (prices > NOTHING))
            rests = worth[room - self.sizes[fitting]] + prices[fitting]
            if len(fitting) and rests.max() >= worth[room] - NOTHING:
                taken = int(fitting[rests.argmax()])
                pattern[taken] += 1
                room -= int(self.sizes[taken])
            else:
                room -= 1
        return pattern

    def _enter(self, column: Floats, cost: float) -> None:
        """The column takes the place of the one that it uses up first."""
        used, needed = np.linalg.solve(self.basis, self.tasks), np.linalg.solve(self.basis, column)
        ratio = np.full(len(used), np.inf)
        positive = needed > NOTHING
        ratio[positive] = np.maximum(used[positive], 0.0) / needed[positive]
        leaves = int(ratio.argmin())
        self.basis[:, leaves] = column
        self.cost[leaves] = cost


def _fill(sizes: Ints, prices: Floats, room: int) -> Floats:
    """The most that fits into every size of rest, by price: an unbounded knapsack."""
    worth = np.zeros(room + 1)
    while True:
        before = worth.copy()
        for size, price in zip(sizes.tolist(), prices.tolist(), strict=True):
            if price > 0:
                np.maximum(worth[size:], before[: room + 1 - size] + price, out=worth[size:])
        np.maximum.accumulate(worth, out=worth)
        if (worth - before).max(initial=0.0) < 1e-12:
            return worth
