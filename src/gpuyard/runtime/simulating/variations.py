"""A fleet as it might be: more or fewer nodes, other quotas, narrower gangs, time limits. For what-if questions.

Called by `yard whatif`. Values in, values out.
"""

from __future__ import annotations

from dataclasses import replace

from gpuyard.model.errors import NotFound
from gpuyard.model.job import Job
from gpuyard.model.node import Node
from gpuyard.model.resources import WHOLE
from gpuyard.model.snapshot import Snapshot
from gpuyard.model.topology import TopologyAsk
from gpuyard.worlds.sim.traces.trace import Arrival, Trace


def add_nodes(fleet: Snapshot, pool: str, count: int) -> Snapshot:
    """So many nodes more, like the last of the pool, each in a place of its own where the topology has levels."""
    like = _members(fleet, pool)[-1]
    taken = {node.name for node in fleet.nodes}
    names = [name for name in (f"{like.name}-more-{i}" for i in range(count + len(taken))) if name not in taken]
    return replace(fleet, nodes=(*fleet.nodes, *(replace(like, name=name) for name in names[:count])))


def remove_nodes(fleet: Snapshot, pool: str, count: int) -> Snapshot:
    """So many nodes fewer, the last by name; what ran there waits."""
    gone = {node.name for node in _members(fleet, pool)[-count:]} if count else set()
    jobs = tuple(
        replace(job, placements=(), started=None) if any(p.node in gone for p in job.placements) else job
        for job in fleet.jobs
    )
    return replace(fleet, nodes=tuple(node for node in fleet.nodes if node.name not in gone), jobs=jobs)


def _members(fleet: Snapshot, pool: str) -> list[Node]:
    found = [node for node in fleet.nodes if pool in ("", node.pool, node.model)]
    if not found:
        raise NotFound(f"there is no pool or model {pool} in the fleet")
    return sorted(found, key=lambda node: node.name)


def allow(fleet: Snapshot, kind: str, queue: str, gpus: float) -> Snapshot:
    """Another `quota` or `limit` for a queue."""
    if queue not in {each.name for each in fleet.queues}:
        raise NotFound(f"there is no queue {queue} in the fleet")
    queues = []
    for each in fleet.queues:
        if each.name == queue:
            amount = replace(getattr(each, kind), gpu=round(gpus * WHOLE))
            each = replace(each, quota=amount) if kind == "quota" else replace(each, limit=amount)
        queues.append(each)
    return replace(fleet, queues=tuple(queues))


def keep_inside(fleet: Snapshot, level: str) -> Snapshot:
    """Every job of the snapshot must stay inside one domain of the level."""
    ask = TopologyAsk(required=level)
    return replace(fleet, jobs=tuple(_inside(job, ask) for job in fleet.jobs))


def _inside(job: Job, ask: TopologyAsk) -> Job:
    return replace(job, gang=replace(job.gang, topology=ask))


def adapted(trace: Trace, level: str, limit: float | None) -> Trace:
    """The same for the jobs of a trace; whoever would run longer than the limit ends there."""
    return replace(trace, arrivals=tuple(_adapted(arrival, level, limit) for arrival in trace.arrivals))


def _adapted(arrival: Arrival, level: str, limit: float | None) -> Arrival:
    job, work = arrival.job, arrival.work
    if level:
        job = _inside(job, TopologyAsk(required=level))
    if limit is not None:
        work = limit if work is None else min(work, limit)
        job = replace(job, time_limit=limit, duration=work)
    return replace(arrival, job=job, work=work)


def limit_time(fleet: Snapshot, seconds: float) -> Snapshot:
    """Every job of the snapshot has this time limit."""
    return replace(fleet, jobs=tuple(replace(job, time_limit=seconds) for job in fleet.jobs))
