"""What it costs to disturb jobs that run: a toll for each, and the bill of a whole plan.

Carried by the outlook of a plan and by defragmentation's proposal. Amounts of GPUs are grains; work is GPU-seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum


@dataclass(frozen=True, slots=True)
class Toll:
    """What it costs that one job is disturbed: work since its last checkpoint, and warming up again."""

    job: str
    gpus: int
    lost_gpu_s: float
    moved: bool = True
    """False: it stops and waits again."""


@dataclass(frozen=True, slots=True)
class Bill:
    """The tolls of one plan."""

    tolls: tuple[Toll, ...] = ()

    @property
    def gpus(self) -> int:
        """GPUs whose work is interrupted."""
        return sum(toll.gpus for toll in self.tolls)

    @property
    def lost_gpu_s(self) -> float:
        """GPU-seconds of work that must be done again."""
        return fsum(toll.lost_gpu_s for toll in self.tolls)


NO_BILL = Bill()
