"""What a world reports. Applied to the Fleet in order; applying them one by one equals building it afresh."""

from __future__ import annotations

from dataclasses import dataclass

from gpuyard.model.job import Job, Placement
from gpuyard.model.node import Budget, Health, Node, Pool
from gpuyard.model.queue import Queue


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A node appeared or changed; its tasks stay where they are."""

    node: Node


@dataclass(frozen=True, slots=True)
class NodeLost:
    """A node is gone, and every task on it."""

    name: str


@dataclass(frozen=True, slots=True)
class GpuHealthChanged:
    """One device changed its state."""

    node: str
    index: int
    health: Health


@dataclass(frozen=True, slots=True)
class JobSeen:
    """A job was submitted or its description changed; placements, if any, say where it already runs."""

    job: Job


@dataclass(frozen=True, slots=True)
class TasksStarted:
    """Tasks of a job run now."""

    job: str
    placements: tuple[Placement, ...]
    at: float


@dataclass(frozen=True, slots=True)
class TasksStopping:
    """Tasks of a job were told to stop; they hold their GPUs until they are gone."""

    job: str
    placements: tuple[Placement, ...]


@dataclass(frozen=True, slots=True)
class TasksEnded:
    """Tasks of a job are gone; `succeeded` and `failed` count those that ended by themselves, not evicted ones."""

    job: str
    placements: tuple[Placement, ...]
    succeeded: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class JobGone:
    """A job ended or was cancelled; whatever it held is free."""

    name: str


@dataclass(frozen=True, slots=True)
class QueuesChanged:
    """The whole queue tree, anew."""

    queues: tuple[Queue, ...]


@dataclass(frozen=True, slots=True)
class PoolsChanged:
    """All pools, anew."""

    pools: tuple[Pool, ...]


@dataclass(frozen=True, slots=True)
class BudgetsChanged:
    """All disruption budgets, anew."""

    budgets: tuple[Budget, ...]


Event = (
    NodeSeen
    | NodeLost
    | GpuHealthChanged
    | JobSeen
    | TasksStarted
    | TasksStopping
    | TasksEnded
    | JobGone
    | QueuesChanged
    | PoolsChanged
    | BudgetsChanged
)
