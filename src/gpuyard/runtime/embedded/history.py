"""How many GPUs were held and how many jobs waited, over the last day: what the live page draws.

A sample a minute, taken by a thread of its own. All of them are kept with the state every ten minutes and at the end,
so that a crash forgets little. What lies between two samples is not known.
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

EVERY_S = 60.0
KEPT = 24 * 60
KEEP_EVERY = 10
"""So many samples are taken between two writings: a yard in which nothing happens writes next to nothing."""
HISTORY = "history"


class History:
    """Samples, oldest first."""

    def __init__(self, desk: Desk, kept: Archive) -> None:
        self._desk = desk
        self._samples: deque[Sample] = deque(_readable(kept), maxlen=KEPT)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="history", daemon=True)

    def start(self) -> None:
        """Begin to look, now and then every minute."""
        self.take()
        self._thread.start()

    def stop(self) -> None:
        """Leave off, and keep what there is."""
        self._over.set()
        self._thread.join(10.0)
        self._keep()

    def samples(self) -> list[Sample]:
        """All there are, and how it is now."""
        return [*list(self._samples), self._now()]

    def take(self) -> None:
        """One more."""
        self._samples.append(self._now())

    def _work(self) -> None:
        for number in itertools.count(1):
            if self._over.wait(EVERY_S):
                return
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
