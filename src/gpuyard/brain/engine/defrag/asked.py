"""What was asked for in the last day, shape by shape, and how much of what is free those shapes could not use.

Fragmentation is to be seen before somebody waits: the ratio of rule 25 is 0 while nobody does. Remembered by the hour
and for a bounded number of shapes; `measure` is asked by the alarms and by `yard frag`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import fsum
from typing import Any, ClassVar, NamedTuple

import numpy as np

from gpuyard.brain.engine.defrag.usefulness import Usefulness, Wanted
from gpuyard.brain.engine.nodes.columns import Bools, Columns
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.job_rows import NO_QUEUE
from gpuyard.brain.engine.picture.memory import Part
from gpuyard.model.answers.outlook import PoolStranding, ShapeStranding
from gpuyard.model.job import MAIN, Job, TaskGroup, one_group
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
        """The shape of a key."""
        gpus, tasks, level, *models = key.split("|")
        return AskedShape(int(gpus), int(tasks), level, tuple(models))

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
        shape = AskedShape(gpus, group.min if together else 1, level if together else "", job.models)
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
    names = np.array([node.pool or node.model if node.closed is None else "" for node in columns.nodes], dtype=object)
    found = []
    for name in sorted({node.pool or node.model for node in columns.nodes if node.gpus and node.closed is None}):
        members = names == name
        mine = [i for i in range(len(wanted)) if useful.eligible[i][members].any()]
        shapes = tuple(_of_pool(columns, useful, i, members) for i in mine)
        weight = sum(shape.asked for shape in shapes)
        stranded = sum(shape.asked * shape.stranded for shape in shapes) / weight if weight else 0.0
        gpus = sum(len(columns.nodes[n].gpus) for n in np.flatnonzero(members))
        free = int(columns.idle[members].sum())
        found.append(PoolStranding(name, gpus * WHOLE, free, round(stranded), shapes))
    return tuple(found)


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


def _of_pool(columns: Columns, useful: Usefulness, i: int, members: Bools) -> ShapeStranding:
    each = useful.wanted[i]
    room = np.where(members, useful.room[i], 0)
    if each.level in ("", NODE, NVLINK):
        fits = int(room.sum())
    else:
        level = columns.level(each.level)
        per_domain = np.bincount(level.domain, weights=room, minlength=len(level.names)).astype(np.int64)
        fits = int((per_domain[level.known] // each.tasks).sum())
    free = int(columns.idle[members].sum())
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
