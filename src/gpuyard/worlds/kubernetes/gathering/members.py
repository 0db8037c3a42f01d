"""Pods of one gang as task groups: who is of which group, which number, and who is still to come.

Members of one role are one group as long as they are alike to the brain. A pod that differs gets a group of its own; of
one that has its place only what it takes there and what it is to others is looked at, not where else it could be.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from gpuyard.kube.objects import PodObject
from gpuyard.model.job import Placement, TaskGroup
from gpuyard.worlds.kubernetes import pods
from gpuyard.worlds.kubernetes.asking.marks import ReadingSettings
from gpuyard.worlds.kubernetes.asking.refusals import Refusal
from gpuyard.worlds.kubernetes.gathering.layouts import GangRole, Layout


@dataclass(frozen=True, slots=True)
class Chair:
    """A pod as a member: its group and number, which a plan's placements name."""

    pod: PodObject
    group: str
    task: int


@dataclass(frozen=True, slots=True)
class Seating:
    """The groups of a gang, and who sits where."""

    groups: tuple[TaskGroup, ...]
    chairs: tuple[Chair, ...]


TASKS_MAX = 1_000_000
"""No gang has more; of one that says so nobody counts further, for it can never be had."""
Places = Mapping[str, Placement]
"""Where pods are or will be, by uid, as the world knows or assumes it; group and number are found here."""

Sitting = tuple[PodObject, str, int | None]
"""A pod, its role, and its number where it is told."""


def seated(layout: Layout, members: Sequence[Sitting], settings: ReadingSettings, places: Places) -> Seating | Refusal:
    """All members in groups; refused if one of them cannot be had."""
    groups: list[TaskGroup] = []
    chairs: list[Chair] = []
    for role in _roles(layout, members):
        mine = sorted(
            (m for m in members if m[1] == role.name), key=lambda m: (pods.submitted(m[0]), m[0].metadata.name)
        )
        kinds = _kinds(role, mine, settings, places)
        if isinstance(kinds, Refusal):
            return kinds
        for place, (prototype, alike) in enumerate(kinds):
            part = role if place == 0 else _other_part(role, prototype)
            others = sum(len(_still_there(rest)) for i, (_, rest) in enumerate(kinds) if i != place)
            there = _numbered(alike, part)
            away = frozenset(chair.task for chair in there if is_away(chair.pod, places))
            part = replace(part, ended=part.ended | away)
            groups.append(_group(part, prototype, there, others if place == 0 else 0, layout))
            chairs += there
    return Seating(_with_somebody(_with_minimum(tuple(groups), layout)), tuple(chairs))


def _roles(layout: Layout, members: Iterable[Sitting]) -> list[GangRole]:
    """Those that the owner names, and those that only pods have."""
    known = {role.name: role for role in layout.roles}
    found = sorted({role for _, role, _ in members} - known.keys())
    there = {role for _, role, _ in members}
    named = [role for role in layout.roles if role.tasks is not None or role.least or role.name in there]
    return [*named, *(GangRole(name) for name in found)]


def _kinds(
    role: GangRole, members: Sequence[Sitting], settings: ReadingSettings, places: Places
) -> list[tuple[TaskGroup, list[Sitting]]] | Refusal:
    """Members that are alike, each kind with one of them; of a role that has none yet, what it will be made from."""
    kinds: list[tuple[TaskGroup, list[Sitting]]] = []
    read: Read = {}
    for member in sorted(members, key=lambda m: _course(m[0], places)):
        found, course = _read(member[0], settings, read), _course(member[0], places)
        if isinstance(found, Refusal):
            if course is _Course.WAITS:
                return found
            found = pods.standing(member[0], settings)  # it runs, whatever we think of it
        same = next((alike for known, alike in kinds if _is_of(known, found, course)), None)
        if same is None:
            kinds.append((found, [member]))
        else:
            same.append(member)
    if kinds:
        order = {id(member): place for place, member in enumerate(members)}
        return [(known, sorted(alike, key=lambda m: _turn(m, places, order))) for known, alike in kinds]
    if role.template is None:
        return [(TaskGroup(), [])]  # what they will ask for is told when the first of them comes
    made = pods.group_of(role.template.spec, role.template.metadata, settings)
    return made if isinstance(made, Refusal) else [(made, [])]


class _Course(IntEnum):
    """How far a member has come, in the order in which they tell what their group is."""

    WAITS = 0
    STANDS = 1
    """It has its node, or is on its way there: nothing is asked any more about where it could be."""
    LEAVES = 2
    OVER = 3


def _course(pod: PodObject, places: Places) -> _Course:
    if pods.is_over(pod):
        return _Course.OVER
    if pods.is_bound(pod):
        return _Course.LEAVES if pods.is_leaving(pod) else _Course.STANDS
    return _Course.STANDS if pod.metadata.uid in places else _Course.WAITS


def _turn(member: Sitting, places: Places, order: Mapping[int, int]) -> tuple[bool, int]:
    """When its number is found: those who wait come first, the older before the younger."""
    return _course(member[0], places) is not _Course.WAITS, order[id(member)]


def _is_of(known: TaskGroup, found: TaskGroup, course: _Course) -> bool:
    """Whether a member that was read so is of that group. One that is over takes nothing and counts with the others;
    one that leaves counts with whoever comes in its stead."""
    match course:
        case _Course.WAITS:
            return known == found
        case _Course.STANDS:
            one, other = ((each.request, each.labels, each.apart) for each in (known, found))
            return one == other
        case _Course.LEAVES:
            return pods.devices_alone(known.request) == pods.devices_alone(found.request)
        case _Course.OVER:
            return True


def is_away(pod: PodObject, places: Places) -> bool:
    """Whether it runs on a node that is not looked after here: it is asked nothing, and is begun nowhere else."""
    bound = pods.is_bound(pod) and pod.metadata.uid not in places
    return bound and not (pods.is_over(pod) or pods.is_leaving(pod))


Read = dict[bytes | None, TaskGroup | Refusal]


def _read(pod: PodObject, settings: ReadingSettings, read: Read) -> TaskGroup | Refusal:
    """Those that are alike are read once."""
    alike = pods.likeness(pod, settings)
    if alike is None or alike not in read:
        read[alike] = pods.task_of(pod, settings)
    return read[alike]


def _other_part(role: GangRole, prototype: TaskGroup) -> GangRole:
    """Named after what it asks for, so that it is the same whoever comes first. Where none of its role is needed none
    of it is."""
    name = f"{role.name}-{zlib.crc32(repr(prototype).encode()):08x}"
    return GangRole(name, least=0 if role.least == 0 else None)


def _still_there(members: Iterable[Sitting]) -> list[Sitting]:
    return [m for m in members if not pods.is_leaving(m[0]) and not (pods.is_over(m[0]))]


def _numbered(members: Sequence[Sitting], role: GangRole) -> list[Chair]:
    """Numbers as they are told; one that leaves keeps its number beside its successor. The lowest free for the rest,
    and for whoever is told one that another has: several owners of one gang each number their own pods from 0."""
    taken = {number for _, _, number in members if number is not None} | role.ended | role.failed
    had = {number for pod, _, number in members if pod.status.phase == "Succeeded"}
    chairs = []
    for pod, _, number in members:
        stays = not (pods.is_over(pod) or pods.is_leaving(pod))
        if number is None or (stays and number in had):
            number = next(n for n in range(len(taken) + 1) if n not in taken)
            taken.add(number)
        if stays:
            had.add(number)
        chairs.append(Chair(pod, role.name, number))
    return chairs


def _group(role: GangRole, prototype: TaskGroup, chairs: Sequence[Chair], elsewhere: int, layout: Layout) -> TaskGroup:
    """How many there are to be, are there, have ended, and do not exist yet."""
    ended = set(role.ended) | {c.task for c in chairs if c.pod.status.phase == "Succeeded"}
    failed = role.failed - ended
    over = ended | failed
    there = {c.task for c in chairs if not pods.is_over(c.pod) and not pods.is_leaving(c.pod)} - over
    ready = {c.task for c in chairs if c.task in there and not pods.is_gated(c.pod)}
    wanted = min(TASKS_MAX, (role.least or 0) if role.tasks is None else role.tasks - elsewhere)
    tasks = max(1, wanted, len(there | over))
    absent = 0 if layout.promised else max(0, tasks - len(over) - len(ready))
    least = tasks if role.least is None else role.least
    return replace(
        prototype,
        name=role.name,
        tasks=tasks,
        min=max(min(1, least), min(least, tasks - len(failed))),
        topology=role.topology,
        succeeded=len(ended),
        failed=len(failed),
        absent=absent,
        ended=tuple(sorted(over)),
    )


def _with_minimum(groups: tuple[TaskGroup, ...], layout: Layout) -> tuple[TaskGroup, ...]:
    """A minimum of all together: members that do not exist yet fill it up; the smaller groups are needed first."""
    least = layout.least
    if least is None or not groups:
        return groups
    lacking = min(least, TASKS_MAX) - sum(group.tasks for group in groups)
    if lacking > 0:
        first = max(groups, key=lambda group: group.tasks)
        more = replace(first, tasks=first.tasks + lacking, absent=first.absent + (0 if layout.promised else lacking))
        return _all_needed(tuple(more if group is first else group for group in groups))
    smaller = sorted(groups, key=lambda group: (group.tasks, group.name))
    if any(role.least is not None for role in layout.roles):
        return _raised(groups, smaller, least)
    left, minima = least, {}
    for group in smaller:
        minima[group.name] = max(1, min(group.tasks, left))
        left = max(0, left - group.tasks)
    return tuple(replace(group, min=minima[group.name]) for group in groups)


def _with_somebody(groups: tuple[TaskGroup, ...]) -> tuple[TaskGroup, ...]:
    """Where no group needs anybody, one of the group of which most are there: nothing is no gang."""
    if any(group.min for group in groups):
        return groups
    first = max(groups, key=lambda group: group.tasks - group.absent)
    return tuple(replace(group, min=1) if group is first else group for group in groups)


def _raised(groups: tuple[TaskGroup, ...], order: Iterable[TaskGroup], least: int) -> tuple[TaskGroup, ...]:
    """Minima that groups have of their own, and so many more of them that together they are enough."""
    short, minima = least - sum(group.min for group in groups), {}
    for group in order:
        more = max(0, min(short, group.tasks - group.min))
        minima[group.name] = group.min + more
        short -= more
    return tuple(replace(group, min=minima[group.name]) for group in groups)


def _all_needed(groups: tuple[TaskGroup, ...]) -> tuple[TaskGroup, ...]:
    return tuple(replace(group, min=group.tasks) for group in groups)


def placed(chairs: Iterable[Chair], places: Places) -> list[Placement]:
    """Where members are or will be, each with its group and number."""
    there = ((chair, places[chair.pod.metadata.uid]) for chair in chairs if chair.pod.metadata.uid in places)
    return [replace(place, group=chair.group, task=chair.task) for chair, place in there if not pods.is_over(chair.pod)]


def place_of(pod: PodObject, gpus: tuple[int, ...], mig: tuple[str, ...] = ()) -> Placement:
    """The place of a bound pod that holds these devices."""
    return Placement(
        pod.node_name,
        gpus,
        mig=mig,
        terminating=pods.is_leaving(pod),
        assigned=pod.status.phase != "Running",
        uid=pod.metadata.uid,
    )
