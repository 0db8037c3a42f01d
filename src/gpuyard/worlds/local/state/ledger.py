"""What was used: GPU-seconds and money per day, queue and user, summed when a task ends.

Written in the same commit as the task's end, so the sums are exact whatever crashes. Called by `lifecycle`.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from gpuyard.model.node import Pool
from gpuyard.worlds.local.state.records import Attempt, Entry, Task
from gpuyard.worlds.local.state.store import Batch

DAY_S = 86400
HOUR_S = 3600.0
UNDONE = frozenset(("preempted", "moved", "drained", "node", "member"))
"""Stops that nobody asked for who owns the job."""


def gpu_hour(pool: Pool | None) -> float:
    """The price of one GPU for an hour in a pool, if it is in one."""
    return pool.gpu_hour() if pool is not None else 0.0


class Use(NamedTuple):
    """What one task had: GPUs from one moment to another, at a price for each hour of one."""

    begin: float
    end: float
    gpus: float
    price: float
    lost_since: float = inf
    """From when on its work has to be done again."""


def book(batch: Batch, entry: Entry, use: Use) -> None:
    """One task's time on its GPUs, on the days on which it ran."""
    if not use.gpus:
        return
    for day in range(int(use.begin // DAY_S), int(use.end // DAY_S) + 1):
        begin, end = max(use.begin, day * DAY_S), min(use.end, (day + 1) * DAY_S)
        held, lost = (max(0.0, end - since) * use.gpus for since in (begin, max(begin, use.lost_since)))
        batch.add(
            "INSERT INTO ledger(day, queue, user, owner, tasks, gpu_seconds, money, lost) "
            "VALUES (?, ?, ?, ?, 1, ?, ?, ?) ON CONFLICT(day, queue, user, owner) DO UPDATE SET tasks=tasks+1, "
            "gpu_seconds=gpu_seconds+excluded.gpu_seconds, money=money+excluded.money, lost=lost+excluded.lost",
            (day, entry.template.job.queue, entry.owner.user, entry.owner.identity, held, held * use.price / HOUR_S,
             lost),
        )  # fmt: skip


def measure(batch: Batch, entry: Entry, at: float, seconds: tuple[float, float]) -> None:
    """What of a job's time was measured, and of that, what its GPUs were at work: GPU-seconds, on the day it is."""
    batch.add(
        "INSERT INTO ledger(day, queue, user, owner, tasks, gpu_seconds, money, lost, measured, busy) "
        "VALUES (?, ?, ?, ?, 0, 0, 0, 0, ?, ?) ON CONFLICT(day, queue, user, owner) DO UPDATE SET "
        "measured=measured+excluded.measured, busy=busy+excluded.busy",
        (int(at // DAY_S), entry.template.job.queue, entry.owner.user, entry.owner.identity, *seconds),
    )


def lost_since(entry: Entry, attempt: Attempt, task: Task) -> float:
    """From when on the task's work has to be done again: since it last saved it, if it was stopped for somebody else,
    or died through no fault of its own. One that saves its work when it is told to stop loses nothing by being told."""
    stopped = task.outcome == "stopped" and attempt.why in UNDONE and entry.description().checkpoint is None
    if task.outcome != "lost" and not stopped:
        return inf
    saved = attempt.progress.saved if attempt.progress is not None else None
    return attempt.created if saved is None else max(attempt.created, saved)
