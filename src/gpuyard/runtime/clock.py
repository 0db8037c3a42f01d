"""The machine's clock and dice, and a clock that is steady where the machine's is set: the system is asked here alone.

Called where a program begins (`cli`, `server`), which hands it on as a `Clock`. It is not used by the brain, to which
time is an argument, nor by the simulator, which has its own.
"""

from __future__ import annotations

import os
import threading
import time

from gpuyard.model.outside.ports import Clock

HURRY = 1.0
LAG = 0.5
"""By what part of the time that passes a steady clock goes faster or slower to meet the machine's again."""
PLAINLY_WRONG_S = 86400.0
"""Who was off by more than a day had no time to begin with, as a machine whose clock has no battery."""


class SystemClock:
    """A `Clock` of `model.outside.ports` that tells the real time and really waits."""

    def now(self) -> float:
        """Seconds since the epoch, UTC."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds from an arbitrary start that never go back; for measuring."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Waits, and lets others work meanwhile."""
        import asyncio  # costs 40 ms, which commands that only read the clock need not pay

        await asyncio.sleep(seconds)


class SystemDice:
    """A `Dice` of `model.outside.ports` that nobody can foresee."""

    def random(self) -> float:
        """Uniform in [0, 1)."""
        return int.from_bytes(os.urandom(7), "big") / (1 << 56)

    def integer(self, below: int) -> int:
        """Uniform in 0..below-1."""
        return int(self.random() * below)


class SteadyClock:
    """A `Clock` whose time never jumps and never goes back: what is decided by how long something took stays right.

    When the machine's time is set, this one goes on from where it was and meets it again by and by, like a clock that
    is adjusted and not set. It follows at once where the machine's was plainly wrong before.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._told = clock.now()
        self._at = clock.monotonic()

    def now(self) -> float:
        """Seconds since the epoch, UTC, as steady as can be."""
        with self._lock:
            at = self._clock.monotonic()
            passed, self._at = max(0.0, at - self._at), at
            off = self._clock.now() - (self._told + passed)
            if off > PLAINLY_WRONG_S:
                self._told += passed + off
            else:
                self._told += passed + min(max(off, -LAG * passed), HURRY * passed)
            return self._told

    def monotonic(self) -> float:
        """Seconds from an arbitrary start that never go back; for measuring."""
        return self._clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Waits, and lets others work meanwhile."""
        await self._clock.sleep(seconds)
