"""Reads our own tables: CSV with one job a line, and the journal that `yard sim --placements` writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpuyard.model.job import Job, JobClass, TaskGroup, one_group
from gpuyard.model.resources import MILLI, WHOLE, Request
from gpuyard.worlds.sim.traces.table_lines import TableLine
from gpuyard.worlds.sim.traces.trace import Arrival, Trace, Window, by_time


def own(name: str, rows: Iterable[TableLine], window: Window) -> Trace:
    """submitted and gpus are needed; job, tasks, duration, queue, user, cpu, memory, class, priority may be there."""
    found = [(row, _arrival(row)) for row in rows]
    names: set[str] = set()
    for row, arrival in found:
        if arrival.job.name in names:
            raise row.wrong(f"there is another job {arrival.job.name} above; names must differ")
        names.add(arrival.job.name)
    return Trace(name, by_time([arrival for _, arrival in found if window.holds(arrival.at)]))


def _arrival(row: TableLine) -> Arrival:
    at, tasks = row.number("submitted"), row.whole("tasks", 1, default=1)
    work = row.number("duration", 0) if row.get("duration") is not None else None
    job = Job(
        row.get("job") or row.get("name") or f"job-{row.line - 2:06d}",
        one_group(TaskGroup(tasks=tasks, min=tasks, request=_request(row))),
        queue=row.get("queue", "default"),
        user=row.get("user", ""),
        job_class=_class(row),
        priority=row.whole("priority") if row.get("priority") is not None else None,
        submitted=at,
        duration=work,
    )
    return Arrival(at, job, work)


def _request(row: TableLine) -> Request:
    cpu = int(row.number("cpu", 0) * 1000) if row.get("cpu") is not None else 0
    try:
        return request_of(row.number("gpus", 0), cpu, row.whole("memory", default=0))
    except ValueError as wrong:
        raise row.wrong(str(wrong)) from None


def _class(row: TableLine) -> JobClass:
    word = row.get("class", "training")
    try:
        return JobClass(word)
    except ValueError:
        raise row.wrong(f"class is {word!r}; there are {', '.join(each.value for each in JobClass)}") from None


def request_of(gpus: float, cpu: int = 0, memory: int = 0) -> Request:
    """Whole GPUs, or a fraction of one in thousandths."""
    if gpus == int(gpus):
        return Request(gpus=int(gpus), cpu=cpu, memory=memory)
    if gpus > 1:
        raise ValueError(f"gpus is {gpus}: more than one GPU must be whole GPUs")
    return Request(share=round(gpus * 1000) * MILLI, cpu=cpu, memory=memory)


def journal(name: str, lines: Iterable[TableLine], window: Window) -> Trace:
    """What was placed and ended by the journal, as jobs that come at the same times and last as long."""
    came: dict[str, float] = {}
    sizes: dict[str, dict[int, list[int]]] = {}
    ran: dict[str, float] = {}
    since: dict[str, float] = {}
    for line in lines:
        job, at, event = line.text("job"), line.number("t"), line.text("event")
        if event == "arrive":
            came[job] = at
        elif event == "place":
            sizes.setdefault(job, {})[line.whole("task", default=0)] = list(line.get("milli", ()))
            since.setdefault(job, at)
        elif event in ("evict", "finish") and job in since:
            ran[job] = ran.get(job, 0.0) + at - since.pop(job)
    coming = [_again(job, at, sizes.get(job, {}), ran.get(job)) for job, at in came.items() if window.holds(at)]
    return Trace(name, by_time(coming))


def _again(name: str, at: float, tasks: Mapping[int, list[int]], work: float | None) -> Arrival:
    share = sum(next(iter(tasks.values()), [])) * MILLI
    request = Request(gpus=share // WHOLE) if share % WHOLE == 0 else Request(share=share)
    count = max(len(tasks), 1)
    job = Job(name, one_group(TaskGroup(tasks=count, min=count, request=request)), submitted=at, duration=work)
    return Arrival(at, job, work)
