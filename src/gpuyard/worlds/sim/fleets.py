"""The fleet that a trace runs on: our fleet file, openb's node list, or a shape such as `V100:8x60`."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from gpuyard import files
from gpuyard.files.data.gpu_models import architecture_of, memory_of
from gpuyard.files.reading.fleet import ONLY_QUEUE
from gpuyard.model.errors import Refused
from gpuyard.model.node import Gpu, Node
from gpuyard.model.queue import Queue
from gpuyard.model.resources import WHOLE
from gpuyard.model.snapshot import Snapshot
from gpuyard.worlds.sim import openb
from gpuyard.worlds.sim.reading import text_of
from gpuyard.worlds.sim.rows import parse
from gpuyard.worlds.sim.trace import Trace

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
