"""Whole gangs: every task of every group that must run, or nothing (rules 8 to 11, 22).

`start` brings a job to its minimum; what comes on top is `adding`'s. Nested bundles are placed depth first, each inside
the domain its own level asks for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from gpuyard.brain.engine.nodes.columns import Columns, Region, within
from gpuyard.brain.engine.nodes.eligibility import Tier
from gpuyard.brain.engine.nodes.feasibility import Shape
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.brain.engine.placing import neighbours, topology
from gpuyard.brain.engine.placing.topology import GroupWish
from gpuyard.brain.engine.queueing import admission
from gpuyard.brain.engine.sharing.amounts import GPUS
from gpuyard.model.job import Bundle, TaskGroup
from gpuyard.model.policy import Style
from gpuyard.model.topology import ANYWHERE, NODE, NVLINK, TopologyAsk


def start(draft: Draft, row: JobRow) -> bool:
    """Bring the job to its minimum, all groups or none; whether it worked. Quota is checked before and after."""
    tiers = free_tiers(draft, row)
    if tiers is not None:
        return start_freely(draft, row, tiers)
    before = tuple(row.held)
    with draft.trial() as trial:
        if not place(draft, row) or not admission.allowed(draft, row, trial.mark):
            return False
        draft.remember(row, before)
        trial.keep()
        return True


def free_tiers(draft: Draft, row: JobRow) -> tuple[Tier, ...] | None:
    """On which models a job of one task may go, the preferred first, if nothing but their room has a say in it; None
    where more must be asked.

    Most jobs are such. What they cost is the same wherever they go, so what was allowed before stays allowed, and a try
    that fails has changed nothing: no trial is needed.
    """
    fleet = draft.fleet
    if row.held or row.group.tasks != 1 or not row.is_plain() or not row.missing() == row.pending() == 1:
        return None
    if (
        fleet.columns.any_suspect
        or _cost_varies(draft, row, 0)
        or not _goes_freely(draft, row, 0, fleet.columns.everywhere)
    ):
        return None
    return fleet.shapes.tiers(row.request, True)


def start_freely(draft: Draft, row: JobRow, tiers: tuple[Tier, ...]) -> bool:
    """Start a job that `free_tiers` let go on these models, or that is like one; whether one of them has room."""
    wish, shapes = GroupWish(row, 0, 1, 1), draft.fleet.shapes
    for tier in tiers:
        if topology.lay_one(draft, wish, shapes.get(row.request, tier)):
            draft.remember(row, ())
            return True
    return False


def might_fit(draft: Draft, row: JobRow) -> bool:
    """A cheap look: whether every group alone finds room for what it lacks, topology and neighbours aside."""
    if not row.single:
        return True
    lacks = row.missing()
    return any(int(np.minimum(shape.room, lacks).sum()) >= lacks for shape in shapes(draft, row, 0))


def could_ever_fit(draft: Draft, row: JobRow) -> bool:
    """A cheap look: whether the nodes, if they were empty, would hold what the job lacks."""
    if not row.single:
        return True
    known, lacks = draft.fleet.shapes, row.missing()
    return any(known.holds_when_empty(row.request, tier, lacks) for tier in _tiers(draft, row, 0))


def place(draft: Draft, row: JobRow) -> bool:
    """Find places for all that the job lacks to its minimum, its queues' leave aside; partial work is left for the
    caller to roll back."""
    region = draft.fleet.columns.everywhere
    if row.single:
        return _single_group(draft, row, region)
    return Tree(draft, row).place(row.job.gang, 0, region)


# --- one group: the usual case ----------------------------------------------------------------------------------------


def _single_group(draft: Draft, row: JobRow, region: Region) -> bool:
    """A job with one task group: its own levels and the group's are one wish, the inner ones count."""
    levels = ANYWHERE if row.is_plain() else innermost_of(draft.fleet.columns, _levels(row))
    return lay_group(draft, row, 0, levels, region)


def _levels(row: JobRow) -> list[TopologyAsk]:
    """What a job of one group asks for: its own levels, those of the groups around its group, and the group's."""
    levels = [row.job.gang.topology]
    (group,) = row.job.gang.groups
    while isinstance(group, Bundle):
        levels.append(group.topology)
        (group,) = group.groups
    return [*levels, group.topology]


def innermost(columns: Columns, levels: list[str]) -> str:
    """The narrowest of several levels."""
    if not any(levels):
        return ""
    order = (*columns.level_names, NVLINK)
    return max((level for level in levels if level in order), key=order.index, default="")


def innermost_of(columns: Columns, levels: Sequence[TopologyAsk]) -> TopologyAsk:
    """What all of these ask for together: inside the inner ones is inside the outer ones."""
    return TopologyAsk(
        innermost(columns, [each.required for each in levels]), innermost(columns, [each.preferred for each in levels])
    )


def lay_group(draft: Draft, row: JobRow, leaf: int, levels: TopologyAsk, region: Region, extra: int = 0) -> bool:
    """Bring one group to its minimum (or add `extra` tasks) on the first tier of models that has room (rule 11)."""
    count = extra or row.missing(leaf)
    if count == 0:
        return True
    if row.pending(leaf) < count:
        return False
    if levels.required and row.live[leaf]:
        region = within(topology.home(draft.fleet.columns, row, (leaf,), levels.required) or region, region)
    most = count if extra else max(count, row.pending(leaf))
    wish = GroupWish(row, leaf, count, most, levels.required, levels.preferred)
    lone = most == 1 and levels is ANYWHERE and _goes_freely(draft, row, leaf, region)
    for shape in shapes(draft, row, leaf):
        if not _has_room(shape, region, count):
            continue
        for place in _near(draft, wish, shape, region):
            with draft.trial() as trial:
                laid = topology.lay_one(draft, wish, shape) if lone else topology.lay(draft, wish, shape, place)
                if laid and admission.allowed(draft, row, trial.mark):
                    trial.keep()
                    return True
    return False


def _has_room(shape: Shape, region: Region, count: int) -> bool:
    """A bound that costs one sum: whether so many tasks have room there, neighbours and levels aside."""
    room = shape.room[region.start : region.stop]
    return int(np.minimum(room, count).sum()) >= count


def _goes_freely(draft: Draft, row: JobRow, leaf: int, region: Region) -> bool:
    """Whether a task of the group is packed anywhere at all, with nobody to stay close to or away from."""
    fleet = draft.fleet
    if row.live[leaf] or fleet.avoiders or fleet.capped or row.requests[leaf].style is not Style.PACK:
        return False
    if fleet.company.concerns(row.requests[leaf]):
        return False
    return region == fleet.columns.everywhere


def _near(draft: Draft, wish: GroupWish, shape: Shape, region: Region) -> Iterator[Region]:
    """Where to look first: close to members that run, from the inside out; then the whole region."""
    if wish.row.live[wish.leaf] and shape.request.style is Style.PACK and region.island < 0:
        for level in reversed(draft.fleet.columns.level_names):
            place = topology.home(draft.fleet.columns, wish.row, (wish.leaf,), level)
            if place is not None and within(place, region) == place:
                yield place
    yield region


def shapes(draft: Draft, row: JobRow, leaf: int) -> Iterator[Shape]:
    """Tiers of models in order of preference; suspect GPUs last, and for gangs last of all (rule 13)."""
    known, request = draft.fleet.shapes, row.requests[leaf]
    alone = _is_alone(row)
    tiers = _tiers(draft, row, leaf)
    if not (row.live[leaf] or request.models or request.older) and len(tiers) > 1:
        tiers = _tightest_first(draft, row, leaf, tiers)
    if alone and _cost_varies(draft, row, leaf):
        tiers = tuple(dict.fromkeys(part for tier in tiers for part in (tier, *_models_of(tier))))
    if not draft.fleet.columns.any_suspect:
        yield from (known.get(request, tier) for tier in tiers)
    elif alone:
        yield from (known.get(request, tier, careful) for tier in tiers for careful in (True, False))
    else:
        yield from (known.get(request, tier, careful) for careful in (True, False) for tier in tiers)


def _tiers(draft: Draft, row: JobRow, leaf: int) -> tuple[Tier, ...]:
    """The models that the tasks of a group may go on, in order of preference where there is one; members that run fix
    the model."""
    request = row.requests[leaf]
    tiers = draft.fleet.shapes.tiers(request, _is_alone(row) or row.groups[leaf].tasks == 1)
    if not row.live[leaf]:
        return tiers
    model = int(draft.fleet.columns.model[next(h.node for h in row.held if h.leaf == leaf and not h.terminating)])
    tiers = tuple(tier for tier in tiers if model in tier)
    return (frozenset((model,)),) if tiers and not request.resources.cpu_only else tiers


def _is_alone(row: JobRow) -> bool:
    return sum(group.tasks for group in row.groups) == 1


def _cost_varies(draft: Draft, row: JobRow, leaf: int) -> bool:
    """Whether a task may be within quota on one model and over it on another."""
    return bool(row.requests[leaf].resources.gpu_memory) or len(draft.fleet.tree.resources) > 1


def _models_of(tier: frozenset[int]) -> Iterator[frozenset[int]]:
    return (frozenset((model,)) for model in sorted(tier))


def _tightest_first(
    draft: Draft, row: JobRow, leaf: int, tiers: tuple[frozenset[int], ...]
) -> tuple[frozenset[int], ...]:
    """No preference: the model with least room that holds all tasks, else the one that holds most."""
    most = row.pending(leaf)
    rooms = [int(np.minimum(draft.fleet.shapes.get(row.requests[leaf], tier).room, most).sum()) for tier in tiers]
    order = sorted(range(len(tiers)), key=lambda i: (rooms[i] < most, rooms[i] if rooms[i] >= most else -rooms[i], i))
    return tuple(tiers[i] for i in order)


def required_level(columns: Columns, row: JobRow) -> str:
    """The level inside which the whole job must stay; "" if there is none."""
    levels = _levels(row) if row.single else [row.job.gang.topology]
    return innermost(columns, [each.required for each in levels])


def home(columns: Columns, row: JobRow, level: str) -> Region | None:
    """The domain of the level that running members of the job fix; None if none runs."""
    return topology.home(columns, row, range(len(row.groups)), level)


# --- several groups, nested -------------------------------------------------------------------------------------------


class Tree:
    """Places a tree of groups, depth first."""

    def __init__(self, draft: Draft, row: JobRow) -> None:
        self.draft = draft
        self.row = row
        self._in_vain: set[object] = set()
        """Groups that found no room in a region, and what the job held then: nobody else moves while it is placed."""

    def place(self, group: Bundle | TaskGroup, first: int, region: Region) -> bool:
        """Bring the group to its minimum inside the region; `first` is its first leaf."""
        asked = (first, id(group), region, tuple(self.row.held))
        if asked in self._in_vain:
            return False
        found = self._placed(group, first, region)
        if not found:
            self._in_vain.add(asked)
        return found

    def _placed(self, group: Bundle | TaskGroup, first: int, region: Region) -> bool:
        if isinstance(group, TaskGroup):
            return lay_group(self.draft, self.row, first, group.topology, region)
        if not self._could(group, first, region):
            return False
        for place in self._places(group, first, region):
            with self.draft.trial() as trial:
                if self._inside(group, first, place):
                    trial.keep()
                    return True
        return False

    def _inside(self, bundle: Bundle, first: int, region: Region) -> bool:
        """Enough groups of the bundle, those that are complete already first."""
        done, leaf = 0, first
        waiting: list[tuple[Bundle | TaskGroup, int]] = []
        for group in bundle.groups:
            if self.complete(group, leaf):
                done += 1
            else:
                waiting.append((group, leaf))
            leaf += leaf_count(group)
        lacks = bundle.min_groups - done
        hardest = sorted(waiting, key=lambda pair: (not pair[0].topology.required, -self._largest(*pair)))
        left = self._left(waiting, lacks, region)
        if 0 < left < lacks and hardest != waiting:  # where none finds room, none does in another order
            left = self._left(hardest, lacks, region)
        return left <= 0

    def _left(self, groups: list[tuple[Bundle | TaskGroup, int]], lacks: int, region: Region) -> int:
        """Bring so many of these groups to their minimum, the first first, and tell how many still lack; what is too
        little is taken back."""
        with self.draft.trial() as outer:
            for group, at in groups:
                if lacks <= 0:
                    break
                with self.draft.trial() as trial:
                    if self.place(group, at, region):
                        lacks -= 1
                        trial.keep()
            if lacks <= 0:
                outer.keep()
        return lacks

    def _largest(self, group: Bundle | TaskGroup, first: int) -> int:
        """What the largest task of a group asks for, parts of GPUs included, in grains."""
        costs, requests = self.draft.fleet.costs, self.row.requests
        return max(costs.least(requests[leaf])[GPUS] for leaf in range(first, first + leaf_count(group)))

    def complete(self, group: Bundle | TaskGroup, leaf: int) -> bool:
        """Whether the group has its minimum."""
        if isinstance(group, TaskGroup):
            return self.row.missing(leaf) == 0
        return self.row.bundle_complete(group, leaf)[0]

    def _places(self, bundle: Bundle, first: int, region: Region) -> Iterator[Region]:
        """The domains to try for a bundle: the required level's, else the narrowest that holds all, else anywhere."""
        leaves = range(first, first + leaf_count(bundle))
        required = innermost(self.draft.fleet.columns, [bundle.topology.required])
        if required:
            fixed = topology.home(self.draft.fleet.columns, self.row, leaves, required)
            yield from self.domains(required, bundle, first, region) if fixed is None else (within(fixed, region),)
            return
        for level in reversed(self.draft.fleet.columns.level_names):
            if level != NODE:
                yield from self._roomy_domains(level, bundle, first, region)
        yield region

    def domains(self, level: str, group: Bundle | TaskGroup, first: int, region: Region) -> Iterator[Region]:
        """The domains of a required level in the region that could hold the group, least room first."""
        if level != NVLINK:
            yield from self._roomy_domains(level, group, first, region)
        elif region.island < 0:
            yield from self._islands(range(first, first + leaf_count(group)), region)
        else:
            yield region  # what is outside it has chosen the island already

    def _roomy_domains(self, level: str, group: Bundle | TaskGroup, first: int, region: Region) -> Iterator[Region]:
        """Domains of a level in the region where enough of the group would fit, each part alone, least room first."""
        columns = self.draft.fleet.columns
        found = []
        for domain, known in enumerate(columns.level(level).known):
            place = within(columns.level(level).region(domain), region)  # all of the region, where that lies in it
            if known and place.start < place.stop and self._could(group, first, place):
                found.append((int(columns.idle[place.start : place.stop].sum()), domain, place))
        yield from (place for _, _, place in sorted(found))

    def _could(self, group: Bundle | TaskGroup, first: int, place: Region) -> bool:
        """A bound: whether enough of the group's parts have room there, each alone."""
        if isinstance(group, TaskGroup):
            return self._could_lay(first, place)
        enough = group.min_groups
        for inner in group.groups:
            enough -= self._could(inner, first, place)
            first += leaf_count(inner)
        return enough <= 0

    def _could_lay(self, leaf: int, place: Region) -> bool:
        row, shapes = self.row, self.draft.fleet.shapes
        missing = row.missing(leaf)
        if not missing:
            return True
        tiers = shapes.tiers(row.requests[leaf], row.groups[leaf].tasks == 1)
        rooms = [shapes.get(row.requests[leaf], tier).room[place.start : place.stop] for tier in tiers]
        closed = neighbours.closed_for_good(self.draft.fleet, row, leaf)
        rooms = rooms if closed is None else [closed.cut(room, place) for room in rooms]
        return any(int(np.minimum(room, missing).sum()) >= missing for room in rooms)

    def _islands(self, leaves: range, region: Region) -> Iterator[Region]:
        columns = self.draft.fleet.columns
        need = sum(self.row.missing(leaf) * self.row.requests[leaf].gpus for leaf in leaves)
        found = []
        for n in range(region.start, region.stop):
            for island, mask in enumerate(columns.islands[n]):
                free = (columns.free_mask[n] & mask).bit_count()
                if free >= need:
                    found.append((free, n, island))
        yield from (Region(n, n + 1, island) for _, n, island in sorted(found))


def leaf_count(group: Bundle | TaskGroup) -> int:
    """How many task groups a group has inside."""
    return 1 if isinstance(group, TaskGroup) else sum(leaf_count(inner) for inner in group.groups)
