"""How many GPUs were held and how many jobs waited, over the last day: what the live page draws.

A sample a minute, taken by a thread of its own, and of the last minutes one every other second, so that a short burst
is seen by whoever looks at once. Those of minutes are kept with the state every ten minutes and at the end, so that a
crash forgets little. What lies between two samples is not known.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque

from gpuyard.model.job import Phase
from gpuyard.runtime.serving.port import Sample
from gpuyard.worlds.base import Archive
from gpuyard.worlds.local.attempts.desk import Desk
from gpuyard.worlds.local.seam import archive

EVERY_S = 2.0
RECENT = 150
"""Five minutes of them."""
A_MINUTE = 30
KEPT = 24 * 60
KEEP_EVERY = 10 * A_MINUTE
"""So many samples are taken between two writings: a yard in which nothing happens writes next to nothing."""
HISTORY = "history"


class History:
    """Samples, oldest first."""

    def __init__(self, desk: Desk, kept: Archive) -> None:
        self._desk = desk
        self._samples: deque[Sample] = deque(_readable(kept), maxlen=KEPT)
        self._recent: deque[Sample] = deque(maxlen=RECENT)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="history", daemon=True)

    def start(self) -> None:
        """Begin to look, now and then again and again."""
        self.take()
        self._thread.start()

    def stop(self) -> None:
        """Leave off, and keep what there is."""
        self._over.set()
        self._thread.join(10.0)
        self._keep()

    def samples(self) -> list[Sample]:
        """All there are, and how it is now."""
        recent = [*list(self._recent), self._now()]
        return [*(each for each in list(self._samples) if each[0] <= recent[0][0]), *recent]

    def take(self) -> None:
        """One more, for a day."""
        self._samples.append(self._now())

    def glance(self) -> None:
        """One more, for some minutes."""
        self._recent.append(self._now())

    def _work(self) -> None:
        for number in itertools.count(1):
            if self._over.wait(EVERY_S):
                return
            self.glance()
            if number % A_MINUTE == 0:
                self.take()
            if number % KEEP_EVERY == 0:
                self._keep()

    def _keep(self) -> None:
        """Written at once, and not at all while the disk refuses: what waits for a commit that never comes piles up."""
        if self._desk.trouble:
            return
        with self._desk.change() as batch:
            archive.keep(batch, HISTORY, list(self._samples))

    def _now(self) -> Sample:
        with self._desk.lock:
            phases = [entry.phase for entry in self._desk.book.active()]
            held = self._desk.holdings.devices()
        return int(self._desk.now()), held, phases.count(Phase.RUNNING), phases.count(Phase.WAITING)


def _readable(kept: Archive) -> list[Sample]:
    """What was kept; samples that cannot be read are as if they had not been taken."""
    try:
        samples = kept.kept(HISTORY) or []
        return [(int(at), int(held), int(running), int(waiting)) for at, held, running, waiting in samples]
    except (ValueError, TypeError):
        return []
