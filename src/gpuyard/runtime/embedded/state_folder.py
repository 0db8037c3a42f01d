"""The state folder of a yard: private to its user, and held by a lock that dies with its process."""

from __future__ import annotations

import fcntl
import os
import pathlib
from collections.abc import Mapping

from gpuyard.model.errors import Refused


class FolderHeld(Refused):
    """Somebody else has the folder; the message says who and since when."""


def default_folder(environ: Mapping[str, str]) -> pathlib.Path:
    """`$XDG_STATE_HOME/gpuyard`, as the base directory specification has it."""
    base = environ.get("XDG_STATE_HOME", "")
    home = pathlib.Path(environ.get("HOME", "/"))
    return (pathlib.Path(base) if base.startswith("/") else home / ".local" / "state") / "gpuyard"


class Holder:
    """Holds a folder until `release` or the end of the process; the local `worlds.base.Leadership`."""

    def __init__(self, folder: pathlib.Path, pid: int, since: str) -> None:
        self.folder = folder
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.chmod(0o700)
            self._file = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            what = f" ({error.filename})" if error.filename != str(folder) else ""
            told = f"the state folder {folder} cannot be written: {error.strerror}{what}"
            told += "; give rights to it, or name another"
            raise Refused(told) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            told = os.read(self._file, 200).decode(errors="replace").strip() or "somebody"
            os.close(self._file)
            raise FolderHeld(f"{folder} is held by {told}; stop it with `yard down`, or use another --state") from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"process {pid}, up since {since}\n".encode(), 0)

    def held(self) -> bool:
        """Whether the lock in the folder is still the one that we hold: who removed or replaced it may lead now."""
        try:
            there, ours = os.stat(self.folder / "lock"), os.fstat(self._file)
        except OSError:
            return False
        return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)

    def release(self) -> None:
        """Let go."""
        os.close(self._file)
