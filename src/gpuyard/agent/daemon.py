"""The agent's loop: look, tell Prometheus, look again. Wired by `yard agent`.

It decides nothing. What goes wrong with NVML is told, in the log when it begins and ends and in the metrics all along;
nothing that NVML does ends the loop.
"""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Literal, Protocol

from gpuyard.agent.exporting import families, text
from gpuyard.agent.exporting.families import Export, Family, GpuHolder
from gpuyard.agent.job_use import JobUses
from gpuyard.agent.watching import MachineView, Watch
from gpuyard.model.outside.phrases import counted
from gpuyard.model.outside.ports import Clock

LINE_MAX = 256
PROC = pathlib.Path("/proc")
LOOK_FOR_IT_S = 60.0


class DcgmExporter:
    """NVIDIA's own exporter on this machine, looked for once a minute: there may be many processes."""

    def __init__(self, proc: pathlib.Path = PROC) -> None:
        self._proc = proc
        self._looked_at: float | None = None
        self._runs = False

    def runs(self, at: float) -> bool:
        """Whether it runs, as far as processes can be seen from here; `at` is a time that never goes back."""
        if self._looked_at is None or at - self._looked_at >= LOOK_FOR_IT_S:
            self._looked_at = at
            self._runs = any(_comm(path) == "dcgm-exporter" for path in self._proc.glob("[0-9]*/comm"))
        return self._runs


def _comm(path: pathlib.Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:  # it has ended
        return ""


class PodsHere(Protocol):
    """What this node's pods hold: `pods.account`."""

    def look(self) -> None: ...
    def holders(self) -> Mapping[str, Sequence[GpuHolder]]: ...
    def families(self) -> Iterator[Family]: ...


@dataclass(slots=True)
class Daemon:
    """One machine's."""

    watch: Watch
    clock: Clock
    say: Callable[[str], None]
    hostname: str
    every_s: float = 10.0
    heard: Callable[[MachineView, float], None] | None = None
    """Who else wants to know of every look."""
    pods: PodsHere | None = None
    mapping: pathlib.Path | None = None
    """A folder with a file for each GPU (by index or UUID) that names its jobs, as dcgm-exporter has it."""
    old_hostname_label: bool = False
    dcgm: Literal["auto", "always", "never"] = "auto"
    """Whether series go out under DCGM's names: not where dcgm-exporter runs, or every sum would be doubled."""
    other: DcgmExporter = field(default_factory=DcgmExporter)
    _uses: JobUses = field(default_factory=JobUses)
    _holders: Mapping[str, Sequence[GpuHolder]] = field(default_factory=dict)
    _over: threading.Event = field(default_factory=threading.Event)
    _told: str = "begin"

    def run(self) -> None:
        """Until `stop`."""
        due = self.clock.monotonic()
        while not self._over.is_set():
            self.look()
            due = max(due + self.every_s, self.clock.monotonic())
            self._over.wait(max(0.0, due - self.clock.monotonic()))

    def stop(self) -> None:
        """End `run` soon."""
        self._over.set()

    def look(self) -> MachineView:
        """Once."""
        view = self.watch.look()
        self._holders = self._mapped(view)
        if self.pods is not None:
            self.pods.look()
            self._holders = _joined(self._holders, self.pods.holders())
        shares = {
            uuid: {who.job: 1 / len(holders) for who in holders if who.job} for uuid, holders in self._holders.items()
        }
        self._uses.count(view.at, view.by_uuid(), shares)
        self._tell(view)
        if self.heard is not None:
            self.heard(view, self.clock.now())
        return view

    def exposition(self) -> str:
        """What Prometheus gets now."""
        export = Export(
            self.watch.view, self.clock.now(), self.hostname, self.old_hostname_label, self._holders, self._uses.uses
        )
        silent = self.dcgm == "never" or (self.dcgm == "auto" and self.other.runs(self.clock.monotonic()))
        told = chain(families.families(export), self.pods.families() if self.pods is not None else ())
        return text.exposition(one for one in told if not (silent and one.name.startswith(families.PREFIX)))

    def _tell(self, view: MachineView) -> None:
        """What is other than at the last look, in a line."""
        unwell = [gpu for gpu in view.gpus if gpu.state != "seen"]
        words = "; ".join(f"GPU {gpu.facts.index} ({gpu.facts.uuid}) is {gpu.state}: {gpu.why}" for gpu in unwell)
        now = f"{view.trouble}" if view.trouble else words or f"{counted(len(view.gpus), 'GPU')} seen"
        if now != self._told:
            self._told = now
            self.say(now)

    def _mapped(self, view: MachineView) -> dict[str, Sequence[GpuHolder]]:
        """Jobs by GPU, from the folder in which a batch system's prolog writes them."""
        if self.mapping is None:
            return {}
        found = {gpu.facts.uuid: _jobs(self.mapping, (gpu.facts.uuid, str(gpu.facts.index))) for gpu in view.gpus}
        return {uuid: [GpuHolder(job=job) for job in jobs] for uuid, jobs in found.items() if jobs}


def _joined(
    jobs: Mapping[str, Sequence[GpuHolder]], pods: Mapping[str, Sequence[GpuHolder]]
) -> dict[str, Sequence[GpuHolder]]:
    """Who has a GPU by both accounts; a job that a batch system names lies in the pod that has the GPU."""
    nobody = (GpuHolder(),)
    return {
        uuid: [replace(who, job=job.job) for who in pods.get(uuid, nobody) for job in jobs.get(uuid, nobody)]
        for uuid in {*jobs, *pods}
    }


def _jobs(folder: pathlib.Path, names: Sequence[str]) -> list[str]:
    for name in names:
        try:
            lines = (folder / name).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        return list(dict.fromkeys(line.strip()[:LINE_MAX] for line in lines if line.strip()))
    return []
