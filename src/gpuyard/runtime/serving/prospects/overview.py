"""The yard at a glance, for the live page: when those who wait longest may start, and what the free GPUs are good for.

Called by the embedded yard. Works on a snapshot of its own; it thinks for a moment, not for as long as it takes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpuyard.brain import foresee
from gpuyard.brain.engine.reserving import eta
from gpuyard.brain.foresee import Foresight
from gpuyard.model.errors import Denied
from gpuyard.model.resources import as_gpus
from gpuyard.model.snapshot import Snapshot
from gpuyard.runtime.service import Caller, Document
from gpuyard.runtime.serving.port import ServedWorld

ASKED_ABOUT = 30
"""So many of those who wait are looked at, longest first; of the others `yard why` tells."""
THINK_S = 0.5


class Overview:
    """Works it out once as long as nothing changes."""

    def __init__(self, world: ServedWorld[Any]) -> None:
        self._world = world
        self._told_at: object = None
        self._told: Document = {}

    def told(self, caller: Caller) -> Document:
        """See `Service.overview`."""
        if not caller.admin:
            raise Denied(f"{caller.user} may not see everybody's prospects; `yard why JOB` tells those of one's own")
        version = self._world.site.version()
        if self._told_at != version:
            moment = self._world.site.moment()
            starts, free = prospects(moment, self._world.monotonic), fragmentation(moment)
            self._told_at, self._told = version, {"prospects": starts, "fragmentation": free}
        return self._told | {"history": self._world.past.samples()}


def prospects(moment: Snapshot, monotonic: Callable[[], float]) -> Document:
    """Why each waits, in the words of `yard why`, and in how many seconds it may start, earliest and latest."""
    foresight, until = Foresight(moment, cycles=1), monotonic() + THINK_S
    found: Document = {}
    waiting = sorted(foresight.fleet.rolls.short.values(), key=lambda row: (row.job.submitted, row.job.name))
    for row in waiting[:ASKED_ABOUT]:
        if monotonic() > until:
            break
        span = eta.estimate(foresight.draft, row)
        found[row.job.name] = {"message": str(foresight.explain(row).reason)}
        found[row.job.name] |= {} if span is None else {"eta_seconds": [round(seconds) for seconds in span]}
    return found


def fragmentation(moment: Snapshot) -> Document:
    """How much of what is free is of use, and the largest gang of each model that would start now."""
    measured = foresee.fragmentation(moment)
    return {
        "free_gpus": as_gpus(measured.free),
        "stranded_gpus": as_gpus(measured.stranded),
        "largest_gang": dict(measured.largest_gang),
    }
