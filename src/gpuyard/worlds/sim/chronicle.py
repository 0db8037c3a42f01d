"""Writes down every placement as NDJSON, one line an event, so that anyone can check a figure without our code."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TextIO

from gpuyard.model.job import Placement
from gpuyard.model.resources import MILLI, WHOLE
from gpuyard.worlds.sim.lives import Live, Observer
from gpuyard.worlds.sim.traces.openb import own_name


class Chronicle:
    """A `world.Listener` that writes lines."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def arrived(self, now: float, live: Live) -> None:
        """One line a job."""
        self._write(now, "arrive", live)

    def placed(self, now: float, live: Live, moved: bool) -> None:
        """One line a task, with its devices."""
        for place in live.placements:
            self._write(now, "move" if moved else "place", live, place)

    def resized(self, now: float, live: Live) -> None:
        """One line a task that the gang has from now on."""
        for place in live.placements:
            self._write(now, "resize", live, place)

    def stopped(self, now: float, live: Live, lost: float) -> None:
        """One line a task that gives its devices back."""
        for place in live.placements:
            self._write(now, "evict", live, place)

    def failed(self, now: float, live: Live, lost: float) -> None:
        """What came of it is told by itself."""

    def finished(self, now: float, live: Live) -> None:
        """One line a task that ended."""
        for place in live.placements:
            self._write(now, "finish", live, place)

    def dropped(self, now: float, live: Live) -> None:
        """One line a job."""
        self._write(now, "drop", live)

    def settled(self, now: float, waiting: int) -> None:
        """Nothing happened."""

    def _write(self, now: float, event: str, live: Live, place: Placement | None = None) -> None:
        line: dict[str, object] = {"t": now, "event": event, "job": live.arrival.job.name}
        if place is not None:
            share = live.arrival.job.task_groups()[0].request.share or WHOLE
            line |= {"task": place.task, "node": own_name(place.node), "gpus": list(place.gpus)}
            line["milli"] = [share // MILLI] * len(place.gpus)
        self._out.write(json.dumps(line, separators=(",", ":")) + "\n")


class Everyone:
    """Passes on what it hears to several listeners."""

    def __init__(self, listeners: Iterable[Observer]) -> None:
        self._listeners = tuple(listeners)

    def arrived(self, now: float, live: Live) -> None:
        """To all."""
        for each in self._listeners:
            each.arrived(now, live)

    def placed(self, now: float, live: Live, moved: bool) -> None:
        """To all."""
        for each in self._listeners:
            each.placed(now, live, moved)

    def resized(self, now: float, live: Live) -> None:
        """To all."""
        for each in self._listeners:
            each.resized(now, live)

    def stopped(self, now: float, live: Live, lost: float) -> None:
        """To all."""
        for each in self._listeners:
            each.stopped(now, live, lost)

    def failed(self, now: float, live: Live, lost: float) -> None:
        """To all."""
        for each in self._listeners:
            each.failed(now, live, lost)

    def finished(self, now: float, live: Live) -> None:
        """To all."""
        for each in self._listeners:
            each.finished(now, live)

    def dropped(self, now: float, live: Live) -> None:
        """To all."""
        for each in self._listeners:
            each.dropped(now, live)

    def settled(self, now: float, waiting: int) -> None:
        """To all."""
        for each in self._listeners:
            each.settled(now, waiting)
