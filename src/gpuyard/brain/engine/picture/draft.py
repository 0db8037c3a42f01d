"""The plan in the making: one fleet, one moment, every change so far, and every "no" with its reason.

Made by the cycle, passed to each step. Steps change the fleet through `tx` only, so the whole draft can be undone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpuyard.brain.engine.nodes.columns import Barred, Held
from gpuyard.brain.engine.nodes.free_before import FreeBefore
from gpuyard.brain.engine.picture.claim_log import ClaimLog
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.job_rows import NO_QUEUE, JobRow
from gpuyard.brain.engine.picture.memory import Evictions, Memory, Progresses, Refusals
from gpuyard.brain.engine.picture.transaction import Transaction
from gpuyard.brain.engine.picture.trial import KeptOff, Log, Notes, Relaxed, Trial
from gpuyard.brain.engine.picture.waits import Waits
from gpuyard.brain.engine.sharing import fair_share
from gpuyard.brain.engine.sharing.fair_share import Shares
from gpuyard.model.actions import Action, Deadlock, Reserve
from gpuyard.model.alerts import Alert
from gpuyard.model.reasons import Code, Reason

NOBODY: Mapping[str, tuple[Held, ...]] = {}


@dataclass(slots=True)
class Kept:
    """One reservation in force: for whom, the places wanted, and the stand-in that holds those free now."""

    row: JobRow
    places: tuple[Held, ...]
    until: float | None
    borrower: bool
    stand_in: JobRow
    known: bool = False
    """Whether it stood already when the plan began."""


class Said:
    """What the plan will say beyond who starts, moves and stops: that shows in where jobs stand."""

    def __init__(self) -> None:
        self.actions: list[Action] = []
        """What controllers want done."""
        self.proposed: list[Action] = []
        """What controllers in shadow mode would have done."""
        self.reserves: list[Reserve] = []
        self.deadlocks: list[Deadlock] = []
        self.alerts: tuple[Alert, ...] = ()
        """What an operator should hear of, the worst first."""
        self.look_again_at: float | None = None
        """When time alone may change the plan."""


class Draft:
    """Working state of one cycle."""

    def __init__(
        self, fleet: Fleet, memory: Memory, now: float, began: Mapping[str, tuple[Held, ...]] = NOBODY
    ) -> None:
        self.began = began
        """What those held, when the plan began, whom earlier cycles of it have changed."""
        self.fleet = fleet
        self.memory = memory
        self.policy = fleet.policy
        self.now = now
        self.tx = Transaction(fleet)
        self._capacity = fleet.capacity()
        self._shares: Shares | None = None
        self._dues: Shares | None = None
        self.log: Log = []
        """What was noted, for trials to take back."""
        self.before: dict[str, tuple[Held, ...]] = Notes(self.log)
        """What changed jobs held when the cycle began."""
        self.because: dict[str, Reason] = Notes(self.log)
        """Why a job was changed."""
        self.served: dict[str, str] = Notes(self.log)
        """For whom a job was moved or evicted."""
        self.waits = Waits()
        """Why jobs could not start."""
        self.quota_aside = False
        """Whether a trial asks what would fit if queues let it."""
        self.claims = ClaimLog(memory.of(Refusals).at)
        self.evictions = memory.of(Evictions).times
        told = memory.of(Progresses)
        self.warm_ups, self.saved = told.warm_ups, told.saved
        self.effort = 0
        """How many sets of victims this cycle has tried."""
        self._free: FreeBefore | None = None
        self._largest: list[int] | None = None
        self.kept: dict[str, Kept] = Notes(self.log)
        """Reservations, by job; in force while the job waits."""
        self.binding: tuple[Kept, ...] = ()
        """Reservations that bind the claimant of the moment: it gets none of their places, whoever holds them now."""
        self.promises = 0
        """Jobs looked at for a reservation so far."""
        self.said = Said()

    def trial(self) -> Trial:
        """The one way to try something: what is not kept, or fails, leaves everything as it was."""
        return Trial(self)

    def bound(self, binding: Iterable[Kept]) -> Trial:
        """The same while nobody gets anything that these reservations keep."""
        return KeptOff(self, binding)

    def relaxed(
        self,
        *,
        quota: bool = True,
        caps: bool = True,
        neighbours: bool = True,
        barred: Barred | None = None,
        budget: str = "",
    ) -> Trial:
        """Ask what would be without some of the rules: quotas, caps, neighbours, one of the disruption budgets, or with
        devices that are barred."""
        return Relaxed(self, quota, caps, neighbours, barred, budget)

    @property
    def shares(self) -> Shares:
        """What each queue is due of what there was when the cycle began; worked out when first asked for."""
        if self._shares is None:
            self._shares = fair_share.fair_shares(self.fleet.tree, self.fleet.demand, self._capacity)
        return self._shares

    @property
    def dues(self) -> Shares:
        """max(quota, fair share): what a queue's use is measured by."""
        if self._dues is None:
            self._dues = fair_share.dues(self.fleet.tree, self.shares)
        return self._dues

    def rest(self) -> None:
        """Outside of every trial, once claims have been asked: what they left behind for each other goes, and what was
        noted stands. Both know the draft: they would keep it and the picture alive until garbage is looked for."""
        self.claims.rest()
        self.log.clear()

    def emit(self, action: Action) -> None:
        """Have this done; where jobs stand is not told here, for that shows in their places."""
        self.said.actions.append(action)

    def propose(self, action: Action) -> None:
        """Say that this would have been done."""
        self.said.proposed.append(action)

    def look_again(self, at: float) -> None:
        """The plan may be another one then, though nothing happens; what is past is of no use."""
        if at > self.now and (self.said.look_again_at is None or at < self.said.look_again_at):
            self.said.look_again_at = at

    def remember(self, row: JobRow, held: tuple[Held, ...] | None = None) -> None:
        """Note what a job held before its first change."""
        if row.name not in self.before:
            self.before[row.name] = tuple(row.held) if held is None else held

    def is_changed(self, row: JobRow) -> bool:
        """Whether the plan so far has it elsewhere than it was."""
        return row.name in self.before and sorted(self.before[row.name]) != sorted(row.held)

    def origin(self, row: JobRow) -> tuple[Held, ...]:
        """What a job held when the plan began."""
        earlier = self.began.get(row.name)
        return self.before.get(row.name, tuple(row.held)) if earlier is None else earlier

    def largest_gang(self, side: int) -> int:
        """The most one job of a queue, or of any queue below it, held when the cycle began or has taken since."""
        if self._largest is None:
            self._largest = [0] * len(self.fleet.tree.queues)
            for q, cost in (*self.fleet.largest_gangs(), *((row.queue, row.cost()) for row in self.tx.touched())):
                self._note_gang(self._largest, q, cost)
        return self._largest[side]

    def _note_gang(self, largest: list[int], queue: int, cost: int) -> None:
        if queue != NO_QUEUE:
            for up in self.fleet.tree.paths[queue]:
                largest[up] = max(largest[up], cost)

    def note_free(self) -> None:
        """Remember what is free, to learn later whether more has become free since nothing fitted."""
        if self._free is None:
            self._free = FreeBefore(self.fleet.columns)
        else:
            self._free.note()

    def more_is_free(self) -> bool:
        """Whether some node has more free now than when nothing more fitted."""
        return self._free is None or self._free.grew()

    def accept(self, row: JobRow, reason: Reason) -> None:
        """The job's change stands, for this reason."""
        if self._largest is not None:
            self._note_gang(self._largest, row.queue, row.cost())
        self.waits.note((row,), None)
        if not was_released(self.because.get(row.name)):
            self.because[row.name] = reason

    def wait(self, rows: tuple[JobRow, ...], reason: Reason) -> None:
        """These jobs cannot start, all for this reason."""
        self.waits.note(rows, reason)


FITS = Reason(Code.FITS, message="fits now")
GROWS = Reason(Code.GROWS, message="room for more of its tasks")
REPAIRED = Reason(Code.REPAIRED, message="brought back to its minimum")


def was_released(noted: Reason | None) -> bool:
    """Whether a gang had to leave whatever it is; that is told of it, also if it finds a place elsewhere at once."""
    return noted is not None and noted.code in (Code.STALE, Code.DEADLOCK)
