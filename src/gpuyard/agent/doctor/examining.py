"""What a check is, and what it may look at. Used by every check."""

from __future__ import annotations

import pathlib
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from gpuyard.agent.nvml.facts import Trouble
from gpuyard.agent.watching import MachineView

Verdict = Literal["ok", "warn", "fail", "cannot tell"]
COMMAND_S = 10.0


@dataclass(frozen=True, slots=True)
class Check:
    """One answer: how it stands, why, and what to type next; nothing where all is well."""

    name: str
    verdict: Verdict
    why: str
    next: str = ""


def said(command: Sequence[str]) -> str | None:
    """What a program says; None if there is none such, or it fails."""
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ran.stdout if ran.returncode == 0 else None


@dataclass(frozen=True, slots=True)
class Patient:
    """The machine as it can be seen: its files under `root`, what programs say, and the last look at its GPUs."""

    view: MachineView
    root: pathlib.Path = pathlib.Path("/")
    say: Callable[[Sequence[str]], str | None] = said
    now: float = 0.0

    def path(self, name: str) -> pathlib.Path:
        """A path of the machine."""
        return self.root / name.lstrip("/")

    def text(self, name: str) -> str | None:
        """What a file says; None if it is not there or not for us."""
        try:
            return self.path(name).read_text(errors="replace")
        except OSError:
            return None

    def runs(self, program: str) -> bool:
        """Whether a program of that name runs, as far as processes can be seen."""
        return any(_comm(path) == program[:15] for path in self.path("/proc").glob("[0-9]*/comm"))

    @property
    def trouble(self) -> Trouble | None:
        """Why NVML says nothing, if it does not."""
        return self.view.trouble


def _comm(path: pathlib.Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
