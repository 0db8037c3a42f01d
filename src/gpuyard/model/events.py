"""What a world reports. Applied to the Fleet in order; applying them one by one equals building it afresh.

A task is known by its placement's `uid`; where it has none, by its group, number and node.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuyard.model.job import Job, Placement
from gpuyard.model.node import Budget, Health, Load, Node, Pool
from gpuyard.model.policy import Policy
from gpuyard.model.queue import Queue
from gpuyard.model.reasons import Reason


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
class NodeLoaded:
    """Others use so much of a node from now on."""

    node: str
    taken: Load


@dataclass(frozen=True, slots=True)
class JobSeen:
    """A job was submitted or its description changed; placements, if any, say where it already runs."""

    job: Job


@dataclass(frozen=True, slots=True)
class TasksAssigned:
    """Tasks of a job have their places from now on; they do not run yet."""

    job: str
    placements: tuple[Placement, ...]
    at: float


@dataclass(frozen=True, slots=True)
class TasksRunning:
    """Tasks of a job run now, in places that are theirs since then or since they were assigned."""

    job: str
    placements: tuple[Placement, ...]
    at: float


@dataclass(frozen=True, slots=True)
class ActionFailed:
    """What a plan wanted of these tasks did not come about: those assigned are not there, those stopping go on.

    None of them is named where the plan meant tasks that are not there any more.
    """

    job: str
    placements: tuple[Placement, ...]
    reason: Reason


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
class JobEvicted:
    """A whole gang has gone because a plan wanted it; this, and not the wish, is what rule 21 counts."""

    name: str
    at: float


@dataclass(frozen=True, slots=True)
class JobProgressed:
    """A job told how far it is: so much done by then, of so much in all (0: it did not say)."""

    job: str
    at: float
    done: float
    total: float = 0.0
    saved: float | None = None
    """When it last saved its work, if it ever said so."""
    started: float | None = None
    """When it began to run, where that may not be known yet."""


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


@dataclass(frozen=True, slots=True)
class PolicyChanged:
    """The whole policy, anew."""

    policy: Policy


Event = (
    NodeSeen
    | NodeLost
    | NodeLoaded
    | GpuHealthChanged
    | JobSeen
    | TasksAssigned
    | TasksRunning
    | ActionFailed
    | JobEvicted
    | JobProgressed
    | TasksStopping
    | TasksEnded
    | JobGone
    | QueuesChanged
    | PoolsChanged
    | BudgetsChanged
    | PolicyChanged
)
