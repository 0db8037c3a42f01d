"""Equal claims, one after the other: what was found out for the first of them is true for the next.

Asked by `preemption` before it searches. A thousand equal jobs that each take one other job's GPUs ask the same thing a
thousand times, and between two of them nothing changes but who holds those GPUs: one goes, one comes, and the node is
as full as it was. So the next claim needs no search: the clearing that was left behind knows the cheapest to go, and
whoever comes takes exactly what falls free.

That holds only where a search would have nothing else to weigh, which is why so much is asked for here: one way to make
room, one task on whole GPUs, one victim that holds just as many on a node that has no other free, and less idle in all
than either needs, so that nobody could be moved. Whatever differs is searched for as ever.
"""

from __future__ import annotations

from typing import NamedTuple

from gpuyard.brain.engine.giving_way.claims import Claim
from gpuyard.brain.engine.giving_way.clearing import NodeClearing
from gpuyard.brain.engine.giving_way.resettling import RoomMade
from gpuyard.brain.engine.giving_way.victims import Unit
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.brain.engine.placing import topology
from gpuyard.brain.engine.placing.topology import GroupWish
from gpuyard.brain.engine.sharing.amounts import GPUS, Amounts
from gpuyard.model.reasons import Code


class Series(NamedTuple):
    """What one claim leaves to the next that is equal to it."""

    claim: Claim
    nodes: NodeClearing
    changes: int
    """How many changes stood then: whoever else changed anything since ends the series."""


def leave(claim: Claim, nodes: NodeClearing) -> None:
    """A claim has taken what it needs, in the one way there was; perhaps the next one like it may follow."""
    draft, row = claim.draft, claim.row
    fleet = draft.fleet
    plain = not fleet.budgets and not fleet.columns.profiles and len(fleet.tree.resources) == 1
    if plain and row.single and row.group.tasks == 1 and row.request.gpus and len(row.held) == 1:
        draft.claims.last = Series(claim, nodes, len(draft.tx))


def follow(draft: Draft, row: JobRow, asked: Amounts) -> RoomMade | None:
    """Start the job as the last one like it was started, if a search could find nothing else; None: it must search."""
    last = draft.claims.last
    if not isinstance(last, Series) or not _goes_on(draft, last, row, asked):
        return None
    with draft.trial() as trial:
        outcome = _exchange(draft, last, row)
        if outcome is None:
            return None
        trial.keep()
    (gone,), (came,) = outcome.stopped, outcome.taken
    if gone.place._replace(leaf=came.leaf, task=came.task) == came:
        last.nodes.exchanged(gone, row)
    draft.effort += 1
    draft.claims.last = last._replace(changes=len(draft.tx))
    return outcome


def _goes_on(draft: Draft, last: Series, row: JobRow, asked: Amounts) -> bool:
    """Whether nothing happened since, the claims are equal, and nothing free or kept could make a difference."""
    if len(draft.tx) != last.changes or draft.kept or draft.effort >= draft.policy.search_total or row.held:
        return False
    one = last.claim.row
    if row.likeness != one.likeness or row.priority != one.priority or asked != last.claim.asked:
        return False
    return asked[GPUS] > draft.fleet.columns.idle_total


def _exchange(draft: Draft, last: Series, row: JobRow) -> RoomMade | None:
    """The cheapest goes, the claimant comes to its very devices; None where it is not as simple as that."""
    found = last.nodes.next()
    if found is None or len(found[1]) != 1:
        return None
    node, (unit,) = found
    right = last.claim.right(unit.row)
    if right is None or not _fits_exactly(last, unit, node):
        return None
    draft.remember(unit.row)
    draft.tx.lift(unit.row, unit.place)
    draft.remember(row)
    (task,) = row.lowest_free_tasks(0, 1)
    if not topology.put_one(draft, GroupWish(row, 0, 1, 1), last.nodes.shape, node, task):
        return None
    below = draft.fleet.tree.used[unit.row.queue][GPUS] < draft.fleet.tree.quota[unit.row.queue][GPUS]
    if unit.row.queue != row.queue and below:
        return None  # a take that moves some may be better
    if right is Code.RECLAIMED and not last.claim.reclaim.bearable([unit]):
        return None
    return RoomMade((), (unit,), tuple(row.held))


def _fits_exactly(last: Series, unit: Unit, node: int) -> bool:
    """Whether the unit is one task whose whole devices are as many as are asked for, on a node with no other free."""
    columns, claim = last.claim.draft.fleet.columns, last.claim
    if unit.extra or len(unit.places) != 1 or unit.cost != claim.asked[GPUS] or columns.free_mask[node]:
        return False
    return unit.row.rigid and not unit.place.share and len(unit.place.gpus) == claim.row.request.gpus
