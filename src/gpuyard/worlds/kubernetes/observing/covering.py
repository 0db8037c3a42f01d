"""Budgets as the brain was told of them, and of whom it is asked which of them cover it. Used by `observe`."""

from __future__ import annotations

from collections.abc import Iterator

from gpuyard.model.events import BudgetsChanged
from gpuyard.model.node import Budget
from gpuyard.worlds.kubernetes.budgets import BudgetBook
from gpuyard.worlds.kubernetes.cache import Cache
from gpuyard.worlds.kubernetes.gangs import Gathered


class ToldBudgets:
    """All of them together."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self.told: tuple[Budget, ...] = ()
        self._book = BudgetBook()
        self._namespaces: set[str] = set()
        """Those that have had a budget: it is asked there of every gang whom it covers."""

    def forget(self) -> None:
        """Nothing was told, and no gang was seen."""
        self.told, self._book = (), BudgetBook()

    def concern(self, namespace: str) -> bool:
        """Whether a gang there may be covered."""
        return namespace in self._namespaces

    def see(self, name: str, gang: Gathered | None) -> None:
        """The gang is so now; None: it is none."""
        self._book.see(name, gang)

    def hear(self) -> None:
        """The first of a namespace may cover any of its pods, also those of which nothing is kept."""
        new = {key.partition("/")[0] for key in self._cache.dirty.budgets} - self._namespaces
        if new:
            self._namespaces |= new
            there = (name for name in self._cache.members if name.partition("/")[0] in new)
            self._cache.dirty.gangs |= dict.fromkeys(there)

    def events(self) -> Iterator[BudgetsChanged]:
        """After the gangs that they are about: what is told of a budget names jobs that are known."""
        changed, self._cache.dirty.budgets = self._cache.dirty.budgets, set()
        for key in changed:
            found = self._cache.budgets.get(key)
            self._book.drop(key) if found is None else self._book.put(found)
        now = self._book.budgets()
        if now != self.told:
            self.told = now
            yield BudgetsChanged(now)
