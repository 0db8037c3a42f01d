"""What may happen to a cluster, event by event, and what a snapshot looks like then: the events told a second time.

Knows nothing of the engine's fleet, so that the two can be compared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from gpuyard.model.events import (
    ActionFailed,
    BudgetsChanged,
    Event,
    GpuHealthChanged,
    JobGone,
    JobSeen,
    NodeLoaded,
    NodeLost,
    NodeSeen,
    PolicyChanged,
    PoolsChanged,
    QueuesChanged,
    TasksAssigned,
    TasksEnded,
    TasksRunning,
    TasksStopping,
)
from gpuyard.model.job import Job, Placement, TaskGroup
from gpuyard.model.node import CORDONED, Closure, Effect, Health, Load, Taint
from gpuyard.model.policy import OrderBy
from gpuyard.model.reasons import Code, Reason
from gpuyard.model.snapshot import Snapshot
from tests.support.fleets import ADAPTER, LIMITS, NOW, QUOTAS, on_leaves
from tests.support.placing import Places

Draw = Callable[[st.SearchStrategy[Any]], Any]
History = tuple[list[Event], Snapshot]


@st.composite
def histories(draw: Draw, begin: Snapshot, most: int = 6) -> History:
    """Events that can happen one after the other from here, and where they lead."""
    events: list[Event] = []
    snapshot = begin
    for kind in draw(st.lists(st.sampled_from(sorted(KINDS)), max_size=most)):
        event = KINDS[kind](draw, snapshot)
        if event is not None:
            events.append(event)
            snapshot = after(snapshot, event)
    return events, snapshot


# --- what a snapshot looks like after an event ------------------------------------------------------------------------


def after(snapshot: Snapshot, event: Event) -> Snapshot:
    """The snapshot once the event is true."""
    match event:
        case JobSeen(job):
            return _with_job(snapshot, job)
        case JobGone(name):
            return replace(snapshot, jobs=tuple(job for job in snapshot.jobs if job.name != name))
        case TasksAssigned(name, placements, at):
            job = _job(snapshot, name)
            assigned = (replace(place, assigned=True) for place in placements)
            return _with_job(snapshot, _placed(job, (*job.placements, *assigned), at))
        case TasksRunning():
            return _with_job(snapshot, _running(_job(snapshot, event.job), event))
        case ActionFailed(name, placements):
            job, named = _job(snapshot, name), {place.identity for place in placements}
            there = [place for place in job.placements if not (place.assigned and place.identity in named)]
            on = [replace(p, terminating=p.terminating and p.identity not in named) for p in there]
            return _with_job(snapshot, _placed(job, tuple(on)))
        case TasksStopping(name, placements):
            job = _job(snapshot, name)
            going = [replace(place, terminating=place.terminating or place in placements) for place in job.placements]
            return _with_job(snapshot, _placed(job, tuple(going)))
        case TasksEnded(name, placements):
            return _with_job(snapshot, _ended(_job(snapshot, name), event))
        case QueuesChanged(queues):
            return replace(snapshot, queues=queues)
        case PoolsChanged(pools):
            return replace(snapshot, pools=pools)
        case BudgetsChanged(budgets):
            return replace(snapshot, budgets=budgets)
        case PolicyChanged(policy):
            return replace(snapshot, policy=policy)
    return _after_node(snapshot, event)


def _after_node(snapshot: Snapshot, event: Event) -> Snapshot:
    nodes = {node.name: node for node in snapshot.nodes}
    match event:
        case NodeSeen(node):
            nodes[node.name] = node
        case NodeLost(name):
            del nodes[name]
        case NodeLoaded(name, taken):
            nodes[name] = replace(nodes[name], taken=taken)
        case GpuHealthChanged(name, index, health):
            gpus = tuple(replace(gpu, health=health) if gpu.index == index else gpu for gpu in nodes[name].gpus)
            nodes[name] = replace(nodes[name], gpus=gpus)
    jobs = tuple(_placed(job, tuple(p for p in job.placements if p.node in nodes)) for job in snapshot.jobs)
    return replace(snapshot, nodes=tuple(nodes.values()), jobs=jobs)


def _running(job: Job, event: TasksRunning) -> Job:
    """Those assigned run from now on, others come to run; a job has begun when its first task has."""
    named, known = {p.identity for p in event.placements}, {p.identity for p in job.placements}
    begins = all(place.assigned for place in job.placements)
    there = [replace(place, assigned=place.assigned and place.identity not in named) for place in job.placements]
    new = [place for place in event.placements if place.identity not in known]
    return replace(_placed(job, (*there, *new), event.at), started=event.at if begins else job.started)


def _ended(job: Job, event: TasksEnded) -> Job:
    left = tuple(place for place in job.placements if place not in event.placements)
    if event.succeeded or event.failed:
        group = event.placements[0].group
        job = replace(job, gang=on_leaves(job.gang, lambda leaf: _counted(leaf, event) if leaf.name == group else leaf))
    return _placed(job, left)


def _counted(group: TaskGroup, event: TasksEnded) -> TaskGroup:
    numbers = tuple(sorted({*group.ended, *(place.task for place in event.placements)}))
    return replace(
        group, succeeded=group.succeeded + event.succeeded, failed=group.failed + event.failed, ended=numbers
    )


def _placed(job: Job, places: tuple[Placement, ...], at: float | None = None) -> Job:
    """The job in these places; it has a start as long as it holds something."""
    started = (job.started or at) if places else None
    ordered = tuple(sorted(places, key=lambda place: (place.group, place.task, place.node)))
    return replace(job, placements=ordered if places != job.placements else places, started=started)


def _job(snapshot: Snapshot, name: str) -> Job:
    return next(job for job in snapshot.jobs if job.name == name)


def _with_job(snapshot: Snapshot, job: Job) -> Snapshot:
    others = tuple(other for other in snapshot.jobs if other.name != job.name)
    return replace(snapshot, jobs=(*others, job))


# --- what can happen --------------------------------------------------------------------------------------------------


def _pick(draw: Draw, things: Any) -> Any:
    found = list(things)
    return draw(st.sampled_from(found)) if found else None


def _arrives(draw: Draw, snapshot: Snapshot) -> Event | None:
    """A job like one that is there, under a new name."""
    job = _pick(draw, snapshot.jobs)
    name = f"k{len(snapshot.jobs)}"
    if job is None or any(other.name == name for other in snapshot.jobs):
        return None
    return JobSeen(replace(job, name=name, placements=(), started=None))


def _edited(draw: Draw, snapshot: Snapshot) -> Event | None:
    job = _pick(draw, snapshot.jobs)
    return job and JobSeen(replace(job, priority=draw(st.sampled_from((None, 10, 900))), on_hold=draw(st.booleans())))


def _goes(draw: Draw, snapshot: Snapshot) -> Event | None:
    job = _pick(draw, snapshot.jobs)
    return job and JobGone(job.name)


def _starts(draw: Draw, snapshot: Snapshot) -> Event | None:
    job = _pick(draw, (job for job in snapshot.jobs if not job.placements))
    places = job and Places.of(snapshot).take(job, draw(st.integers(0, len(snapshot.nodes) - 1)))
    return TasksRunning(job.name, places, NOW) if places else None


def _assigned(draw: Draw, snapshot: Snapshot) -> Event | None:
    """Tasks that their world names get places; whoever has the name before them is somebody else."""
    job = _pick(draw, (job for job in snapshot.jobs if not job.placements))
    places = job and Places.of(snapshot).take(job, draw(st.integers(0, len(snapshot.nodes) - 1)))
    named = [replace(place, uid=f"{job.name}/{number}") for number, place in enumerate(places or ())]
    return TasksAssigned(job.name, tuple(named), NOW) if named else None


def _begin_to_run(draw: Draw, snapshot: Snapshot) -> Event | None:
    job = _pick(draw, (job for job in snapshot.jobs if any(place.assigned for place in job.placements)))
    return job and TasksRunning(job.name, tuple(p for p in job.placements if p.assigned), NOW + 1)


def _fails(draw: Draw, snapshot: Snapshot) -> Event | None:
    """What was wanted of a task does not come about, also of one that is not there any more."""
    job = _pick(draw, snapshot.jobs)
    places = job and draw(st.lists(st.sampled_from((Placement("n0", uid="gone"), *job.placements)), max_size=2))
    return job and ActionFailed(job.name, tuple(places), Reason(Code.WORLD_CHANGED, message="too late"))


def _stops(draw: Draw, snapshot: Snapshot) -> Event | None:
    job = _pick(draw, (job for job in snapshot.jobs if _live(job)))
    return job and TasksStopping(job.name, tuple(_live(job)[: draw(st.integers(1, 2))]))


def _ends(draw: Draw, snapshot: Snapshot) -> Event | None:
    job = _pick(draw, (job for job in snapshot.jobs if job.placements))
    if job is None:
        return None
    place = _pick(draw, job.placements)
    how = "gone" if place.terminating else draw(st.sampled_from(("gone", "succeeded", "failed")))
    return TasksEnded(job.name, (place,), **({how: 1} if how != "gone" else {}))


def _live(job: Job) -> list[Placement]:
    return [place for place in job.placements if not place.terminating]


def _node_lost(draw: Draw, snapshot: Snapshot) -> Event | None:
    return NodeLost(_pick(draw, snapshot.nodes).name) if len(snapshot.nodes) > 1 else None


def _node_comes(draw: Draw, snapshot: Snapshot) -> Event | None:
    node, name = _pick(draw, snapshot.nodes), f"m{len(snapshot.nodes)}"
    return None if any(other.name == name for other in snapshot.nodes) else NodeSeen(replace(node, name=name))


def _cordoned(draw: Draw, snapshot: Snapshot) -> Event | None:
    node = _pick(draw, snapshot.nodes)
    return NodeSeen(replace(node, closed=None if node.closed else draw(st.sampled_from(CLOSURES))))


CLOSURES = (CORDONED, Closure("not ready", "kubelet"), Closure("fan", "ada", since=5.0, drains=True))


def _described(draw: Draw, snapshot: Snapshot) -> Event | None:
    """Other labels, taints, CPU or memory; perhaps another machine under the same name."""
    node = _pick(draw, snapshot.nodes)
    change = draw(st.sampled_from(DESCRIBED))
    return NodeSeen(replace(node, **change))


DESCRIBED: tuple[dict[str, Any], ...] = (
    {"labels": (("disk", "tape"),)},
    {"labels": ()},
    {"taints": (Taint("kept", "away", Effect.NO_SCHEDULE),)},
    {"taints": (Taint("kept", "away", Effect.PREFER_NO_SCHEDULE),)},
    {"cpu": 8_000},
    {"memory": 1 << 36},
    {"pool": "another"},
    {"domains": ()},
    {"workloads": ("batch",)},
    {"taken": Load(cpu=1_000)},
    {"taken": Load(extras=((ADAPTER, 1),))},
    {"extras": ((ADAPTER, 1),)},
)


def _loaded(draw: Draw, snapshot: Snapshot) -> Event | None:
    return NodeLoaded(_pick(draw, snapshot.nodes).name, Load(cpu=draw(st.sampled_from((0, 2_000)))))


def _health(draw: Draw, snapshot: Snapshot) -> Event | None:
    node = _pick(draw, (node for node in snapshot.nodes if node.gpus))
    gpu = node and _pick(draw, node.gpus)
    return gpu and GpuHealthChanged(node.name, gpu.index, draw(st.sampled_from(list(Health))))


def _queues(draw: Draw, snapshot: Snapshot) -> Event | None:
    changed = _pick(draw, snapshot.queues)
    quota, limit = draw(st.sampled_from(QUOTAS)), draw(st.sampled_from(LIMITS))
    return QueuesChanged(
        tuple(replace(queue, quota=quota, limit=limit) if queue is changed else queue for queue in snapshot.queues)
    )


def _pools(draw: Draw, snapshot: Snapshot) -> Event | None:
    cap = draw(st.sampled_from(((), (("node", 3),))))
    return PoolsChanged(tuple(replace(pool, max_busy=cap) for pool in snapshot.pools))


def _policy(draw: Draw, snapshot: Snapshot) -> Event | None:
    policy = snapshot.policy
    order = replace(policy.order, by=draw(st.sampled_from(list(OrderBy))))
    return PolicyChanged(replace(policy, consolidate=not policy.consolidate, order=order))


def _budgets(draw: Draw, snapshot: Snapshot) -> Event | None:
    return BudgetsChanged(())


KINDS: dict[str, Callable[[Draw, Snapshot], Event | None]] = {
    "a job arrives": _arrives,
    "a job changes": _edited,
    "a job goes": _goes,
    "tasks start": _starts,
    "tasks are assigned": _assigned,
    "tasks that were assigned run": _begin_to_run,
    "tasks stop": _stops,
    "what was wanted fails": _fails,
    "tasks end": _ends,
    "x a node is lost": _node_lost,
    "x a node comes": _node_comes,
    "x a node is cordoned": _cordoned,
    "x health changes": _health,
    "x a node is described otherwise": _described,
    "x others load a node": _loaded,
    "y queues change": _queues,
    "z pools change": _pools,
    "z the policy changes": _policy,
    "z budgets change": _budgets,
}
