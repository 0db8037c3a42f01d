"""The one place that emits `Evict`, `Move` and `Terminate`: what a draft changed, told as actions that can be applied.

Everything that disturbs a running job ends here, so that a plan is the net change: nobody is both started and evicted,
and whoever keeps its GPUs is not mentioned (rule 26).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from gpuyard.brain.engine.nodes.columns import Held
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.brain.engine.settling import stories
from gpuyard.brain.engine.settling.stories import Change, Story
from gpuyard.model.actions import Action, Evict, Move, Start, Terminate, Warn
from gpuyard.model.job import Placement
from gpuyard.model.reasons import Reason

Origin = Mapping[str, tuple[Held, ...]]
"""What changed jobs held before."""

Leaving = Mapping[tuple[int, int], list[str]]
"""Who leaves each device (-1: the node's CPU and memory alone)."""

PLACE = Held._fields.index("node")
"""From here on a `Held` tells the place and nothing of the task."""


def net_actions(fleet: Fleet, origin: Origin, story: Story) -> tuple[Action, ...]:
    """The net change from `origin` to what the fleet holds now, in an order that can be applied."""
    changes = [_change(fleet.jobs[name], origin[name]) for name in sorted(origin) if name in fleet.jobs]
    leaving: dict[tuple[int, int], list[str]] = {}
    for change in changes:
        for held in change.gone:
            for device in held.gpus or (-1,):
                leaving.setdefault((held.node, device), []).append(change.row.name)
    starts = [_start(fleet, each, story, leaving) for each in changes if len(each.come) > len(each.gone)]
    if not leaving:
        return tuple(starts)
    story = Story(story.because, stories.who_gains(changes, story.served))
    evicts = [_evict(fleet, each, story) for each in changes if len(each.gone) > len(each.come)]
    moves = [_move(fleet, each, story, leaving) for each in changes if each.gone and each.come]
    return (*evicts, *_in_turn(moves), *starts)


def _in_turn(moves: list[Move]) -> list[Move]:
    """Whoever waits for another to leave comes after it; among the others, by name. Moves that wait for each other in
    a circle have been undone before (`keeping_places.untangle`)."""
    told: list[Move] = []
    left = sorted(moves, key=lambda move: move.job)
    while left:
        moving = {move.job for move in left}
        ready = [move for move in left if not moving.intersection(move.after)]
        told += ready or left
        left = [move for move in left if move not in told]
    return told


def end(draft: Draft, row: JobRow, reason: Reason, grace: float) -> None:
    """The job is over: warned, given so long to save its work, then ended; its places stay its own till then."""
    draft.emit(Terminate(row.name, reason, grace, _uids(row.placements)))


def warn(draft: Draft, row: JobRow, reason: Reason) -> None:
    """The job is told that its end is near, and goes on."""
    draft.emit(Warn(row.name, reason, _uids(row.placements)))


def _change(row: JobRow, before: tuple[Held, ...]) -> Change:
    """What left and what came; a task that the draft merely gave another number on the same devices did neither."""
    if not before or not row.held:  # it has only come, or is gone whole
        return Change(row, sorted(before), sorted(row.held), 0)
    gone, come, kept = [], list(row.held), []
    for held in before:
        same = next((now for now in come if _same_place(now, held)), None)
        if same is None:
            gone.append(held)
        else:
            come.remove(same)
            if not held.terminating:  # who is on its way out anyway keeps no gang alive
                kept.append(held)
    gone.sort()
    return Change(row, gone, _numbered(row, sorted(come), gone, kept), len(kept))


def _numbered(row: JobRow, come: list[Held], gone: list[Held], kept: list[Held]) -> list[Held]:
    """Who moves takes its number along, and nobody gets one that is kept: the draft numbers lifted tasks anew."""
    taken = {(held.leaf, held.task) for held in kept}
    found: list[Held] = []
    for place, held in enumerate(come):
        number = gone[place].task if place < len(gone) and gone[place].leaf == held.leaf else held.task
        if (held.leaf, number) in taken:
            number = next((n for n in _open_numbers(row, held.leaf) if (held.leaf, n) not in taken), number)
        taken.add((held.leaf, number))
        found.append(held if number == held.task else held._replace(task=number))
    return found


def _open_numbers(row: JobRow, leaf: int) -> list[int]:
    """Numbers that have not ended, those that never ran first (rule 22)."""
    group = row.groups[leaf]
    return sorted((n for n in range(group.tasks) if n not in group.ended), key=lambda n: n in group.tried)


def _same_place(one: Held, other: Held) -> bool:
    """Whatever the number of the task."""
    return one.leaf == other.leaf and one[PLACE:] == other[PLACE:]


def _evict(fleet: Fleet, change: Change, story: Story) -> Evict:
    """Those of a job's tasks that stop; whoever goes whole and is known by no uid needs no places told."""
    row, going = change.row, change.gone[len(change.come) - len(change.gone) :]
    whole = not change.kept and not change.come
    left = () if whole and not _uids(row.placements) else _left(fleet, row, going)
    reason = stories.why_stopped(fleet, story, row, sum([held.cost for held in going]))
    return Evict(row.name, reason, story.served.get(row.name, ""), () if whole else left, _uids(left) if left else ())


def _move(fleet: Fleet, change: Change, story: Story, leaving: Leaving) -> Move:
    row, count = change.row, min(len(change.gone), len(change.come))
    source, come = _left(fleet, row, change.gone[:count]), change.come[:count]
    reason, after = stories.why_moved(story, row.name), _after(row.name, come, leaving)
    return Move(row.name, source, _placements(fleet, row, come), reason, story.served.get(row.name, ""), after)


def _start(fleet: Fleet, change: Change, story: Story, leaving: Leaving) -> Start:
    row, new = change.row, change.come[len(change.gone) :]
    after = _after(row.name, new, leaving)
    return Start(row.name, _placements(fleet, row, new), stories.why_started(story, row.name, after), after)


def _after(name: str, places: Iterable[Held], leaving: Leaving) -> tuple[str, ...]:
    """The jobs that must have left these devices first."""
    if not leaving:
        return ()
    found: set[str] = set()
    for held in places:
        for device in held.gpus or (-1,):
            found.update(leaving.get((held.node, device), ()))
    return tuple(sorted(found - {name}))


def _placements(fleet: Fleet, row: JobRow, places: Iterable[Held]) -> tuple[Placement, ...]:
    return tuple([fleet.placement(row, held) for held in sorted(places)])


def _left(fleet: Fleet, row: JobRow, places: Iterable[Held]) -> tuple[Placement, ...]:
    """Places that are left, with the tasks that the world knows there."""
    found = _placements(fleet, row, places)
    known = {(p.group, p.task, p.node, p.gpus): p.uid for p in row.placements if p.uid}
    if not known:
        return found
    return tuple(replace(p, uid=known.get((p.group, p.task, p.node, p.gpus), "")) for p in found)


def _uids(places: Iterable[Placement]) -> tuple[str, ...]:
    return tuple([place.uid for place in places if place.uid])
