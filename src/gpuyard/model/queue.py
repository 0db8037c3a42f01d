"""Queues: a team's place in a tree, with what it is guaranteed and what it may never pass (rules 1 to 4)."""

from __future__ import annotations

from dataclasses import dataclass

from gpuyard.model.resources import UNLIMITED

ROOT = "root"
DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Allowance:
    """A quota or a limit. CPU and memory that are None are not counted; models not named share in `gpu`."""

    gpu: int
    """grains."""
    models: tuple[tuple[str, int], ...] = ()
    """(model name or prefix, grains)."""
    cpu: int | None = None
    memory: int | None = None


NO_QUOTA = Allowance(gpu=0)
NO_LIMIT = Allowance(gpu=UNLIMITED)


@dataclass(frozen=True, slots=True)
class Queue:
    """Quota is guaranteed, limit is a hard cap, weight and priority divide what is left over (rule 6)."""

    name: str
    parent: str = ROOT
    quota: Allowance = NO_QUOTA
    limit: Allowance = NO_LIMIT
    weight: float = 1.0
    priority: int = 0
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    max_grace: float = 0.0
    """The longest `checkpoint.grace` of a job here; 0: as its class has it. So are the two below."""
    max_min_runtime: float = 0.0
    max_time_limit: float = 0.0


def model_matches(wanted: str, model: str) -> bool:
    """Whether a model name matches whole or by a prefix that ends before a `-`."""
    return model == wanted or model.startswith(wanted + "-")
