"""Reads the job traces of Muri (SIGCOMM'22): Philly's arrivals, sizes and durations with models assigned.

Work is iterations x iteration time x 1.015, as in the published runs; gangs larger than a node take whole nodes.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpuyard.model.job import Job, TaskGroup, one_group
from gpuyard.model.resources import Request
from gpuyard.worlds.sim.traces.table_lines import TableLine
from gpuyard.worlds.sim.traces.trace import Arrival, Trace, by_time

SLOWDOWN = 1.015
"""What measuring costs an iteration, in the authors' simulator."""

START_SECONDS: dict[str, tuple[int, ...]] = {
    "vgg16": (7, 7, 8, 9, 9, 10), "vgg19": (7, 7, 8, 9, 10, 10), "resnet18": (4, 5, 5, 7, 7, 7),
    "shufflenet_v2_x1_0": (4, 4, 5, 5, 7, 8), "bert": (10,) * 6, "gpt2": (10,) * 6,
    "a2c": (38, 39, 39, 46, 46, 46), "dqn": (5, 5, 6, 6, 8, 8),
}  # fmt: skip
"""Measured cost of a start for 1, 2, 4, 8, 16 and 32 GPUs (Rivendile/Muri, simulator/run_sim.py @4e69a78)."""

OTHER_START = 10.0


def trace(name: str, rows: Iterable[TableLine], node_gpus: int = 8) -> Trace:
    """The trace; times in the file are milliseconds."""
    return Trace(name, by_time([_arrival(row, node_gpus) for row in rows]))


def _arrival(row: TableLine, node_gpus: int) -> Arrival:
    gpus, at = row.whole("num_gpu", 1), row.number("submit_time", 0) / 1000
    work = row.number("iterations", 0) * row.number("iteration_time", 0) / 1000 * SLOWDOWN
    name = f"job-{row.whole('job_id'):05d}"
    return Arrival(at, gang(name, gpus, node_gpus, at, work), work, _overhead(row.text("model_name"), gpus))


def gang(name: str, gpus: int, node_gpus: int, at: float, work: float) -> Job:
    """A job of so many GPUs: one task where a node holds it, else as few equal tasks as can be."""
    tasks = max(1, -(-gpus // node_gpus))
    while gpus % tasks:
        tasks += 1
    group = TaskGroup(tasks=tasks, min=tasks, request=Request(gpus=gpus // tasks))
    return Job(name, one_group(group), submitted=at, duration=work)


def _overhead(model: str, gpus: int) -> float:
    steps = START_SECONDS.get(model)
    return float(steps[min(gpus.bit_length() - 1, len(steps) - 1)]) if steps else OTHER_START
