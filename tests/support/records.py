"""Recorded machines: what was checked in, asked of as if NVML answered."""

from __future__ import annotations

from pathlib import Path

from gpuyard.agent.nvml import record
from gpuyard.agent.nvml.facts import MachineFacts, Question, Sample, Trouble
from gpuyard.agent.nvml.faults import NvmlFault
from gpuyard.agent.nvml.record import NvmlRecord
from gpuyard.agent.nvml.replay import Replay
from gpuyard.agent.watching import Watch

FOLDER = Path(__file__).resolve().parent.parent / "records"


def path(name: str) -> Path:
    return FOLDER / f"{name}.json"


def machine(name: str) -> NvmlRecord:
    return record.read(path(name))


class ReplayedNvml:
    """A record asked in this process, at a time that a test sets; `trouble` or `instead` is answered in its place."""

    def __init__(self, name: str, *faults: NvmlFault) -> None:
        self._replay = Replay(machine(name), faults)
        self.at = 0.0
        self.trouble: Trouble | None = None
        self.instead: Sample | None = None
        self._since = -1.0

    def machine(self) -> MachineFacts | Trouble:
        return self.trouble or self._replay.machine(Question("machine", self.at))

    def sample(self) -> Sample | Trouble:
        answer = self.trouble or self.instead or self._replay.sample(Question("sample", self.at, self._since))
        if isinstance(answer, Sample):
            self._since = self.at
        return answer

    def close(self) -> None: ...


def watched(name: str, *faults: NvmlFault) -> tuple[ReplayedNvml, Watch]:
    asked = ReplayedNvml(name, *faults)
    return asked, Watch(asked, lambda: asked.at)
