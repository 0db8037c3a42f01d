"""Files that nobody has a reason to touch, and the kernel's word on whether anybody did (inotify)."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

TOUCHED = 0x1 | 0x2 | 0x4 | 0x20 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400
"""Kernel names: ACCESS, MODIFY, ATTRIB, OPEN, MOVED_FROM, MOVED_TO, CREATE, DELETE, DELETE_SELF."""
SECRET = "canary-7f3a-must-not-be-seen"


class Canaries:
    """A folder of one owner, closed to everybody else, with a few files in it."""

    def __init__(self, folder: Path, uid: int) -> None:
        self.folder = folder
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._watch = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self._watch >= 0, "the kernel has no inotify for us"
        inner = folder / "deep"
        inner.mkdir(parents=True)
        files = [folder / "plain", folder / "run.sh", inner / "keys"]
        for path in files:
            path.write_text(f"#!/bin/sh\necho {SECRET}\n")
            path.chmod(0o700)
        for path in (*files, inner, folder):
            os.chown(path, uid, uid)
            path.chmod(0o700)
        self._kept = {path: path.read_bytes() for path in files}
        for path in (folder, inner, *files):
            assert self._libc.inotify_add_watch(self._watch, os.fsencode(path), TOUCHED) >= 0

    def paths(self) -> list[str]:
        """What a request may name."""
        return [str(self.folder), *map(str, self._kept), f"{self.folder}/new", f"{self.folder}/deep/../plain"]

    def untouched(self) -> bool:
        """Whether nobody opened, read, changed, made or removed anything in it."""
        try:
            os.read(self._watch, 4096)
        except BlockingIOError:
            return True
        return False

    def close(self) -> None:
        """Stop watching; everything is as it was."""
        os.close(self._watch)
        assert {path: path.read_bytes() for path in self._kept} == self._kept
        assert sorted(self.folder.rglob("*")) == sorted([*self._kept, self.folder / "deep"])
