"""The fleet that a trace runs on: our fleet file, openb's node list, or a shape such as `V100:8x60`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gpuyard import files
from gpuyard.files.data.gpu_models import architecture_of, memory_of
from gpuyard.files.reading.fleet import ONLY_QUEUE
from gpuyard.model.errors import Refused
from gpuyard.model.job import Placement
from gpuyard.model.node import Gpu, Health, Node
from gpuyard.model.queue import Queue
from gpuyard.model.resources import WHOLE
from gpuyard.model.snapshot import Snapshot
from gpuyard.worlds.sim.traces import openb
from gpuyard.worlds.sim.traces.reading import text_of
from gpuyard.worlds.sim.traces.table_lines import parse
from gpuyard.worlds.sim.traces.trace import Trace

SHAPE = re.compile(r"(?:(?P<model>[\w.-]+):)?(?P<gpus>\d+)x(?P<nodes>\d+)(?:@(?P<rack>\d+))?")
"""Model, GPUs a node, nodes; `@16`: so many nodes a rack."""


def read(word: str) -> Snapshot:
    """A fleet by its shape or its file; it has no jobs."""
    shape = SHAPE.fullmatch(word)
    if shape:
        rack = int(shape["rack"] or 0)
        if not int(shape["gpus"]) or not int(shape["nodes"]):
            raise Refused(f"{word} is a fleet without GPUs; write GPUs a node and nodes, as V100:8x60")
        return uniform(shape["model"] or "GPU", int(shape["gpus"]), int(shape["nodes"]), rack)
    text = text_of(Path(word))
    if text.startswith("sn,"):
        return Snapshot(nodes=openb.nodes(parse(text, Path(word).name)), queues=(ONLY_QUEUE,))
    snapshot = files.parse_snapshot(text, word, 0.0)
    if not snapshot.nodes:
        raise Refused(f"{word} has no nodes")
    return snapshot


def uniform(model: str, gpus: int, nodes: int, rack: int = 0) -> Snapshot:
    """Equal nodes, in racks if asked."""
    made = tuple(
        Node(
            name=f"n{i:04d}",
            model=model,
            architecture=architecture_of(model),
            gpu_memory=memory_of(model),
            gpus=tuple(Gpu(g) for g in range(gpus)),
            domains=(("rack", f"r{i // rack:03d}"),) if rack else (),
        )
        for i in range(nodes)
    )
    return Snapshot(topology=("rack",) if rack else (), nodes=made, queues=(ONLY_QUEUE,))


def queues(snapshot: Snapshot, trace: Trace) -> tuple[Queue, ...]:
    """The fleet's queues; where it names none, those of the trace, all equal."""
    named = sorted({arrival.job.queue for arrival in trace.arrivals})
    if snapshot.queues == (ONLY_QUEUE,):
        return tuple(replace(ONLY_QUEUE, name=name) for name in named) or snapshot.queues
    known = {queue.name for queue in snapshot.queues}
    if missing := [name for name in named if name not in known]:
        raise Refused(
            f"{trace.name} names queue {missing[0]}, which the fleet does not have; it has {', '.join(sorted(known))}"
        )
    return snapshot.queues


def capacity(snapshot: Snapshot) -> int:
    """GPUs of the fleet, in grains."""
    return sum(len(node.gpus) for node in snapshot.nodes) * WHOLE


@dataclass(frozen=True, slots=True)
class Contention:
    """How much slower a job runs where it stands: a model that is stated, not measured.

    A job is as fast as its slowest task: others on the task's node take some of its host and network, a GPU that runs
    slow drags the gang, and links between nodes and racks are thin beside NVLink. The factors are assumptions in the
    order of what operators report; who knows better gives others. They are taken when a job is placed.
    """

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
