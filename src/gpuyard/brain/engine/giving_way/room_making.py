"""Making room for one waiting job: clear, place the claimant, let back whoever can stay, move whoever fits elsewhere.

Shared by consolidation (everybody must fit elsewhere) and preemption (some may stop). Each try runs in a transaction;
the best one is run again and kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice

import numpy as np

from gpuyard.brain.engine.giving_way import clearing, victims
from gpuyard.brain.engine.giving_way.bounds.few_sets import FewSets, Weighing, takes_as_much_anywhere
from gpuyard.brain.engine.giving_way.clearing import Key, NodeClearing
from gpuyard.brain.engine.giving_way.resettling import START, Purpose, RoomMade, RoomRights, Settling
from gpuyard.brain.engine.giving_way.victims import Unit
from gpuyard.brain.engine.nodes.columns import Region
from gpuyard.brain.engine.nodes.feasibility import Shape
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.job_rows import NO_QUEUE, JobRow
from gpuyard.brain.engine.placing import gang
from gpuyard.brain.engine.sharing.amounts import GPUS
from gpuyard.model.policy import Style
from gpuyard.model.topology import NODE, NVLINK

Try = Callable[["RoomMaker"], RoomMade | None]
"""One way to make room. It is told whose it is when it is tried: one that knew would keep its maker, the draft and the
whole picture alive in a circle until somebody looks for garbage."""

MOST_CLEARED = 64
"""Tenants of a domain that is cleared whole, and nodes that are cleared one by one, for one claim."""
MOST_WEIGHED = 10
"""Units of a domain of which every set is weighed."""
MOST_MOVED = 3
"""Of them, how many are moved for a claimant that takes nothing."""


class RoomMaker:
    """Tries to make room for one job under given rights."""

    def __init__(self, draft: Draft, row: JobRow, rights: RoomRights, goal: Purpose = START) -> None:
        self.draft = draft
        self.row = row
        self.rights = rights
        self.goal = goal
        self.tried = 0
        self._settling = Settling(draft, row, rights, goal)
        self._chosen: Try | None = None
        self._best: Key | None = None
        self._ways = 0
        self._cleared: NodeClearing | None = None

    # --- the search -----------------------------------------------------------------------------------------------

    def best(self, tries: Iterator[Try], beat: Key | None = None) -> RoomMade | None:
        """Run every try (as many as the policy allows), keep the best of those that are better than what is to be
        beaten; None and no change if there is none."""
        options = list(islice(tries, self.draft.policy.search_limit))
        self._ways = len(options)
        self._chosen, self._best = None, beat
        if len(options) == 1 and beat is None:
            return self.first(iter(options))
        for attempt in options:
            if not self._go_on():
                break
            with self.draft.trial():
                outcome = attempt(self)
                if outcome is not None and self._is_better(rank := self.rights.rank(outcome)):
                    self._chosen, self._best = attempt, rank
        return self.again()

    def _is_better(self, rank: Key) -> bool:
        return self._best is None or rank < self._best

    def one_way(self) -> NodeClearing | None:
        """The clearing that made room, if it was the only way to try and serves equal claims too."""
        return self._cleared if self._ways == 1 else None

    def again(self) -> RoomMade | None:
        """Run the chosen try once more, after it was undone."""
        return None if self._chosen is None else self._chosen(self)

    def first(self, tries: Iterator[Try]) -> RoomMade | None:
        """Keep the first try that works."""
        for attempt in tries:
            if not self._go_on():
                break
            with self.draft.trial() as trial:
                outcome = attempt(self)
                if outcome is not None:
                    self._chosen = attempt
                    trial.keep()
                    return outcome
        return None

    def _go_on(self) -> bool:
        """Count one more try; False when this claim, or the whole cycle, has searched enough."""
        self.tried += 1
        self.draft.effort += 1
        return self.tried <= self.draft.policy.search_limit and self.draft.effort <= self.draft.policy.search_total

    # --- where to try ---------------------------------------------------------------------------------------------

    def tries(self) -> Iterator[Try]:
        """Node by node for a job of one group, tier by tier and domain by domain; then unit by unit."""
        limited = self._limit_in_the_way() is not None
        for shape in self.shapes():
            for region in self.regions(shape):
                if not self._could_ever(shape, region):
                    continue
                yield partial(RoomMaker.by_nodes, shape=shape, region=region)
                if limited:
                    yield partial(RoomMaker.by_nodes, shape=shape, region=region, limit_first=True)
        if limited:
            alone = self._inside_the_limit()[:MOST_CLEARED]
            yield from (partial(RoomMaker._by_these, units=(unit,)) for unit in alone)
        if self.odd():
            yield from (partial(RoomMaker.by_units, region=region) for region in self.regions(None))

    def small_tries(self) -> Iterator[Try]:
        """Where few could go: every set of them, the cheapest first, so that nothing is missed by being greedy."""
        for region in dict.fromkeys((self.draft.fleet.columns.everywhere, *self.regions(None))):
            if not self._few_in(region):
                continue
            units = list(clearing.everyone(self.draft, self.rights, region))
            if 1 < len(units) <= MOST_WEIGHED:
                yield _best_set(units)

    def moves_of_few(self) -> Iterator[Try]:
        """Where few stand in all: every small set of them steps aside, for one may go where another makes room."""
        everywhere = self.draft.fleet.columns.everywhere
        if self._few_in(everywhere):
            units = list(clearing.everyone(self.draft, self.rights, everywhere))
            if 1 < len(units) <= MOST_WEIGHED:
                yield _best_set(units, MOST_MOVED)

    def few_could_go(self) -> bool:
        """Whether there is any region where every set can be weighed."""
        return any(self._few_in(region) for region in self.regions(None))

    def _few_in(self, region: Region) -> bool:
        """Whether so few jobs stand in the region that every set of them can be weighed."""
        found: set[JobRow] = set()
        for node in range(region.start, region.stop):
            found.update(self.draft.fleet.tenants[node])
            if len(found) > MOST_WEIGHED:
                return False
        return True

    def clearing_tries(self) -> Iterator[Try]:
        """Domain by domain: everybody steps aside, the claimant is placed, and whoever can comes back, the highest
        priority first. It finds what cheapest-first misses; large domains are left out, for it asks everybody."""
        for region in self._small_domains():
            yield partial(RoomMaker.by_clearing, region=region)

    def _small_domains(self) -> Iterator[Region]:
        single = self.row.single and self.goal.lacks(self.row) == 1
        for shape in self.shapes() if single else ():
            for region in self.regions(shape):
                for node in clearing.plausible(self.draft, shape, region)[:MOST_CLEARED]:
                    yield Region(node, node + 1)
        if not single:
            for region in self.regions(None):
                if self._tenants_of(region) <= MOST_CLEARED:
                    yield region

    def _tenants_of(self, region: Region) -> int:
        """How many hold something in the region, node by node; no more is counted once there are too many."""
        found, tenants = 0, self.draft.fleet.tenants
        for node in range(region.start, region.stop):
            found += len(tenants[node])
            if found > MOST_CLEARED:
                break
        return found

    def by_clearing(self, region: Region) -> RoomMade | None:
        """Let everybody of the region go who may, then settle."""
        if self._is_too_dear(region):
            return None
        gone = self._make_admissible([])
        for unit in clearing.everyone(self.draft, self.rights, region):
            if self.rights.allows(unit):
                self._let_go(unit, gone)
        return self._settling.settle(gone) if gone else None

    def _is_too_dear(self, region: Region) -> bool:
        """A bound: whoever stops stands in the region, and those who stop hold at least what lacks of GPUs, for who
        moves takes as much elsewhere. Whether there is no such set, or each is dearer than the best so far. Nothing is
        known where limits let others go too, and where who moves to another model gives others no right to stay."""
        lacking = self._settling.asked()[GPUS] - self.draft.fleet.columns.idle_total
        if lacking <= 0 or self._sliced() or self.draft.fleet.tree.by_model:
            return False
        tenants = {row for node in range(region.start, region.stop) for row in self.draft.fleet.tenants[node]}
        loose = [row for row in tenants if not row.firm and not row.job.foreign]
        if not all(map(takes_as_much_anywhere, loose)) or self._limit_in_the_way() is not None:
            return False
        key = self.rights.least_stopped(loose, lacking)
        return key is None or bool(key and self._best is not None and self.rights.at_best(key) > self._best)

    def node_tries(self) -> Iterator[Try]:
        """For a single task: node after node, the emptiest first, so that one failure does not end the search."""
        if not self.row.single or self.goal.lacks(self.row) != 1 or self.odd():
            yield from self.tries()
            return
        for shape in self.shapes():
            for region in self.regions(shape):
                for node in clearing.plausible(self.draft, shape, region):
                    yield partial(RoomMaker.by_nodes, shape=shape, region=Region(node, node + 1))

    def _could_ever(self, shape: Shape, region: Region) -> bool:
        """Whether the region, empty, would hold all that lacks; a bound that costs one sum."""
        inside = shape.empty_room[region.start : region.stop]
        lacks = self.goal.lacks(self.row)
        return int(np.minimum(inside, lacks).sum()) >= lacks

    def shapes(self) -> list[Shape]:
        """The kinds of place a job of one group could take, the preferred first."""
        if not self.row.single:
            return []
        found = dict.fromkeys(gang.shapes(self.draft, self.row, 0))
        return [shape for shape in found if not shape.careful]

    def odd(self) -> bool:
        """Whether node by node may miss a way: several groups, islands, spreading, neighbours."""
        row, fleet = self.row, self.draft.fleet
        capped = any(pool.max_busy for pool in fleet.pools.values())
        levels = (row.job.gang.topology.required, *(group.topology.required for group in row.groups))
        spread = any(request.style is Style.SPREAD for request in row.requests)
        company = any(map(fleet.company.concerns, row.requests))
        return not row.single or NVLINK in levels or spread or bool(fleet.avoiders) or company or capped

    def regions(self, shape: Shape | None) -> list[Region]:
        """Where the whole job must fit: domains of its required level, most room first; else everywhere."""
        columns = self.draft.fleet.columns
        required = gang.required_level(self.draft.fleet.columns, self.row)
        if not required:
            return [columns.everywhere]
        home = gang.home(self.draft.fleet.columns, self.row, required)
        if home is not None:
            return [Region(home.start, home.stop)]
        level = columns.level(NODE if required == NVLINK else required)
        room = shape.room if shape is not None else columns.idle
        sums = np.bincount(level.domain, weights=room, minlength=len(level.names))
        order = np.lexsort((np.arange(len(sums)), -sums))
        return [level.region(int(i)) for i in order if level.known[i]]

    # --- one try --------------------------------------------------------------------------------------------------

    def by_nodes(self, shape: Shape, region: Region, limit_first: bool = False) -> RoomMade | None:
        """Clear node after node, the cheapest first, until every missing task has room; where a limit stands in the
        way, let others go for it before or after."""
        missing = self.goal.lacks(self.row)
        gone: list[Unit] = self._make_admissible([]) if limit_first else []
        nodes = self._clearing(shape, region)
        shape.sync()
        while int(np.minimum(shape.room[region.start : region.stop], missing).sum()) < missing:
            found = nodes.next()
            if found is None:
                return None
            self._let_all_go(found[1], gone)
            shape.sync()
        return self._settling.settle(self._make_admissible(gone))

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
        nodes = self.draft.claims.clearings.get(key)
        if not isinstance(nodes, NodeClearing) or row.held:
            nodes = self.draft.claims.clearings[key] = NodeClearing(self.draft, self.rights, shape, region)
        else:
            nodes.sync(self.rights)
        self._cleared = nodes
        return nodes

    def by_units(self, region: Region) -> RoomMade | None:
        """Let unit after unit of the region go, the cheapest first, until the claimant fits."""
        gone = self._make_admissible([])
        if gone and self._fits():
            return self._settling.settle(gone)
        for unit in clearing.everyone(self.draft, self.rights, region):
            if not self.rights.allows(unit) or not self._let_go(unit, gone):
                continue
            if not self._go_on():
                return None
            if self._fits():
                return self._settling.settle(gone)
        return None

    def _by_these(self, units: Iterable[Unit]) -> RoomMade | None:
        gone: list[Unit] = []
        for unit in units:
            self._let_go(unit, gone)
        return self._settling.settle(gone, thorough=True)

    def by_best_set(self, units: list[Unit], most: int, found: list[tuple[Unit, ...] | None]) -> RoomMade | None:
        """Weigh every set of these that could be better than what is known; `found` tells it when asked again."""
        if not found:
            found.append(self._weighed(units, most))
        return self._by_these(found[0]) if found[0] is not None else None

    def _weighed(self, units: list[Unit], most: int) -> tuple[Unit, ...] | None:
        """The best set of these that lets the claimant stand: the first, unless some of a later one might be moved."""
        best, chosen = self._best, None
        weigh = Weighing(
            key=self.rights.key,
            suffice=self._may_suffice,
            may_stop=self._may_stop,
            better=lambda key: best is None or self.rights.at_best(key) < best,
        )
        for those in FewSets(units, most, weigh).cheapest_first():
            if not self._go_on():
                break
            with self.draft.trial():
                outcome = self._by_these(those)
                if outcome is not None and not self.rights.moves_too:
                    return those
                if outcome is not None and (best is None or self.rights.rank(outcome) < best):
                    best, chosen = self.rights.rank(outcome), those
        return chosen

    def _may_suffice(self, units: Iterable[Unit]) -> bool:
        """A bound: what is free and what these hold, against what lacks."""
        asked = self._settling.asked()[GPUS]
        return asked <= self.draft.fleet.columns.idle_total + sum(unit.cost for unit in units) or self._sliced()

    def _may_stop(self, units: tuple[Unit, ...]) -> bool:
        """A bound: whether they may go and the claimant is admitted then. Who moves changes neither, unless queues
        count GPUs by their model."""
        return self.draft.fleet.tree.by_model or (self.rights.may_stop(units) and self._admitted_without(units))

    def _sliced(self) -> bool:
        return bool(self.draft.fleet.columns.profiles)

    # --- limits (rule 16) -----------------------------------------------------------------------------------------

    def _limit_in_the_way(self) -> str | None:
        """The queue whose limit refuses the claimant now, if that is what refuses it."""
        excess = self._settling.excess()
        return excess.queue if excess is not None and excess.kind == "limit" else None

    def _admitted_without(self, units: tuple[Unit, ...]) -> bool:
        """Whether no queue refuses the claimant once these are gone."""
        for unit in units:
            self.rights.suppose(unit, gone=True)
        try:
            return self._settling.excess() is None
        finally:
            for unit in units:
                self.rights.suppose(unit, gone=False)

    def _make_admissible(self, gone: list[Unit]) -> list[Unit]:
        """Where a limit stands in the way, let those go too who hold what it allows, the cheapest first."""
        while any(self._let_go(unit, gone) for unit in self._inside_the_limit()):
            pass
        return gone

    def _inside_the_limit(self) -> list[Unit]:
        """Who may go and holds something under the limit that stands in the way, the cheapest first."""
        queue = self._limit_in_the_way()
        if queue is None:
            return []
        tree = self.draft.fleet.tree
        inside = tree.index[queue]
        rows = [
            row for row in self.draft.fleet.jobs.values() if row.queue != NO_QUEUE and inside in tree.paths[row.queue]
        ]
        units = [unit for row in rows if row.held for unit in victims.units_of(row) if self.rights.allows(unit)]
        return sorted(units, key=lambda unit: self.rights.key((unit,)))

    def _let_all_go(self, units: tuple[Unit, ...], gone: list[Unit]) -> None:
        """Lift several units: at once, where they are whole jobs that stand, as most are."""
        if len(units) == 1 or any(unit.extra or not unit.row.rigid for unit in units):
            for unit in units:
                self._let_go(unit, gone)
            return
        for unit in units:
            self.draft.remember(unit.row)
        self.draft.tx.lift_together([(unit.row, held) for unit in units for held in unit.places])
        gone += units

    def _let_go(self, unit: Unit, gone: list[Unit]) -> bool:
        """Lift a unit, a gang in its parts and as far as it still stands; whether anything was left of it."""
        if not unit.extra:
            unit = victims.whole(unit.row)
        elif victims.spare_tasks(unit.row, unit.place.leaf) <= 0:
            return False
        if not unit.places or not all(held in unit.row.held for held in unit.places):
            return False
        self.draft.remember(unit.row)
        for part in victims.parts(unit):
            self.draft.tx.lift_all(unit.row, part.places)
            gone.append(part)
        return True

    def _fits(self) -> bool:
        with self.draft.trial():
            return self.goal.place(self.draft, self.row)


def _best_set(units: list[Unit], most: int = MOST_WEIGHED) -> Try:
    return partial(RoomMaker.by_best_set, units=units, most=most, found=[])
