"""After others stepped aside: place the claimant, let back who can stay, move who fits elsewhere, judge the rest.

Called by `room_making` at the end of every try, inside its transaction. Gangs have been lifted in parts (extras, then
the minimum), so that a gang which only has to give an extra keeps all else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple, Protocol

from gpuyard.brain.engine.giving_way import clearing
from gpuyard.brain.engine.giving_way.clearing import Key
from gpuyard.brain.engine.giving_way.victims import Unit, headroom
from gpuyard.brain.engine.nodes.columns import Held
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.brain.engine.picture.turnover import Exchange, Turnover, exchange
from gpuyard.brain.engine.placing import adding, gang, keeping, neighbours, topology
from gpuyard.brain.engine.placing.devices import stands_free
from gpuyard.brain.engine.sharing.amounts import Amounts, plus, times
from gpuyard.brain.engine.sharing.quota import Excess


class RoomMade(NamedTuple):
    """Who was moved and who stops so that the claimant stands, and the places it took."""

    moved: tuple[Unit, ...]
    stopped: tuple[Unit, ...]
    taken: tuple[Held, ...]


class RoomRights(clearing.Leave, Protocol):
    """What a way of making room allows."""

    break_budgets: bool
    """Whether disruption budgets may be broken."""
    moves_too: bool
    """Whether those may be lifted as well who can only be moved, so that what a set costs is known once it settled."""

    def stoppable(self, gone: Iterable[Unit]) -> set[Unit]:
        """Who of these, gone now, may be stopped and not only moved; asked before the claimant is placed."""

    def may_stop(self, units: tuple[Unit, ...]) -> bool:
        """Whether these, who all stand, could be the ones who stop, as far as that is known before anybody goes."""

    def accepts(self, outcome: RoomMade) -> bool:
        """Whether this outcome keeps every rule; asked while it stands."""

    def rank(self, outcome: RoomMade) -> Key:
        """Sorts better outcomes first."""

    def least_stopped(self, rows: Iterable[JobRow], lacking: int) -> Key | None:
        """A key that no set of these jobs is below that may stop and hold so much together, in grains; () if none is
        known without weighing, None if there is no such set."""

    def at_best(self, key: Key) -> Key:
        """A rank that no outcome is below which stops a set of this key; () if it stops nobody."""


class Purpose(NamedTuple):
    """What room is made for: how many tasks lack, and how they are then placed."""

    lacks: Callable[[JobRow], int]
    place: Callable[[Draft, JobRow], bool]


START = Purpose(lambda row: row.missing(), gang.start)
"""Bring a job to its minimum."""

GROW = Purpose(lambda row: 1, adding.grow)
"""Add one task to a job that has its minimum."""


MOST_FIRST, MOST_WEIGHED = 5, 16
"""Of so many who stepped aside each looks for a place first, in turn; and so many are weighed as if they stood."""

FindPlaces = Callable[[], tuple[list[Unit], list[Unit]]]
"""Finds places for those who stepped aside: who was moved, and who stops."""


class Settling:
    """Ends one try for one claimant under given rights."""

    def __init__(self, draft: Draft, row: JobRow, rights: RoomRights, goal: Purpose) -> None:
        self.draft = draft
        self.row = row
        self.rights = rights
        self.goal = goal
        self._stoppable: set[Unit] = set()
        self._taken: tuple[Held, ...] = ()

    def settle(self, gone: list[Unit], thorough: bool = False) -> RoomMade | None:
        """Place the claimant, let back who can stay, move who fits elsewhere; None if a rule is broken. Where it is
        worth while, each of them looks for a place before the others once."""
        held = len(self.row.held)
        self._stoppable = self.rights.stoppable(gone) if self.rights.moves_too else set()
        if self.excess() is not None:
            return None
        with keeping.held_off(self.draft, self.draft.binding):
            placed = self.goal.place(self.draft, self.row)
        if not placed:
            return None
        taken = self._taken = tuple(self.row.held[held:])
        if not self.rights.moves_too or len(gone) == 1 or all(map(self._finds_no_room, gone)):
            return self._judged(taken, self._stay_first(gone))  # who looks first makes no difference
        return self._best_of(taken, gone, thorough)

    def _judged(self, taken: tuple[Held, ...], found: tuple[list[Unit], list[Unit]]) -> RoomMade | None:
        moved, stopped = found
        outcome = RoomMade(tuple(moved), tuple(stopped), taken)
        kept = self._budgets_kept([*moved, *stopped]) and self.rights.accepts(outcome) and self._lies_evenly()
        return outcome if kept and not self._in_circle(moved, taken) else None

    def _lies_evenly(self) -> bool:
        """Whether the claimant is as even among the others as it wishes, as they stand by now: some of them were away
        when it was placed."""
        if not any(request.even for request in self.row.requests):
            return True
        return all(map(self._would_go_there_again, self._taken))

    def _would_go_there_again(self, held: Held) -> bool:
        with self.draft.trial():
            self.draft.tx.lift(self.row, held)
            return neighbours.welcome(self.draft.fleet, self.row, held)

    def _in_circle(self, moved: list[Unit], taken: tuple[Held, ...]) -> bool:
        """Whether those moved, and those whom this plan has moved before, wait for each other to leave (rule 26)."""
        draft, jobs = self.draft, self.draft.fleet.jobs
        rows = {unit.row.name: unit.row for unit in moved}
        if rows:
            earlier = (jobs[name] for name in (*draft.before, *draft.began) if name not in rows)
            rows |= {row.name: row for row in earlier if row.held and draft.origin(row)}
        if len(rows) < 2:
            return False
        changes = [exchange(row.name, draft.origin(row), row.held) for row in rows.values()]
        nodes = {held.node for each in changes for held in each.gone}
        beside = {row for n in nodes for row in draft.fleet.tenants[n]}.difference(rows.values(), (self.row,))
        changes += [exchange(row.name, draft.origin(row), row.held) for row in beside]
        changes += [Exchange(self.row.name, (), taken)] * (self.row.name not in rows)
        return bool(Turnover(draft.fleet.columns, changes).ring())

    def _best_of(self, taken: tuple[Held, ...], gone: list[Unit], thorough: bool) -> RoomMade | None:
        """Who goes where decides who stops: several orders of looking for places, the best outcome stands."""
        best: tuple[Key, FindPlaces] | None = None
        for find in self._ways(gone, thorough):
            with self.draft.trial() as trial:
                outcome = self._judged(taken, find())
                if outcome is not None and not outcome.stopped:
                    trial.keep()
                    return outcome
                if outcome is not None:
                    rank = self.rights.rank(outcome)
                    best = (rank, find) if best is None or rank < best[0] else best
        return None if best is None else self._judged(taken, best[1]())

    def _ways(self, gone: list[Unit], thorough: bool) -> Iterator[FindPlaces]:
        """All stand where they stood if they can before anybody looks elsewhere; or one after the other does either, in
        several orders, each of them once."""
        yield partial(self._stay_first, gone)
        tried: list[list[Unit]] = []
        for order in self._orders(gone, thorough):
            if order not in tried:
                tried.append(order)
                yield partial(self._one_by_one, order)

    def _orders(self, gone: list[Unit], thorough: bool) -> Iterator[list[Unit]]:
        """The dearest to stop first; the largest first, for small ones find a place more easily; and where it is worth
        while each before all others, its minimum before its extras."""
        dear = self._ordered(self._dearest(gone))
        yield dear
        yield self._ordered(sorted(gone, key=lambda unit: -unit.cost))
        if thorough and len(gone) <= MOST_FIRST:
            yield from (_before_all(first, dear) for first in gone)

    def excess(self) -> Excess | None:
        """Where the claimant's queues still refuse it, now that others are gone."""
        return self.draft.fleet.tree.refuses(self.row.queue, self.asked(), self.row.firm)

    def asked(self) -> Amounts:
        """What the claimant lacks, at the least."""
        if not self.row.single:
            return self.draft.fleet.shortfall(self.row)
        return times(self.draft.fleet.costs.least(self.row.request), self.goal.lacks(self.row))

    def _let_back(self, gone: list[Unit]) -> list[Unit]:
        """Whoever can stand again where it stood does, minimums before extras, the dearest first; returns the others.

        An extra without its minimum is no use to anybody.
        """
        dearest = self._dearest(gone)
        return [unit for unit in self._ordered(dearest) if not self._may_return(unit) or not self._stand_again(unit)]

    def _dearest(self, gone: list[Unit]) -> list[Unit]:
        """The dearest to stop first; where places are looked for, and few look, by what their queues held before they
        went."""
        standing = gone if self.rights.moves_too and len(gone) <= MOST_WEIGHED else []
        for unit in standing:
            self.rights.suppose(unit, gone=False)
        try:
            keys = [self.rights.key((unit,)) for unit in gone]
        finally:
            for unit in standing:
                self.rights.suppose(unit, gone=True)
        return [gone[i] for i in sorted(range(len(gone)), key=keys.__getitem__, reverse=True)]

    def _stay_first(self, gone: list[Unit]) -> tuple[list[Unit], list[Unit]]:
        """Whoever can stands where it stood; then the others look for places. Who was moved, and who stops."""
        if all(map(self._finds_no_room, gone)):
            return [], self._in_turn(gone)
        return self._move(self._let_back(gone))

    def _one_by_one(self, units: list[Unit]) -> tuple[list[Unit], list[Unit]]:
        """One after the other stands where it stood or finds another place."""
        moved: list[Unit] = []
        stopped: list[Unit] = []
        for unit in units:
            if not self._may_return(unit) or not self._stand_again(unit):
                (moved if self._try_to_move(unit) else stopped).append(unit)
        return moved, stopped

    def _ordered(self, units: Iterable[Unit]) -> list[Unit]:
        """First those who may not be stopped; among either, minimums before extras."""
        if not self.rights.moves_too:  # then whoever was lifted may be stopped
            return sorted(units, key=_is_extra)
        return sorted(units, key=lambda unit: (unit in self._stoppable, unit.extra))

    def _stand_again(self, unit: Unit) -> bool:
        """Put a unit back where it stood, task by task, since two of its tasks may share a device; all or none."""
        fleet = self.draft.fleet
        with self.draft.trial() as trial:
            for held in unit.places:
                if not stands_free(fleet.columns, held) or not neighbours.welcome(fleet, unit.row, held):
                    return False
                self.draft.tx.put(unit.row, held)
            if not topology.unbroken(fleet.columns, unit.row):
                return False  # its minimum has moved to another domain
            if not self._lies_evenly():
                return False
            trial.keep()
        return True

    def _may_return(self, unit: Unit) -> bool:
        """Whether a unit still has what it is an extra to, and its queues have room for it under their limits."""
        if unit.extra and not unit.row.complete():
            return False
        fleet = self.draft.fleet
        total = fleet.costs.nothing()
        for held in unit.places:
            total = plus(total, fleet.price(held))
        return fleet.tree.refuses(unit.row.queue, total, firm=False) is None

    def _move(self, away: list[Unit]) -> tuple[list[Unit], list[Unit]]:
        """Find other places, for one after the other."""
        moved: list[Unit] = []
        stopped: list[Unit] = []
        for unit in self._in_turn(away):
            (moved if self._try_to_move(unit) else stopped).append(unit)
        return moved, stopped

    def _in_turn(self, away: list[Unit]) -> list[Unit]:
        """Those first who may not be stopped, then the highest priority."""
        return self._ordered(sorted(away, key=lambda unit: (-unit.row.priority, -unit.cost, unit.row.age)))

    def _try_to_move(self, unit: Unit) -> bool:
        """Whether it found a place, and none that is kept from the claimant."""
        if self._finds_no_room(unit):
            return False
        with self.draft.trial() as trial:
            with keeping.held_off(self.draft, self.draft.binding):
                found = self._move_one(unit)
            if found:
                trial.keep()
        return found

    def _finds_no_room(self, unit: Unit) -> bool:
        """A bound: there is not as much free anywhere, so also not where it stood."""
        columns = self.draft.fleet.columns
        sliced = columns.profiles and any(held.mig for held in unit.places)
        return unit.cost > columns.idle_total and unit.row.takes_alike and not sliced

    def _move_one(self, unit: Unit) -> bool:
        if not self._may_return(unit):
            return False
        if unit.extra:
            return adding.add_task(self.draft, unit.row, unit.place.leaf)
        return gang.place(self.draft, unit.row) and (unit.row.single or self._brings_its_groups(unit))

    def _brings_its_groups(self, unit: Unit) -> bool:
        """Whether groups that ran beyond the fewest that must find a place as well, and no others run for them."""
        row, had = unit.row, Counter(held.leaf for held in unit.places)
        for leaf, count in sorted(had.items()):
            while row.live[leaf] < count:
                if not adding.add_task(self.draft, row, leaf):
                    return False
        return sum(row.live) == len(unit.places)

    def _budgets_kept(self, disturbed: list[Unit]) -> bool:
        if self.rights.break_budgets:
            return True
        fleet = self.draft.fleet
        touched = {budget for unit in disturbed for budget in fleet.budgets_over(unit.row.name)}
        return all(headroom(self.draft, budget) >= 0 for budget in touched)


def _is_extra(unit: Unit) -> bool:
    return unit.extra


def _before_all(first: Unit, units: list[Unit]) -> list[Unit]:
    """One of them before all others, with what else of its job is among them."""
    return sorted(units, key=lambda unit: unit is not first and unit.row is not first.row)
