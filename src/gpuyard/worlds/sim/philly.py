"""Reads the two compact tables of Microsoft's Philly log: with virtual clusters (their queues) and without."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from gpuyard.worlds.sim.muri import gang
from gpuyard.worlds.sim.trace import Arrival, Trace, Window, by_time

EPOCH = datetime(2017, 8, 14, 23, 27, tzinfo=UTC).timestamp()
"""Where the table without virtual clusters begins to count."""


def with_clusters(name: str, rows: Iterable[Mapping[str, str]], window: Window, node_gpus: int) -> Trace:
    """timestamp, duration, num_gpus, gpu_time, cluster; all jobs stand in one queue, their cluster is their user."""
    arrivals = []
    for line, row in enumerate(rows):
        at = _seconds(row["timestamp"])
        work = float(row["duration"])
        if window.holds(at) and work > 0:
            job = gang(f"job-{line:06d}", int(row["num_gpus"]), node_gpus, at, work)
            arrivals.append(Arrival(at, replace(job, user=row["cluster"]), work))
    return Trace(name, by_time(arrivals))


def without_clusters(name: str, rows: Iterable[Mapping[str, str]], window: Window, node_gpus: int) -> Trace:
    """job id, arrival time, topology, shape, size, duration."""
    arrivals = []
    for row in rows:
        at, work = EPOCH + float(row["arrival time (sec)"]), float(row["duration (sec)"])
        if window.holds(at) and work > 0:
            job = gang(f"job-{int(row['#job id']):06d}", int(row["size"]), node_gpus, at, work)
            arrivals.append(Arrival(at, job, work))
    return Trace(name, by_time(arrivals))


def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).replace(tzinfo=UTC).timestamp()
