"""The machine's clock: the one place that asks the operating system what time it is.

Called where a program begins (`cli`, `server`), which hands it on as a `Clock`. It is not used by the brain, to which
time is an argument, nor by the simulator, which has its own.
"""

from __future__ import annotations

import time


class SystemClock:
    """A `Clock` of `model.ports` that tells the real time and really waits."""

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
