"""A launcher that only pretends, and a clock that stands still until told: the local world without any process."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gpuyard.worlds.local.ports import Report, StopOrder, TaskKey, TaskOrder, TaskWarning


class StillClock:
    """Time passes when `at` is changed."""

    def __init__(self, at: float = 1_767_225_600.0) -> None:
        self.at = at

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds


class Pretender:
    """Implements `worlds.local.ports.Launcher`; tasks run until the test says otherwise."""

    def __init__(self, clock: StillClock, begun: Collection[TaskKey] = ()) -> None:
        self.boot = "this boot"
        self.begun = begun
        """Whom an earlier control plane had started."""
        self.port = 29499
        self.clock = clock
        self.prepared: list[TaskOrder] = []
        self.gone: list[TaskKey] = []
        self.stopped: dict[TaskKey, StopOrder] = {}
        self.warned: dict[TaskKey, TaskWarning] = {}
        self.pending: list[Report] = []

    def prepare(self, orders: Sequence[TaskOrder]) -> None:
        self.prepared += orders
        self.pending += [Report(o.key, "ready" if o.gang else "running", self.clock.at, 1) for o in orders]

    def go(self, keys: Sequence[TaskKey]) -> None:
        self.pending += [Report(key, "running", self.clock.at, 1) for key in keys]

    def stop(self, key: TaskKey, order: StopOrder) -> None:
        self.stopped[key] = order
        self.end(key, "stopped")

    def warn(self, keys: Sequence[TaskKey], warning: TaskWarning) -> None:
        self.warned |= dict.fromkeys(keys, warning)

    def kill(self, *keys: TaskKey) -> None:
        for key in keys:
            self.end(key, "lost")

    def end(self, key: TaskKey, outcome: str, code: int = 0) -> None:
        """A task is over."""
        self.pending.append(Report(key, "ended", self.clock.at, 0, outcome, code))

    def adopt(self, keys: Sequence[TaskKey]) -> list[TaskKey]:
        return [key for key in keys if key not in self.begun]

    def bury(self, keys: Sequence[TaskKey], told: str) -> None:
        self.pending += [Report(key, "ended", self.clock.at, 0, "lost", None, told) for key in keys]

    def doubts(self) -> dict[TaskKey, str]:
        return {}

    def vouch(self, key: TaskKey) -> None:
        pass

    def forget(self, job: int, attempt: int) -> None:
        self.gone.append(TaskKey(job, attempt, 0))

    def reports(self) -> list[Report]:
        taken, self.pending = self.pending, []
        return taken

    def wait(self, timeout: float | None) -> None:
        if timeout and not self.pending:
            self.clock.at += timeout

    def wake(self) -> None:
        pass

    def free_port(self) -> int:
        self.port += 1
        return self.port

    def close(self) -> None:
        pass
