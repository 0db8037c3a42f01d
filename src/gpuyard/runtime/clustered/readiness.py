"""How the scheduler of a cluster stands, as a value: made by `scheduler`, told by the server's probes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClusterReadiness:
    """How a scheduler stands: as little as a kubelet must know."""

    leads: bool
    synced: bool
    heard_s: float
    turns: bool
    """Whether no turn has hung."""
    fails: bool = False
    """Whether the last turn failed; they go on."""
