"""How a task is told to end: by a note, by a signal, by its time limit; and what is still to come of that.

Asked by the supervisor whenever it wakes. Nothing here waits or knows a clock: `look` is told what time it is, puts a
line of ours into the task's output where somebody should know, and sends the signals that are due.
"""

from __future__ import annotations

import os

from gpuyard.worlds.local.supervising.notes import Order, Pairs, read_pairs

TYPE_CHECKING = False  # what `typing` would say; importing it costs as much as all the rest
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable
else:
    import _signal as signal  # the same without its enums, which take as long as Python's own start

STOP_GENTLY = int(signal.SIGRTMIN) + 4
STOP_NOW = int(signal.SIGRTMIN) + 5
KILL = int(signal.SIGRTMIN) + 6
VOUCHED = int(signal.SIGRTMIN) + 7
"""Words that come as signals: a disk that takes no `stop` file stops no stop. Nobody sends these by accident."""
WORDS = (STOP_GENTLY, STOP_NOW, KILL, VOUCHED)


class Stopping:
    """Why a task is to end, and the signals that are still to come."""

    def __init__(self, order: Order, tell: Callable[[str], None], send: Callable[[int], None]) -> None:
        self.why = ""
        self.is_vouched = False
        self.warned_by = 0
        """The signal that told the task of its time limit."""
        self._order, self._tell, self._send = order, tell, send
        self._told: Pairs = []
        self._warned: Pairs = []
        self._stages: list[tuple[float, int]] = []
        """What is still to come of a stop: (when, signal)."""
        self._words: list[int] = []
        """Those that came as signals and are not heeded yet."""

    def hear(self, number: int, _frame: object) -> None:
        """A word that came as a signal; `look` heeds it."""
        if number == VOUCHED:
            self.is_vouched = True
        else:
            self._words.append(number)

    def is_asked_for(self) -> bool:
        """Whether somebody wants it to end, heeded or not."""
        return bool(self.why or self._words) or os.path.exists("stop")

    def due(self) -> list[float]:
        """When the next signal is to be sent, if one is."""
        return [self._stages[0][0]] if self._stages else []

    def look(self, now: float, deadline: float) -> None:
        """Has the time run out (no deadline is 0), has somebody asked to stop, is the next step of a stop due?"""
        told = self._note()
        if told != self._told:
            self._told = told
            self._begin(Order(told), now)
        elif not self.why and deadline and now >= deadline:
            self.why = "timeout"
            self._tell("its time limit is over")
            self._stage_as_ordered(now)
        if not self.why:
            self._heed_warning()
        while self._words:
            self._heed(self._words.pop(0), now)
        while self._stages and self._stages[0][0] <= now:
            self._send(self._stages.pop(0)[1])

    def _note(self) -> Pairs:
        """What `stop` says; one that cannot be read says enough."""
        try:
            return read_pairs("stop") if os.path.exists("stop") else []
        except OSError:
            return [("term", self._order.text("term"))]

    def _begin(self, order: Order, now: float) -> None:
        """Also a second time: who was to save its work in an hour may be told to go at once."""
        self.why = order.text("why") or "stopped"
        self._stages = []
        self._tell(order.text("told"))
        self._stage(now, order.text("signal"), order.number("grace"), order.number("term"))

    def _heed_warning(self) -> None:
        """What `warning` says, once: a line in the output, and the signal that the job knows."""
        try:
            told = read_pairs("warning") if os.path.exists("warning") else []
        except OSError:
            return
        if told != self._warned:
            self._warned, warning = told, Order(told)
            self._tell(warning.text("told"))
            if warning.text("signal"):
                self.warned_by = _signal_number(warning.text("signal"))
                self._send(self.warned_by)

    def _heed(self, word: int, now: float) -> None:
        """A stop that came as a signal: how gently is in the order."""
        self.why, self._stages = "stopped", []
        if word == KILL:
            self.why, self._stages = "killed", [(now, int(signal.SIGKILL))]
        elif word == STOP_GENTLY:
            self._stage_as_ordered(now)
        else:
            self._stage(now, "", 0.0, self._order.number("term"))

    def _stage_as_ordered(self, now: float) -> None:
        self._stage(now, self._order.text("warn"), self._order.number("grace"), self._order.number("term"))

    def _stage(self, now: float, warning: str, grace: float, term: float) -> None:
        """Its checkpoint signal and time to save, then SIGTERM and a moment, then SIGKILL."""
        begin = now
        if warning:
            self._stages.append((now, _signal_number(warning)))
            begin = now + grace
        self._stages += [(begin, int(signal.SIGTERM)), (begin + term, int(signal.SIGKILL))]


def _signal_number(name: str) -> int:
    return int(getattr(signal, name, signal.SIGUSR1))
