"""Listens to a simulated world: the names of what happened, in order, and who has ended."""

from __future__ import annotations

from gpuyard.worlds.sim.lives import Live


class Heard:
    """A `world.Listener` that remembers."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.ended: dict[str, Live] = {}

    def arrived(self, now: float, live: Live) -> None:
        self.names.append("arrived")

    def placed(self, now: float, live: Live, moved: bool) -> None:
        self.names.append("moved" if moved else "placed")

    def resized(self, now: float, live: Live) -> None:
        self.names.append("resized")

    def stopped(self, now: float, live: Live, lost: float) -> None:
        self.names.append("stopped")

    def failed(self, now: float, live: Live, lost: float) -> None:
        """What came of it is told by itself."""

    def finished(self, now: float, live: Live) -> None:
        self.names.append("finished")
        self.ended[live.arrival.job.name] = live

    def dropped(self, now: float, live: Live) -> None:
        self.names.append("dropped")

    def settled(self, now: float, waiting: int) -> None:
        """Not remembered: it follows every plan."""
