"""The log of a yard in the background: `yard.log` in its state folder, bounded whatever is written to it.

Called by `up`. What the server's libraries have to say comes here: a line that comes again and again is written once a
minute with how often it came, and a file that is too long makes room for a new one.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from gpuyard.model.errors import Refused
from gpuyard.model.outside.phrases import counted

NAME = "yard.log"
SIZE_MAX = 1 << 20
LINE_MAX = 4000
"""Of one record, traceback included."""
FOLD_S = 60.0
KINDS_MAX = 1000
"""Different lines that are remembered; more than that start anew."""


@dataclass(frozen=True)
class YardLog:
    """What one yard has said, in a file that others before it, or beside it in vain, have written to."""

    path: Path
    begin: int

    def words(self) -> str:
        """All of it so far."""
        return self.path.read_bytes()[self.begin :].decode(errors="replace")


def opened(state: Path) -> BinaryIO:
    """The log, at its end; only its owner reads it, for it has the live page's address."""
    path = state / NAME
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size > SIZE_MAX:
            path.rename(path.with_suffix(".old"))
        return open(path, "ab", opener=_private)
    except OSError as error:
        told = f"The state folder {state} cannot be written: {error.strerror}. Give rights to it, or name another"
        raise Refused(f"{told} with --state.") from None


def _private(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NOFOLLOW, 0o600)


class Folding(logging.Handler):
    """Writes records to stderr, alike ones once a minute, and keeps the file behind it short."""

    def __init__(self, state: Path, monotonic: Callable[[], float]) -> None:
        super().__init__(logging.WARNING)
        self._state = state
        self._monotonic = monotonic
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}
        """When a kind of line was last written, and how often it came since."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write it, or count it."""
        kind, now = (record.name, str(record.msg)[:200]), self._monotonic()
        written, times = self._seen.get(kind, (-FOLD_S, 0))
        if now - written < FOLD_S:
            self._seen[kind] = (written, times + 1)
            return
        if len(self._seen) >= KINDS_MAX:
            self._seen.clear()
        self._seen[kind] = (now, 0)
        again = f" (and {counted(times, 'time')} more since it was last written)" if times else ""
        try:
            sys.stderr.write(f"{self.format(record)[:LINE_MAX]}{again}\n")
            sys.stderr.flush()
            turn_over(self._state)
        except OSError:
            pass  # a full disk is told by the yard's own checks


def turn_over(state: Path) -> None:
    """Begin a new file where stdout and stderr are the log and it has become too long; one old one is kept."""
    path = state / NAME
    if not path.exists() or not os.path.samestat(path.stat(), os.fstat(2)) or path.stat().st_size <= SIZE_MAX:
        return
    with opened(state) as file:
        os.dup2(file.fileno(), 2)
        os.dup2(file.fileno(), 1)


def fold(state: Path, monotonic: Callable[[], float]) -> None:
    """Let everything that is logged in this process go through one folding handler."""
    handler = Folding(state, monotonic)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
    logging.getLogger().handlers[:] = [handler]
