"""What the brain wants done: frozen actions, each with its reason, and the plan that lists them in order.

What disturbs tasks names them by their `uids`, where their world gives them any: an order that comes late, when
somebody else goes by the same name and number, means nobody who is there and is not carried out (`ActionFailed`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gpuyard.model.alerts import Alert
from gpuyard.model.job import Placement
from gpuyard.model.reasons import Reason


@dataclass(frozen=True, slots=True)
class Start:
    """Start these tasks together or none. `after` names the jobs whose eviction or move must be over first.

    Growth is a Start that carries only the new placements.
    """

    job: str
    placements: tuple[Placement, ...]
    reason: Reason
    after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Evict:
    """Stop a job after its checkpoint signal and put it back to wait; `placements` set when only some members go."""

    job: str
    reason: Reason
    beneficiary: str = ""
    placements: tuple[Placement, ...] = ()
    uids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Move:
    """Restart tasks elsewhere: the target is reserved before the source is disturbed."""

    job: str
    source: tuple[Placement, ...]
    target: tuple[Placement, ...]
    reason: Reason
    beneficiary: str = ""
    after: tuple[str, ...] = ()

    @property
    def uids(self) -> tuple[str, ...]:
        """Those who leave."""
        return tuple(place.uid for place in self.source if place.uid)


@dataclass(frozen=True, slots=True)
class Terminate:
    """End a job for good: it is warned by its checkpoint signal, if it knows one, and has `grace` seconds to save."""

    job: str
    reason: Reason
    grace: float = 0.0
    uids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Warn:
    """Tell a job that runs that its time is nearly up, by its checkpoint signal, if it knows one, and in its output."""

    job: str
    reason: Reason
    uids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reserve:
    """Keep these places free for a job (rule 20)."""

    job: str
    placements: tuple[Placement, ...]
    until: float | None
    """The start that follows from time limits; None where none does, and then nobody uses the gap."""
    reason: Reason


@dataclass(frozen=True, slots=True)
class Cordon:
    """Nothing new goes on this node, or on this GPU of it."""

    node: str
    reason: Reason
    gpu: int | None = None


@dataclass(frozen=True, slots=True)
class Drain:
    """Empty this node, or this GPU of it, gently."""

    node: str
    reason: Reason
    gpu: int | None = None


@dataclass(frozen=True, slots=True)
class Scale:
    """Bring a pool to this number of nodes."""

    pool: str
    nodes: int
    reason: Reason


Action = Start | Evict | Move | Terminate | Warn | Reserve | Cordon | Drain | Scale


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job below its minimum after the plan, and the first reason found while planning."""

    job: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Running:
    """A job that runs after the plan, and where."""

    job: str
    placements: tuple[Placement, ...]


@dataclass(frozen=True, slots=True)
class QueueLine:
    """What a queue holds after the plan; amounts in grains."""

    name: str
    quota: int
    limit: int
    used: int
    fair_share: float
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class Deadlock:
    """A cycle of waiting: who is in it, in one sentence, and who gives way."""

    jobs: tuple[str, ...]
    message: str
    victim: str
    way_out: str = field(default="", compare=False)
    """What would end it and at what cost, where nobody does."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The net change: nothing in it is both started and evicted (rule 26)."""

    actions: tuple[Action, ...] = ()
    waiting: Sequence[Waiting] = ()
    deadlocks: tuple[Deadlock, ...] = ()
    proposed: tuple[Action, ...] = ()
    """What controllers in shadow mode would have done."""
    alerts: tuple[Alert, ...] = ()
    """All that stand, the worst first."""
    look_again_at: float | None = None
    """When time alone may change the plan, though nothing happens; what earlier plans said still holds."""
