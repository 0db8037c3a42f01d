"""A whole moment: fleet, queues, jobs, policy and what the brain remembers. For tests, bug reports and what-if."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuyard.model.job import Job, Placement
from gpuyard.model.node import Budget, Node, Pool
from gpuyard.model.policy import Policy
from gpuyard.model.queue import Queue


@dataclass(frozen=True, slots=True)
class Reservation:
    """Places kept free for a job until then."""

    job: str
    placements: tuple[Placement, ...] = ()
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Checked and complete: names are unique and known, placements fit. `files` builds it, the brain trusts it."""

    now: float = 0.0
    topology: tuple[str, ...] = ()
    policy: Policy = field(default_factory=Policy)
    pools: tuple[Pool, ...] = ()
    nodes: tuple[Node, ...] = ()
    queues: tuple[Queue, ...] = ()
    jobs: tuple[Job, ...] = ()
    budgets: tuple[Budget, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    memory: Mapping[str, Any] = field(default_factory=dict)
