"""Drives one world: when to turn, at which pace, in a thread of its own if need be, and on after a turn that failed.

`Driver.run` is the whole of it for a world with virtual time, where an error ends the run. A live world also has a
`Pace`, a `Journal`, a `Leadership` and a `Recovery`: there no error ends scheduling.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from gpuyard.model.outside.ports import Clock
from gpuyard.runtime.driving.journal import Journal
from gpuyard.runtime.driving.loop import Loop, NotLeading
from gpuyard.runtime.driving.pace import Pace
from gpuyard.runtime.driving.recovery import Recovery

STAND_BY_S = 1.0
"""How often one that does not lead looks whether it does."""
JOIN_S = 10.0
STUCK_S = 120.0
"""A turn that lasts longer has hung: none of a fleet that we know takes a tenth of it."""


class Driver:
    """Turns the loop of one world until that is over."""

    def __init__(
        self,
        loop: Loop,
        clock: Clock,
        pace: Pace | None = None,
        journal: Journal | None = None,
        recovery: Recovery | None = None,
    ) -> None:
        self.loop = loop
        self.seconds = 0.0
        """Time spent in turns, all together."""
        self.last_turn = 0.0
        self.standing_by = False
        """Whether somebody else leads."""
        self._clock = clock
        self.pace = pace
        self._journal = journal
        self._recovery = recovery
        self.rest_until = 0.0
        """No turn before then, by the clock that only counts up."""
        self.chores: Callable[[], None] | None = None
        """What is done before every turn, if anything."""
        self._turning_since: float | None = None
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    # --- up and down -----------------------------------------------------------------------------

    def start(self) -> None:
        """Build the picture, then turn in a thread of its own."""
        self.loop.open()
        self._thread = threading.Thread(target=self.run, name="yard", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop turning; the world has been closed."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(JOIN_S)
        if self._journal is not None:
            self._journal.remember(self.loop.memory, self._clock.now(), soon=False)

    def run(self) -> None:
        """Turn until the world is over."""
        while self._wait():
            self.turn()

    def _wait(self) -> bool:
        if self.standing_by:  # the world has told all that it knows, and who leads is none of it
            return not self._closing.wait(max(0.0, self.rest_until - self._clock.monotonic()))
        try:
            return self.loop.world.wait(self.rest_until)
        except Exception as error:
            self.loop.stage = "wait"
            self._fail(error)
            self._closing.wait(max(0.0, self.rest_until - self._clock.monotonic()))
            return not self._closing.is_set()

    # --- turning ---------------------------------------------------------------------------------

    def turn(self) -> None:
        """One turn, whatever comes of it; the next is not before the pace allows it."""
        begun = self._turning_since = self._clock.monotonic()
        try:
            if self._journal is not None and self._journal.long:
                self.loop.open()
            if self.chores is not None:
                self.chores()
            self.loop.turn(one_by_one=self._recovery is not None and self._recovery.one_by_one)
            self._succeed(begun)
        except NotLeading:
            self.standing_by = True
            self.rest_until = self._clock.monotonic() + STAND_BY_S
        except Exception as error:
            self._fail(error)
        finally:
            self._turning_since = None

    def _succeed(self, begun: float) -> None:
        took = self._clock.monotonic() - begun
        self.seconds += took
        self.last_turn = self._clock.now()
        if self.standing_by and self._journal is not None:
            self.loop.open()  # turns that came to nothing are not written down: a new line of them begins
        self.standing_by = False
        if self._recovery is not None:
            self._recovery.succeeded()
        if self._journal is not None:
            self._journal.remember(self.loop.memory, self.last_turn)
        if self.pace is not None:
            now = self._clock.monotonic()
            self.rest_until = now + self.pace.rest(now, took, len(self.loop.fleet.jobs))

    def _fail(self, error: Exception) -> None:
        if self._recovery is None:
            raise error
        self.rest_until = self._clock.monotonic() + self._recovery.failed(error, self._clock.now())

    # --- how it stands ---------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """Whether it turns, or would if something happened."""
        return self._thread is None or self._thread.is_alive()

    def trouble(self) -> str:
        """What is wrong with turning now, in one sentence; nothing if all is well."""
        if self.standing_by:
            return "another control plane has taken over; this one changes nothing"
        if self._recovery is not None and self._recovery.failing:
            return str(self._recovery.last)
        return f"the turn that began {self._lasts():.0f} s ago does not end" if self.stuck else ""

    @property
    def failing(self) -> bool:
        """Whether the last turn failed."""
        return self._recovery is not None and self._recovery.failing

    @property
    def stuck(self) -> bool:
        """Whether a turn has hung."""
        return self._lasts() > STUCK_S

    def _lasts(self) -> float:
        begun = self._turning_since
        return 0.0 if begun is None else self._clock.monotonic() - begun
