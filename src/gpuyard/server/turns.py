"""Turns: how many questions of one caller are worked on at once. Used by `api` for whatever takes a thread.

A caller beyond their share waits for their own earlier questions, not for others'; who has too many waiting is told so.
What takes thought (submitting, previewing, asking why) is worked on one at a time for each caller, and few in all.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from gpuyard.model.errors import Busy

AT_ONCE = 4
"""Questions of one caller in threads at once; a server has ten times as many threads."""
THOUGHTS = 2
"""Questions that take thought, of all callers together: the loop needs its part of the processor."""
WAITING_MAX = 200
"""Questions of one caller that may wait for their turn."""


@dataclass
class _Line:
    """The turns of one event loop."""

    open: Counter[str] = field(default_factory=Counter)
    quick: dict[str, asyncio.Semaphore] = field(default_factory=dict)
    slow: dict[str, asyncio.Semaphore] = field(default_factory=dict)
    thoughts: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(THOUGHTS))


class CallerTurns:
    """Shared by all requests; every server has its own event loop, and so its own line."""

    def __init__(self) -> None:
        self._lines: WeakKeyDictionary[asyncio.AbstractEventLoop, _Line] = WeakKeyDictionary()

    @contextlib.asynccontextmanager
    async def take(self, user: str, slow: bool = False) -> AsyncIterator[None]:
        """Wait for this caller's turn; `Busy` if too many of theirs wait already."""
        line = self._lines.setdefault(asyncio.get_running_loop(), _Line())
        if line.open[user] >= WAITING_MAX:
            raise Busy(f"{WAITING_MAX} questions of yours are not answered yet; wait for some, then ask again")
        line.open[user] += 1
        try:
            if slow:
                async with line.slow.setdefault(user, asyncio.Semaphore(1)), line.thoughts:
                    yield
            else:
                async with line.quick.setdefault(user, asyncio.Semaphore(AT_ONCE)):
                    yield
        finally:
            line.open[user] -= 1
            if not line.open[user]:
                for kept in (line.open, line.quick, line.slow):
                    kept.pop(user, None)
