"""Clearing nodes for a waiting job: which tasks must leave so that its tasks fit, cheapest first.

Preemption and consolidation share it: they bring a `Leave` that says who may go and what that is worth. Sets of
leavers are weighed per node by plain arithmetic; whole gangs take one node after the other until all tasks fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Protocol

import numpy as np

from gpuyard.brain.engine.giving_way.victims import Unit, spare_tasks, units_on
from gpuyard.brain.engine.nodes.columns import Region
from gpuyard.brain.engine.nodes.feasibility import Shape, room_on
from gpuyard.brain.engine.nodes.vacancy import Vacancy
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.job_rows import Footing, JobRow
from gpuyard.model.resources import WHOLE

Key = tuple[object, ...]


class Leave(Protocol):
    """Who may leave, and in which order of preference."""

    firm_too: bool
    """Whether those who may never be disturbed are looked at as well."""

    def footings(self) -> frozenset[Footing] | None:
        """Where those stand who could be allowed to go, so that others need not be looked at; None: anywhere."""

    def allows(self, unit: Unit) -> bool:
        """Whether the unit may go now."""

    def key(self, units: tuple[Unit, ...]) -> Key:
        """How dear it is that these go; the smaller the better. More leavers are never cheaper."""

    def floors(self, nodes: Sequence[int], shorts: Sequence[int]) -> list[Key | None]:
        """For each node a key that no set of its is below, if one is known without weighing; () where it must be
        weighed, None where there is no set. `shorts`: devices that it lacks, 0 if something else is lacking."""

    def may_follow(self, unit: Unit) -> bool:
        """Whether the unit may go next, after those who are supposed to have gone."""

    def may_all_go(self, units: tuple[Unit, ...]) -> bool:
        """Whether these, who share a footing, are known to be allowed to go one after the other; not, where nobody
        knows without asking for each."""

    def suppose(self, unit: Unit, gone: bool) -> None:
        """Suppose that the unit has gone, or that it is back."""


class Unasked:
    """The part of a `Leave` that asks for no right: anybody may go, and whoever goes changes that for nobody."""

    def footings(self) -> frozenset[Footing] | None:
        """Anybody's."""
        return None

    def may_follow(self, unit: Unit) -> bool:
        """Nobody's leave is asked."""
        return True

    def may_all_go(self, units: tuple[Unit, ...]) -> bool:
        """So all of them may."""
        return True

    def suppose(self, unit: Unit, gone: bool) -> None:
        """It makes no difference."""


class NodeClearing:
    """Sets of leavers for one kind of task, over the nodes of a region, cheapest first.

    Kept between equal claims: nodes that changed are weighed anew, all others keep their place in the heap.
    """

    def __init__(self, draft: Draft, leave: Leave, shape: Shape, region: Region) -> None:
        self.draft = draft
        self.leave = leave
        self.shape = shape
        self.region = region
        self._columns = draft.fleet.columns
        self._seen = self._columns.version
        self._stamps: dict[int, int] = {}
        self._runs: dict[int, list[Unit]] = {}
        """Equal units of a node that may go one after the other, the first to go last; [] where they are not equal."""
        self._heap: list[tuple[Key, int, int, tuple[Unit, ...]]] = []
        self._unweighed = plausible(draft, shape, region, leave.firm_too)
        self._weigh_more()

    def _weigh_more(self) -> bool:
        """Weigh the next batch of nodes, the emptiest first; False if all are weighed."""
        batch = self.draft.policy.search_limit
        now, self._unweighed = self._unweighed[:batch], self._unweighed[batch:]
        self._stamps.update(dict.fromkeys(now, 0))
        said = list(zip(self.leave.floors(now, short_of(self.shape, now)), now, strict=True))
        self._heap += [(floor, node, 0, ()) for floor, node in said if floor]
        heapify(self._heap)
        for floor, node in said:
            if floor == ():
                self._weigh(node)
        return bool(now)

    def _weigh(self, node: int, floor: Key = ()) -> None:
        """Find the node's cheapest set; it counts as no cheaper than `floor`."""
        units = cheapest_set(self.draft, self.leave, self.shape, node)
        self._stamps[node] += 1
        if units:
            heappush(self._heap, (max(self.leave.key(units), floor), node, self._stamps[node], units))

    def sync(self, leave: Leave) -> None:
        """Go on with another claim like the last one: weigh anew what changed since."""
        self.leave = leave
        changed = self._columns.touched.since(self._seen)
        self._seen = self._columns.version
        for node in sorted(changed & self._stamps.keys()):
            self._runs.pop(node, None)
            self._weigh(node)

    def exchanged(self, gone: Unit, newcomer: JobRow) -> None:
        """Of those who were to go next one has gone, a job of one task, and the newcomer, a claimant, took its very
        place: else the node is as it was. Where those who are left there are its equals, the cheapest of them suffices
        as it did."""
        node = gone.place.node
        self._seen = self._columns.version
        run = self._runs.get(node)
        run = self._runs[node] = self._equals(gone, newcomer) if run is None else run[:-1]
        if not run or not self.leave.allows(run[-1]):
            self._weigh(node)
            return
        self._stamps[node] += 1
        heappush(self._heap, (self.leave.key((run[-1],)), node, self._stamps[node], (run[-1],)))

    def _equals(self, gone: Unit, newcomer: JobRow) -> list[Unit]:
        """Those who may go from the node, the cheapest last, if they differ from the one that went only in what never
        changes while a plan is made, and nobody else there could ever be asked to go for such a claimant; else nobody.
        """
        node, kind = gone.place.node, _kind(gone)
        units = candidates(self.draft, self.leave, node)
        if node in self._columns.barred or any(_kind(unit) != kind for unit in units):
            return []
        rows = {unit.row for unit in units}
        others = (row for row in self.draft.fleet.tenants[node] if row not in rows and row.footing != newcomer.footing)
        return units[::-1] if all(row.firm or row.job.foreign for row in others) else []

    def next(self) -> tuple[int, tuple[Unit, ...]] | None:
        """The cheapest set that still stands; None when nothing more can be cleared."""
        self.sync(self.leave)
        just_weighed: set[int] = set()
        while self._heap or self._weigh_more():
            if not self._heap:
                continue
            key, node, stamp, units = heappop(self._heap)
            if stamp != self._stamps[node]:
                continue
            if not units:
                self._weigh(node)  # only its floor was known so far
                just_weighed.add(node)
                continue
            if node in just_weighed or (self._stands(units) and self.leave.key(units) <= key):
                heappush(self._heap, (key, node, stamp, units))  # it is taken only once somebody leaves
                return node, units
            self._weigh(node, floor=key)
            just_weighed.add(node)
        return None

    def _stands(self, units: tuple[Unit, ...]) -> bool:
        return not too_many_extras(units) and all(
            self.leave.allows(unit) and all(held in unit.row.held for held in unit.places) for unit in units
        )


def _kind(unit: Unit) -> object:
    """Equal for jobs of one task that leave the same behind when they go, and to whom a claimant has the same right;
    no gang is taken for the equal of another."""
    if len(unit.places) > 1 or not unit.row.rigid:
        return unit.row.name
    return unit.row.footing, len(unit.place.gpus), unit.place._replace(task=0, gpus=())


def plausible(draft: Draft, shape: Shape, region: Region, firm_too: bool = False) -> list[int]:
    """Eligible nodes of the region where free and preemptible GPUs together could hold a task, the emptiest first."""
    columns, inside = draft.fleet.columns, slice(region.start, region.stop)
    enough = shape.eligible[inside]
    if shape.request.gpus and not firm_too:
        enough = enough & (columns.idle[inside] + draft.fleet.loose[inside] >= shape.request.gpus * WHOLE)
    nodes = np.flatnonzero(enough) + region.start
    order = np.lexsort((nodes, -columns.idle[nodes]))
    return nodes[order].tolist()  # type: ignore[no-any-return]


def short_of(shape: Shape, nodes: list[int]) -> list[int]:
    """Devices that each of the nodes lacks for one more task; 0 where it is not devices that are lacking."""
    if not shape.request.gpus:
        return [0] * len(nodes)
    at = np.array(nodes, dtype=np.int64)
    room = room_on(shape.columns, shape.request, shape.need, at, careful=False)
    short = shape.request.gpus * (room + 1) - shape.columns.whole[at]
    return np.maximum(short, 0).tolist()  # type: ignore[no-any-return]


def cheapest_set(draft: Draft, leave: Leave, shape: Shape, node: int) -> tuple[Unit, ...]:
    """The cheapest leavers that let one more task of the shape fit on the node; empty if none do."""
    if not draft.fleet.tenants[node]:
        return ()
    vacancy = Vacancy(draft.fleet.columns, shape.request, node)
    base = vacancy.room()
    lacks_devices = len(draft.fleet.tree.resources) == 1 and vacancy.lacks_devices_only()
    units = candidates(draft, leave, node, with_gpus=lacks_devices)
    if not units:
        return ()
    if lacks_devices and _all_needed(draft.fleet, vacancy, units, base) and leave.may_all_go(tuple(units)):
        return tuple(units)
    alone = _alone(leave, vacancy, units, base)
    if alone and alone[0] is units[0]:
        return alone  # the cheapest unit suffices
    found = [those for those in (alone, _greedy(leave, vacancy, units, base)) if those]
    return min(found, key=leave.key) if found else ()


def _all_needed(fleet: Fleet, vacancy: Vacancy, units: list[Unit], base: int) -> bool:
    """Whether there are just as many devices to leave as are lacking, so that no set of leavers is to be chosen; asked
    where nothing but devices is lacking, and told of those alone who share a footing and hold whole devices."""
    if vacancy.node in fleet.columns.barred or vacancy.node in fleet.columns.aligned or not vacancy.request.gpus:
        return False
    places = [held for unit in units for held in unit.places if held.node == vacancy.node]
    if any(held.share or held.mig or not held.gpus for held in places):
        return False
    if vacancy.whole + sum(len(held.gpus) for held in places) != vacancy.request.gpus * (base + 1):
        return False
    footing = units[0].row.footing
    return all(not unit.extra and unit.row.footing == footing for unit in units)


def candidates(draft: Draft, leave: Leave, node: int, with_gpus: bool = False) -> list[Unit]:
    """Units with a task on the node that may leave, cheapest first; perhaps only those with GPUs, where nobody gains by
    others, not even a right."""
    rows = concerned(draft, leave, node)
    units = [unit for row in rows for unit in units_on(row, node) if unit.cost or not with_gpus]
    return sorted(filter(leave.allows, units), key=lambda unit: leave.key((unit,)))


def concerned(draft: Draft, leave: Leave, node: int) -> Iterable[JobRow]:
    """Jobs with a task on the node of which something could be allowed to go."""
    footings, tenants = leave.footings(), draft.fleet.tenants[node]
    return tenants if footings is None else [row for row in tenants if row.footing in footings]


def _alone(leave: Leave, vacancy: Vacancy, units: list[Unit], base: int) -> tuple[Unit, ...]:
    short = vacancy.request.gpus * (base + 1) - vacancy.whole
    for unit in units:
        if short > 0 and sum(len(held.gpus) for held in unit.places if held.node == vacancy.node) < short:
            continue  # it has not the devices to leave
        _leave(vacancy, unit)
        enough = vacancy.room() > base
        _enter(vacancy, unit)
        if enough and leave.may_follow(unit):
            return (unit,)
    return ()


def _greedy(leave: Leave, vacancy: Vacancy, units: list[Unit], base: int) -> tuple[Unit, ...]:
    """Leave one after the other until it fits, then let back in whoever was not needed, the dearest first.

    Who may not go yet is asked again once somebody else has gone: that may give the claimant the right.
    """
    gone: list[Unit] = []
    waiting = list(units)
    try:
        while waiting and vacancy.room() <= base:
            unit = next((unit for unit in waiting if leave.may_follow(unit)), None)
            if unit is None:
                break
            waiting.remove(unit)
            if not unit.extra:  # the gang goes with the extras that went before it
                waiting = [other for other in waiting if other.row is not unit.row]
                for part in [other for other in gone if other.row is unit.row]:
                    _enter(vacancy, part)
                    leave.suppose(part, gone=False)
                    gone.remove(part)
            _leave(vacancy, unit)
            leave.suppose(unit, gone=True)
            gone.append(unit)
    finally:
        for unit in gone:
            leave.suppose(unit, gone=False)
    kept = _needed(vacancy, gone, base) if vacancy.room() > base else ()
    for unit in kept or gone:
        _enter(vacancy, unit)
    return kept


def _needed(vacancy: Vacancy, gone: list[Unit], base: int) -> tuple[Unit, ...]:
    """Those of the gone without whom it would not fit; the others are let back in, the dearest first."""
    if vacancy.request.gpus and vacancy.whole == vacancy.request.gpus * (base + 1):
        return tuple(gone)  # not one GPU too many
    kept = list(gone)
    for unit in reversed(gone):
        _enter(vacancy, unit)
        if vacancy.room() > base:
            kept.remove(unit)
        else:
            _leave(vacancy, unit)
    return tuple(kept)


def _leave(vacancy: Vacancy, unit: Unit) -> None:
    for held in unit.places:
        if held.node == vacancy.node:
            vacancy.leave(held)


def _enter(vacancy: Vacancy, unit: Unit) -> None:
    for held in unit.places:
        if held.node == vacancy.node:
            vacancy.enter(held)


def too_many_extras(units: tuple[Unit, ...]) -> bool:
    """Whether some job would give more extras than it has to spare."""
    if not any(unit.extra for unit in units):
        return False
    extras = Counter((unit.row.name, unit.place.leaf) for unit in units if unit.extra)
    rows = {unit.row.name: unit.row for unit in units}
    return any(count > spare_tasks(rows[name], leaf) for (name, leaf), count in extras.items())


def everyone(draft: Draft, leave: Leave, region: Region) -> Iterator[Unit]:
    """Every unit with a task in the region that may leave, cheapest first; a gang's extras before the gang."""
    rows: dict[str, JobRow] = {}
    for node in range(region.start, region.stop):
        rows.update((row.name, row) for row in concerned(draft, leave, node))
    units = [
        unit
        for row in rows.values()
        for node in sorted({held.node for held in row.held if region.start <= held.node < region.stop})
        for unit in units_on(row, node)
    ]
    unique = {(unit.row.name, unit.places): unit for unit in units if leave.allows(unit)}
    yield from sorted(unique.values(), key=lambda unit: leave.key((unit,)))
