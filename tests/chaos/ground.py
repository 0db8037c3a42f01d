"""What a storm stands on: a small disk for the state, the control plane as a process, and who else is there.

Used by `storm`. The kernel is asked about processes, never the yard.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gpuyard.client import Client, Unreachable
from gpuyard.client.places import Address, socket_path
from gpuyard.worlds.local.launching import orders
from gpuyard.worlds.local.supervising.confine import own_cgroup
from tests.chaos.plane import ERROR

ROOT = Path(__file__).resolve().parents[2]
DISK_BYTES = 96 << 20
INODES = 20_000
PATIENCE_S = 240.0
"""Of somebody who waits for a control plane to come up or to close; it costs nothing where that is quick."""
ANSWER_S = 5.0
WITHOUT_CGROUP = (
    "for at in /sys/fs/cgroup/unified /sys/fs/cgroup; do umount --lazy $at 2>/dev/null; done; exec \"$@\""
)  # fmt: skip

Key = tuple[int, int, int]
"""Job, attempt, serial: which process of the yard's."""


class Disk:
    """A file system of its own for the state, where it can be had; it can be filled and emptied again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        options = f"size={DISK_BYTES},nr_inodes={INODES}"
        self.is_ours = os.geteuid() == 0 and _mount("-t", "tmpfs", "-o", options, "tmpfs", str(path))
        self.is_well = True

    def fill(self) -> None:
        """Not a byte is left."""
        self.is_well = False
        self._limit(lambda s: f"size={max(1, s.f_blocks - s.f_bfree) * s.f_frsize}")

    def use_up_inodes(self) -> None:
        """Not a file can be made."""
        self.is_well = False
        self._limit(lambda s: f"nr_inodes={max(1, s.f_files - s.f_ffree)}")

    def _limit(self, option) -> None:
        for _ in range(20):  # somebody may write between the look and the mount
            if _mount("-o", f"remount,{option(os.statvfs(self.path))}", str(self.path)):
                return

    def mend(self) -> None:
        """As large as it was."""
        if self.is_ours:
            assert _mount("-o", f"remount,size={DISK_BYTES},nr_inodes={INODES}", str(self.path))
        self.is_well = True

    def remove(self) -> None:
        if self.is_ours:
            subprocess.run(["umount", "--lazy", str(self.path)], check=True)


def _mount(*words: str) -> bool:
    return subprocess.run(["mount", *words], capture_output=True, check=False).returncode == 0


@dataclass
class Plane:
    """The control plane: one process, started as often as it takes."""

    folder: Path
    cgroup: bool
    process: subprocess.Popen[bytes] | None = None
    stopped: bool = False
    killed: bool = False
    """Whether the storm ended it; else it ended by itself, which it must not."""
    on_good_ground: bool = True
    """Whether its disk was well when it began."""
    has_answered: bool = False
    began_at: int = 0

    @property
    def state(self) -> Path:
        return self.folder / "disk" / "s"

    def lives(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def client(self, timeout_s: float = ANSWER_S) -> Client:
        return Client(Address(socket=socket_path(self.state)), timeout_s)

    def start(self, on_good_ground: bool = True) -> None:
        words = [sys.executable, "-m", "tests.chaos.plane", str(self.folder)]
        if not self.cgroup and os.geteuid() == 0:
            words = ["unshare", "--mount", "sh", "-c", WITHOUT_CGROUP, "sh", *words]
        with open(self.folder / "plane.log", "ab") as log:
            self.began_at = log.tell()
            self.process = subprocess.Popen(
                words, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self.stopped = self.killed = self.has_answered = False
        self.on_good_ground = on_good_ground

    def await_answer(self, patience_s: float = PATIENCE_S) -> bool:
        """Whether that very process answers in time."""
        until = time.monotonic() + patience_s
        with self.client() as client:
            while time.monotonic() < until and self.lives():
                with contextlib.suppress(Unreachable):
                    if self.process is not None and client.status()["pid"] == self.process.pid:
                        self.has_answered = True
                        return True
                time.sleep(0.05)
        return False

    def kill(self) -> None:
        self.killed = True
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self.stopped = False

    def signal(self, number: int) -> None:
        if self.process is not None and self.lives():
            self.process.send_signal(number)  # a kill that was to come a moment later may have come
            self.stopped = number == signal.SIGSTOP

    def close(self) -> bool:
        """Told to end; whether it did."""
        self.signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            if self.process is not None:
                self.process.wait(PATIENCE_S)
        return not self.lives()

    def last_words(self) -> str:
        """What it said since it was started."""
        return (self.folder / "plane.log").read_text(errors="replace")[self.began_at :][-2500:]


class WallClock:
    """How wrong the control plane's wall clock is."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.error = 0.0
        path.write_bytes(ERROR.pack(0.0))

    def jump(self, seconds: float) -> None:
        self.error += seconds
        with self._path.open("r+b") as file:  # in place: the control plane has it mapped
            file.write(ERROR.pack(self.error))


# --- processes -----------------------------------------------------------------------------------


def processes() -> Iterator[tuple[int, str]]:
    """Everything that runs, with its words."""
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            with contextlib.suppress(OSError):
                words = (each / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if words and (each / "stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z":
                    yield int(each.name), words


def supervisors(state: Path) -> list[tuple[int, Key]]:
    """The processes that look after tasks of this yard, and which."""
    pattern = re.compile(re.escape(f"{state}/runs/") + r"(\d+)/(\d+)/(\d+)")
    found = ((pid, pattern.search(words)) for pid, words in processes())
    return sorted((pid, (int(m[1]), int(m[2]), int(m[3]))) for pid, m in found if m is not None)


def workers(truth: Path) -> list[int]:
    """The tasks' own processes."""
    return sorted(pid for pid, words in processes() if f"worker.py {truth} " in words)


def key_of(pid: int) -> Key | None:
    """Which task a process belongs to, by the mark in its environment."""
    with contextlib.suppress(OSError):
        found = re.search(rb"GPUYARD_MARK=\w+-(\d+)-(\d+)-(\d+)", Path(f"/proc/{pid}/environ").read_bytes())
        if found is not None:
            return int(found[1]), int(found[2]), int(found[3])
    return None


def holders(folder: Path) -> dict[int, str]:
    """Processes that have a file of this folder open, with its name: also those that hide everything else."""
    found: dict[int, str] = {}
    for pid, _ in processes():
        with contextlib.suppress(OSError):
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    if (target := os.readlink(descriptor)).startswith(str(folder)):
                        found[pid] = target
    return found


def described(pid: int) -> str:
    """What the kernel knows of a process: for whoever looks for the reason that it is there."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        groups = Path(f"/proc/{pid}/cgroup").read_text().split("\n")
        inside = next((line for line in groups if line.startswith("0::")), "")
        return f"{words.strip()}, state {stat[0]}, parent {stat[1]}, begun at {stat[19]} ticks, in {inside}"
    return "gone"


def control_groups(state: Path) -> list[Path]:
    """Those of this yard's tasks."""
    mark = orders.surroundings(str(state.resolve()), {}).mark
    parent = own_cgroup()
    return sorted(Path(parent).glob(f"gpuyard-{mark}-*")) if parent else []


def strike(pid: int, number: int) -> bool:
    """Send a signal; whether anybody was there."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
