"""Where a gang lies: the domains and nodes chosen are those of a plain reading of rule 10, on drawn fleets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from random import Random

import pytest

from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.brain.engine.placing import gang
from gpuyard.brain.engine.placing.fragmentation import follow_demand
from tests.support.moments import moment

LEVELS = ("block", "rack", "node")
WISHES = ("", "", "", "required: rack", "required: block", "required: node", "preferred: rack", "preferred: block",
          "preferred: node", "required: block, preferred: rack")  # fmt: skip


@dataclass(frozen=True)
class Spot:
    """A node as the packing sees it."""

    name: str
    path: tuple[str, ...]
    room: int
    score: float
    free: int
    """GPUs; they break ties."""


Counts = dict[str, int]


def domains(spots: Sequence[Spot], level: str) -> list[list[Spot]]:
    depth = LEVELS.index(level) + 1
    return [list(inside) for _, inside in groupby(spots, key=lambda s: (*s.path, s.name)[:depth])]


def room(spots: Sequence[Spot]) -> int:
    return sum(spot.room for spot in spots)


def tightness(spots: Sequence[Spot]) -> tuple[int, int]:
    return room(spots), sum(spot.free for spot in spots)


def packed(spots: Sequence[Spot], levels: Sequence[str], tasks: int, most: int) -> Counts:
    """From the outermost level inwards the least room that holds all, else what holds most, else as few as can be."""
    if levels[0] == "node":
        return on_nodes(spots, tasks, most)
    parts = domains(spots, levels[0])
    roomy = [part for part in parts if room(part) >= most]
    if roomy:
        return packed(min(roomy, key=tightness), levels[1:], tasks, most)
    enough = [part for part in parts if room(part) >= tasks]
    if enough:
        return packed(max(enough, key=room), levels[1:], tasks, most)
    found: Counts = {}
    for part, count in fewest(sorted(parts, key=lambda p: -room(p)), tasks):
        found |= packed(part, levels[1:], count, count)
    return found


def on_nodes(spots: Sequence[Spot], tasks: int, most: int) -> Counts:
    for enough in (most, tasks):
        holding = [spot for spot in spots if spot.room >= enough]
        if holding:
            return {max(holding, key=lambda s: s.score).name: tasks}
    order = sorted(spots, key=lambda s: (-s.room, -s.score))
    return {part[0].name: count for part, count in fewest([[spot] for spot in order], tasks)}


def fewest(parts: Sequence[list[Spot]], count: int) -> list[tuple[list[Spot], int]]:
    """The roomiest first, each filled up; for the rest the tightest that holds it."""
    found: list[tuple[list[Spot], int]] = []
    for i, part in enumerate(parts):
        if room(part) >= count:
            last = min((p for p in parts[i:] if room(p) >= count), key=room)
            return [*found, (last, count)]
        found.append((part, room(part)))
        count -= room(part)
    raise AssertionError("there is no room")


def one_domain(spots: Sequence[Spot], level: str, tasks: int, most: int) -> list[list[Spot]]:
    """Domains of a level to try: the least room that holds all, level by level from outside; else the most."""
    depth = LEVELS.index(level)
    known = [part for part in domains(spots, level) if level == "node" or part[0].path[depth]]
    around = LEVELS[:depth]
    roomy = [part for part in known if room(part) >= most]
    if roomy:
        return sorted(
            roomy,
            key=lambda part: (
                *(next(tightness(o) for o in domains(spots, outer) if part[0] in o) for outer in around),
                tightness(part),
            ),
        )
    return sorted((part for part in known if room(part) >= tasks), key=lambda part: -room(part))


def expected(spots: Sequence[Spot], wish: dict[str, str], tasks: int, most: int) -> Counts | None:
    required, preferred = wish.get("required", ""), wish.get("preferred", "")
    for level in (preferred, required):
        for part in one_domain(spots, level, tasks, most) if level else ():
            return packed(part, LEVELS, tasks, most)
    if required or room(spots) < tasks:
        return None
    return packed(spots, LEVELS[LEVELS.index(preferred) :] if preferred else LEVELS, tasks, most)


def yard(dice: Random) -> str:
    """Blocks of racks of nodes, a few of them without a place."""
    lines, n = [], 0
    for block in range(dice.randint(1, 3)):
        for rack in range(dice.randint(1, 3)):
            for _ in range(dice.randint(1, 3)):
                place = f", domains: {{block: b{block}, rack: r{block}{rack}}}" if dice.random() < 0.95 else ""
                gpus = dice.choice([0, 1, 2, 2, 3, 4])
                lines.append(f"  - {{name: n{n:02d}, gpus: {gpus}, cpu: {dice.choice([8, 16])}{place}}}")
                n += 1
    return "topology: [block, rack]\nnodes:\n" + "\n".join(lines)


@pytest.mark.parametrize("seed", range(150))
def test_a_gang_lies_where_a_plain_reading_of_the_rule_puts_it(seed: int):
    dice = Random(seed)
    most, gpus, wish = dice.randint(1, 8), dice.choice([1, 1, 2]), dice.choice(WISHES)
    least = most if dice.random() < 0.6 else dice.randint(1, most)
    job = f"{{name: g, tasks: {most}, min: {least}, gpus: {gpus}, cpu: 1, topology: {{{wish}}}}}"
    other = "{name: later, gpus: 3}"
    fleet = Fleet(moment(f"{yard(dice)}\njobs: [{job}, {other}]"))
    follow_demand(fleet)
    row = fleet.jobs["g"]
    tiers = fleet.shapes.tiers(row.requests[0], most == 1)
    spots = []
    if tiers:
        shape = fleet.shapes.get(row.requests[0], tiers[0])
        paths = [tuple(dict(node.domains).get(level, "") for level in LEVELS[:2]) for node in fleet.columns.nodes]
        spots = [Spot(node.name, paths[n], int(shape.room[n]), float(shape.score[n]), len(node.gpus))
                 for n, node in enumerate(fleet.columns.nodes)]  # fmt: skip
    asked = dict(part.split(": ") for part in wish.split(", ") if part)
    wanted = expected(spots, asked, least, most)
    started = gang.start(Draft(fleet, Memory(), 0.0), row)
    assert started is (wanted is not None)
    assert Counter(fleet.columns.nodes[held.node].name for held in row.held) == Counter(wanted or {})


@pytest.mark.parametrize("seed", range(60))
def test_replicas_that_spread_go_one_by_one_to_the_emptiest_of_the_least_used(seed: int):
    dice = Random(1000 + seed)
    tasks, gpus = dice.randint(2, 7), dice.choice([1, 1, 2])
    job = f"{{name: g, class: inference, tasks: {tasks}, gpus: {gpus}, cpu: 1}}"
    fleet = Fleet(moment(f"{yard(dice)}\njobs: [{job}]"))
    row = fleet.jobs["g"]
    nodes = {node.name: node for node in fleet.columns.nodes}
    rack = {
        name: (dict(node.domains).get("block", ""), dict(node.domains).get("rack", "")) for name, node in nodes.items()
    }
    free, cores = {n: len(node.gpus) for n, node in nodes.items()}, {n: node.cpu for n, node in nodes.items()}
    own: list[str] = []
    for _ in range(tasks):
        fitting = [n for n in nodes if free[n] >= gpus and cores[n] >= 1000]
        if not fitting:
            break
        best = min(
            fitting,
            key=lambda n: (own.count(n), sum(rack[o] == rack[n] for o in own), -free[n], -cores[n]),
        )
        own.append(best)
        free[best] -= gpus
        cores[best] -= 1000
    started = gang.start(Draft(fleet, Memory(), 0.0), row)
    assert started is (len(own) == tasks)
    if started:
        assert [fleet.columns.nodes[held.node].name for held in row.held] == own
