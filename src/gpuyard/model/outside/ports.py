"""What the outside must bring: time and chance. Injected at the top, so that a whole yard can run in the simulator."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Tells time and waits. Implementations: the machine's clock, and the simulator's virtual one."""

    def now(self) -> float:
        """Seconds since the epoch, UTC."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start that never go back: for measuring and waiting. `now` is for people."""

    async def sleep(self, seconds: float) -> None:
        """Waits; a virtual clock moves on instead."""


class Dice(Protocol):
    """Chance from a seed."""

    def random(self) -> float:
        """Uniform in [0, 1)."""

    def integer(self, below: int) -> int:
        """Uniform in 0..below-1."""
