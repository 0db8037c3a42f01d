"""How far a job is by its own word: steps done, how fast, when it last saved its work; and how that is said.

Carried by a world's record of an attempt and told to people. What the brain makes of it is in its memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuyard.model.outside.phrases import counted, duration

FAST = 100.0
"""From so many steps a second on nobody reads their decimals."""

LONGEST_S = 10 * 365 * 86400.0
"""Who needs longer has not told when it ends."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What a job told first and last since it started. Times are seconds since the epoch."""

    first_at: float
    first_done: float
    at: float
    done: float
    total: float = 0.0
    """Of so many steps in all; 0: it did not say."""
    saved: float | None = None
    """When it last saved its work."""

    @property
    def pace(self) -> float:
        """Steps a second; 0 while it has told only once."""
        if self.done <= self.first_done or self.at <= self.first_at:
            return 0.0
        return (self.done - self.first_done) / (self.at - self.first_at)

    def ends(self) -> float | None:
        """When it will be done, at its pace so far; None if it did not tell enough."""
        if self.total <= 0.0 or not self.pace:
            return None
        left = max(0.0, self.total - self.done) / self.pace
        return self.at + left if left < LONGEST_S else None

    def ending(self, end: float) -> str:
        """Of a job that has ended: `12,000 steps, 3.4 steps/s, last checkpoint 4m before its end`."""
        saved = f"last checkpoint {duration(end - self.saved)} before its end" if self.saved is not None else ""
        return listed(steps(self.done, self.total), speed(self.pace), saved)


def listed(*parts: str) -> str:
    """What there is to say of it."""
    return ", ".join(filter(None, parts))


def steps(done: float, total: float) -> str:
    """`3,000 of 12,000 steps`."""
    if total > 0.0 and total != done:
        return f"{_number(done)} of {counted(_number(total), 'step')}"
    return counted(_number(done), "step")


def speed(pace: float) -> str:
    """Steps a second, or seconds a step where that is more than one."""
    if not pace:
        return ""
    if pace >= 1.0:
        return f"{pace:,.0f} steps/s" if pace >= FAST else f"{pace:.3g} steps/s"
    return f"{1 / pace:.3g} s a step" if pace > 1.0 / FAST else f"{duration(1 / pace)} a step"


def _number(amount: float) -> str:
    return f"{amount:,.0f}" if amount == int(amount) else f"{amount:,.2f}"
