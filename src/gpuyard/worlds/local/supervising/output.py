"""A task's output on disk, in segments named by the offset of their first byte. Used by `supervisor`."""

from __future__ import annotations

import os

SEGMENT_BYTES = 16 << 20
SEGMENTS = 4
"""So much output is kept: whoever writes more is somebody's disk filling up."""


class Log:
    """Appends, and never fails: a full disk, or one without inodes, loses output and never the task."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.at = self.size = 0
        self.mid_line = False
        self.file = -1
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            last = max(os.listdir(folder), default="")
            self.at = int(last) + os.path.getsize(f"{folder}/{last}") if last else 0
        except (OSError, ValueError):
            return

    def write(self, content: bytes) -> None:
        """Keep it, if it can be kept."""
        self.mid_line = not content.endswith(b"\n")
        try:
            if self.file < 0 or self.size >= SEGMENT_BYTES:
                self._next()
            while content:
                written = os.write(self.file, content)
                self.at, self.size, content = self.at + written, self.size + written, content[written:]
        except OSError:
            return

    def line(self, told: str, end: bytes = b"\n") -> bytes:
        """What is said to a task in its own output: a line of its own, whatever the task has just written."""
        return (end if self.mid_line else b"") + b"[yard] " + os.fsencode(told) + end

    def _next(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        fresh = os.open(f"{self.folder}/{self.at:020d}", flags, 0o600)
        if self.file >= 0:
            os.close(self.file)
        self.file, self.size = fresh, 0
        for old in sorted(os.listdir(self.folder))[:-SEGMENTS]:
            os.unlink(f"{self.folder}/{old}")
