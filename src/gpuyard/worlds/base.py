"""What every world must do, so that one loop drives them all and the brain cannot tell them apart.

Implemented by `worlds.local`, `worlds.sim` and later `worlds.kubernetes`; called by `runtime.loop` only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gpuyard.model.actions import Plan
from gpuyard.model.events import Event


class World(Protocol):
    """Observes and applies.

    Obligations: events are reported in the order in which they happened, each once; applying a plan never blocks on a
    task's end; what an action really did comes back as events, also when it failed. A plan may be applied in part (the
    world changed meanwhile): the world then simply reports what is true.
    """

    def wait(self) -> bool:
        """Return when something may have changed, or it is time to look again; False when the world is over."""

    def now(self) -> float:
        """The world's time, seconds since the epoch."""

    def observe(self) -> Sequence[Event]:
        """What happened since the last call."""

    def apply(self, plan: Plan) -> None:
        """Carry out the actions, in their order."""
