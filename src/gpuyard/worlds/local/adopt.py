"""What is true about a task, read from its folder and from the kernel: after a crash, and when a supervisor dies.

Called by `launch`. A process is known by pid, start time and boot together: a pid alone may be somebody else's by now.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import select
import signal
from dataclasses import dataclass

from gpuyard.worlds.local.confine import clear
from gpuyard.worlds.local.notes import Order, read_pairs, start_ticks

BURY_S = 2.0
"""How long a killed process may take to go; one that takes longer hangs in a driver."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A live supervisor: `descriptor` becomes readable when it is gone."""

    pid: int
    descriptor: int
    child: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """A task that was begun: watched if its supervisor lives, and what it has told so far, with pids."""

    watched: Watched | None
    told: tuple[tuple[str, int], ...] = ()


def read(path: pathlib.Path) -> dict[str, str]:
    """What a file of a task says; nothing if it is not there."""
    try:
        return dict(read_pairs(str(path)))
    except OSError:
        return {}


def look(folder: pathlib.Path, boot: str) -> Found | None:
    """How a task stands; None if nobody ever claimed it."""
    if not (folder / "claim").exists():
        return None
    watched = claimant(folder, boot)
    if watched is None:
        return Found(None)
    told = [(kind, read(folder / kind)) for kind in ("ready", "running") if (folder / kind).exists()]
    return Found(watched, tuple((kind, int(said.get("pid") or 0)) for kind, said in told))


def claimant(folder: pathlib.Path, boot: str) -> Watched | None:
    """The supervisor that claimed the task, if it is alive."""
    said = read(folder / "claim")
    return _alive(said, boot)


def _alive(said: dict[str, str], boot: str) -> Watched | None:
    if not said.get("pid") or said.get("boot") != boot:
        return None
    pid = int(said["pid"])
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return None
    # Looked at after the descriptor is ours: from now on the pid cannot become somebody else's unnoticed.
    if start_ticks(pid) != said.get("ticks") or _is_zombie(pid):
        os.close(descriptor)
        return None
    return Watched(pid, descriptor)


def _is_zombie(pid: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z"
    except (OSError, IndexError):
        return True


def last_word(folder: pathlib.Path, boot: str) -> dict[str, str]:
    """How a task ended whose supervisor is gone; what it left running is ended too."""
    said = read(folder / "exit")
    if said.get("outcome"):
        return said
    task = read(folder / "running")
    claim = read(folder / "claim")
    if claim and claim.get("boot") != boot:
        return {"outcome": "lost", "told": "the machine was started anew while it ran"}
    survivor = _alive(task, boot)
    if survivor is not None:
        end_group(survivor)
    with contextlib.suppress(OSError):
        clear(Order(read_pairs(str(folder / "order"))))
    trouble = _trouble(folder)
    return {"outcome": "lost", "told": "its supervisor was killed" + (f": {trouble}" if trouble else "")}


def end_group(watched: Watched) -> None:
    """End a task that has lost its supervisor, with all its processes."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(watched.pid, signal.SIGKILL)
    _bury(watched)


def _bury(watched: Watched) -> None:
    """Wait until it is really gone: its devices are given to others next."""
    select.select([watched.descriptor], [], [], BURY_S)
    os.close(watched.descriptor)


def end_stray(folder: pathlib.Path, boot: str) -> None:
    """End a task that nobody knows of any more, as after a backup was restored."""
    watched = claimant(folder, boot)
    if watched is not None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(watched.descriptor, signal.SIGKILL)
        _bury(watched)
    if (folder / "claim").exists():
        last_word(folder, boot)


def _trouble(folder: pathlib.Path) -> str:
    """The last line a supervisor wrote before it died of an error."""
    try:
        lines = (folder / "trouble").read_text(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1][:200] if lines else ""
