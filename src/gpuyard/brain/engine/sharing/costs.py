"""What a request costs before it is placed (rule 5), in the queue tree's resources.

Until a task is placed its model is open, so there are two answers: the least it must cost on any node it could use
(what ordering and the first quota check count), and the most it may want of each resource (what demand counts).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from gpuyard.brain.engine.nodes.columns import Columns
from gpuyard.brain.engine.nodes.feasibility import Shapes
from gpuyard.brain.engine.nodes.requests import TaskRequest, has_model
from gpuyard.brain.engine.sharing.amounts import GPUS, Amounts, add
from gpuyard.brain.engine.sharing.quota import QueueTree
from gpuyard.model.job import Bundle, TaskGroup
from gpuyard.model.node import Node
from gpuyard.model.resources import WHOLE


class Bounds(NamedTuple):
    """What one task costs, as far as that is known before it is placed."""

    least: Amounts
    most: Amounts
    varies: bool
    """Whether it takes less of one card than of another."""


class Costs:
    """Costs per kind of task, worked out once each."""

    def __init__(self, columns: Columns, tree: QueueTree, shapes: Shapes) -> None:
        self.columns = columns
        self.tree = tree
        self.shapes = shapes
        self._bounds: dict[int, tuple[TaskRequest, Bounds]] = {}

    def least(self, request: TaskRequest) -> Amounts:
        """What one task costs at least in every resource, wherever it lands."""
        return self._bound(request).least

    def most(self, request: TaskRequest) -> Amounts:
        """What one task may want of every resource; a model it could use counts in full."""
        return self._bound(request).most

    def varies(self, request: TaskRequest) -> bool:
        """Whether one task takes less of one card than of another."""
        return self._bound(request).varies

    def _bound(self, request: TaskRequest) -> Bounds:
        found = self._bounds.get(request.id)
        if found is None:
            found = self._bounds[request.id] = (request, self._work_out(request))
        return found[1]

    def ask_again(self) -> bool:
        """Nodes are described otherwise now; whether any cost has changed by it."""
        old, self._bounds = self._bounds, {}
        for request, _ in old.values():
            self._bound(request)
        return old != self._bounds

    def _work_out(self, request: TaskRequest) -> Bounds:
        vectors = [self._on(request, node) for node in self._examples(request)]
        least = [min(column) for column in zip(*vectors, strict=True)]
        most = [max(column) for column in zip(*vectors, strict=True)]
        varies = most[GPUS] > least[GPUS]
        most[GPUS] = least[GPUS]  # a memory request counts by the largest eligible card until it is placed
        return Bounds(least, most, varies)

    def _on(self, request: TaskRequest, node: Node) -> Amounts:
        cost = min(request.cost_on(node), WHOLE) if request.shared else request.cost_on(node)
        return self.tree.vector(cost, request.resources.cpu, request.resources.memory, node.model)

    def _examples(self, request: TaskRequest) -> list[Node]:
        """One eligible node per model and card size; where none is eligible, of those with a model that it takes."""
        suitable = self.shapes.examples(request) or self.shapes.examples(request, (has_model,))
        nodes = {(node.model, node.gpu_memory): node for node in suitable}
        return list(nodes.values()) or [Node("", model=request.models[0] if request.models else "")]

    def minimum(self, bundle: Bundle, parts: list[Amounts]) -> Amounts:
        """The least a bundle costs to be complete; `parts` holds what each of its leaves lacks, and is used up."""
        children = [parts.pop(0) if isinstance(g, TaskGroup) else self.minimum(g, parts) for g in bundle.groups]
        cheapest = sorted(children)[: bundle.min_groups]
        return [sum(column) for column in zip(*cheapest, strict=True)] if cheapest else self.nothing()

    def total(self, parts: Iterable[Amounts]) -> Amounts:
        """What they cost together."""
        found = self.nothing()
        for part in parts:
            add(found, part)
        return found

    def nothing(self) -> Amounts:
        """No cost at all."""
        return [0] * len(self.tree.resources)
