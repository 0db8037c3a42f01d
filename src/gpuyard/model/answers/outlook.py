"""What a plan leads to, told whole: the answer of `yard plan`, `yard why`, `yard frag`, `yard free` on a snapshot."""

from __future__ import annotations

from dataclasses import dataclass

from gpuyard.model.actions import Action, Deadlock, QueueLine, Running
from gpuyard.model.alerts import Alert
from gpuyard.model.answers.bill import NO_BILL, Bill
from gpuyard.model.reasons import Explanation


@dataclass(frozen=True, slots=True)
class ShapeFit:
    """How many requests of `gpus` GPUs inside one domain of `level` fit now, and if what runs were packed."""

    gpus: int
    level: str
    now: int
    packed: int


@dataclass(frozen=True, slots=True)
class PoolFragmentation:
    """Fragmentation of one pool; amounts in grains, `largest_gang` in GPUs per level, innermost first."""

    name: str
    gpus: int
    free: int
    stranded: int
    largest_gang: tuple[tuple[str, int], ...]
    shapes: tuple[ShapeFit, ...]


@dataclass(frozen=True, slots=True)
class ShapeStranding:
    """One shape that was asked for in the last day: how much of it, how many fit now, and the free grains that it could
    not use."""

    shape: str
    asked: int
    fits: int
    stranded: int


@dataclass(frozen=True, slots=True)
class PoolStranding:
    """What of a pool's free GPUs the demand of the last day could not use, each shape by its weight; grains."""

    name: str
    gpus: int
    free: int
    stranded: int
    shapes: tuple[ShapeStranding, ...]
    trend: tuple[tuple[float, float], ...] = ()
    """Moments of the last day, the oldest first, and the share that was stranded then."""

    @property
    def share(self) -> float:
        """Of what is free."""
        return self.stranded / self.free if self.free else 0.0


@dataclass(frozen=True, slots=True)
class Fragmentation:
    """Rule 25. `ratio` is 0 when nobody waits; `stranded` and `free` are grains."""

    ratio: float
    free: int
    stranded: int
    largest_gang: tuple[tuple[str, int], ...]
    shapes: tuple[ShapeFit, ...]
    pools: tuple[PoolFragmentation, ...]
    day: tuple[PoolStranding, ...] = ()
    """By the demand of the last day, pool by pool; also while nobody waits."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """The end of a planning run: the net change and the state it leads to."""

    actions: tuple[Action, ...]
    waiting: tuple[Explanation, ...]
    running: tuple[Running, ...]
    queues: tuple[QueueLine, ...]
    fragmentation: Fragmentation
    deadlocks: tuple[Deadlock, ...]
    cycles: int
    bill: Bill = NO_BILL
    """What the moves and evictions cost."""
    alerts: tuple[Alert, ...] = ()
    """What somebody should look at, the worst first."""
