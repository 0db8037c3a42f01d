"""What timed defragmentation proposes: moves with their bill, what they gain, and what was not worth it (rule 15).

The answer of `yard defrag`. Amounts of GPUs are grains; work is GPU-seconds: one GPU for one second, used or lost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpuyard.model.actions import Move
from gpuyard.model.answers.bill import NO_BILL, Bill
from gpuyard.model.answers.outlook import Fragmentation
from gpuyard.model.reasons import Reason


@dataclass(frozen=True, slots=True)
class ShapeGain:
    """One shape of the demand seen: `tasks` of `gpus` each, together in one domain of `level` ("": anywhere).

    `weight` is its part of the demand, 0 to 1; `before` and `after` say how many such fit.
    """

    gpus: int
    tasks: int
    level: str
    weight: float
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class BudgetRoom:
    """How many tasks a disruption budget would still let go, before and after."""

    name: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Offer:
    """Some moves, what they cost, and what they gain in GPU-seconds: usable GPUs times how long the gap would stay."""

    moves: tuple[Move, ...] = ()
    bill: Bill = NO_BILL
    gain_gpu_s: float = 0.0

    @property
    def ratio(self) -> float:
        """Gain per cost; a gain that costs nothing is worth any price."""
        if not self.bill.lost_gpu_s:
            return math.inf if self.gain_gpu_s > 0 else 0.0
        return self.gain_gpu_s / self.bill.lost_gpu_s


@dataclass(frozen=True, slots=True)
class DefragPlan:
    """Timed defragmentation (rule 15): what is proposed, what it changes, and the best that was not worth it.

    `usable` amounts are the free GPUs that the demand seen could use, each shape by its weight.
    """

    proposal: Offer
    declined: Offer | None
    reason: Reason
    before: Fragmentation
    after: Fragmentation
    usable_before: float
    usable_after: float
    shapes: tuple[ShapeGain, ...] = ()
    budgets: tuple[BudgetRoom, ...] = ()
    pays_at: float = 1.0
    """The least ratio of gain to cost that is proposed."""
    after_changes: int = 0
    """Changes of the ordinary plan that come first."""

    @property
    def moves(self) -> tuple[Move, ...]:
        """What is proposed."""
        return self.proposal.moves
