"""What the local world needs from outside: somebody who runs tasks, and a hook where tests break things.

`launch.Supervisors` runs real processes; tests and the simulator bring one that only pretends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from gpuyard.model.answers.progress import Progress

FaultPoint = Callable[[str], None]
"""Called with the name of a place where a crash would hurt most; tests kill the process there."""


def no_fault(_point: str) -> None:
    """Nothing breaks."""


class TaskKey(NamedTuple):
    """One process: which job, which attempt, which of its tasks."""

    job: int
    attempt: int
    serial: int

    @property
    def name(self) -> str:
        """In one word."""
        return f"{self.job}.{self.attempt}.{self.serial}"

    @property
    def file(self) -> str:
        """As a file is named: short, because sockets allow no long paths."""
        return "-".join(map(str, self))

    @property
    def told(self) -> str:
        """In words."""
        return f"process {self.serial} of attempt {self.attempt} at job number {self.job}"


@dataclass(frozen=True, slots=True)
class TaskOrder:
    """Everything a supervisor must know to run one task."""

    key: TaskKey
    wave: int
    """Tasks of one wave start together."""
    rank: int
    command: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    workdir: str
    gang: bool
    """Whether to wait for the word that all ranks are ready."""
    uid: int = -1
    gid: int = -1
    user: str = ""
    time_limit: float = 0.0
    warn_signal: str = ""
    warn_grace: float = 0.0
    memory: int = 0
    """Bytes that it is kept to, where the system can."""
    cpu: int = 0
    """Thousandths of cores, likewise."""
    tty: bool = False
    container: str = ""
    """The name of the container that the command runs, if it runs one; the command's first word is the engine."""
    home: str = "/"
    """The submitter's own folder, as the machine knows it."""
    progress: bool = False
    """Whether it is to have a pipe to tell its progress."""


@dataclass(frozen=True, slots=True)
class StopOrder:
    """How a task is stopped: its checkpoint signal and grace if it has one, then SIGTERM, then SIGKILL."""

    why: str
    signal: str = ""
    grace: float = 0.0
    term_grace: float = 10.0

    told: str = ""
    """A line for the task's own output."""


@dataclass(frozen=True, slots=True)
class TaskWarning:
    """What a task that goes on is told: a signal it knows, and a line in its own output."""

    told: str
    signal: str = ""


class Report(NamedTuple):
    """What became of one task: `ready`, `running`, `progress` (it told how far it is), `ended` (with its outcome),
    `doubted`: it is over, and it is not proven that nothing of it is left; or `hindered`: nothing of it runs, but
    something could not be cleared away."""

    key: TaskKey
    kind: str
    at: float
    pid: int = 0
    outcome: str = ""
    exit: int | None = None
    told: str = ""
    progress: Progress | None = None
    """What it told of itself, with `progress` and `ended`."""


class DeviceKeeper(Protocol):
    """Keeps real GPUs for whoever has them; tasks and GPUs go by name."""

    def take(self, task: str, uid: int, uuids: Sequence[str]) -> None:
        """A task is about to have them; a negative uid is the yard's own."""

    def watched(self, task: str, pid: int) -> None:
        """The process that sees a task through."""

    def leave(self, task: str) -> None:
        """A task is proven gone."""


class NoKeeper:
    """For GPUs that do not exist."""

    def take(self, task: str, uid: int, uuids: Sequence[str]) -> None:
        """Nothing to keep."""

    def watched(self, task: str, pid: int) -> None:
        """Nothing to keep."""

    def leave(self, task: str) -> None:
        """Nothing to keep."""


class Stray(NamedTuple):
    """A task that runs and that nobody knows of, and what it stands on."""

    key: TaskKey
    node: str = ""
    gpus: tuple[int, ...] = ()


class Launcher(Protocol):
    """Runs tasks. Never blocks on a task's end; what happened comes back as reports, each once."""

    boot: str
    """Changes when the machine starts anew: no task of an earlier boot is alive."""

    def prepare(self, orders: Sequence[TaskOrder]) -> None:
        """Bring up a supervisor for each; a second call for the same key does nothing more."""

    def go(self, keys: Sequence[TaskKey]) -> None:
        """All ranks are ready: let them run."""

    def stop(self, key: TaskKey, order: StopOrder) -> None:
        """Tell a task to stop; harmless if it has ended."""

    def warn(self, keys: Sequence[TaskKey], warning: TaskWarning) -> None:
        """Tell tasks something and let them go on; harmless if they have ended."""

    def kill(self, *keys: TaskKey) -> None:
        """End tasks at once, as a lost node would; reported when nothing is left of them."""

    def adopt(self, keys: Sequence[TaskKey]) -> list[TaskKey]:
        """Take over tasks of an earlier control plane; returns those that nobody ever began."""

    def bury(self, keys: Sequence[TaskKey], told: str) -> None:
        """End whatever is left of tasks of an earlier control plane; each is reported lost when it is proven gone."""

    def doubts(self) -> dict[TaskKey, str]:
        """Tasks that are over but for what may be left of them, and what that is."""

    def vouch(self, key: TaskKey) -> None:
        """An operator says that nothing is left of it."""

    def forget(self, job: int, attempt: int) -> None:
        """The attempt is over and written down."""

    def reports(self) -> list[Report]:
        """What happened since the last call."""

    def wait(self, timeout: float | None) -> None:
        """Until something happened, somebody woke us, or the time is up."""

    def wake(self) -> None:
        """End a wait; may be called from any thread."""

    def free_port(self) -> int:
        """A port for the ranks of a gang to meet at."""

    def close(self) -> None:
        """Let go of everything; tasks run on."""
