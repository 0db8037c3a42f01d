"""What every world must bring, so that one driver drives them all and the brain cannot tell them apart.

Implemented by `worlds.local`, `worlds.kubernetes` and `worlds.sim`; called by `runtime.driving` alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from gpuyard.model.actions import Plan
from gpuyard.model.events import Event
from gpuyard.model.snapshot import Snapshot


class World(Protocol):
    """Observes and applies; it decides nothing.

    Obligations: events are reported in the order in which they happened, each once; applying a plan never blocks on a
    task's end; what an action really did comes back as events, also when it failed (`ActionFailed`). A plan may be
    applied in part (the world changed meanwhile): the world then simply reports what is true. Whatever cannot be read
    of one job is left out and told to its owner: an error is for what concerns everybody, and costs the turn.
    """

    def open(self) -> Snapshot:
        """One consistent moment, as the brain is to see it; events tell what happens after it.

        Called again whenever the picture is to be rebuilt: what was to be told is then in the moment already.
        """

    def wait(self, not_before: float = 0.0) -> bool:
        """Return when something may have changed, or when the last plan said to look again; False when all is over.

        Never before `not_before`: the driver rests until then, by the clock that only counts up.
        """

    def now(self) -> float:
        """The world's time, seconds since the epoch."""

    def observe(self) -> Sequence[Event]:
        """What happened since the last call, or since `apply` returned."""

    def apply(self, plan: Plan, turn: int) -> Sequence[Event]:
        """Carry out the actions, in their order; what is assumed from now on, until an event says otherwise.

        Whatever happened before and was not told yet comes first. `turn` counts up and is never used twice.
        """

    def snapshot(self) -> Snapshot:
        """The whole moment for people, also what the brain does not see; from any thread."""

    def close(self) -> None:
        """Let go; what runs goes on running."""


class Reports(Protocol):
    """Where failures are kept for whoever mends them."""

    def report(self, name: str, document: Any) -> str:
        """Keep something for a bug report; where it can be found."""


class Archive(Reports, Protocol):
    """Where the journal, what the brain remembers and reports of failures are kept. Soon is enough, lost is not."""

    def begin(self, at: float, content: bytes) -> None:
        """A new line of turns begins; the line before the last one may be dropped."""

    def append(self, at: float, content: bytes) -> None:
        """One more turn of the line."""

    def last_line(self) -> list[tuple[float, bytes]]:
        """The beginning of the last line and all its turns."""

    def keep(self, name: str, document: Any) -> None:
        """Keep this under that name instead of what was there."""

    def kept(self, name: str) -> Any:
        """What was kept last under that name; None if nothing was."""


class Leadership(Protocol):
    """The right to act, which one control plane has at a time."""

    def held(self) -> bool:
        """Whether it is still ours; asked before every plan is applied."""


class Alone:
    """A `Leadership` where nobody else could lead."""

    def held(self) -> bool:
        """Always."""
        return True


ALONE = Alone()
