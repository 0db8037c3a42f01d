"""What was asked for in the last day, shape by shape, and how much of what is free those shapes could not use.

Fragmentation is to be seen before somebody waits: the ratio of rule 25 is 0 while nobody does. Remembered by the hour
and for a bounded number of shapes; `measure` is asked by the alarms and by `yard frag`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from typing import Any, ClassVar, NamedTuple

import numpy as np

from gpuyard.brain.engine.defrag.usefulness import Usefulness, Wanted
from gpuyard.brain.engine.nodes.columns import Bools, Columns, Ints
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.job_rows import NO_QUEUE
from gpuyard.brain.engine.picture.memory import Part
from gpuyard.model.answers.outlook import PoolStranding, ShapeStranding
from gpuyard.model.job import MAIN, Job, TaskGroup, one_group
from gpuyard.model.node import Node
from gpuyard.model.resources import WHOLE, Request, as_gpus
from gpuyard.model.topology import NODE, NVLINK

HOUR_S = 3600.0
HOURS = 24
SHAPES_KEPT = 48
SHAPES_MEASURED = 12
"""The heaviest stand for all."""


class AskedShape(NamedTuple):
    """So many tasks of so many grains inside one domain of a level ("": task by task), on one of these models."""

    gpus: int
    tasks: int
    level: str
    models: tuple[str, ...]

    @property
    def key(self) -> str:
        """As it is remembered."""
        return "|".join((str(self.gpus), str(self.tasks), self.level, *self.models))

    @staticmethod
    def of_key(key: str) -> AskedShape:
        """The shape of a key; one that was remembered with no tasks is as useful as its first."""
        gpus, tasks, level, *models = key.split("|")
        return AskedShape(int(gpus), max(int(tasks), 1), level, tuple(models))

    def told(self) -> str:
        """As people say it: `8`, `0.5`, `4×8 in a rack`, `8 H100`."""
        each = str(as_gpus(self.gpus))
        where = f"{self.tasks}×{each} in one {self.level}" if self.level else each
        return " ".join(filter(None, (where, "/".join(self.models))))


@dataclass(frozen=True, slots=True)
class DayAsked(Part):
    """GPUs asked for by shape and hour, and up to when that was counted."""

    name: ClassVar[str] = "asked"
    gpus: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    upto: float = -1.0

    def check(self) -> None:
        """Keys are read again at every measurement."""
        for key, hours in self.gpus.items():
            AskedShape.of_key(key)
            _ = [int(hour) for hour in hours]

    def total(self, now: float) -> dict[str, float]:
        """By shape, over the last day."""
        first = int(now // HOUR_S) - HOURS
        sums = {key: fsum(n for hour, n in hours.items() if int(hour) > first) for key, hours in self.gpus.items()}
        return {key: found for key, found in sums.items() if found}

    def with_asked(self, asked: Mapping[str, float], now: float) -> DayAsked:
        """More was asked for now; what is older than a day is forgotten, and so are the rarest shapes."""
        hour = int(now // HOUR_S)
        kept = dict(self.gpus if hour == int(self.upto // HOUR_S) else self._of_a_day(hour))
        for key, amount in asked.items():
            hours = kept.get(key, {})
            kept[key] = {**hours, str(hour): hours.get(str(hour), 0.0) + amount}
        if len(kept) > SHAPES_KEPT:
            heaviest = sorted(kept, key=lambda key: (-fsum(kept[key].values()), key))[:SHAPES_KEPT]
            kept = {key: kept[key] for key in heaviest}
        return DayAsked(kept, max(now, self.upto))

    def _of_a_day(self, hour: int) -> dict[str, Mapping[str, float]]:
        """What of it was asked for in the day that ends with this hour; when it was last added to, the rest went."""
        kept = {key: {h: n for h, n in hours.items() if int(h) > hour - HOURS} for key, hours in self.gpus.items()}
        return {key: hours for key, hours in kept.items() if hours}


def asked_by(job: Job) -> Iterator[tuple[AskedShape, float]]:
    """The shapes of a job, and the GPUs it asks for in each; slices and shares of memory have no shape to strand."""
    for group in job.task_groups():
        request = group.request
        gpus = request.gpus * WHOLE or request.share
        if not gpus:
            continue
        level = group.topology.required or job.gang.topology.required
        together = request.gpus and level and (group.min > 1 or (level == NVLINK and request.gpus > 1))
        # a group of which none need run is as useful as its first task
        shape = AskedShape(gpus, max(group.min, 1) if together else 1, level if together else "", job.models)
        yield shape, gpus * group.tasks / WHOLE


def day_s_demand(draft: Draft) -> dict[str, float]:
    """What was asked for in the last day; where nobody remembers, what runs and waits."""
    found = draft.memory.of(DayAsked).total(draft.now)
    if found:
        return found
    for row in draft.fleet.jobs.values():
        if row.queue != NO_QUEUE and not row.job.foreign:
            for shape, gpus in asked_by(row.job):
                found[shape.key] = found.get(shape.key, 0.0) + gpus
    return found


# --- what of the free GPUs it could not use ---------------------------------------------------------------------------


def measure(draft: Draft, asked: Mapping[str, float]) -> tuple[PoolStranding, ...]:
    """Pool by pool: how much of what is free each shape could not use where it lies, and all by their weight."""
    columns = draft.fleet.columns
    wanted = tuple(_wanted(draft, columns, asked))
    useful = Usefulness(draft, wanted)
    pools = _Pools(columns.nodes)
    free, gpus = pools.sums(columns.idle), pools.sums([len(node.gpus) for node in columns.nodes])
    reached = [pools.sums(eligible) for eligible in useful.eligible]
    fits = [_fits(columns, pools, useful, i) for i in range(len(wanted))]
    found = []
    for p, name in enumerate(pools.names):
        mine = [i for i in range(len(wanted)) if reached[i][p]]
        shapes = tuple(_of_pool(wanted[i], fits[i][p], free[p]) for i in mine)
        weight = sum(shape.asked for shape in shapes)
        stranded = sum(shape.asked * shape.stranded for shape in shapes) / weight if weight else 0.0
        found.append(PoolStranding(name, gpus[p] * WHOLE, free[p], round(stranded), shapes))
    return tuple(found)


class _Pools:
    """Pools with GPUs that are open, by name, and sums over the nodes of each: all pools in one step."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        names = [node.pool or node.model if node.closed is None else "" for node in nodes]
        self.names = sorted(
            {name for name, node in zip(names, nodes, strict=True) if node.gpus and node.closed is None}
        )
        place = {name: p for p, name in enumerate(self.names)}
        self.of = np.array([place.get(name, len(place)) for name in names], dtype=np.int64)
        """Which pool each node is of; all others together come last."""

    def sums(self, amounts: Sequence[int] | Ints | Bools) -> list[int]:
        """What the nodes of each pool have together; exact, for no such sum comes near to what a float cannot hold."""
        sums: list[int] = np.bincount(self.of, weights=amounts, minlength=len(self.names) + 1).astype(np.int64).tolist()
        return sums


def _wanted(draft: Draft, columns: Columns, asked: Mapping[str, float]) -> Iterator[Wanted]:
    levels = {"", NODE, NVLINK, *columns.level_names}
    heaviest = sorted(asked, key=lambda key: (-asked[key], key))[:SHAPES_MEASURED]
    for key in heaviest:
        shape = AskedShape.of_key(key)
        if shape.level in levels:
            whole = shape.gpus % WHOLE == 0
            request = Request(gpus=shape.gpus // WHOLE) if whole else Request(share=shape.gpus)
            group = TaskGroup(MAIN, shape.tasks, shape.tasks, request)
            job = Job(shape.told(), one_group(group), models=shape.models)
            compiled = draft.fleet.request(job, group)
            yield Wanted(compiled, shape.tasks, shape.level, shape.gpus, 0.0, round(asked[key] * WHOLE))


def _fits(columns: Columns, pools: _Pools, useful: Usefulness, i: int) -> list[int]:
    """How often a shape fits into each pool."""
    each, room = useful.wanted[i], useful.room[i]
    if each.level in ("", NODE, NVLINK):
        return pools.sums(room)
    level, found = columns.level(each.level), []
    for p in range(len(pools.names)):
        mine = np.where(pools.of == p, room, 0)
        per_domain = np.bincount(level.domain, weights=mine, minlength=len(level.names)).astype(np.int64)
        found.append(int((per_domain[level.known] // each.tasks).sum()))
    return found


def _of_pool(each: Wanted, fits: int, free: int) -> ShapeStranding:
    shape = AskedShape(each.gpus, each.tasks, each.level, each.request.models)
    return ShapeStranding(shape.told(), each.asked, fits, max(0, free - fits * each.size))


def written(pools: tuple[PoolStranding, ...]) -> dict[str, Any]:
    """As it is remembered: in GPUs."""
    return {
        pool.name: {
            "gpus": as_gpus(pool.gpus), "free": as_gpus(pool.free), "stranded": as_gpus(pool.stranded),
            "shapes": {each.shape: [as_gpus(each.asked), each.fits, as_gpus(each.stranded)] for each in pool.shapes},
        }
        for pool in pools
    }  # fmt: skip
