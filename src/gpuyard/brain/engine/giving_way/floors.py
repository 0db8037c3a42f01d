"""What clearing a node costs a claimant at least, told from who stands there without weighing any set of them.

It lets `clearing` weigh only nodes that could be the cheapest, and leave out those that no set of leavers would clear.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from gpuyard.brain.engine.giving_way import victims
from gpuyard.brain.engine.giving_way.clearing import Key
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.brain.engine.sharing.amounts import GPUS


def least_key(draft: Draft, claimant: JobRow, rows: Iterable[JobRow], node: int, short: int) -> Key | None:
    """A key of rule 19 that no set of these jobs is below which leaves `short` more devices free.

    () where they must be weighed, None where there is no such set.
    """
    if short <= 0:
        return ()
    there, devices, grains = on_devices((row for row in rows if not row.firm and not row.job.foreign), node)
    if sum(devices) < short:
        return None
    gangs, least = -(-short // max(devices)), min(grains)
    if not least:
        return ()  # a stand-in holds devices at no cost
    own, priority, lost_s, youth = True, there[0].priority, inf, there[0].youth
    for row in there:
        if not row.rigid:
            return ()  # it may give extras alone
        own = own and row.queue == claimant.queue
        priority = min(priority, row.priority)
        lost_s = min(lost_s, lost(draft, row))
        youth = min(youth, row.youth)
    pushes = (False, False) if own else _pushes(draft, claimant, zip(there, devices, strict=True), short, least)
    return own, True, *pushes, priority, 0, lost_s * short * least, gangs, gangs, youth


def on_devices(rows: Iterable[JobRow], node: int) -> tuple[list[JobRow], list[int], list[float]]:
    """Those of the jobs that have devices of the node, how many fall free at most when each leaves, what each costs."""
    there: list[JobRow] = []
    devices: list[int] = []
    grains: list[float] = []
    for row in rows:
        count = cost = 0
        for held in row.held:
            if held.gpus and held.node == node and not held.mig and not held.terminating:
                count += len(held.gpus)
                cost += held.cost
        if count:
            there.append(row)
            devices.append(count)
            grains.append(cost / count)
    return there, devices, grains


def lost(draft: Draft, row: JobRow) -> float:
    """What stopping the job loses for each of its GPUs, in seconds."""
    return victims.unsaved(draft, row) + victims.warm_up(draft, row)


def _pushes(
    draft: Draft, claimant: JobRow, devices: Iterable[tuple[JobRow, int]], short: int, least: float
) -> tuple[bool, bool]:
    """Whether other queues must fall below their quota, and below their fair share, to give what the own cannot."""
    by_queue: dict[int, int] = {}
    for row, count in devices:
        by_queue[row.queue] = by_queue.get(row.queue, 0) + count
    below_quota: float = short - by_queue.pop(claimant.queue, 0)
    below_share = below_quota
    used, quota, shares = draft.fleet.tree.used, draft.fleet.tree.quota, draft.shares
    for q, count in by_queue.items():
        held = used[q][GPUS]
        below_quota -= min(count, max(0, held - quota[q][GPUS]) // least)
        below_share -= min(count, max(0, held - shares[q][GPUS]) // least)
    return below_quota > 0, below_share > 0
