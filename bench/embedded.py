"""`python -m bench.embedded` (`make bench-local`): the embedded yard with 10,000 queued jobs on 256 virtual GPUs.

Measured in the yard's own process, without the API in front of it; the figures say what the core costs.
"""

from __future__ import annotations

import json
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from gpuyard import files
from gpuyard.runtime.clock import SystemClock
from gpuyard.runtime.embedded.yard import EmbeddedYard, Settings
from gpuyard.runtime.service import EVERYBODY, Caller

ME = Caller("bench", admin=True)
QUEUED = 10_000
IDLE_S = 10.0


class Row(NamedTuple):
    """One figure, what it should be at most, and its unit."""

    title: str
    figure: float
    aim: float
    unit: str


def main() -> None:
    """Measure and show."""
    with tempfile.TemporaryDirectory() as folder:
        yard = EmbeddedYard(Settings(Path(folder), fleet(), term_grace=1.0), SystemClock())
        yard.start()
        rows = measure(yard)
        yard.close(jobs=True)
    for row in rows:
        sign = "ok  " if row.figure <= row.aim else "MISS"
        print(f"{sign} {row.title:<48} {row.figure:>9.2f} {row.unit:<4} (aim {row.aim:g})")


def fleet() -> Any:
    nodes = [
        {"name": f"n{n:02}", "gpus": 8, "model": "H100-SXM5-80GB", "domains": {"rack": f"r{n // 8}"}} for n in range(32)
    ]
    header = {"apiVersion": "gpuyard.dev/v1", "kind": "Snapshot", "topology": ["rack"]}
    return files.parse_snapshot(json.dumps({**header, "nodes": nodes}), "fleet", time.time())


def measure(yard: EmbeddedYard) -> list[Row]:
    rows = [Row("submit to running, p50", 1000 * statistics.median(starts(yard, 20)), 100, "ms")]
    rows.append(Row("idle, empty", idle(), 2, "%"))
    put(yard, "full", gpus=8, array="0-31", seconds=3600)
    rows.append(Row("submit an array of 10,000", 1000 * timed(lambda: put(yard, "sweep", array="0-9999")), 2000, "ms"))
    time.sleep(3)
    rows.append(Row("list 10,000 jobs", 1000 * timed(lambda: yard.jobs(ME)), 300, "ms"))
    one = [timed(lambda n=n: put(yard, f"one-{n}")) for n in range(20)]  # type: ignore[misc]
    rows.append(Row("submit one with 10,000 queued, p50", 1000 * statistics.median(one), 50, "ms"))
    rows.append(Row("1,000 submits", timed(lambda: put_many(yard, 1000)), 5, "s"))
    time.sleep(5)
    rows.append(Row("idle, 11,000 queued", idle(), 2, "%"))
    rows.append(Row("peak memory", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 200, "MiB"))
    rows.append(Row("cancel the array", 1000 * timed(lambda: yard.act(ME, "sweep", "cancel")), 5000, "ms"))
    return rows


def put(yard: EmbeddedYard, name: str, gpus: int = 1, array: str = "", seconds: float = 1.0) -> None:
    more = {"array": array} if array else {}
    yard.submit(ME, [{"name": name, "gpus": gpus, **more, "run": {"command": ["sleep", str(seconds)]}}])


def put_many(yard: EmbeddedYard, count: int) -> None:
    for number in range(count):
        put(yard, f"many-{number}")


def starts(yard: EmbeddedYard, count: int) -> list[float]:
    taken = []
    for number in range(count):
        seen, began = yard.store.last_event, time.perf_counter()
        put(yard, f"start-{number}", seconds=0.05)
        while not any(event["kind"] == "started" for event in yard.events(EVERYBODY, seen, 100)):
            yard.wait_events(yard.store.last_event, 1.0)
        taken.append(time.perf_counter() - began)
    return taken


def timed(do: Callable[[], object]) -> float:
    began = time.perf_counter()
    do()
    return time.perf_counter() - began


def idle() -> float:
    """Processor time while nothing happens, in percent of a core."""
    before, began = time.process_time(), time.perf_counter()
    time.sleep(IDLE_S)
    return 100 * (time.process_time() - before) / (time.perf_counter() - began)


if __name__ == "__main__":
    main()
