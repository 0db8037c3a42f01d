"""What was used: GPU-seconds and money per day, queue and user, summed when a task ends.

Written in the same commit as the task's end, so the sums are exact whatever crashes. Called by `life`; `runtime` reads.
"""

from __future__ import annotations

from gpuyard.model.node import Node, Pool
from gpuyard.model.resources import WHOLE, mig_cost
from gpuyard.worlds.local.records import Entry, Task
from gpuyard.worlds.local.store import Batch

DAY_S = 86400
HOUR_S = 3600.0
HOURS_A_MONTH = 730.0


def gpu_hour(pool: Pool | None) -> float:
    """The price of one GPU for an hour: pools have that of an 8-GPU node a month."""
    return pool.price / 8 / HOURS_A_MONTH if pool is not None else 0.0


def book(batch: Batch, entry: Entry, span: tuple[float, float], gpus: float, price: float) -> None:
    """One task's time on its GPUs, on the days on which it ran; `price` is that of a GPU for an hour."""
    begin, end = span
    if not gpus:
        return
    for day in range(int(begin // DAY_S), int(end // DAY_S) + 1):
        seconds = max(0.0, min(end, (day + 1) * DAY_S) - max(begin, day * DAY_S))
        batch.add(
            "INSERT INTO ledger(day, queue, user, tasks, gpu_seconds, money) VALUES (?, ?, ?, 1, ?, ?) "
            "ON CONFLICT(day, queue, user) DO UPDATE SET tasks=tasks+1, gpu_seconds=gpu_seconds+excluded.gpu_seconds, "
            "money=money+excluded.money",
            (day, entry.template.job.queue, entry.owner.user, seconds * gpus, seconds * gpus * price / HOUR_S),
        )


def gpus_of(entry: Entry, task: Task, node: Node | None) -> float:
    """How many GPUs a task holds, parts of them included."""
    place = task.placement
    if place.mig:
        return sum(mig_cost(profile) for profile in place.mig) / WHOLE
    request = next(g.request for g in entry.template.job.task_groups() if g.name == place.group)
    if request.gpu_memory and node is not None and node.gpu_memory:
        return request.gpu_memory / node.gpu_memory
    return request.share / WHOLE if request.share else float(len(place.gpus))
