"""What else changes: parts of the brain that plan something other than starts, each a stranger to the others.

`brain.decide` runs them in one fixed order, each on the draft as the earlier ones left it. Rooms that are ready and
empty: health, autoscale, rollout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Part
from gpuyard.model.events import Event

P = TypeVar("P", bound=Part)


@dataclass(frozen=True, slots=True)
class Nothing(Part):
    """The part of a controller that remembers nothing."""

    name: ClassVar[str] = "nothing"


class Controller(Generic[P]):
    """Sees what happened, changes the draft, and remembers one frozen value of its own.

    It changes the draft through its transaction, `emit`s actions that no change of places tells, `propose`s in shadow
    mode what it would have done, and says with `look_again` when time alone will change its answer. It neither waits
    nor asks what time it is, and keeps nothing in itself.
    """

    part: type[P]
    timed: ClassVar[bool] = False
    """Works by the clock: left out where `now` stands still (foresight)."""
    hears: ClassVar[tuple[type, ...]] = ()
    """The kinds of events it learns from; where none of them happened, it is not asked."""

    def observe(self, part: P, before: Fleet, events: Sequence[Event], now: float) -> P:
        """Learn from what happened; the picture is still as it was before these events."""
        return part

    def act(self, draft: Draft, part: P) -> P:
        """Do its part of the plan; what it is to remember from now on."""
        return part
