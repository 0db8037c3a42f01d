"""Reads the two compact tables of Microsoft's Philly log: with virtual clusters (their queues) and without."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

from gpuyard.worlds.sim.traces.muri import gang
from gpuyard.worlds.sim.traces.table_lines import TableLine
from gpuyard.worlds.sim.traces.trace import Arrival, Trace, Window, by_time

EPOCH = datetime(2017, 8, 14, 23, 27, tzinfo=UTC).timestamp()
"""Where the table without virtual clusters begins to count."""


def with_clusters(name: str, rows: Iterable[TableLine], window: Window, node_gpus: int) -> Trace:
    """timestamp, duration, num_gpus, gpu_time, cluster; all jobs stand in one queue, their cluster is their user."""
    arrivals = []
    for line, row in enumerate(rows):
        at, work = _seconds(row), row.number("duration")
        if window.holds(at) and work > 0:
            job = gang(f"job-{line:06d}", row.whole("num_gpus", 1), node_gpus, at, work)
            arrivals.append(Arrival(at, replace(job, user=row.get("cluster", "")), work))
    return Trace(name, by_time(arrivals))


def without_clusters(name: str, rows: Iterable[TableLine], window: Window, node_gpus: int) -> Trace:
    """job id, arrival time, topology, shape, size, duration."""
    arrivals = []
    for row in rows:
        at, work = EPOCH + row.number("arrival time (sec)"), row.number("duration (sec)")
        if window.holds(at) and work > 0:
            job = gang(f"job-{row.whole('#job id'):06d}", row.whole("size", 1), node_gpus, at, work)
            arrivals.append(Arrival(at, job, work))
    return Trace(name, by_time(arrivals))


def _seconds(row: TableLine) -> float:
    stamp = row.text("timestamp")
    try:
        return datetime.fromisoformat(stamp).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise row.wrong(f"timestamp is {stamp!r}, which is no time") from None
