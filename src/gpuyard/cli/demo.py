"""`yard demo`: see `tour` until the live one is here. Called by `root`."""

from __future__ import annotations

from gpuyard.cli import options, tour


@options.command("demo", "yard demo")
def demo() -> None:
    """A short tour on example fleets."""
    assert tour.tour.callback is not None
    tour.tour.callback()
