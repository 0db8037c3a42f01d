"""Which domain, which nodes: tasks laid close together or apart, inside the levels the job asks for (rules 10 to 12).

`lay` puts the tasks of one group on nodes, or says no and changes nothing. Who may run is decided before; which
devices inside a node is `devices`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from gpuyard.brain.engine.nodes.columns import Columns, Held, Ints, Level, Region, within
from gpuyard.brain.engine.nodes.feasibility import Shape
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.brain.engine.placing import devices, neighbours
from gpuyard.model.job import Bundle, TaskGroup
from gpuyard.model.policy import DeviceChoice, Style
from gpuyard.model.topology import NODE, NVLINK


class GroupWish(NamedTuple):
    """Tasks of one group to lay: `tasks` now, in a place that holds `most` if it can."""

    row: JobRow
    leaf: int
    tasks: int
    most: int
    required: str = ""
    preferred: str = ""


def lay(draft: Draft, wish: GroupWish, shape: Shape, region: Region) -> bool:
    """Put the tasks inside the region, within one domain of the required level; all of them or none.

    A preferred level is tried as if it were required; unmet, it only means the fewest of its domains.
    """
    limits = neighbours.limits(draft.fleet, wish.row, wish.leaf)
    if wish.preferred and _narrower(draft.fleet.columns, wish.preferred, wish.required):
        narrow = wish._replace(required=wish.preferred)
        fixed = home(draft.fleet.columns, wish.row, (wish.leaf,), wish.preferred)
        if _lay_in_one(draft, narrow, shape, within(fixed or region, region), limits):
            return True
    return _lay_in_one(draft, wish, shape, region, limits)


def lay_one(draft: Draft, wish: GroupWish, shape: Shape) -> bool:
    """Put a single task wherever it packs best: what `lay` does where no level, neighbour or cap has a say."""
    counts = _pack(draft.fleet.columns, wish, shape, draft.fleet.columns.everywhere)
    if counts is None:
        return False
    ((node, count),) = counts
    (task,) = wish.row.lowest_free_tasks(wish.leaf, count)
    return put_one(draft, wish, shape, node, task)


def _narrower(columns: Columns, level: str, than: str) -> bool:
    order = (*columns.level_names, NVLINK)
    return level in order and (not than or order.index(level) > order.index(than))


def _lay_in_one(
    draft: Draft, wish: GroupWish, shape: Shape, region: Region, limits: neighbours.ClosedNodes | None
) -> bool:
    for place in _places(draft, wish, shape, region, limits):
        with draft.trial() as trial:
            if _lay_inside(draft, wish, shape, place, limits):
                trial.keep()
                return True
        shape.sync()
    return False


def _places(
    draft: Draft, wish: GroupWish, shape: Shape, region: Region, limits: neighbours.ClosedNodes | None
) -> Iterator[Region]:
    """Regions to try, best first: the whole region, or the domains of the required level that could hold enough."""
    if not wish.required:
        yield region
    elif wish.required == NVLINK and region.island >= 0:
        yield region  # members that run fix the island
    elif wish.required == NVLINK:
        yield from _islands(draft.fleet.columns, wish, shape, region, _room(shape, limits, region))
    else:
        yield from _domains(draft.fleet.columns, wish, shape, region, _room(shape, limits, region))


def _room(shape: Shape, limits: neighbours.ClosedNodes | None, region: Region) -> Ints:
    room = shape.room[region.start : region.stop]
    return room if limits is None else limits.cut(room, region)


# --- required levels --------------------------------------------------------------------------------------------------


def _domains(columns: Columns, wish: GroupWish, shape: Shape, region: Region, room: Ints) -> Iterator[Region]:
    """Domains of the required level that hold enough: from the outermost level inwards the least room that holds all
    tasks, else those that hold most (rule 10)."""
    level = columns.level(wish.required)
    first, sums = _sums(level, room, region)
    sums = np.where(level.known[first : first + len(sums)], sums, 0)
    enough = np.flatnonzero(sums >= wish.most)
    if not len(enough):
        enough = np.flatnonzero(sums >= wish.tasks)
        order = np.lexsort((enough, -sums[enough]))
    else:
        order = np.lexsort((enough, *_rooms(columns, wish.required, shape, region, room, first + enough)))
    for i in order:
        yield within(level.region(first + int(enough[i])), region)


def _rooms(columns: Columns, name: str, shape: Shape, region: Region, room: Ints, domains: Ints) -> list[Ints]:
    """What room these domains of a level, and those around them, have for such tasks, and to tell equals apart what is
    free of their GPUs: innermost first (lexsort's last key counts most)."""
    begin = columns.level(name).starts[domains]
    amounts = [room]
    if _takes_gpus(shape):
        amounts.insert(0, columns.idle[region.start : region.stop])
    rooms: list[Ints] = []
    for around in reversed(columns.level_names[: columns.level_names.index(name) + 1]):
        level = columns.level(around)
        for amount in amounts:
            first, sums = _sums(level, amount, region)
            rooms.append(sums[level.domain[begin] - first])
    return rooms


def _takes_gpus(shape: Shape) -> bool:
    """Whether what is free of GPUs tells apart where as many such tasks have room."""
    return bool(shape.request.gpus or shape.request.shared)


def _sums(level: Level, room: Ints, region: Region) -> tuple[int, Ints]:
    """Room per domain of a level inside the region, all of it and not only what a job could use (rule 10): the first
    domain's id, and the sums."""
    first = int(level.domain[region.start]) if region.stop > region.start else 0
    last = int(level.domain[region.stop - 1]) + 1 if region.stop > region.start else 0
    starts = np.maximum(level.starts[first:last], region.start) - region.start
    return first, np.add.reduceat(room, starts) if len(starts) else starts


def _islands(columns: Columns, wish: GroupWish, shape: Shape, region: Region, room: Ints) -> Iterator[Region]:
    """NVLink islands that could hold all tasks: the tightest first in those domains, from the outermost level inwards,
    that have the least room."""
    need = wish.tasks * shape.request.gpus
    found = []
    for n in range(region.start, region.stop):
        if shape.room[n] < 1:
            continue
        for island, mask in enumerate(columns.islands[n]):
            free = (columns.free_mask[n] & mask).bit_count()
            if free >= need:
                found.append((free, n, island))
    found.sort()
    for i in _by_domains_around(columns, shape, region, room, [n for _, n, _ in found]):
        _, n, island = found[i]
        yield Region(n, n + 1, island)


def _by_domains_around(
    columns: Columns, shape: Shape, region: Region, room: Ints, nodes: Sequence[int]
) -> Sequence[int]:
    """In which order nodes come, given in another, if those come first around which there is the least room."""
    around = columns.level_names[: columns.level_names.index(NODE)]
    if not around or len(nodes) < 2:
        return range(len(nodes))
    domains = columns.level(around[-1]).domain[np.array(nodes)]
    order: Sequence[int] = np.lexsort(_rooms(columns, around[-1], shape, region, room, domains)).tolist()
    return order


# --- inside a region --------------------------------------------------------------------------------------------------


def _lay_inside(
    draft: Draft, wish: GroupWish, shape: Shape, region: Region, limits: neighbours.ClosedNodes | None
) -> bool:
    if shape.request.style is Style.SPREAD:
        return _lay_singly(draft, wish, shape, region)
    if limits is not None:
        narrow = _narrowed(draft.fleet.columns, wish, shape, region, limits)
        return (narrow != region and _all_singly(draft, wish, shape, narrow)) or _lay_singly(draft, wish, shape, region)
    if region.island >= 0:
        if shape.room[region.start] < wish.tasks:
            return False  # the island has the devices, but the node is not for this task, or lacks CPU or memory
        return _put(draft, wish, shape, [(region.start, wish.tasks)], region.island)
    counts = _pack(draft.fleet.columns, wish, shape, region)
    return counts is not None and _put(draft, wish, shape, counts, -1)


def _put(draft: Draft, wish: GroupWish, shape: Shape, counts: Sequence[tuple[int, int]], island: int) -> bool:
    tasks = iter(wish.row.lowest_free_tasks(wish.leaf, wish.tasks))
    columns = draft.fleet.columns
    for node, count in counts:
        inside = island
        near = count > 1 and island < 0 and shape.request.gpus and node not in columns.aligned
        if near and len(columns.islands[node]) > 1:
            inside = devices.island_for(columns, node, count * shape.request.gpus)
        for _ in range(count):
            if not put_one(draft, wish, shape, node, next(tasks), inside):
                return False
    return True


def put_one(draft: Draft, wish: GroupWish, shape: Shape, node: int, task: int, island: int = -1) -> bool:
    """Put one task on a node; False if no devices there suit it."""
    columns, request = draft.fleet.columns, shape.request
    # under a cap on busy devices whoever can joins those who are there: that is what it was let in for
    best = None if draft.fleet.capped else _best_share(shape, node, island)
    picked = best or devices.pick(columns, request, node, island)
    if picked is None:
        return False
    where, resources = columns.nodes[node], request.resources
    share, cost = request.share_on(where) if request.shared else 0, request.cost_on(where)
    gpus, mig = picked
    held = Held(wish.leaf, task, node, gpus, share, mig, cost, resources.cpu, resources.memory, False, resources.extras)
    draft.tx.put(wish.row, held)
    return True


def _best_share(shape: Shape, node: int, island: int) -> devices.Pick | None:
    """The device that strands least, where the policy wants that and health and islands leave the choice free."""
    if shape.scoring.device is not DeviceChoice.BEST or not shape.request.shared or island >= 0:
        return None
    if shape.columns.any_suspect or not shape.gauge.demand.count:
        return None
    shape.sync()
    return (int(shape.device[node]),), ()


def _pack(columns: Columns, wish: GroupWish, shape: Shape, region: Region) -> list[tuple[int, int]] | None:
    """How many tasks on which nodes: descend into the domain with least room that holds all, else use the fewest."""
    room = shape.room[region.start : region.stop]
    if not len(room):
        return None
    levels = _with_a_choice(columns, region, wish)
    if wish.most == 1 and len(levels) == 1:
        best = int(shape.score[region.start : region.stop].argmax())
        return [(region.start + best, 1)] if room[best] > 0 else None
    if wish.most == 1:
        holding = np.flatnonzero(room)
        if len(holding) < 2:  # a full fleet has no choice to weigh
            return [(region.start + n, 1) for n in holding.tolist()] or None
    elif int(np.minimum(room, wish.tasks).sum()) < wish.tasks:
        return None
    return _descend(columns, shape, region, levels, wish)


def _with_a_choice(columns: Columns, region: Region, wish: GroupWish) -> Sequence[str]:
    """Levels to descend by: from the one that it prefers, if any, without those of which the region is one domain."""
    if region == columns.everywhere and not wish.preferred:
        return columns.parting
    levels, last = columns.level_names, region.stop - 1
    if wish.preferred in levels:
        levels = levels[levels.index(wish.preferred) :]  # fewest domains of the level it cares about
    if last <= region.start:
        return [NODE]
    lying = ((name, columns.level(name).domain) for name in levels if name != NODE)
    return [*(name for name, domain in lying if domain[region.start] != domain[last]), NODE]


def _descend(
    columns: Columns, shape: Shape, region: Region, levels: Sequence[str], wish: GroupWish
) -> list[tuple[int, int]]:
    """Assumes that the region holds `wish.tasks` tasks."""
    room = shape.room[region.start : region.stop]
    if levels[0] == NODE:
        return _nodes(shape, region, room, wish)
    level = columns.level(levels[0])
    first, sums = _sums(level, room, region)
    for enough in (wish.most, wish.tasks):
        holding = np.flatnonzero(sums >= enough)
        if len(holding):
            # who cannot hold all tasks is chosen for holding most of them
            best = (
                _tightest(columns, level, region, shape, holding, sums)
                if enough == wish.most
                else holding[sums[holding].argmax()]
            )
            inner = within(level.region(first + int(best)), region)
            return _descend(columns, shape, inner, levels[1:], wish)
    counts: list[tuple[int, int]] = []
    for domain, count in _fewest(sums, wish.tasks):
        part = wish._replace(tasks=count, most=count)
        counts += _descend(columns, shape, within(level.region(first + domain), region), levels[1:], part)
    return counts


def _tightest(columns: Columns, level: Level, region: Region, shape: Shape, holding: Ints, sums: Ints) -> int:
    """Of the domains that hold all tasks the one with least room for such tasks; among equals the one with the fewest
    GPUs free, rests of shared ones included."""
    least = holding[sums[holding] == sums[holding].min()]
    if len(least) > 1 and _takes_gpus(shape):
        _, idle = _sums(level, columns.idle[region.start : region.stop], region)
        return int(least[idle[least].argmin()])
    return int(least[0])


def _nodes(shape: Shape, region: Region, room: Ints, wish: GroupWish) -> list[tuple[int, int]]:
    score = shape.score[region.start : region.stop]
    for enough in (wish.most, wish.tasks):
        if (room >= enough).any():
            best = int(np.where(room >= enough, score, -2.0).argmax())
            return [(region.start + best, wish.tasks)]
    order = np.lexsort((np.arange(len(room)), -score, -room))
    return [(region.start + int(node), count) for node, count in _fewest(room, wish.tasks, order)]


def _fewest(room: Ints, count: int, order: Ints | None = None) -> list[tuple[int, int]]:
    """As few places as can be: the roomiest first, and for the rest the tightest that holds it."""
    if order is None:
        order = np.lexsort((np.arange(len(room)), -room))
    filled = np.cumsum(room[order])
    full = int(np.searchsorted(filled, count))
    chosen = [(int(order[i]), int(room[order[i]])) for i in range(full)]
    rest = count - (int(filled[full - 1]) if full else 0)
    if rest:
        others = order[full:]
        holding = others[room[others] >= rest]
        chosen.append((int(holding[room[holding].argsort(kind="stable")[0]]), rest))
    return chosen


# --- one at a time: spread, and whatever depends on neighbours --------------------------------------------------------


def _narrowed(
    columns: Columns, wish: GroupWish, shape: Shape, region: Region, limits: neighbours.ClosedNodes
) -> Region:
    """The domain with least room that holds all tasks, from the outermost level inwards, as far as there is one; room
    is what neighbours and caps leave of it to each task alone."""
    for name in columns.level_names[:-1] if region.island < 0 else ():
        level = columns.level(name)
        first, sums = _sums(level, _room(shape, limits, region), region)
        holding = np.flatnonzero(sums >= wish.most)
        if not len(holding):
            break
        best = _tightest(columns, level, region, shape, holding, sums)
        region = within(level.region(first + best), region)
    return region


def _all_singly(draft: Draft, wish: GroupWish, shape: Shape, region: Region) -> bool:
    """All of them in the region or none."""
    with draft.trial() as trial:
        if _lay_singly(draft, wish, shape, region):
            trial.keep()
            return True
    shape.sync()
    return False


def _lay_singly(draft: Draft, wish: GroupWish, shape: Shape, region: Region) -> bool:
    for task in wish.row.lowest_free_tasks(wish.leaf, wish.tasks):
        node = best_node(draft, wish, shape, region)
        if node < 0 or not put_one(draft, wish, shape, node, task, region.island):
            return False
        shape.sync()
    return True


def best_node(draft: Draft, wish: GroupWish, shape: Shape, region: Region) -> int:
    """The node for the next single task, -1 if there is none."""
    room = _room(shape, neighbours.limits(draft.fleet, wish.row, wish.leaf), region)
    candidates = np.flatnonzero(room > 0)
    if not len(candidates):
        return -1
    nodes = candidates + region.start
    if shape.request.style is Style.SPREAD:
        return int(nodes[_spread_order(draft, wish, shape, nodes)[0]])
    return int(nodes[shape.score[nodes].argmax()])


def _spread_order(draft: Draft, wish: GroupWish, shape: Shape, nodes: Ints) -> Ints:
    """Fewest of the job's own tasks, and of its family's, per domain, level by level as the policy says; then the
    emptiest node."""
    columns = draft.fleet.columns
    akin = [held.node for row in draft.fleet.rolls.family(wish.row) for held in row.held if not held.terminating]
    own = np.bincount(akin, minlength=len(columns.nodes))
    keys = []
    for name in shape.request.over:
        if name in columns.levels:
            level = columns.level(name)
            keys.append(np.bincount(level.domain, weights=own, minlength=len(level.names))[level.domain[nodes]])
    trusted = columns.healthy[nodes] >= max(shape.request.gpus, 1)
    return np.lexsort((nodes, -columns.cpu[nodes], -columns.idle[nodes], ~trusted, shape.dislike[nodes], *keys[::-1]))


def home(columns: Columns, row: JobRow, leaves: Sequence[int], level: str) -> Region | None:
    """The domain that running members fix (rule 10): none at all, an empty region, where their node names none of that
    level; None if none runs."""
    for held in row.held:
        if held.leaf in leaves and not held.terminating:
            if level != NVLINK:
                domains, domain = columns.level(level), int(columns.level(level).domain[held.node])
                return domains.region(domain) if domains.known[domain] else Region(held.node, held.node)
            return Region(held.node, held.node + 1, _island_of(columns, held))
    return None


def _island_of(columns: Columns, held: Held) -> int:
    masks = columns.islands[held.node]
    return next((i for i, mask in enumerate(masks) if held.gpus and mask >> held.gpus[0] & 1), -1)


def unbroken(columns: Columns, row: JobRow) -> bool:
    """Whether the members that run keep to one domain of every level that the job, or a part of it, requires, and those
    of each group to one model (rule 11)."""
    return _unbroken(columns, row, row.job.gang, 0)[0] and _of_one_model(columns, row)


def _of_one_model(columns: Columns, row: JobRow) -> bool:
    on = {(held.leaf, int(columns.model[held.node])) for held in row.held if held.gpus and not held.terminating}
    return len(on) == len({leaf for leaf, _ in on})


def _unbroken(columns: Columns, row: JobRow, group: Bundle | TaskGroup, first: int) -> tuple[bool, int]:
    """The same for a part that begins with this leaf, and the leaf that follows it."""
    kept, leaf = True, first + 1
    if isinstance(group, Bundle):
        leaf = first
        for inner in group.groups:
            fine, leaf = _unbroken(columns, row, inner, leaf)
            kept = kept and fine
    level = group.topology.required
    if kept and (level == NVLINK or level in columns.level_names):
        members = [held for held in row.held if first <= held.leaf < leaf and not held.terminating]
        kept = len({_domain(columns, held, level) for held in members}) <= 1
    return kept, leaf


def _domain(columns: Columns, held: Held, level: str) -> tuple[int, int]:
    if level == NVLINK:
        return held.node, _island_of(columns, held)
    return int(columns.level(level).domain[held.node]), -1
