"""Tasks whose supervisors are gone: they are over when it is proven that nothing is left of them, and not before.

Used by `launch`. What cannot be proven is told, with the processes it may be, and asked again until it can, or until an
operator vouches for it; the task's devices stay its own for as long.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Container
from dataclasses import dataclass

from gpuyard.model.job import Placement
from gpuyard.model.outside.ports import Clock
from gpuyard.worlds.local.launching import adopt
from gpuyard.worlds.local.ports import Report, TaskKey
from gpuyard.worlds.local.supervising.notes import Order
from gpuyard.worlds.local.supervising.removal import Removal

AGAIN_S = 0.02
AGAIN_MAX_S = 1.0
DOUBT_S = 3.0
"""A killed process may take so long to go before anybody is told that it does not."""


@dataclass(slots=True)
class Burial:
    """One task that is being proven gone."""

    since: float
    told: str = ""
    """What became of it, where that is known already."""
    doubt: str = ""
    is_told: bool = False
    vouched: bool = False
    due: float = 0.0
    removal: Removal | None = None

    def contained(self, order: Order, now: float) -> str:
        """What stands in the way of its container's end, as far as that is known."""
        self.removal = self.removal or Removal(order)
        return "" if self.removal.ask(now) else self.removal.doubt


class Burials:
    """All that are under way. Times are the monotonic clock's."""

    def __init__(self, clock: Clock, boot: str, folder_of: Callable[[TaskKey], pathlib.Path]) -> None:
        self._clock = clock
        self._boot = boot
        self._folder_of = folder_of
        self._open: dict[TaskKey, Burial] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._open

    def begin(self, key: TaskKey, told: str = "") -> None:
        """Its supervisor is gone, or is about to be."""
        self._open.setdefault(key, Burial(self._clock.monotonic(), told))

    def vouch(self, key: TaskKey) -> None:
        """An operator says that nothing is left of it."""
        if key in self._open:
            self._open[key].vouched, self._open[key].due = True, 0.0

    def doubts(self) -> dict[TaskKey, str]:
        """Those that take suspiciously long, and what may be left of each."""
        return {key: burial.doubt for key, burial in self._open.items() if burial.is_told}

    def patience(self, timeout: float | None) -> float | None:
        """How long to wait at most, so that nobody proven gone waits for somebody else's news."""
        if not self._open:
            return timeout
        due = max(0.0, min(burial.due for burial in self._open.values()) - self._clock.monotonic())
        return due if timeout is None else min(due, timeout)

    def settle(self, known: Container[int], watched: Container[TaskKey]) -> list[Report]:
        """Ask again for those that are due; `watched` still have a supervisor, which comes first."""
        now = self._clock.monotonic()
        found: list[Report] = []
        for key, burial in list(self._open.items()):
            if key in watched:
                burial.due = now + AGAIN_MAX_S
            elif burial.due <= now:
                found += self._ask(key, burial, known, now)
        return found

    def _ask(self, key: TaskKey, burial: Burial, known: Container[int], now: float) -> list[Report]:
        proof = adopt.prove(self._folder_of(key), self._boot, known, lambda order: burial.contained(order, now))
        burial.doubt = proof.doubt
        if proof.doubt and not burial.vouched:
            burial.due = now + min(AGAIN_MAX_S, max(AGAIN_S, (now - burial.since) / 4))
            return self._doubted(key, burial, now)
        del self._open[key]
        return [self._ending(key, proof.said, burial.told)]

    def _doubted(self, key: TaskKey, burial: Burial, now: float) -> list[Report]:
        """Told once."""
        if burial.is_told or now - burial.since < DOUBT_S:
            return []
        burial.is_told = True
        return [Report(key, "doubted", self._clock.now(), told=burial.doubt)]

    def _ending(self, key: TaskKey, said: dict[str, str], told: str) -> Report:
        exit_code = int(said["exit"]) if said.get("exit") and said["outcome"] != "lost" else None
        at = adopt.moment(said, self._clock, self._boot)
        progress = adopt.progress(adopt.read(self._folder_of(key) / "progress"), self._clock, self._boot)
        if told:
            return Report(key, "ended", at, 0, "lost", None, told, progress)
        return Report(key, "ended", at, 0, said["outcome"], exit_code, said.get("told", ""), progress)


def withheld(place: Placement, doubt: str) -> str:
    """Why nobody else gets what a task had."""
    had = f"GPU {', '.join(map(str, place.gpus))} of {place.node}" if place.gpus else f"its room on {place.node}"
    return f"{had} stays withheld, because it is not proven that nothing of the task is left: {doubt}"
