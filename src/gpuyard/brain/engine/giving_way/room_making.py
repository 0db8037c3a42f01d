"""Making room for one waiting job: clear, place the claimant, let back whoever can stay, move whoever fits elsewhere.

Shared by consolidation (everybody must fit elsewhere) and preemption (some may stop). Each try runs in a transaction;
the best one is run again and kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple, Protocol

import numpy as np

from gpuyard.brain.engine.giving_way import clearing, victims
from gpuyard.brain.engine.giving_way.clearing import Key, NodeClearing
from gpuyard.brain.engine.giving_way.victims import Unit, headroom
from gpuyard.brain.engine.nodes.columns import Held, Region
from gpuyard.brain.engine.nodes.feasibility import Shape
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.brain.engine.placing import gang, neighbours
from gpuyard.brain.engine.placing.devices import stands_free
from gpuyard.brain.engine.sharing.amounts import plus
from gpuyard.brain.engine.sharing.quota import Excess
from gpuyard.model.policy import Style
from gpuyard.model.topology import NODE, NVLINK


class RoomMade(NamedTuple):
    """Who was moved and who stops so that the claimant stands, and the places it took."""

    moved: tuple[Unit, ...]
    stopped: tuple[Unit, ...]
    taken: tuple[Held, ...]


class Rights(clearing.Leave, Protocol):
    """What a way of making room allows."""

    break_budgets: bool
    """Whether disruption budgets may be broken."""

    def accepts(self, outcome: RoomMade) -> bool:
        """Whether this outcome keeps every rule; asked while it stands."""

    def rank(self, outcome: RoomMade) -> Key:
        """Sorts better outcomes first."""


Try = Callable[[], RoomMade | None]


class Purpose(NamedTuple):
    """What room is made for: how many tasks lack, and how they are then placed."""

    lacks: Callable[[JobRow], int]
    place: Callable[[Draft, JobRow], bool]


START = Purpose(lambda row: row.missing(0), gang.start)
"""Bring a job to its minimum."""

GROW = Purpose(lambda row: 1, gang.grow)
"""Add one task to a job that has its minimum."""


MOST_CLEARED = 64
"""Tenants of a domain that is cleared whole, and nodes that are cleared one by one, for one claim."""


class RoomMaker:
    """Tries to make room for one job under given rights."""

    def __init__(self, draft: Draft, row: JobRow, rights: Rights, goal: Purpose = START) -> None:
        self.draft = draft
        self.row = row
        self.rights = rights
        self.goal = goal
        self.tried = 0

    # --- the search -----------------------------------------------------------------------------------------------

    def best(self, tries: Iterator[Try]) -> RoomMade | None:
        """Run every try (as many as the policy allows), keep the best; None and no change if none works."""
        options = list(islice(tries, self.draft.policy.search_limit))
        if len(options) == 1:
            return self.first(iter(options))
        chosen: Try | None = None
        best_rank: Key = ()
        for attempt in options:
            if not self._go_on():
                break
            mark = self.draft.tx.checkpoint()
            outcome = attempt()
            if outcome is not None:
                rank = self.rights.rank(outcome)
                if chosen is None or rank < best_rank:
                    chosen, best_rank = attempt, rank
            self.draft.tx.rollback(mark)
        return chosen() if chosen is not None else None

    def first(self, tries: Iterator[Try]) -> RoomMade | None:
        """Keep the first try that works."""
        for attempt in tries:
            if not self._go_on():
                break
            mark = self.draft.tx.checkpoint()
            outcome = attempt()
            if outcome is not None:
                return outcome
            self.draft.tx.rollback(mark)
        return None

    def _go_on(self) -> bool:
        """Count one more try; False when this claim, or the whole cycle, has searched enough."""
        self.tried += 1
        self.draft.effort += 1
        return self.tried <= self.draft.policy.search_limit and self.draft.effort <= self.draft.policy.search_total

    # --- where to try ---------------------------------------------------------------------------------------------

    def tries(self) -> Iterator[Try]:
        """Node by node for a job of one group, tier by tier and domain by domain; then unit by unit."""
        for shape in self.shapes():
            for region in self.regions(shape):
                if not self._could_ever(shape, region):
                    continue
                yield lambda shape=shape, region=region: self.by_nodes(shape, region)  # type: ignore[misc]
        if self.odd():
            for region in self.regions(None):
                yield lambda region=region: self.by_units(region)  # type: ignore[misc]

    def clearing_tries(self) -> Iterator[Try]:
        """Domain by domain: everybody steps aside, the claimant is placed, and whoever can comes back, the highest
        priority first. It finds what cheapest-first misses; large domains are left out, for it asks everybody."""
        for region in self._small_domains():
            yield lambda region=region: self.by_clearing(region)  # type: ignore[misc]

    def _small_domains(self) -> Iterator[Region]:
        single = len(self.row.groups) == 1 and self.goal.lacks(self.row) == 1
        for shape in self.shapes() if single else ():
            for region in self.regions(shape):
                for node in clearing.plausible(self.draft, shape, region)[:MOST_CLEARED]:
                    yield Region(node, node + 1)
        if not single:
            for region in self.regions(None):
                tenants = self.draft.fleet.tenants[region.start : region.stop]
                if sum(len(rows) for rows in tenants) <= MOST_CLEARED:
                    yield region

    def by_clearing(self, region: Region) -> RoomMade | None:
        """Let everybody of the region go who may, then settle."""
        gone = self._make_admissible()
        for unit in clearing.everyone(self.draft, self.rights, region):
            if self.rights.allows(unit) and all(held in unit.row.held for held in unit.places):
                self._let_go(unit, gone)
        return self._settle(gone) if gone else None

    def node_tries(self) -> Iterator[Try]:
        """For a single task: node after node, the emptiest first, so that one failure does not end the search."""
        if len(self.row.groups) > 1 or self.goal.lacks(self.row) != 1 or self.odd():
            yield from self.tries()
            return
        for shape in self.shapes():
            for region in self.regions(shape):
                for node in clearing.plausible(self.draft, shape, region):
                    here = Region(node, node + 1)
                    yield lambda shape=shape, here=here: self.by_nodes(shape, here)  # type: ignore[misc]

    def _could_ever(self, shape: Shape, region: Region) -> bool:
        """Whether the region, empty, would hold all that lacks; a bound that costs one sum."""
        inside = shape.empty_room[region.start : region.stop]
        lacks = self.goal.lacks(self.row)
        return int(np.minimum(inside, lacks).sum()) >= lacks

    def shapes(self) -> list[Shape]:
        """The kinds of place a job of one group could take, the preferred first."""
        if len(self.row.groups) > 1:
            return []
        found = dict.fromkeys(gang.shapes(self.draft, self.row, 0))
        return [shape for shape in found if not shape.careful] or list(found)

    def odd(self) -> bool:
        """Whether node by node may miss a way: several groups, islands, spreading, neighbours."""
        row, fleet = self.row, self.draft.fleet
        capped = any(pool.max_busy for pool in fleet.pools.values())
        levels = (row.job.gang.topology.required, *(group.topology.required for group in row.groups))
        spread = any(request.style is Style.SPREAD for request in row.requests)
        return len(row.groups) > 1 or NVLINK in levels or spread or bool(fleet.avoiders) or capped

    def regions(self, shape: Shape | None) -> list[Region]:
        """Where the whole job must fit: domains of its required level, most room first; else everywhere."""
        columns = self.draft.fleet.columns
        required = gang.required_level(self.draft, self.row)
        if not required:
            return [columns.everywhere]
        home = gang.home(self.draft, self.row, required)
        if home is not None:
            return [home._replace(island=-1)]
        level = columns.level(NODE if required == NVLINK else required)
        room = shape.room if shape is not None else columns.idle
        sums = np.bincount(level.domain, weights=room, minlength=len(level.names))
        order = np.lexsort((np.arange(len(sums)), -sums))
        return [level.region(int(i)) for i in order if level.known[i]]

    # --- one try --------------------------------------------------------------------------------------------------

    def by_nodes(self, shape: Shape, region: Region) -> RoomMade | None:
        """Clear node after node, the cheapest first, until every missing task has room."""
        missing = self.goal.lacks(self.row)
        gone = self._make_admissible()
        nodes = self._clearing(shape, region)
        shape.sync()
        while int(np.minimum(shape.room[region.start : region.stop], missing).sum()) < missing:
            found = nodes.next()
            if found is None:
                return None
            _, units = found
            for unit in units:
                self._let_go(unit, gone)
            shape.sync()
        return self._settle(gone)

    def _clearing(self, shape: Shape, region: Region) -> NodeClearing:
        """The clearing that the last equal claim left behind, brought up to date; else a new one."""
        row = self.row
        if region.stop - region.start == 1:
            return NodeClearing(self.draft, self.rights, shape, region)
        key = (
            type(self.rights),
            self.rights.break_budgets,
            row.queue,
            row.priority,
            row.firm,
            row.signature,
            id(shape),
            region,
        )
        nodes = self.draft.clearings.get(key)
        if not isinstance(nodes, NodeClearing) or row.held:
            nodes = self.draft.clearings[key] = NodeClearing(self.draft, self.rights, shape, region)
        else:
            nodes.sync(self.rights)
        return nodes

    def by_units(self, region: Region) -> RoomMade | None:
        """Let unit after unit of the region go, the cheapest first, until the claimant fits."""
        gone = self._make_admissible()
        if gone and self._fits():
            return self._settle(gone)
        for unit in clearing.everyone(self.draft, self.rights, region):
            if not self.rights.allows(unit) or not all(held in unit.row.held for held in unit.places):
                continue
            self._let_go(unit, gone)
            if not self._go_on():
                return None
            if self._fits():
                return self._settle(gone)
        return None

    def _make_admissible(self) -> list[Unit]:
        """Where a limit stands in the way, let those go who hold what it allows, the cheapest first (rule 16)."""
        gone: list[Unit] = []
        tree = self.draft.fleet.tree
        while (excess := self._excess()) is not None and excess.kind == "limit":
            inside = tree.index[excess.queue]
            rows = [row for row in self.draft.fleet.jobs.values() if row.queue >= 0 and inside in tree.paths[row.queue]]
            units = [unit for row in rows for unit in victims.units_of(row) if self.rights.allows(unit)]
            if not units:
                break
            self._let_go(min(units, key=lambda unit: self.rights.key((unit,))), gone)
        return gone

    def _let_go(self, unit: Unit, gone: list[Unit]) -> None:
        self.draft.remember(unit.row)
        self.draft.tx.lift_all(unit.row, unit.places)
        gone.append(unit)

    def _fits(self) -> bool:
        mark = self.draft.tx.checkpoint()
        fits = self.goal.place(self.draft, self.row)
        self.draft.tx.rollback(mark)
        return fits

    # --- afterwards -----------------------------------------------------------------------------------------------

    def _settle(self, gone: list[Unit]) -> RoomMade | None:
        """Place the claimant, let back who can stay, move who fits elsewhere; None if a rule is broken."""
        held = len(self.row.held)
        if self._excess() is not None or not self.goal.place(self.draft, self.row):
            return None
        taken = tuple(self.row.held[held:])
        away = self._let_back(gone)
        moved, stopped = self._move(away)
        outcome = RoomMade(tuple(moved), tuple(stopped), taken)
        if not self._budgets_kept(away) or not self.rights.accepts(outcome):
            return None
        return outcome

    def _excess(self) -> Excess | None:
        """Where the claimant's queues still refuse it, now that others are gone."""
        asked = [self.goal.lacks(self.row) * a for a in self.draft.fleet.costs.least(self.row.requests[0])]
        if len(self.row.groups) > 1:
            asked = self.draft.fleet.shortfall(self.row)
        return self.draft.fleet.tree.refuses(self.row.queue, asked, self.row.firm)

    def _let_back(self, gone: list[Unit]) -> list[Unit]:
        """Whoever can stand again where it stood does, minimums before extras, the dearest first; returns the others.

        An extra without its minimum is no use to anybody.
        """
        dearest = sorted(gone, key=lambda unit: self.rights.key((unit,)), reverse=True)
        ordered = [*(unit for unit in dearest if not unit.extra), *(unit for unit in dearest if unit.extra)]
        return [unit for unit in ordered if not self._may_return(unit) or not self._stand_again(unit)]

    def _stand_again(self, unit: Unit) -> bool:
        """Put a unit back where it stood, task by task, since two of its tasks may share a device; all or none."""
        mark = self.draft.tx.checkpoint()
        for held in unit.places:
            if not stands_free(self.draft.fleet.columns, held) or not neighbours.welcome(self.draft, unit.row, held):
                self.draft.tx.rollback(mark)
                return False
            self.draft.tx.put(unit.row, held)
        return True

    def _may_return(self, unit: Unit) -> bool:
        """Whether a unit still has what it is an extra to, and its queues have room for it under their limits."""
        if unit.extra and not unit.row.complete():
            return False
        fleet = self.draft.fleet
        total = fleet.costs.nothing()
        for held in unit.places:
            total = plus(total, fleet.vector(held.cost, held.cpu, held.memory, held.node))
        return fleet.tree.refuses(unit.row.queue, total, firm=False) is None

    def _move(self, away: list[Unit]) -> tuple[list[Unit], list[Unit]]:
        """Find other places, for the highest priority first."""
        moved, stopped = [], []
        for unit in sorted(away, key=lambda unit: (-unit.row.priority, -unit.cost, unit.row.age)):
            mark = self.draft.tx.checkpoint()
            if self._move_one(unit):
                moved.append(unit)
            else:
                self.draft.tx.rollback(mark)
                stopped.append(unit)
        return moved, stopped

    def _move_one(self, unit: Unit) -> bool:
        if unit.cost > self.draft.fleet.columns.idle_total and not unit.places[0].mig:
            return False  # there is not that much free anywhere
        if not self._may_return(unit):
            return False
        if unit.extra:
            return gang.add_task(self.draft, unit.row, unit.places[0].leaf)
        return gang.place(self.draft, unit.row)

    def _budgets_kept(self, disturbed: list[Unit]) -> bool:
        if self.rights.break_budgets:
            return True
        names = {unit.row.name for unit in disturbed}
        touched = [budget for budget in self.draft.fleet.budgets if names & set(budget.jobs)]
        return all(headroom(self.draft, budget) >= 0 for budget in touched)
