"""How many GPUs were held and how many jobs waited, over the last day: what the live page draws.

A sample a minute, taken by a thread of its own and kept with the state, so that a restart forgets nothing. What lies
between two samples is not known.
"""

from __future__ import annotations

import threading
from collections import deque

from gpuyard.model.job import Phase
from gpuyard.runtime.serving.port import Sample
from gpuyard.worlds.base import Archive
from gpuyard.worlds.local.attempts.desk import Desk

EVERY_S = 60.0
KEPT = 24 * 60
HISTORY = "history"


class History:
    """Samples, oldest first."""

    def __init__(self, desk: Desk, archive: Archive) -> None:
        self._desk = desk
        self._archive = archive
        self._samples: deque[Sample] = deque(_readable(archive), maxlen=KEPT)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="history", daemon=True)

    def start(self) -> None:
        """Begin to look, now and then every minute."""
        self.take()
        self._thread.start()

    def stop(self) -> None:
        """Leave off."""
        self._over.set()
        self._thread.join(10.0)

    def samples(self) -> list[Sample]:
        """All there are, and how it is now."""
        return [*list(self._samples), self._now()]

    def take(self) -> None:
        """One more, kept with the others."""
        self._samples.append(self._now())
        self._archive.keep(HISTORY, list(self._samples))

    def _work(self) -> None:
        while not self._over.wait(EVERY_S):
            self.take()

    def _now(self) -> Sample:
        with self._desk.lock:
            phases = [entry.phase for entry in self._desk.book.active()]
            held = self._desk.holdings.devices()
        return int(self._desk.now()), held, phases.count(Phase.RUNNING), phases.count(Phase.WAITING)


def _readable(archive: Archive) -> list[Sample]:
    """What was kept; samples that cannot be read are as if they had not been taken."""
    try:
        kept = archive.kept(HISTORY) or []
        return [(int(at), int(held), int(running), int(waiting)) for at, held, running, waiting in kept]
    except (ValueError, TypeError):
        return []
