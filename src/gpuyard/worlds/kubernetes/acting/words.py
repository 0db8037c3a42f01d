"""Why gangs wait, in full and in the words of `yard why`. Called by `tell` in the world's loop.

A plan has only the first reason that it found. The whole account costs a planning run over the moment: it is made in a
thread of its own, for many gangs at once, and never takes more than a small part of the time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence

from gpuyard.model.outside.ports import Clock
from gpuyard.model.reasons import Reason
from gpuyard.model.snapshot import Snapshot

PART = 20.0
"""So many times as long as an account took there is none."""

Explain = Callable[[Snapshot, Sequence[str]], Mapping[str, Reason]]
"""Why these wait in that moment; who is left out would not wait."""


def nothing_more(moment: Snapshot, names: Sequence[str]) -> Mapping[str, Reason]:
    """An `Explain` that knows no more than the plan."""
    return {}


class Words:
    """Accounts of why gangs wait."""

    def __init__(self, moment: Callable[[], Snapshot], explain: Explain, clock: Clock) -> None:
        self._moment = moment
        self._explain = explain
        self._clock = clock
        self._rest_until = 0.0

    def rested(self) -> bool:
        """Whether it may be asked again."""
        return self._clock.monotonic() >= self._rest_until

    async def of(self, names: Sequence[str]) -> Mapping[str, Reason]:
        """Why they wait now."""
        begun = self._clock.monotonic()
        found: Mapping[str, Reason] = {}
        with contextlib.suppress(Exception):  # then they are told what the plan said, rather than nothing
            found = await asyncio.to_thread(self._explain, self._moment(), names)
        now = self._clock.monotonic()
        self._rest_until = now + PART * (now - begun)
        return found
