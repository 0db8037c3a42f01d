"""Since when gangs have stood below their minimum. Used by `observe`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from gpuyard.model.job import Job, Placement
from gpuyard.model.outside.ports import Clock
from gpuyard.worlds.kubernetes.gangs import Gathered

PART_BOUND_S = 20.0
"""So long a gang may stay bound in part before it is taken back."""
NEVER = -1.0


class Staleness:
    """Gangs that are not whole, by name."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}

    def end(self, name: str) -> None:
        """It is whole, or holds nothing, or is gone."""
        self._since.pop(name, None)

    def told(self, job: Job, found: Gathered) -> Job:
        """The job, with since when it has stood below its minimum; one of which nobody runs yet is borne for a short
        while alone.

        Who is only on its way makes no gang whole, or one of which a binding fails again and again would never be
        released; and one that would not come back is never released.
        """
        if not job.placements:
            self.end(job.name)
            return job
        there = [place for place in job.placements if not place.terminating]
        bound = found.bound
        come = [place for place in there if place.uid in bound]
        if _is_whole(job, come) or not come:
            self.end(job.name)
            return job
        since = self._since.setdefault(job.name, self._clock.now())
        if _is_whole(job, there):
            return job
        begun = any(not place.assigned for place in there)
        grace = None if begun else PART_BOUND_S
        return replace(job, stale_since=since, stale_grace=NEVER if found.hindrance else grace)


def _is_whole(job: Job, places: Iterable[Placement]) -> bool:
    there = Counter(place.group for place in places)
    return job.gang.complete(there + Counter({group.name: group.succeeded for group in job.task_groups()}))
