"""Reads our own tables: CSV with one job a line, and the journal that `yard sim --placements` writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpuyard.model.errors import Refused
from gpuyard.model.job import Job, JobClass, TaskGroup, one_group
from gpuyard.model.resources import MILLI, WHOLE, Request
from gpuyard.worlds.sim.trace import Arrival, Trace, Window, by_time


def own(name: str, rows: Iterable[Mapping[str, str]], window: Window) -> Trace:
    """submitted and gpus are needed; job, tasks, duration, queue, user, cpu, memory, class, priority may be there."""
    arrivals = []
    for line, row in enumerate(rows, start=2):
        try:
            arrival = _arrival(row, line)
        except ValueError as wrong:
            raise Refused(f"{name}:{line}: {wrong}") from None
        if window.holds(arrival.at):
            arrivals.append(arrival)
    return Trace(name, by_time(arrivals))


def _arrival(row: Mapping[str, str], line: int) -> Arrival:
    at, work = float(row["submitted"]), row.get("duration")
    request = request_of(float(row["gpus"]), int(float(row.get("cpu") or 0) * 1000), int(row.get("memory") or 0))
    tasks = int(row.get("tasks") or 1)
    job = Job(
        row.get("job") or f"job-{line - 2:06d}",
        one_group(TaskGroup(tasks=tasks, min=tasks, request=request)),
        queue=row.get("queue") or "default",
        user=row.get("user") or "",
        job_class=JobClass(row.get("class") or "training"),
        priority=int(row["priority"]) if row.get("priority") else None,
        submitted=at,
        duration=float(work) if work else None,
    )
    return Arrival(at, job, float(work) if work else None)


def request_of(gpus: float, cpu: int = 0, memory: int = 0) -> Request:
    """Whole GPUs, or a fraction of one in thousandths."""
    if gpus == int(gpus):
        return Request(gpus=int(gpus), cpu=cpu, memory=memory)
    if gpus > 1:
        raise ValueError(f"gpus is {gpus}: more than one GPU must be whole GPUs")
    return Request(share=round(gpus * 1000) * MILLI, cpu=cpu, memory=memory)


def journal(name: str, lines: Iterable[Mapping[str, Any]], window: Window) -> Trace:
    """What was placed and ended by the journal, as jobs that come at the same times and last as long."""
    came: dict[str, float] = {}
    sizes: dict[str, list[int]] = {}
    ran: dict[str, float] = {}
    since: dict[str, float] = {}
    for line in lines:
        job, at, event = line["job"], float(line["t"]), line["event"]
        if event == "arrive":
            came[job] = at
        elif event == "place":
            sizes.setdefault(job, list(line["milli"])) if line.get("task", 0) == 0 else None
            since.setdefault(job, at)
        elif event in ("evict", "finish") and job in since:
            ran[job] = ran.get(job, 0.0) + at - since.pop(job)
    coming = [_again(job, at, sizes.get(job, []), ran.get(job)) for job, at in came.items() if window.holds(at)]
    return Trace(name, by_time(coming))


def _again(name: str, at: float, milli: list[int], work: float | None) -> Arrival:
    share = sum(milli) * MILLI
    request = Request(gpus=share // WHOLE) if share % WHOLE == 0 else Request(share=share)
    job = Job(name, one_group(TaskGroup(request=request)), submitted=at, duration=work)
    return Arrival(at, job, work)
