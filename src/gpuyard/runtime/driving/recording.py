"""Events and plans as compact data, and events back again: what a journal's turns are made of.

Called by `journal`. Jobs, nodes and queues are written as a snapshot file has them, so one reader serves both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from gpuyard import files
from gpuyard.files.format.entries import JobEntry
from gpuyard.files.format.tables import read_entry
from gpuyard.files.problems import Problems
from gpuyard.files.reading.jobs import job_of
from gpuyard.files.writing import (
    budget_document,
    job_document,
    node_document,
    policy_document,
    pool_document,
    queue_document,
)
from gpuyard.model.actions import Action, Cordon, Drain, Evict, Move, Plan, Reserve, Scale, Start, Terminate, Warn
from gpuyard.model.events import (
    ActionFailed,
    BudgetsChanged,
    Event,
    GpuHealthChanged,
    JobEvicted,
    JobGone,
    JobProgressed,
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
from gpuyard.model.job import Job, Placement
from gpuyard.model.node import Health, Load
from gpuyard.model.reasons import Code, Reason
from gpuyard.model.snapshot import Snapshot

Data = list[Any]


def event_document(event: Event) -> Data:
    """An event as a short list: its kind, and what it says."""
    match event:
        case JobSeen(job):
            return ["job", job_document(replace(job, run=None), -1.0)]
        case JobGone(name):
            return ["gone", name]
        case TasksAssigned(name, placements, at):
            return ["assigned", name, _places(placements), at]
        case TasksRunning(name, placements, at):
            return ["running", name, _places(placements), at]
        case JobEvicted(name, at):
            return ["evicted", name, at]
        case JobProgressed(name, at, done, total, saved, started):
            return ["progress", name, at, done, total, saved, started]
        case ActionFailed(name, placements, reason):
            return ["undone", name, _places(placements), reason.code.value, reason.message]
        case TasksStopping(name, placements):
            return ["stopping", name, _places(placements)]
        case TasksEnded(name, placements, succeeded, failed):
            return ["ended", name, _places(placements), succeeded, failed]
        case _:
            return _fleet_event(event)


def _fleet_event(event: Event) -> Data:
    match event:
        case NodeSeen(node):
            return ["node", node_document(node)]
        case NodeLost(name):
            return ["lost", name]
        case NodeLoaded(name, taken):
            return ["load", name, taken.cpu, taken.memory, *([dict(taken.extras)] if taken.extras else [])]
        case GpuHealthChanged(name, index, health):
            return ["health", name, index, health.value]
        case QueuesChanged(queues):
            return ["queues", [queue_document(queue) for queue in queues]]
        case PoolsChanged(pools):
            return ["pools", [pool_document(pool) for pool in pools]]
        case BudgetsChanged(budgets):
            return ["budgets", [budget_document(budget) for budget in budgets]]
        case PolicyChanged(policy):
            return ["policy", policy_document(policy)]
    raise TypeError(event)


def event_of(document: Data, levels: tuple[str, ...], now: float) -> Event:
    """The event again."""
    kind, *said = document
    match kind:
        case "job":
            return JobSeen(_job(said[0], now))
        case "gone":
            return JobGone(said[0])
        case "assigned":
            return TasksAssigned(said[0], _placements(said[1]), said[2])
        case "running":
            return TasksRunning(said[0], _placements(said[1]), said[2])
        case "evicted":
            return JobEvicted(said[0], said[1])
        case "progress":
            return JobProgressed(*said)
        case "undone":
            return ActionFailed(said[0], _placements(said[1]), Reason(Code(said[2]), message=said[3]))
        case "stopping":
            return TasksStopping(said[0], _placements(said[1]))
        case "ended":
            return TasksEnded(said[0], _placements(said[1]), said[2], said[3])
        case _:
            return _fleet_event_of(kind, said, levels)


def _fleet_event_of(kind: str, said: Data, levels: tuple[str, ...]) -> Event:
    match kind:
        case "lost":
            return NodeLost(said[0])
        case "load":
            extras = said[3] if len(said) > 3 else {}
            return NodeLoaded(said[0], Load(said[1], said[2], tuple(sorted(extras.items()))))
        case "health":
            return GpuHealthChanged(said[0], said[1], Health(said[2]))
        case "node":
            return NodeSeen(_part("nodes", [said[0]], levels).nodes[0])
        case "queues":
            return QueuesChanged(_part("queues", said[0], levels).queues)
        case "pools":
            return PoolsChanged(_part("pools", said[0], levels).pools)
        case "policy":
            return PolicyChanged(_part("policy", said[0], levels).policy)
    return BudgetsChanged(_part("budgets", said[0], levels).budgets)


def _part(section: str, documents: Any, levels: tuple[str, ...]) -> Snapshot:
    header = {"apiVersion": "gpuyard.dev/v1", "kind": "Snapshot", "topology": list(levels)}
    return files.parse_snapshot(json.dumps({**header, section: documents}), "journal", 0.0)


def _job(document: dict[str, Any], now: float) -> Job:
    problems = Problems("journal", document)
    entry = read_entry(JobEntry, document, (), problems)
    problems.refuse_if_any(lambda _at: 0)
    assert entry is not None
    return job_of(entry, (), now, problems)


def _places(placements: Iterable[Placement]) -> list[Data]:
    return [_place(placement) for placement in placements]


def _place(p: Placement) -> Data:
    """Most are neither ending nor yet to begin, and are written without a word on that."""
    state = [p.terminating, p.assigned] if p.terminating or p.assigned else []
    return [p.node, list(p.gpus), p.group, p.task, list(p.mig), p.uid, *state]


def _placements(documents: list[Data]) -> tuple[Placement, ...]:
    return tuple(_placement(*document) for document in documents)


def _placement(*said: Any) -> Placement:
    node, gpus, group, task, mig, uid, *state = said
    terminating, assigned = state or (False, False)
    return Placement(node, tuple(gpus), group, task, tuple(mig), terminating, assigned, uid)


def plan_document(plan: Plan) -> Data:
    """What was decided, each action as a short list with its reason's code."""
    return [_action(action) for action in plan.actions]


def _action(action: Action) -> Data:
    match action:
        case Start():
            said: Data = ["start", action.job, _places(action.placements), list(action.after)]
        case Evict():
            said = ["evict", action.job, _places(action.placements), action.beneficiary, list(action.uids)]
        case Move():
            said = ["move", action.job, _places(action.source), _places(action.target), list(action.after)]
        case Terminate() | Warn():
            said = [type(action).__name__.lower(), action.job, list(action.uids)]
        case Reserve():
            said = ["reserve", action.job, _places(action.placements), action.until]
        case Cordon() | Drain():
            said = [type(action).__name__.lower(), action.node, action.gpu]
        case Scale():
            said = ["scale", action.pool, action.nodes]
    return [*said, action.reason.code.value]
