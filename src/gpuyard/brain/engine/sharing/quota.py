"""Who may run: limits and quotas over the queue tree, and what each queue holds (rules 1 to 5).

Used by admission, ordering and preemption. Knows amounts per queue, not jobs or nodes; what a queue is due is
`fair_share`.
Resources are counted in a fixed order: `gpu` first, then `cpu` and `memory` if any queue names them, then every model
name (or prefix) that a quota or limit names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from gpuyard.brain.engine.sharing.amounts import GPUS, Amounts, add
from gpuyard.model.queue import ROOT, Allowance, Queue, model_matches
from gpuyard.model.resources import UNLIMITED

GPU, CPU, MEMORY = "gpu", "cpu", "memory"
NOT_COUNTED = -1
"""Marks a resource that a quota does not name: it neither grants nor restrains."""


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
        self.root = self.index[ROOT]
        self.parent = [self.index[queue.parent] if queue.name != ROOT else -1 for queue in self.queues]
        self.paths = [self._path(i) for i in range(len(self.queues))]
        self.children: list[list[int]] = [[] for _ in self.queues]
        for i, parent in enumerate(self.parent):
            if parent >= 0:
                self.children[parent].append(i)
        self.resources = _named_resources(self.queues)
        self.by_model = not {GPU, CPU, MEMORY}.issuperset(self.resources)
        """Whether some queue counts GPUs of a model by themselves, so that it matters where a job runs."""
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
        amounts = [0] * len(self.resources)
        amounts[GPUS] = gpu
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

    def charge(self, queue: int, amounts: Amounts, firm: bool, sign: int) -> None:
        """Add (or with sign -1 take away) what a task holds, at every level."""
        self.suppose(queue, amounts, firm, sign)
        self.changed.append(queue)

    def suppose(self, queue: int, amounts: Amounts, firm: bool, sign: int) -> None:
        """The same for somebody who only asks what would be, and undoes it at once: nobody is told of a change."""
        for books in (self.used, self.firm) if firm else (self.used,):
            if len(amounts) == 1:  # GPUs alone, by far the most
                more = sign * amounts[GPUS]
                for q in self.paths[queue]:
                    books[q][GPUS] += more
            else:
                for q in self.paths[queue]:
                    add(books[q], amounts, sign)

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

    def exceeds(self, queue: int, taken: Amounts, firm: bool) -> Excess | None:
        """The first place where what was `taken` and is charged already passes a limit or (firm) a quota."""
        before = [-amount for amount in taken]
        self.suppose(queue, before, firm, 1)
        try:
            return self.refuses(queue, taken, firm)
        finally:
            self.suppose(queue, taken, firm, 1)

    def _over(
        self, q: int, asked: Sequence[int], used: Amounts, allowed: Amounts, kind: Literal["limit", "quota"]
    ) -> Excess | None:
        for r, amount in enumerate(asked):
            if amount and allowed[r] != NOT_COUNTED and used[r] + amount > allowed[r]:
                return Excess(self.queues[q].name, self.resources[r], kind, allowed[r], used[r], amount)
        return None

    def within_quota(self, q: int, asked: Sequence[int]) -> bool:
        """Whether this one queue would stay within its quota in every resource the quota names."""
        return self.within(q, self.quota[q], asked)

    def within(self, q: int, due: Sequence[float], asked: Sequence[int]) -> bool:
        """Whether this one queue would stay within `due` with what is asked, in every resource that its quota names."""
        used, quota = self.used[q], self.quota[q]
        for r, amount in enumerate(asked):  # asked for every victim, and a plain loop is the fastest
            if amount and quota[r] != NOT_COUNTED and used[r] + amount > due[r]:
                return False
        return True

    def above(self, q: int, due: Sequence[float]) -> bool:
        """Whether this queue holds more than `due` in any counted resource."""
        used, quota = self.used[q], self.quota[q]
        return any(quota[r] != NOT_COUNTED and held > due[r] for r, held in enumerate(used))


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
