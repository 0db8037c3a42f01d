"""Placements of one job: their group, their task number, and whether each is of the right size for its request.

Called by `jobs` for what runs and by `snapshots` for what is reserved. Knows no nodes: whether the GPUs exist and are
free is for `crosscheck`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import count

from gpuyard.files.format.entries import PlacementEntry
from gpuyard.files.problems import Path, Problems, inside_of
from gpuyard.model.job import Placement, TaskGroup
from gpuyard.model.outside.phrases import are, counted
from gpuyard.model.resources import Request


def placements_of(
    entries: Sequence[PlacementEntry], leaves: Sequence[TaskGroup], at: Path, problems: Problems
) -> tuple[Placement, ...]:
    """The model's placements, in the order of the file."""
    if not entries:
        return ()
    groups = {leaf.name: leaf for leaf in leaves}
    made: dict[int, Placement] = {}
    for name, places in _by_group(entries, groups, at, problems).items():
        members = [entries[place] for place in places]
        _check_count(members, groups[name], at, problems)
        for place, number in zip(places, task_numbers(members, groups[name].tasks), strict=True):
            entry, here = entries[place], (*at, place)
            if (
                number >= groups[name].tasks and not entry.uid
            ):  # one that there really is has the number that it was told
                problems.tell((*here, "task"), f"is {number}, and the tasks are 0 to {groups[name].tasks - 1}")
            mig = _slices(entry, groups[name].request, here, problems)
            made[place] = Placement(
                entry.node, entry.gpus, name, number, mig, entry.terminating, entry.assigned, entry.uid
            )
    return tuple(made[place] for place in sorted(made))


def _by_group(
    entries: Sequence[PlacementEntry], groups: Mapping[str, TaskGroup], at: Path, problems: Problems
) -> dict[str, list[int]]:
    """The places in the list, by group; an unnamed one belongs to the only group."""
    found: dict[str, list[int]] = {}
    for place, entry in enumerate(entries):
        name = entry.group or (next(iter(groups)) if len(groups) == 1 else "")
        if name in groups:
            found.setdefault(name, []).append(place)
        elif not name:
            problems.tell((*at, place), f"must name its group, one of {', '.join(groups)}")
        else:
            told = f"{inside_of((*at, place))} names group {name}, and the job's task groups are {', '.join(groups)}"
            problems.add((*at, place, "group"), told, name, groups)
    return found


def task_numbers(entries: Sequence[PlacementEntry], tasks: int) -> list[int]:
    """Numbers as given, else the lowest free one, in order.

    A terminating task counts as pending again, so there may be more placements than tasks: then those that stay are
    numbered first, and one that goes may bear the number of its successor.
    """
    taken = {entry.task for entry in entries}
    free = (number for number in count() if number not in taken)
    order = list(range(len(entries)))
    if len(entries) > tasks:
        order.sort(key=lambda place: entries[place].terminating)
    numbers = {}
    for place in order:
        given = entries[place].task
        number = next(free) if given is None else given
        goes = entries[place].terminating and given is None
        numbers[place] = number % tasks if goes else number
    return [numbers[place] for place in range(len(entries))]


def _check_count(entries: Sequence[PlacementEntry], group: TaskGroup, at: Path, problems: Problems) -> None:
    """No more tasks run than there are, and each only once."""
    staying = [entry for entry in entries if not entry.terminating]
    if len(staying) > group.tasks:
        there = f"there {are(group.tasks)} {group.tasks}"
        problems.tell(at, f"has {counted(len(staying), 'task')} of group {group.name} running, and {there}")
        return
    given = [entry.task for entry in staying if entry.task is not None]
    if len(set(given)) < len(given):
        doubled = next(task for place, task in enumerate(given) if task in given[:place])
        problems.tell(at, f"gives task {doubled} of group {group.name} two places")


def _slices(entry: PlacementEntry, request: Request, at: Path, problems: Problems) -> tuple[str, ...]:
    """The MIG slices of a placement, after checking that it names as many GPUs as the task asks for; fewer only where a
    task that there really is, known by its uid, stands on a node that has lost some."""
    wanted = [profile for profile, number in request.mig for _ in range(number)]
    needed = len(wanted) or request.gpus or int(request.shared)
    lacks = bool(entry.uid) and len(entry.gpus) < needed
    if len(entry.gpus) != needed and not lacks:
        asked = counted(needed, "slice" if wanted else "GPU")
        problems.tell((*at, "gpus"), f"names {counted(len(entry.gpus), 'GPU')}, and the task asks for {asked}")
    elif not wanted and len(set(entry.gpus)) < len(entry.gpus):
        problems.tell((*at, "gpus"), "names a GPU twice")
    # Which slice is meant goes without saying where all are of one profile.
    mig = entry.mig or (tuple(wanted)[: len(entry.gpus)] if len(request.mig) == 1 else ())
    if sorted(mig) != wanted and not (lacks and len(mig) == len(entry.gpus) and Counter(mig) <= Counter(wanted)):
        asked = ", ".join(wanted) or "none"
        problems.tell((*at, "mig"), f"must list the slices the task asks for ({asked}), one for each GPU named")
    return mig
