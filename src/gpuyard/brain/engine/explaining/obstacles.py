"""Who stands in a waiting job's way, and what it would cost to make room (rule 24).

Asked by `explain` for people. The search is that of preemption without asking for a right, so what it names would
really do; it is undone at once.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpuyard.brain.engine.giving_way import clearing, victims
from gpuyard.brain.engine.giving_way.clearing import Key
from gpuyard.brain.engine.giving_way.resettling import RoomMade
from gpuyard.brain.engine.giving_way.room_making import RoomMaker
from gpuyard.brain.engine.giving_way.victims import Unit
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.job_rows import Footing, JobRow
from gpuyard.model.reasons import Obstacle

Floors = dict[int, Key]
"""What clearing a node costs at least, per node."""


class Anybody:
    """No right is asked for; the cheapest to stop come first."""

    break_budgets = True
    moves_too = False
    firm_too = True

    def __init__(self, draft: Draft, row: JobRow, floors: Floors) -> None:
        self.draft = draft
        self.row = row
        self._floors = floors
        self._mark = draft.tx.checkpoint()

    def floor(self, node: int, short: int) -> Key | None:
        """The key of the node's cheapest tenant; nobody's depends on the claimant, so all explanations share them."""
        if self.draft.tx.checkpoint() != self._mark:
            return ()  # somebody has left already
        if node not in self._floors:
            units = clearing.candidates(self.draft, self, node)
            self._floors[node] = self.key((units[0],)) if units else ()
        return self._floors[node]

    def footings(self) -> frozenset[Footing] | None:
        """Anybody's."""
        return None

    def allows(self, unit: Unit) -> bool:
        """Everybody who runs, foreign loads aside."""
        return unit.row is not self.row and not unit.row.job.foreign and bool(unit.places)

    def may_follow(self, unit: Unit) -> bool:
        """Nobody's leave is asked."""
        return True

    def suppose(self, unit: Unit, gone: bool) -> None:
        """It makes no difference."""

    def key(self, units: tuple[Unit, ...]) -> Key:
        """Preemptible before firm, lowest priority, least lost work."""
        return (
            any(unit.row.firm for unit in units),
            max(unit.row.priority for unit in units),
            sum(victims.lost_work(self.draft, unit) for unit in units),
            max(unit.row.youth for unit in units),
        )

    def stoppable(self, gone: Iterable[Unit]) -> set[Unit]:
        """Anybody may be."""
        return set(gone)

    def accepts(self, outcome: RoomMade) -> bool:
        """Any outcome tells something."""
        return True

    def rank(self, outcome: RoomMade) -> Key:
        """The cheapest."""
        return self.key(outcome.stopped) if outcome.stopped else ()


def in_the_way(draft: Draft, row: JobRow, floors: Floors) -> list[Obstacle]:
    """The jobs that would have to stop or move so that this one starts, and what that would lose."""
    maker = RoomMaker(draft, row, Anybody(draft, row, floors))
    with draft.relaxed():
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
