"""Who may run and what each queue is due: limits, quotas and fair shares over the queue tree (rules 1 to 6).

Used by the cycle, by ordering and by preemption. Knows amounts per queue, not jobs or nodes.
Resources are counted in a fixed order: `gpu` first, then `cpu` and `memory` if any queue names them, then every model
name (or prefix) that a quota or limit names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from gpuyard.model.queue import ROOT, Allowance, Queue, model_matches
from gpuyard.model.resources import UNLIMITED

GPU, CPU, MEMORY = "gpu", "cpu", "memory"
NOT_COUNTED = -1
"""Marks a resource that a quota does not name: it neither grants nor restrains."""

Amounts = list[int]
"""One amount per counted resource, in the tree's order."""


@dataclass(frozen=True, slots=True)
class Excess:
    """Where a job would pass what its queues allow."""

    queue: str
    resource: str
    kind: Literal["limit", "quota"]
    allowed: int
    used: int
    asked: int


class QueueTree:
    """The queues as arrays indexed by queue id, with what each holds now; parents hold what their children hold."""

    def __init__(self, queues: Iterable[Queue]) -> None:
        self.queues = _with_root(queues)
        self.index = {queue.name: i for i, queue in enumerate(self.queues)}
        self.parent = [self.index[queue.parent] if queue.name != ROOT else -1 for queue in self.queues]
        self.paths = [self._path(i) for i in range(len(self.queues))]
        self.children: list[list[int]] = [[] for _ in self.queues]
        for i, parent in enumerate(self.parent):
            if parent >= 0:
                self.children[parent].append(i)
        self.resources = _named_resources(self.queues)
        self.quota = [_amounts(queue.quota, self.resources, NOT_COUNTED) for queue in self.queues]
        self.limit = [_amounts(queue.limit, self.resources, UNLIMITED) for queue in self.queues]
        self.used = [[0] * len(self.resources) for _ in self.queues]
        self.firm = [[0] * len(self.resources) for _ in self.queues]
        """Held by non-preemptible jobs (rule 3)."""
        self.changed: list[int] = []
        """Queues whose holdings changed, for those who keep an order by them."""
        self._model_slots: dict[str, list[int]] = {}

    def _path(self, i: int) -> tuple[int, ...]:
        path = [i]
        while self.parent[path[-1]] >= 0:
            path.append(self.parent[path[-1]])
        return tuple(path)

    def vector(self, gpu: int, cpu: int, memory: int, model: str) -> Amounts:
        """Amounts on a node of `model`, laid out in the tree's resource order."""
        if len(self.resources) == 1:
            return [gpu]
        amounts = [0] * len(self.resources)
        amounts[0] = gpu
        for i, name in enumerate(self.resources[1:3], start=1):
            if name in (CPU, MEMORY):
                amounts[i] = cpu if name == CPU else memory
        for i in self.model_slots(model):
            amounts[i] = gpu
        return amounts

    def model_slots(self, model: str) -> list[int]:
        """Which resources a GPU of this model counts in, besides `gpu`."""
        slots = self._model_slots.get(model)
        if slots is None:
            named = [i for i, name in enumerate(self.resources) if name not in (GPU, CPU, MEMORY)]
            slots = self._model_slots[model] = [i for i in named if model_matches(self.resources[i], model)]
        return slots

    def charge(self, queue: int, amounts: Sequence[int], firm: bool, sign: int = 1) -> None:
        """Add (or with sign -1 take away) what a task holds, at every level."""
        for q in self.paths[queue]:
            used = self.used[q]
            for r, amount in enumerate(amounts):
                used[r] += sign * amount
            if firm:
                held = self.firm[q]
                for r, amount in enumerate(amounts):
                    held[r] += sign * amount
        self.changed.append(queue)

    # --- rules 2 to 4 ---------------------------------------------------------------------------------------------

    def refuses(self, queue: int, asked: Sequence[int], firm: bool) -> Excess | None:
        """The first place where the job would pass a limit, or (non-preemptible) the quota; None if it may run."""
        for q in self.paths[queue]:
            excess = self._over(q, asked, self.used[q], self.limit[q], "limit")
            if excess is None and firm:
                excess = self._over(q, asked, self.firm[q], self.quota[q], "quota")
            if excess is not None:
                return excess
        return None

    def exceeds(self, queue: int, taken: Sequence[int], firm: bool) -> Excess | None:
        """The first place where what was `taken` and is charged already passes a limit or (firm) a quota."""
        before = [-amount for amount in taken]
        self.charge(queue, before, firm)
        excess = self.refuses(queue, taken, firm)
        self.charge(queue, list(taken), firm)
        return excess

    def _over(
        self, q: int, asked: Sequence[int], used: Amounts, allowed: Amounts, kind: Literal["limit", "quota"]
    ) -> Excess | None:
        for r, amount in enumerate(asked):
            if amount and allowed[r] != NOT_COUNTED and used[r] + amount > allowed[r]:
                return Excess(self.queues[q].name, self.resources[r], kind, allowed[r], used[r], amount)
        return None

    def within_quota(self, q: int, asked: Sequence[int]) -> bool:
        """Whether this one queue would stay within its quota in every resource the quota names."""
        used, quota = self.used[q], self.quota[q]
        return all(
            quota[r] == NOT_COUNTED or not amount or used[r] + amount <= quota[r] for r, amount in enumerate(asked)
        )

    def above(self, q: int, due: Sequence[float]) -> bool:
        """Whether this queue holds more than `due` in any counted resource."""
        used, quota = self.used[q], self.quota[q]
        return any(quota[r] != NOT_COUNTED and used[r] > due[r] for r in range(len(used)))


# --- rule 6 -----------------------------------------------------------------------------------------------------------

Shares = list[list[float]]
"""Fair share per queue and resource."""


def fair_shares(tree: QueueTree, demand: Sequence[Sequence[int]], capacity: Sequence[int]) -> Shares:
    """What each queue is due, per resource, top down. `demand` holds leaf demands; parents sum their children's."""
    total = _sum_up(tree, demand)
    shares: Shares = [[0.0] * len(tree.resources) for _ in tree.queues]
    root = tree.index[ROOT]
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
    left = due - sum(shares[q][r] for q in members)
    for priority in sorted({tree.queues[q].priority for q in members}, reverse=True):
        equals = [q for q in members if tree.queues[q].priority == priority and tree.queues[q].weight > 0]
        left = _pour(tree, r, equals, want, left, shares)
    for q in tree.children[parent]:
        if tree.quota[q][r] == NOT_COUNTED:
            shares[q][r] = due  # it does not count here, so its children divide what its parent had
        _divide(tree, r, q, demand, shares)


def _pour(tree: QueueTree, r: int, equals: list[int], want: dict[int, float], left: float, shares: Shares) -> float:
    """Pour what is left by weight until everyone has what it wants; returns the rest."""
    thirsty = [q for q in equals if want[q] > shares[q][r]]
    while thirsty and left > 0:
        weight = sum(tree.queues[q].weight for q in thirsty)
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


# --- reading the queues -----------------------------------------------------------------------------------------------


def _with_root(queues: Iterable[Queue]) -> list[Queue]:
    given = sorted(queues, key=lambda queue: queue.name)
    if any(queue.name == ROOT for queue in given):
        return given
    return [Queue(ROOT, parent="", quota=Allowance(UNLIMITED)), *given]


def _named_resources(queues: Sequence[Queue]) -> tuple[str, ...]:
    allowances = [allowance for queue in queues for allowance in (queue.quota, queue.limit)]
    names = [GPU]
    if any(allowance.cpu is not None for allowance in allowances):
        names.append(CPU)
    if any(allowance.memory is not None for allowance in allowances):
        names.append(MEMORY)
    return (*names, *sorted({model for allowance in allowances for model, _ in allowance.models}))


def _amounts(allowance: Allowance, resources: Sequence[str], unnamed: int) -> Amounts:
    named: dict[str, int] = {GPU: allowance.gpu, **dict(allowance.models)}
    if allowance.cpu is not None:
        named[CPU] = allowance.cpu
    if allowance.memory is not None:
        named[MEMORY] = allowance.memory
    return [named.get(resource, unnamed) for resource in resources]
