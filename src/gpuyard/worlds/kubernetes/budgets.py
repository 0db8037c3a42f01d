"""PodDisruptionBudgets in the model's words. Pure: API objects and gangs in, budgets out.

`BudgetBook` gives a budget for each PodDisruptionBudget that covers anybody, and is renewed gang by gang. How many may
go now is as its controller says; where that is stale, or where two meet on one pod (the API server then evicts
neither), none may. A budget that covers some pods of a group covers the group.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpuyard.kube.objects import BudgetObject
from gpuyard.model.node import Budget
from gpuyard.worlds.kubernetes.asking.selectors import selects
from gpuyard.worlds.kubernetes.gangs import Gathered
from gpuyard.worlds.kubernetes.gathering.members import Chair


@dataclass(frozen=True, slots=True)
class _Coverage:
    """Which budgets are about one gang."""

    groups: dict[str, set[str]]
    """Its groups, by the key of the budget that covers a pod of theirs."""
    meeting: frozenset[str]
    """Budgets of which one pod has two."""


class BudgetBook:
    """Every budget, and whom it covers."""

    def __init__(self) -> None:
        self._budgets: dict[str, dict[str, BudgetObject]] = {}
        """By namespace and by key."""
        self._gangs: dict[str, dict[str, Gathered]] = {}
        """Gangs that have a job, by namespace and name."""
        self._covered: dict[str, _Coverage] = {}
        self._over: dict[str, set[str]] = {}
        """Names of gangs that a budget covers, by its key."""
        self._made: dict[str, Budget] = {}
        self._changed: set[str] = set()

    def put(self, budget: BudgetObject) -> None:
        """It is so now."""
        key, namespace = budget.metadata.key, budget.metadata.namespace
        before = self._budgets.setdefault(namespace, {}).get(key)
        self._budgets[namespace][key] = budget
        self._changed.add(key)
        if before is None or before.spec != budget.spec:
            self._cover_anew(namespace)

    def drop(self, key: str) -> None:
        """It is gone."""
        namespace = key.partition("/")[0]
        if self._budgets.get(namespace, {}).pop(key, None) is not None:
            self._cover_anew(namespace)
            self._changed.add(key)

    def see(self, name: str, gang: Gathered | None) -> None:
        """The gang is so now; None, and one without a job: nobody of it can be disturbed."""
        there = self._gangs.setdefault(name.partition("/")[0], {})
        there.pop(name, None)
        if gang is not None and gang.job is not None:
            there[name] = gang
        self._cover(name, there.get(name))

    def budgets(self) -> tuple[Budget, ...]:
        """In order of their names."""
        for key in self._changed:
            self._made.pop(key, None)
            found = self._budgets.get(key.partition("/")[0], {}).get(key)
            if found is not None and self._over.get(key):
                self._made[key] = self._budget(found)
        self._changed.clear()
        return tuple(self._made[key] for key in sorted(self._made))

    def _cover_anew(self, namespace: str) -> None:
        for name, gang in self._gangs.get(namespace, {}).items():
            self._cover(name, gang)

    def _cover(self, name: str, gang: Gathered | None) -> None:
        there = self._budgets.get(name.partition("/")[0])
        before = self._covered.pop(name, None)
        now = _coverage(there.values(), gang.chairs) if there and gang is not None else None
        if now is not None and now.groups:
            self._covered[name] = now
        if before == now:
            return
        for key in before.groups if before is not None else ():
            self._over[key].discard(name)
            self._changed.add(key)
        for key in now.groups if now is not None else ():
            self._over.setdefault(key, set()).add(name)
            self._changed.add(key)

    def _budget(self, budget: BudgetObject) -> Budget:
        key = budget.metadata.key
        jobs = tuple(sorted(self._over[key]))
        meet = any(key in self._covered[job].meeting for job in jobs)
        return Budget(
            name=key,
            jobs=jobs,
            allowed=allowed(budget, meet),
            covers=tuple((job, group) for job in jobs for group in sorted(self._covered[job].groups[key])),
        )


def _coverage(budgets: Iterable[BudgetObject], chairs: Iterable[Chair]) -> _Coverage:
    groups: dict[str, set[str]] = {}
    meeting: set[str] = set()
    budgets = list(budgets)
    for chair in chairs:
        labels = chair.pod.metadata.labels or {}
        over = [budget.metadata.key for budget in budgets if selects(budget.spec.selector, labels)]
        for key in over:
            groups.setdefault(key, set()).add(chair.group)
        if len(over) > 1:
            meeting.update(over)
    return _Coverage(groups, frozenset(meeting))


def budgets_of(found: Iterable[BudgetObject], gathered: Iterable[Gathered]) -> tuple[Budget, ...]:
    """Of a whole cluster at once, in order of their names."""
    book = BudgetBook()
    for budget in found:
        book.put(budget)
    for gang in gathered:
        book.see(gang.name, gang)
    return book.budgets()


def allowed(budget: BudgetObject, meets_another: bool) -> int:
    """How many of its pods may go now."""
    stale = budget.status.observed_generation < budget.metadata.generation
    return 0 if stale or meets_another else max(0, budget.status.disruptions_allowed)
