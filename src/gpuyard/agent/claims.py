"""Which yard offers which GPU of this machine: a claim for each, by UUID, in a folder where every yard looks.

Used by `keeper`. A claim is a small file that names a process and when it began, so it holds for as long as that lives:
the yard's own, and besides one of each task, because tasks outlive their yard. Anybody may write into the folder; a
claim counts only if the file, its name and the process all belong to one user.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pathlib
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

FOLDERS = ("/run/lock", "/var/lock", "/tmp")
"""Where all users of a machine may write: the first that is root's and sticky."""
PREFIX = "gpuyard-"
CLAIM_MAX = 4096
MUTEX_S = 0.01
MUTEX_TRIES = 200
"""Whoever holds the mutex longer does not hold it for claiming."""


@dataclass(frozen=True, slots=True)
class GpuClaim:
    """Who has a GPU: a process, and the state folder of its yard."""

    pid: int
    uid: int
    state: str

    def __str__(self) -> str:
        return f"the yard in {self.state} (process {self.pid} of uid {self.uid})"


def common_folder() -> pathlib.Path | None:
    """The machine's folder for claims; None if it has none that can be trusted."""
    for name in FOLDERS:
        path = pathlib.Path(os.path.realpath(name))
        with contextlib.suppress(OSError):
            found = path.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == 0 and found.st_mode & 0o1002 == 0o1002:
                return path
    return None


class Claims:
    """The claims of one yard, which is known by its state folder; `mark` is short for that."""

    def __init__(self, folder: pathlib.Path, state: str, mark: str) -> None:
        self._folder = folder
        self._state = state
        self._own = f"{os.getuid()}-{mark}"
        self._clear()

    def claim(self, uuids: Iterable[str]) -> dict[str, GpuClaim]:
        """Claim GPUs for this process; those that somebody else has, and who."""
        refused: dict[str, GpuClaim] = {}
        with self._mutex():
            for uuid in uuids:
                holder = self._holder(uuid)
                if holder is None:
                    self._write(uuid, "yard", os.getpid())
                else:
                    refused[uuid] = holder
        return refused

    def hold(self, task: str, uuids: Iterable[str], pid: int) -> None:
        """A task has them, also after this process is gone."""
        for uuid in uuids:
            self._write(uuid, task, pid)

    def drop(self, name: str, uuids: Iterable[str]) -> None:
        """A task, or the yard, has them no more."""
        for uuid in uuids:
            with contextlib.suppress(OSError):
                (self._folder / f"{PREFIX}{_plain(uuid)}-{self._own}-{name}").unlink()

    # --- others ----------------------------------------------------------------------------------

    def _holder(self, uuid: str) -> GpuClaim | None:
        """Another yard that has the GPU, or whose tasks still have it."""
        prefix = f"{PREFIX}{_plain(uuid)}-"
        for name in sorted(os.listdir(self._folder)):
            if name.startswith(prefix) and not name.startswith(f"{prefix}{self._own}-"):
                claim = _read(self._folder / name, name.removeprefix(prefix).split("-")[0])
                if claim is not None:
                    return claim
        return None

    # --- our own ---------------------------------------------------------------------------------

    def _write(self, uuid: str, name: str, pid: int) -> None:
        """Whole or not at all; where there is no room for a claim the yard goes on without it."""
        path = self._folder / f"{PREFIX}{_plain(uuid)}-{self._own}-{name}"
        fresh = path.with_name(f".{path.name}.{os.getpid()}")
        said = {"pid": pid, "ticks": _ticks(pid), "boot": _boot(), "state": self._state}
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump(said, file)
            os.replace(fresh, path)

    def _clear(self) -> None:
        """Remove what our own yard left of processes that are gone."""
        for name in os.listdir(self._folder):
            path = self._folder / name
            if name.startswith(PREFIX) and f"-{self._own}-" in name and _read(path, str(os.getuid())) is None:
                with contextlib.suppress(OSError):
                    path.unlink()

    @contextlib.contextmanager
    def _mutex(self) -> Iterator[None]:
        """Two yards that start together do not both find a GPU free. Who keeps it from us for long is not heeded."""
        descriptor = _opened(self._folder / f"{PREFIX}claims")
        try:
            for _ in range(MUTEX_TRIES if descriptor >= 0 else 0):
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError:
                    time.sleep(MUTEX_S)
            yield
        finally:
            if descriptor >= 0:
                os.close(descriptor)


def _opened(path: pathlib.Path) -> int:
    """Somebody else's file too, for only its lock is used; -1 if it cannot be had."""
    for flags in (os.O_RDONLY, os.O_RDONLY | os.O_CREAT | os.O_EXCL, os.O_RDONLY):
        with contextlib.suppress(OSError):
            return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
    return -1


def _read(path: pathlib.Path, uid: str) -> GpuClaim | None:
    """A claim that holds: its file is that user's, and so is the process, which lives."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode) or str(found.st_uid) != uid:
                return None
            said = json.loads(file.read(CLAIM_MAX))
        pid = int(said["pid"])
        if said["boot"] != _boot() or not said["ticks"] or said["ticks"] != _ticks(pid) or uid not in _uids(pid):
            return None
        return GpuClaim(pid, found.st_uid, str(said["state"])[:200])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _plain(uuid: str) -> str:
    return "".join(letter for letter in uuid if letter.isalnum())


def _ticks(pid: int) -> str:
    """When a process began; empty if it is gone, or dead and not buried."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return "" if fields[0] == b"Z" else fields[19].decode()
    except (OSError, IndexError):
        return ""


def _uids(pid: int) -> list[str]:
    lines = pathlib.Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    return next((line.split()[1:] for line in lines if line.startswith("Uid:")), [])


def _boot() -> str:
    try:
        return pathlib.Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
