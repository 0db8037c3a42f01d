"""How much slower a job runs where it stands: a model of contention that is stated, not measured.

Used by `world` where a run asks for it (`Rules.contention`). A job is as fast as its slowest task: others on the task's
node take some of its host and network, a GPU that runs slow drags the gang, and links between nodes and racks are thin
beside NVLink. The factors are assumptions in the order of what operators report; who knows better gives others. They
are taken when a job is placed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from gpuyard.model.job import Placement
from gpuyard.model.node import Health, Node


@dataclass(frozen=True, slots=True)
class Contention:
    """Factors on the time a job takes."""

    neighbour: float = 0.02
    """For each other job on the node."""
    slow_gpu: float = 0.25
    """For a gang with a suspect GPU."""
    nodes: float = 0.03
    """For a gang on more than one node."""
    racks: float = 0.05
    """For a gang in more than one rack, on top of that."""

    def __str__(self) -> str:
        return (
            f"a job takes {self.neighbour:.0%} longer for each other job on its busiest node, "
            f"{self.slow_gpu:.0%} for a slow GPU, {self.nodes:.0%} across nodes and {self.racks:.0%} more across racks"
        )

    def factor(
        self, places: Collection[Placement], nodes: Mapping[str, Node], others: Mapping[str, int], talks: bool
    ) -> float:
        """How many times longer the job takes; `others` counts the other jobs of each node, and `talks` says whether
        its tasks wait for each other (replicas of a service do not)."""
        known = [nodes[place.node] for place in places if place.node in nodes]
        slow = any(
            gpu.health is Health.SUSPECT and gpu.index in place.gpus
            for place in places
            if place.node in nodes
            for gpu in nodes[place.node].gpus
        )
        more = self.neighbour * max((others.get(node.name, 0) for node in known), default=0) + self.slow_gpu * slow
        if talks:
            more += self.nodes * (len({node.name for node in known}) > 1)
            more += self.racks * (len({dict(node.domains).get("rack", "") for node in known}) > 1)
        return 1.0 + more
