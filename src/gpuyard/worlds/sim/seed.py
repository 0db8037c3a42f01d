"""Chance from a seed: the one module of the simulator that makes random numbers.

Called by the trace readers (order of arrival, inflation) and by `faults`. `GoDice` follows Go's `math/rand` number
for number, so that a run with seed 42 meets the same arrivals as the published run with seed 42; `SeededDice` is
Python's own generator for everything that has no published counterpart.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T")

LENGTH, TAP = 607, 273
"""Go's generator is additive: each word is the sum of those 607 and 273 before it, in 64 bits."""
WARMED_UP = 7_800_000_000_000
"""How many words Go's authors drew before they printed the state that every seed is mixed into."""
MERSENNE = (1 << 31) - 1
ZERO_SEED = 89_482_311

Words = npt.NDArray[np.uint64]


class SeededDice:
    """A `Dice` of `model.outside.ports` by Python's generator."""

    def __init__(self, seed: int) -> None:
        self._source = random.Random(seed)

    def random(self) -> float:
        """Uniform in [0, 1)."""
        return self._source.random()

    def integer(self, below: int) -> int:
        """Uniform in 0..below-1."""
        return self._source.randrange(below)

    def exponential(self, mean: float) -> float:
        """The time until the next event of a Poisson process."""
        return self._source.expovariate(1.0 / mean)

    def lognormal(self, median: float, sigma: float) -> float:
        """A positive amount with a long tail."""
        return median * self._source.lognormvariate(0.0, sigma)


class GoDice:
    """The numbers that `rand.New(rand.NewSource(seed))` gives in Go."""

    def __init__(self, seed: int) -> None:
        self._words = [int(word) for word in _seeded(seed)]
        self._tap, self._feed = 0, LENGTH - TAP

    def int63(self) -> int:
        """Uniform in 63 bits."""
        self._tap = (self._tap - 1) % LENGTH
        self._feed = (self._feed - 1) % LENGTH
        word = (self._words[self._feed] + self._words[self._tap]) & 0xFFFF_FFFF_FFFF_FFFF
        self._words[self._feed] = word
        return word & 0x7FFF_FFFF_FFFF_FFFF

    def random(self) -> float:
        """Uniform in [0, 1)."""
        return (self.int63() >> 10) / float(1 << 53)

    def integer(self, below: int) -> int:
        """Go's `Intn`: the remainder of 31 bits, those that would favour small numbers thrown away."""
        if below & (below - 1) == 0:
            return (self.int63() >> 32) & (below - 1)
        most = MERSENNE - (1 << 31) % below
        while (value := self.int63() >> 32) > most:
            pass
        return value % below

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """Go's `Shuffle`: from the end, each swapped with one at or before it."""
        found = list(items)
        for i in range(len(found) - 1, 0, -1):
            j = self._scaled(i + 1)
            found[i], found[j] = found[j], found[i]
        return found

    def _scaled(self, below: int) -> int:
        """Go's unexported `int31n`: the high half of a product instead of a remainder."""
        product = (self.int63() >> 31) * below
        low = product & 0xFFFF_FFFF
        if low < below:
            least = ((1 << 32) - below) % below
            while low < least:
                product = (self.int63() >> 31) * below
                low = product & 0xFFFF_FFFF
        return product >> 32


# --- Go's seeding, from its published description ---------------------------------------------------------------------


def _seeded(seed: int) -> Words:
    return _spread(seed, 40, 20) ^ _warm_state()


def _spread(seed: int, high: int, middle: int) -> Words:
    """607 words from a seed by the Park-Miller generator, three draws a word."""
    x = seed % MERSENNE or ZERO_SEED
    words = []
    for i in range(-20, LENGTH):
        x = x * 48_271 % MERSENNE
        if i >= 0:
            word = x << high
            x = x * 48_271 % MERSENNE
            word ^= x << middle
            x = x * 48_271 % MERSENNE
            words.append((word ^ x) & 0xFFFF_FFFF_FFFF_FFFF)
    return np.array(words, dtype=np.uint64)


@lru_cache(maxsize=1)
def _warm_state() -> Words:
    """The state after `WARMED_UP` draws from seed 1, by raising the recurrence to that power instead of drawing.

    With s(n) = s(n-607) + s(n-273), x^n reduced modulo x^607 - x^334 - 1 gives word n as a sum of the first 607.
    """
    begun = _spread(1, 20, 10)
    first = begun[[_slot(k) for k in range(LENGTH)]]
    state = np.empty(LENGTH, dtype=np.uint64)
    power = _power_of_x(WARMED_UP)
    for k in range(WARMED_UP, WARMED_UP + LENGTH):
        state[_slot(k)] = (power * first).sum()
        power = _times_x(power)
    return state


def _slot(k: int) -> int:
    """Where word k lies: draws fill the vector downwards, from just below the feed."""
    return (LENGTH - TAP - 1 - k) % LENGTH


def _power_of_x(exponent: int) -> Words:
    result = np.zeros(LENGTH, dtype=np.uint64)
    result[0] = 1
    for bit in bin(exponent)[2:]:
        result = _reduced(np.convolve(result, result))
        if bit == "1":
            result = _times_x(result)
    return result


def _reduced(long: Words) -> Words:
    """Fold every power from 607 up, in steps so short that none folds onto itself."""
    folded, top = long.copy(), len(long)
    while top > LENGTH:
        low = max(LENGTH, top - TAP)
        folded[low - LENGTH : top - LENGTH] += folded[low:top]
        folded[low - TAP : top - TAP] += folded[low:top]
        top = low
    return folded[:LENGTH]


def _times_x(polynomial: Words) -> Words:
    moved = np.roll(polynomial, 1)
    moved[LENGTH - TAP : LENGTH - TAP + 1] += moved[:1]
    return moved
