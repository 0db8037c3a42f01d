"""What-if, the one way in: inside `with draft.trial() as trial:` everything may be tried, and is undone unless kept.

    with draft.trial() as trial:
        if gang.place(draft, row):
            trial.keep()

Undone means all of it: places, notes on why and for whom, and waits. So it is when the trial fails with an error. What
holds only inside (`bound`: what nobody gets, `relaxed`: rules set aside) is over with it, kept or not. Trials nest;
what an inner one keeps, an outer one may still undo.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

from gpuyard.brain.engine.nodes.columns import Barred
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.transaction import Transaction
from gpuyard.brain.engine.picture.waits import Waits

V = TypeVar("V")
B = TypeVar("B")
_ABSENT: Any = object()

Log = list[tuple[dict[str, Any], str, Any]]


class Notes(dict[str, V]):
    """A dictionary that remembers what it said before, so that a trial can take its words back."""

    __slots__ = ("_log",)

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def __setitem__(self, name: str, value: V) -> None:
        self._log.append((self, name, self.get(name, _ABSENT)))
        dict.__setitem__(self, name, value)  # every start and every stop is noted: `super()` would cost as much again

    def setdefault(self, name: str, value: V) -> V:
        """The dictionary's own would tell the log nothing."""
        if name not in self:
            self[name] = value
        return self[name]

    def __delitem__(self, name: str) -> None:
        self._log.append((self, name, self[name]))
        super().__delitem__(name)


def take_back(log: Log, mark: int) -> None:
    """Undo what was noted since the mark, last first."""
    while len(log) > mark:
        notes, name, before = log.pop()
        if before is _ABSENT:
            dict.__delitem__(notes, name)
        else:
            dict.__setitem__(notes, name, before)


class Tried(Protocol[B]):
    """What a trial must be able to undo: the parts of a draft."""

    fleet: Fleet
    tx: Transaction
    log: Log
    waits: Waits
    quota_aside: bool
    effort: int
    binding: tuple[B, ...]


class Trial:
    """One what-if. `mark` is where the transaction stood when it began."""

    __slots__ = ("_draft", "_kept", "_noted", "_waits", "mark")

    def __init__(self, draft: Tried[Any]) -> None:
        self._draft = draft

    def __enter__(self) -> Trial:
        draft = self._draft
        self.mark = draft.tx.checkpoint()
        self._noted = len(draft.log)
        self._waits = draft.waits.checkpoint()
        self._kept = False
        return self

    def keep(self) -> None:
        """Let what was tried stand."""
        self._kept = True

    def untouched(self) -> bool:
        """Whether everybody still stands where it stood when the trial began."""
        return self._draft.tx.checkpoint() == self.mark

    def undo(self) -> None:
        """Back to the beginning; another try may follow."""
        draft = self._draft
        draft.tx.rollback(self.mark)
        take_back(draft.log, self._noted)
        if draft.waits.checkpoint() != self._waits:
            draft.waits.rollback(self._waits)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None or not self._kept:
            self.undo()


class KeptOff(Trial):
    """A what-if in which nobody gets anything that these reservations keep; it may be kept."""

    __slots__ = ("_before", "_binding")

    def __init__(self, draft: Tried[B], binding: Iterable[B]) -> None:
        super().__init__(draft)
        self._binding = tuple(binding)

    def __enter__(self) -> Trial:
        self._before, self._draft.binding = self._draft.binding, self._binding
        return super().__enter__()

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        super().__exit__(kind, *rest)
        self._draft.binding = self._before


class Relaxed(Trial):
    """A what-if with some of the rules set aside; it can only be looked at, never kept."""

    __slots__ = ("_barred", "_before", "_budget", "_budgets", "_caps", "_neighbours", "_quota")

    def __init__(
        self, draft: Tried[Any], quota: bool, caps: bool, neighbours: bool, barred: Barred | None, budget: str
    ) -> None:
        super().__init__(draft)
        self._quota, self._caps, self._neighbours, self._barred = quota, caps, neighbours, barred
        self._budget = budget

    def __enter__(self) -> Trial:
        draft, fleet = self._draft, self._draft.fleet
        self._before = (draft.quota_aside, draft.effort, fleet.capped, fleet.avoiders, fleet.company.heeded)
        self._budgets = fleet.budgets
        draft.quota_aside = draft.quota_aside or not self._quota
        fleet.capped = fleet.capped if self._caps else []
        fleet.avoiders = fleet.avoiders if self._neighbours else {}
        fleet.company.heeded = fleet.company.heeded and self._neighbours
        if self._budget:
            fleet.budgets = tuple(budget for budget in fleet.budgets if budget.name != self._budget)
        self._pretend(True)
        return super().__enter__()

    def keep(self) -> None:
        raise AssertionError("what breaks a rule cannot be kept")

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        super().__exit__(kind, *rest)
        self._pretend(False)
        draft, fleet = self._draft, self._draft.fleet
        draft.quota_aside, draft.effort, fleet.capped, fleet.avoiders, fleet.company.heeded = self._before
        fleet.budgets = self._budgets

    def _pretend(self, usable: bool) -> None:
        if self._barred is not None:
            self._draft.fleet.columns.pretend(self._barred, usable)
            self._draft.fleet.shapes.revalue()
