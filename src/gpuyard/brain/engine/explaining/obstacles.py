"""Who stands in a waiting job's way, and what it would cost to make room (rule 24).

Asked by `explain` for people. The search is that of preemption without asking for a right, so what it names would
really do; it is undone at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import fsum
from typing import NamedTuple

from gpuyard.brain.engine.giving_way import victims
from gpuyard.brain.engine.giving_way.bounds import floors
from gpuyard.brain.engine.giving_way.clearing import Key, Unasked
from gpuyard.brain.engine.giving_way.resettling import RoomMade
from gpuyard.brain.engine.giving_way.room_making import RoomMaker
from gpuyard.brain.engine.giving_way.victims import Unit
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.brain.engine.picture.trial import Trial
from gpuyard.model.reasons import Obstacle


class Floor(NamedTuple):
    """What the tenants of a node have: devices together, and of the rest what no set of them is below."""

    devices: int
    firm: bool
    priority: int
    lost: float
    """Of work, for each device."""
    youth: tuple[object, ...]


Floors = dict[int, Floor | None]
"""What clearing a node costs at least, per node; None where nobody could leave."""


class Anybody(Unasked):
    """No right is asked for; the cheapest to stop come first."""

    break_budgets = True
    moves_too = False
    firm_too = True

    def __init__(self, draft: Draft, row: JobRow, known: Floors, trial: Trial) -> None:
        self.draft = draft
        self.row = row
        self._floors = known
        self._trial = trial

    def floors(self, nodes: Sequence[int], shorts: Sequence[int]) -> list[Key | None]:
        """For each of them."""
        return [self.floor(node, short) for node, short in zip(nodes, shorts, strict=True)]

    def floor(self, node: int, short: int) -> Key | None:
        """By what its tenants have; nobody's depends on the claimant, so all explanations share that."""
        if short <= 0 or not self._trial.untouched():
            return ()  # it is no devices that lack, or somebody has left already
        if node not in self._floors:
            self._floors[node] = self._least(node)
        known = self._floors[node]
        if known is None or known.devices < short:
            return None
        return (known.firm, known.priority, known.lost * short, known.youth)

    def _least(self, node: int) -> Floor | None:
        ours = (row for row in self.draft.fleet.tenants[node] if not row.job.foreign)
        there, devices, grains = floors.on_devices(ours, node)
        if not there:
            return None
        lost = min(floors.lost(self.draft, row) if row.rigid else 0.0 for row in there)  # extras may go without a loss
        firm, priority = all(row.firm for row in there), min(row.priority for row in there)
        return Floor(sum(devices), firm, priority, lost * min(grains), min(row.youth for row in there))

    def allows(self, unit: Unit) -> bool:
        """Everybody who runs, foreign loads aside."""
        return unit.row is not self.row and not unit.row.job.foreign and bool(unit.places)

    def key(self, units: tuple[Unit, ...]) -> Key:
        """Preemptible before firm, lowest priority, least lost work."""
        return (
            any(unit.row.firm for unit in units),
            max(unit.row.priority for unit in units),
            fsum(victims.lost_work(self.draft, unit) for unit in units),
            max(unit.row.youth for unit in units),
        )

    def stoppable(self, gone: Iterable[Unit]) -> set[Unit]:
        """Anybody may be."""
        return set(gone)

    def may_stop(self, units: tuple[Unit, ...]) -> bool:
        """Anybody may."""
        return True

    def accepts(self, outcome: RoomMade) -> bool:
        """Any outcome tells something."""
        return True

    def rank(self, outcome: RoomMade) -> Key:
        """The cheapest."""
        return self.key(outcome.stopped) if outcome.stopped else ()

    def least_stopped(self, rows: Iterable[JobRow], lacking: int) -> Key | None:
        """Not looked at: nobody's outcome is compared with another's here."""
        return ()

    def at_best(self, key: Key) -> Key:
        """Who moves costs nothing here."""
        return key


def in_the_way(draft: Draft, row: JobRow, known: Floors) -> list[Obstacle]:
    """The jobs that would have to stop or move so that this one starts, and what that would lose."""
    with draft.relaxed() as trial:
        maker = RoomMaker(draft, row, Anybody(draft, row, known, trial))
        outcome = maker.first(maker.tries())
    if outcome is None:
        return []
    stopped = [_obstacle(draft, unit, "stop") for unit in outcome.stopped]
    return [*stopped, *(_obstacle(draft, unit, "move") for unit in outcome.moved)]


def _obstacle(draft: Draft, unit: Unit, must: str) -> Obstacle:
    row = unit.row
    queue = draft.fleet.tree.queues[row.queue].name
    lost = victims.lost_work(draft, unit) / max(unit.cost, 1)
    return Obstacle(row.name, must, unit.cost, queue, row.priority, not row.firm, lost, victims.forbids(draft, row))
