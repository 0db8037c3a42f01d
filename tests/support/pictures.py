"""A fleet as plain values that can be compared bit by bit: every column, every queue's amounts, every job's places.

What only remembers work already done (caches, logs of what was touched) is left out; whether it is right shows in the
plans that are made from it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuyard.brain.engine.nodes.columns import Columns, Level
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.brain.engine.picture.known.holders import FOOTING
from tests.support.fleets import ADAPTER

Picture = dict[str, Any]


def picture(fleet: Fleet) -> Picture:
    """Everything a plan is made from."""
    return {
        **{f"columns.{name}": value for name, value in columns(fleet.columns).items()},
        **{f"job {name}": job(fleet, row) for name, row in fleet.jobs.items()},
        "used": [list(amounts) for amounts in fleet.tree.used],
        "firm": [list(amounts) for amounts in fleet.tree.firm],
        "demand": [list(amounts) for amounts in fleet.demand],
        "demand by kind": fleet.seen.counts(),
        "capacity": list(fleet.capacity()),
        "unowned": list(fleet.unowned),
        "queues": fleet.queues,
        "pools": dict(fleet.pools),
        "budgets": fleet.budgets,
        "reservations": fleet.reservations,
        "short": sorted(fleet.rolls.short),
        "lines": sorted([row.name for row in line.rows()] for line in fleet.rolls.waiting_lines),
        "halves": sorted(fleet.rolls.halves),
        "elastic": sorted(row.name for row in fleet.rolls.elastic()),
        "by memory": fleet.rolls.by_memory.total(),
        "avoiders": sorted(fleet.avoiders),
        "tenants": [sorted((row.name, count) for row, count in there.items()) for there in fleet.tenants],
        "loose": plain(fleet.loose),
        "holders": holders(fleet),
        "smallest": [row.name for row in fleet.smallest.first(3)],
        "priorities": {queue: counts for queue, counts in fleet.priorities.items() if counts},
    }


def holders(fleet: Fleet) -> list[list[tuple[object, ...]]]:
    """Who holds devices of each node, with its numbers; a footing by what it is, for which came first is history."""
    known, footings = fleet.holders.of_all(), fleet.holders.footings
    lines = [zip(each.rows, each.numbers.T.tolist(), strict=True) for each in known]
    return [
        [(row.name, footings[int(numbers.pop(FOOTING))], *numbers) for row, numbers in there] for there in lines
    ]  # fmt: skip


def differences(one: Picture, other: Picture) -> list[str]:
    """What the two do not agree on, each with both sides."""
    names = sorted({*one, *other})
    return [f"{name}: {one.get(name)} != {other.get(name)}" for name in names if one.get(name) != other.get(name)]


def columns(found: Columns) -> Picture:
    """Every column, as bytes where it is an array; who was touched when is history."""
    told = {name: plain(value) for name, value in vars(found).items() if not name.startswith("_") and name != "touched"}
    extras = {name: plain(found.extras.free(name)) for name in (ADAPTER, "port/TCP/80")}
    return told | {"kind": in_order_of_appearance(told["kind"]), "extras": extras}


def in_order_of_appearance(numbers: list[int]) -> list[int]:
    """Numbers that only tell apart, given anew: which of them came first is history."""
    known: dict[int, int] = {}
    return [known.setdefault(number, len(known)) for number in numbers]


def plain(value: Any) -> Any:
    """A copy that compares exactly."""
    if isinstance(value, np.ndarray):
        return (str(value.dtype), value.shape, value.tobytes())
    if isinstance(value, Level):
        return (value.name, value.names, plain(value.starts), plain(value.stops), plain(value.domain))
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value


def job(fleet: Fleet, row: JobRow) -> Picture:
    """A job and what it holds; the order in which its places were taken means nothing."""
    return {
        "job": row.described(),
        "held": list(row.held),
        "live": list(row.live),
        "running": row.running,
        "started": row.started,
        "wanted": list(row.wanted),
        "queue": row.queue,
        "firm": row.firm,
    }
