"""How busy the GPUs of each job were: GPU-seconds that a job had, and what of them its GPUs were at work.

Used by the exporter and by the embedded yard. Between two looks a GPU counts as busy as the second one says; a time of
which nothing is known is had, but not measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gpuyard.agent.nvml.facts import told
from gpuyard.agent.watching import GpuView

GAP_MAX_S = 60.0
"""Two looks that lie further apart say nothing of what was between: the machine slept, or nobody looked."""


@dataclass(frozen=True, slots=True)
class JobUse:
    """What one job had, in GPU-seconds: held in all, held while somebody looked, and at work."""

    gpu_seconds: float = 0.0
    measured: float = 0.0
    busy: float = 0.0

    @property
    def mean(self) -> float | None:
        """The mean utilization, 0 to 1; None if it was never measured."""
        return self.busy / self.measured if self.measured else None

    def __add__(self, other: JobUse) -> JobUse:
        return JobUse(
            self.gpu_seconds + other.gpu_seconds, self.measured + other.measured, self.busy + other.busy
        )  # fmt: skip


NOTHING = JobUse()
Shares = Mapping[str, Mapping[str, float]]
"""By UUID, which job holds how much of a GPU: 1 is all of it."""


class JobUses:
    """The use of every job that holds a GPU now; one that holds none any more is forgotten."""

    def __init__(self) -> None:
        self._last: float | None = None
        self.uses: Mapping[str, JobUse] = {}

    def count(self, at: float, gpus: Mapping[str, GpuView], shares: Shares) -> Mapping[str, JobUse]:
        """Add the time since the last look; what that comes to for each job is returned."""
        seconds = 0.0 if self._last is None else at - self._last
        self._last = at
        if not 0 < seconds <= GAP_MAX_S:
            seconds = 0.0
        fresh: dict[str, JobUse] = {}
        for uuid, jobs in shares.items():
            for job, share in jobs.items():
                fresh[job] = fresh.get(job, NOTHING) + _use(gpus.get(uuid), seconds * share)
        self.uses = {job: self.uses.get(job, NOTHING) + use for job, use in fresh.items()}
        return fresh


def _use(view: GpuView | None, gpu_seconds: float) -> JobUse:
    use = replace(NOTHING, gpu_seconds=gpu_seconds)
    utilization = told(view.readings.utilization) if view is not None and view.readings is not None else None
    return use if utilization is None else replace(use, measured=gpu_seconds, busy=gpu_seconds * utilization / 100)
