"""The one place that emits `Evict`, `Move` and `Terminate`: what a draft changed, told as actions that can be applied.

Everything that disturbs a running job ends here, so that a plan is the net change: nobody is both started and evicted,
and whoever keeps its GPUs is not mentioned (rule 26).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from gpuyard.brain.engine.nodes.columns import Held
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.brain.engine.picture.turnover import PLACE, Exchange, Turnover
from gpuyard.brain.engine.settling import stories
from gpuyard.brain.engine.settling.stories import Change, Story
from gpuyard.model.actions import Action, Evict, Move, Start, Terminate, Warn
from gpuyard.model.job import Placement
from gpuyard.model.reasons import Reason

Origin = Mapping[str, tuple[Held, ...]]
"""What changed jobs held before."""


def net_actions(fleet: Fleet, origin: Origin, story: Story) -> tuple[Action, ...]:
    """The net change from `origin` to what the fleet holds now, in an order that can be applied."""
    changes = [_change(fleet.jobs[name], origin[name]) for name in sorted(origin) if name in fleet.jobs]
    if not any(each.gone for each in changes):
        return tuple([_start(fleet, each, story, ()) for each in changes if each.come])
    story = Story(story.because, stories.who_gains(changes, story.served))
    turnover = Turnover(fleet.columns, [Exchange(each.row.name, each.gone, each.come) for each in changes])
    evicts = [_evict(fleet, each, story) for each in changes if len(each.gone) > len(each.come)]
    by_name = {each.row.name: each for each in changes}
    moves = [_move(fleet, by_name[turn.name], story, turn.after) for turn in turnover.turns()]
    giving_way: dict[str, list[str]] = {}
    for each in changes:
        if each.gone:
            giving_way.setdefault(story.served.get(each.row.name, ""), []).append(each.row.name)
    starts = [
        _start(fleet, each, story, _awaited(each, turnover, giving_way.get(each.row.name, ())))
        for each in changes
        if len(each.come) > len(each.gone)
    ]
    return (*evicts, *moves, *starts)


def _awaited(change: Change, turnover: Turnover, giving_way: Sequence[str]) -> tuple[str, ...]:
    """Who must be gone before these tasks start: who leaves what they take, and whoever gives way for the job, be it
    for a limit, a cap or because it will not have them beside it."""
    left = turnover.before(change.row.name, change.come[len(change.gone) :])
    if change.gone:  # it moves as well, and they may wait for that
        return left
    return tuple(sorted({*left, *giving_way}))


def end(draft: Draft, row: JobRow, reason: Reason, grace: float) -> None:
    """The job is over: warned, given so long to save its work, then ended; its places stay its own till then."""
    draft.emit(Terminate(row.name, reason, grace, _uids(row.placements)))


def warn(draft: Draft, row: JobRow, reason: Reason) -> None:
    """The job is told that its end is near, and goes on."""
    draft.emit(Warn(row.name, reason, _uids(row.placements)))


def propose_eviction(draft: Draft, name: str, reason: Reason, beneficiary: str) -> None:
    """In shadow mode: the job would have been stopped whole."""
    draft.propose(Evict(name, reason, beneficiary))


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


def _move(fleet: Fleet, change: Change, story: Story, after: tuple[str, ...]) -> Move:
    row, count = change.row, min(len(change.gone), len(change.come))
    source, target = _left(fleet, row, change.gone[:count]), _placements(fleet, row, change.come[:count])
    return Move(row.name, source, target, stories.why_moved(story, row.name), story.served.get(row.name, ""), after)


def _start(fleet: Fleet, change: Change, story: Story, after: tuple[str, ...]) -> Start:
    row = change.row
    places = _placements(fleet, row, change.come[len(change.gone) :])
    return Start(row.name, places, stories.why_started(story, row.name, after), after)


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
