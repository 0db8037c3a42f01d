"""Room that is put by on the state folder's disk: what must still be written when it is full has some.

Used by `desk`: a task that is told to stop on a full disk stops, and so does whatever else has to end.
"""

from __future__ import annotations

import os
import pathlib

RESERVE_BYTES = 1 << 20


class DiskReserve:
    """A file of a megabyte and its inode."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._path = folder / "reserve"
        self.put_by()

    def put_by(self) -> None:
        """Have it, if there is room for it."""
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError:
            return
        try:
            os.posix_fallocate(descriptor, 0, RESERVE_BYTES)
        except OSError:
            self._path.unlink(missing_ok=True)
        finally:
            os.close(descriptor)

    def give_up(self) -> bool:
        """Let go of it; False if there was none."""
        try:
            self._path.unlink()
        except OSError:
            return False
        return True
