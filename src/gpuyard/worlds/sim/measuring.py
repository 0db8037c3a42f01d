"""Keeps the figures of one simulated run: waits, completion times, use, stranding, disturbance, fairness.

A `world.Listener`. It looks on and changes nothing; `runtime.simulation` asks for the `Figures` at the end. Where tasks
are tried once there is no time to speak of; what counts there is the share of GPUs allocated by load arrived.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil

from gpuyard.model.resources import WHOLE, Request, mig_cost
from gpuyard.worlds.sim.chronicle import Everyone
from gpuyard.worlds.sim.lives import Live, Observer
from gpuyard.worlds.sim.traces.trace import Trace

HOUR = 3600.0
SAMPLES = 400
"""Points kept of each curve over time; more cannot be seen."""


EVERY_PERCENT = 5
"""At which loads it is told how much was allocated."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What came out; times in seconds."""

    jobs: int
    finished: int
    dropped: int
    wait_p50_s: float
    wait_p95_s: float
    wait_p99_s: float
    queue_mean_s: float
    queue_max_s: float
    jct_mean_s: float
    jct_p99_s: float
    makespan_s: float
    utilisation: float
    stranded_gpu_hours: float
    preemptions: int
    moves: int
    lost_gpu_hours: float
    fairness: dict[str, float]
    allocated_at: dict[str, float]


@dataclass(slots=True)
class Curves:
    """What a page draws: over time, per job, per stay."""

    time: list[float] = field(default_factory=list)
    used: list[float] = field(default_factory=list)
    stranded: list[float] = field(default_factory=list)
    waits: list[tuple[float, float]] = field(default_factory=list)
    """(GPUs, wait) per finished or placed job."""
    stays: list[tuple[str, int, float, float, str]] = field(default_factory=list)
    """(node, GPU, from, to, job); kept only for a Gantt."""


class Measure:
    """Hears a run and adds it up."""

    def __init__(self, trace: Trace, capacity: int, gantt: bool = False) -> None:
        self.trace = trace
        self.capacity = capacity
        self.stranded: Callable[[], float] = lambda: 0.0
        """How many free GPUs of the picture as it is the demand could not use; from whoever has a picture."""
        self._gantt = gantt
        self.curves = Curves()
        self._arrived = self._used = 0
        self._jobs = self._dropped = self._preempted = self._moves = 0
        self._waits: list[float] = []
        self._queues: list[float] = []
        self._jcts: list[float] = []
        self._by_queue: dict[str, list[float]] = defaultdict(list)
        self._held: dict[str, int] = {}
        self._open: dict[str, float] = {}
        self._lost = self._busy_area = self._stranded_area = 0.0
        self._since = self._last = trace.arrivals[0].at if trace.arrivals else 0.0
        self._loads: dict[int, list[float]] = defaultdict(list)
        self._turns = 0
        self._every = max(1, 2 * len(trace.arrivals) // SAMPLES)
        self._stranded_now = 0.0
        self._before = 0
        """In use since the last plan."""

    # --- what is heard --------------------------------------------------------------------------------------------

    def arrived(self, now: float, live: Live) -> None:
        """A job was submitted."""
        self._jobs += 1
        self._arrived += asked(live)

    def placed(self, now: float, live: Live, moved: bool) -> None:
        """A job started, resumed or moved."""
        name = live.arrival.job.name
        self._moves += moved
        if name in self._open:
            self._close(now, name, live)
        self._count(live)
        if not moved and live.stops == 0:
            self._waits.append(now - live.arrival.at)
        self._open[name] = now

    def resized(self, now: float, live: Live) -> None:
        """An elastic gang holds more or less now."""
        self._count(live)

    def _count(self, live: Live) -> None:
        """Note what the job holds now."""
        name, holds = live.arrival.job.name, _holds(live)
        self._used += holds - self._held.get(name, 0)
        self._held[name] = holds

    def _close(self, now: float, name: str, live: Live) -> None:
        began = self._open.pop(name)
        if self._gantt:
            self.curves.stays += [
                (place.node, gpu, began, now, name) for place in live.placements for gpu in place.gpus
            ]

    def stopped(self, now: float, live: Live, lost: float) -> None:
        """A job was evicted; what its restart will cost is lost too."""
        self._preempted += 1
        held = self._held.pop(live.arrival.job.name)
        self._lost += (lost + live.overhead) * held / WHOLE / HOUR
        self._used -= held
        self._close(now, live.arrival.job.name, live)

    def failed(self, now: float, live: Live, lost: float) -> None:
        """What came of it is told by itself."""

    def finished(self, now: float, live: Live) -> None:
        """A job did all its work."""
        self._used -= self._held.pop(live.arrival.job.name)
        jct = now - live.arrival.at
        queued = max(0.0, jct - live.held)
        self._jcts.append(jct)
        self._queues.append(queued)
        self._by_queue[live.arrival.job.queue].append(queued)
        self.curves.waits.append((asked(live) / WHOLE, queued))
        self._close(now, live.arrival.job.name, live)

    def dropped(self, now: float, live: Live) -> None:
        """A task that is tried once did not fit."""
        self._dropped += 1

    def settled(self, now: float, waiting: int) -> None:
        """A plan stands; until the next one nothing changes."""
        if self.trace.tried_once:
            load = round(100 * self._arrived / self.capacity)
            if load % EVERY_PERCENT == 0:
                self._loads[load].append(round(100 * self._used / self.capacity, 2))
        self._sample(now)

    def _sample(self, now: float) -> None:
        passed = now - self._last
        if passed > 0 and self._turns:
            self._busy_area += passed * self._before
            self._stranded_area += passed * self._stranded_now
        self._last, self._before = now, self._used
        self._turns += 1
        if self._turns % self._every == 0:
            self._stranded_now = self.stranded()
            self.curves.time.append(now)
            self.curves.used.append(round(100 * self._used / max(self.capacity, 1), 2))
            self.curves.stranded.append(round(self._stranded_now, 2))

    # --- what is told ---------------------------------------------------------------------------------------------

    def figures(self) -> Figures:
        """The sum of it."""
        span = self._last - self._since
        area = max(self.capacity, 1) * span
        timed = span > 0 and not self.trace.tried_once
        return Figures(
            jobs=self._jobs,
            finished=len(self._jcts),
            dropped=self._dropped,
            wait_p50_s=quantile(self._waits, 0.50),
            wait_p95_s=quantile(self._waits, 0.95),
            wait_p99_s=quantile(self._waits, 0.99),
            queue_mean_s=mean(self._queues),
            queue_max_s=max(self._queues, default=0.0),
            jct_mean_s=mean(self._jcts),
            jct_p99_s=quantile(self._jcts, 0.99),
            makespan_s=round(span, 1),
            utilisation=round(self._busy_area / area, 4) if timed else round(self._used / max(self.capacity, 1), 4),
            stranded_gpu_hours=round(self._stranded_area / HOUR, 1) if timed else 0.0,
            preemptions=self._preempted,
            moves=self._moves,
            lost_gpu_hours=round(self._lost, 2),
            fairness={queue: mean(waits) for queue, waits in sorted(self._by_queue.items())},
            allocated_at=self._allocated_at(),
        )

    def _allocated_at(self) -> dict[str, float]:
        """Percent of the GPUs allocated when that percent had arrived, as the FGD experiment reads it."""
        return {str(load): mean(self._loads[load]) for load in sorted(self._loads)}


# --- what failures do -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ClassFigures:
    """One class of jobs in one run; times in seconds."""

    jobs: int = 0
    hit: int = 0
    """Jobs that a failure took tasks from, each time."""
    fell: int = 0
    """Those of them that fell below their minimum and stopped."""
    lost_gpu_s: float = 0.0
    """GPU time that failures cost: work undone, starting again, and being down meanwhile."""
    waits: list[float] = field(default_factory=list)
    slowed: list[float] = field(default_factory=list)
    """How many times longer each placed job takes than alone on one node."""

    @property
    def wait_p99_s(self) -> float:
        """Before the first start."""
        return quantile(self.waits, 0.99)

    @property
    def slow_p95(self) -> float:
        """By the contention model."""
        return quantile(self.slowed, 0.95)


class Outages(Everyone):
    """Listens beside others to what failures do to each class: a service that loses a replica and keeps its minimum
    serves on; one that falls below it is down until it runs again, and every second of that costs all of its GPUs."""

    def __init__(self, others: Observer) -> None:
        super().__init__((others,))
        self.classes: dict[str, ClassFigures] = defaultdict(ClassFigures)
        self._down: dict[str, float] = {}

    def _of(self, live: Live) -> ClassFigures:
        return self.classes[live.arrival.job.job_class.value]

    def arrived(self, now: float, live: Live) -> None:
        """One more of its class."""
        super().arrived(now, live)
        self._of(live).jobs += 1

    def placed(self, now: float, live: Live, moved: bool) -> None:
        """It runs, perhaps again."""
        super().placed(now, live, moved)
        figures = self._of(live)
        if not moved and live.stops == 0:
            figures.waits.append(now - live.arrival.at)
        figures.slowed.append(live.slow)
        down = self._down.pop(live.arrival.job.name, None)
        if down is not None:
            figures.lost_gpu_s += (now - down) * asked(live) / WHOLE

    def failed(self, now: float, live: Live, lost: float) -> None:
        """A failure took tasks from it."""
        super().failed(now, live, lost)
        figures = self._of(live)
        figures.hit += 1
        if not live.running:
            figures.fell += 1
            figures.lost_gpu_s += (lost + live.overhead) * asked(live) / WHOLE
            self._down[live.arrival.job.name] = now


def asked(live: Live) -> int:
    """What all its tasks ask for, in grains."""
    groups = live.arrival.job.task_groups()
    if len(groups) == 1:
        return groups[0].tasks * _grains(groups[0].request)
    return sum(group.tasks * _grains(group.request) for group in groups)


def _holds(live: Live) -> int:
    """What its tasks hold now, in grains."""
    groups = live.arrival.job.task_groups()
    if len(groups) == 1:
        return len(live.placements) * _grains(groups[0].request)
    each = {group.name: _grains(group.request) for group in groups}
    return sum(each[place.group] for place in live.placements)


def _grains(request: Request) -> int:
    whole = request.gpus * WHOLE + request.share
    return whole + sum(count * mig_cost(profile) for profile, count in request.mig) if request.mig else whole


def mean(values: Sequence[float]) -> float:
    """The mean, 0 of nothing; to the hundredth."""
    return round(sum(values) / len(values), 2) if values else 0.0


def quantile(values: Sequence[float], part: float) -> float:
    """The smallest value that `part` of them do not pass."""
    return round(sorted(values)[max(0, ceil(part * len(values)) - 1)], 2) if values else 0.0
