"""Where a task tells how far it is: a pipe that its submitter may write to, and what is kept of it. By `supervisor`.

What comes is somebody's text: of each line numbers alone are taken, checked and bounded; all the rest ends here and
reaches nobody. A pipe and no file, because it takes no room on a disk, can become no link or other kind of file, and is
read only when something was said. Who writes faster than it is read loses lines and holds nobody up.

Light on purpose: it is loaded with every supervisor.
"""

from __future__ import annotations

import math
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuyard.worlds.local.supervising.notes import Pairs

READ_MAX = 65536
LINE_MAX = 1024
"""A longer line is nobody's progress."""
MOST = 1e15
"""Beyond it floats no longer count steps one by one."""
REST_S = 0.25
"""So often at most the pipe is read, however much is said."""
TELL_S = 5.0
"""So often at most the control plane hears of it; of the first word and of saved work at once."""
NEWS_S = 1.0
"""Nor more often of that."""
LINES_READ = 32
"""Of what came at once so many are read, and those besides that tell of saved work: the newest says how far it is."""
LAST_READS = 16


class ProgressPipe:
    """One task's words about itself. Times are the monotonic clock's."""

    def __init__(self, path: str, uid: int = -1) -> None:
        self.path = path
        self.pipe = -1
        self.partial = b""
        self.first: tuple[float, float] | None = None
        """When it first told, and how far it was."""
        self.last = (0.0, 0.0)
        self.total = 0.0
        self.saved: float | None = None
        self._resting_until = 0.0
        self._told_at = -TELL_S
        self._untold = self._tells_of_saving = False
        if path:
            self._open(uid)

    def _open(self, uid: int) -> None:
        """A disk that is full or knows no pipes costs the task its progress, and nothing else."""
        try:
            if os.path.lexists(self.path):
                os.unlink(self.path)
            os.mkfifo(self.path, 0o600)
            if uid >= 0:
                os.chown(self.path, uid, -1)  # its submitter tells, and nobody else
            # Also opened for writing, or it would read as ended whenever nobody has it open.
            self.pipe = os.open(self.path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            self.pipe = -1

    def readable(self, now: float) -> list[int]:
        """What to listen to."""
        return [self.pipe] if self.pipe >= 0 and now >= self._resting_until else []

    def due(self, now: float) -> list[float]:
        """When to ask again though nothing is said."""
        rest = [self._resting_until] if now < self._resting_until else []
        return rest + ([self._tell_at] if self._untold else [])

    def hear(self, now: float) -> bool:
        """Read what was said; whether it is time to tell the control plane."""
        if self.readable(now) and self._read(now):
            self._resting_until = now + REST_S
        if not self._untold or now < self._tell_at:
            return False
        self._untold = self._tells_of_saving = False
        self._told_at = now
        return True

    @property
    def _tell_at(self) -> float:
        return self._told_at + (NEWS_S if self._tells_of_saving else TELL_S)

    def close(self, now: float) -> None:
        """Hear what is left, and let nobody find it any more."""
        if self.pipe < 0:
            return
        for _ in range(LAST_READS):
            if not self._read(now):
                break
        os.close(self.pipe)
        self.pipe = -1
        try:
            os.unlink(self.path)
        except OSError:
            return

    def pairs(self) -> Pairs:
        """What is known, as a note says it; nothing if nothing was told."""
        if self.first is None:
            return []
        told = (*self.first, *self.last, self.total, *(() if self.saved is None else (self.saved,)))
        return list(zip(("first_at", "first_done", "at", "done", "total", "saved"), map(repr, told), strict=False))

    def _read(self, now: float) -> bool:
        try:
            content = os.read(self.pipe, READ_MAX)
        except OSError:
            return False
        *lines, rest = (self.partial + content).split(b"\n")
        self.partial = rest[: LINE_MAX + 1]
        newest = len(lines) - LINES_READ
        for number, line in enumerate(lines):
            if len(line) <= LINE_MAX and (number >= newest or b'"saved"' in line):
                self._take(line, now)
        return True

    def _take(self, line: bytes, now: float) -> None:
        """One line: a JSON object with `done`, `total` and `saved`; what is none of these is left out."""
        from json import loads  # read only by those who tell something

        try:
            said = loads(line)
            done, total = (_count(said.get(key)) for key in ("done", "total"))
            saves = said.get("saved") is True
        except (ValueError, AttributeError, OverflowError, RecursionError):
            return
        if done is None and not saves:
            return
        done = self.last[1] if done is None else done
        if self.first is None or done < self.last[1]:  # who counts anew is measured anew
            self.first = (now, done)
        self.last = (now, done)
        self.total = self.total if total is None else total
        self.saved = now if saves else self.saved
        self._untold = True
        self._tells_of_saving = self._tells_of_saving or saves


def _count(value: object) -> float | None:
    """A number of steps, if it is one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and 0 <= value <= MOST else None
