"""What each queue is due: its quota as far as it has demand, and its part of what is left over (rule 6).

Asked once a cycle, when somebody first wants to know, by `Draft.shares`. Pure arithmetic on the queue tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum

from gpuyard.brain.engine.sharing.quota import NOT_COUNTED, QueueTree
from gpuyard.model.resources import UNLIMITED

Shares = list[list[float]]
"""Fair share per queue and resource."""


def fair_shares(tree: QueueTree, demand: Sequence[Sequence[int]], capacity: Sequence[int]) -> Shares:
    """What each queue is due, per resource, top down. `demand` holds leaf demands; parents sum their children's."""
    total = _sum_up(tree, demand)
    shares: Shares = [[0.0] * len(tree.resources) for _ in tree.queues]
    root = tree.root
    for r in range(len(tree.resources)):
        shares[root][r] = float(min(capacity[r], tree.limit[root][r]))
        _divide(tree, r, root, total, shares)
    return shares


def _sum_up(tree: QueueTree, demand: Sequence[Sequence[int]]) -> list[list[int]]:
    total = [[0] * len(tree.resources) for _ in tree.queues]
    for q, path in enumerate(tree.paths):
        for up in path:
            for r, amount in enumerate(demand[q]):
                total[up][r] += amount
    return total


def _divide(tree: QueueTree, r: int, parent: int, demand: list[list[int]], shares: Shares) -> None:
    due = shares[parent][r]
    members = [q for q in tree.children[parent] if tree.quota[q][r] != NOT_COUNTED]
    want = {q: float(min(demand[q][r], tree.limit[q][r])) for q in members}
    for q in members:
        quota = due if tree.quota[q][r] >= UNLIMITED else float(tree.quota[q][r])
        shares[q][r] = min(quota, want[q])
    left = due - fsum(shares[q][r] for q in members)
    for priority in sorted({tree.queues[q].priority for q in members}, reverse=True):
        equals = [q for q in members if tree.queues[q].priority == priority and tree.queues[q].weight > 0]
        left = _pour(tree, r, equals, want, left, shares)
    for q in tree.children[parent]:
        if tree.quota[q][r] == NOT_COUNTED:
            # it does not count here, so its children divide what its parent had, up to its limit
            shares[q][r] = min(due, float(tree.limit[q][r]))
        _divide(tree, r, q, demand, shares)


def _pour(tree: QueueTree, r: int, equals: list[int], want: dict[int, float], left: float, shares: Shares) -> float:
    """Pour what is left by weight until everyone has what it wants; returns the rest."""
    thirsty = [q for q in equals if want[q] > shares[q][r]]
    while thirsty and left > 0:
        weight = fsum(tree.queues[q].weight for q in thirsty)
        level = min((want[q] - shares[q][r]) / tree.queues[q].weight for q in thirsty)
        step = min(level, left / weight)
        for q in thirsty:
            filled = step == level and (want[q] - shares[q][r]) / tree.queues[q].weight == level
            shares[q][r] = want[q] if filled else shares[q][r] + step * tree.queues[q].weight
        left = 0.0 if step < level else left - step * weight
        thirsty = [q for q in thirsty if want[q] > shares[q][r]]
    return max(left, 0.0)


def dues(tree: QueueTree, shares: Shares) -> Shares:
    """max(quota, fair share) per queue and resource, what a queue's use is measured by; 0 where not counted."""
    measured: Shares = []
    for q, quota in enumerate(tree.quota):
        parent = shares[tree.parent[q]] if tree.parent[q] >= 0 else shares[q]
        measured.append([_due(quota[r], shares[q][r], parent[r]) for r in range(len(quota))])
    return measured


def _due(quota: int, share: float, parent: float) -> float:
    if quota == NOT_COUNTED:
        return 0.0
    return max(parent if quota >= UNLIMITED else float(quota), share)
