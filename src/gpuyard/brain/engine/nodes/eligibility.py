"""Which nodes could ever run one kind of task, whatever is free: models, labels, taints, size.

Looks at descriptions only, node kind by node kind, and remembers the answers; the nodes of a fleet change rarely.
How much room there is now is `feasibility`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpuyard.brain.engine.nodes.columns import Bools, Columns, Ints
from gpuyard.brain.engine.nodes.requests import STATIC_CHECKERS, Checker, TaskRequest
from gpuyard.model.node import Gpu
from gpuyard.model.queue import model_matches

Tier = frozenset[int]
"""Models (by id) that are equally good for a task group."""


class Eligibility:
    """What the nodes' descriptions say to each kind of task. Thrown away when the nodes themselves change."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self._static: dict[tuple[int, tuple[Checker, ...]], Bools] = {}
        self._needs: dict[int, Ints] = {}
        self._tiers: dict[tuple[int, bool], tuple[Tier, ...]] = {}
        self._codes: dict[tuple[str, ...], tuple[Ints, list[int]]] = {}
        columns.kind = self._kinds(())[0].tolist()

    def eligible(self, request: TaskRequest, tier: Tier) -> Bools:
        """Nodes that could ever run the task, on models of the tier."""
        fits = self.static(request, STATIC_CHECKERS)
        if request.resources.cpu_only or len(tier) == len(self.columns.models):
            return fits
        return fits & np.isin(self.columns.model, sorted(tier))

    def need(self, request: TaskRequest) -> Ints:
        """The share of a device the task takes on each node (WHOLE and more: it cannot)."""
        need = self._needs.get(request.id)
        if need is None:
            need = self._needs[request.id] = self._need(request)
        return need

    def _need(self, request: TaskRequest) -> Ints:
        if not request.resources.gpu_memory:
            return np.full(len(self.columns.nodes), max(request.resources.share, 1), dtype=np.int64)
        return np.array([request.share_on(node) for node in self.columns.nodes], dtype=np.int64)

    def static(self, request: TaskRequest, checkers: tuple[Checker, ...]) -> Bools:
        """Where all (for `dislikes`: any) of the checkers hold; they look at a node's description only."""
        key = (request.id, checkers)
        mask = self._static.get(key)
        if mask is None:
            codes, examples = self._kinds(_label_keys(request))
            nodes = self.columns.nodes
            asked = [check for check in checkers if check not in request.waived]
            verdicts = [all(check(request, nodes[i]) for check in asked) for i in examples]
            mask = self._static[key] = np.array(verdicts, dtype=bool)[codes] if examples else np.zeros(0, dtype=bool)
        return mask

    def _kinds(self, label_keys: tuple[str, ...]) -> tuple[Ints, list[int]]:
        """Nodes grouped by what checkers can see: a kind per node, and an example node per kind."""
        found = self._codes.get(label_keys)
        if found is None:
            kinds: dict[object, int] = {}
            examples: list[int] = []
            codes = np.zeros(len(self.columns.nodes), dtype=np.int64)
            for i, node in enumerate(self.columns.nodes):
                labels = dict(node.labels) if label_keys else {}
                seen = tuple(labels.get(key) for key in label_keys)
                kind = (node.model, node.gpu_memory, node.architecture, node.taints, node.closed is None, node.cpu,
                        node.memory, _gpu_kind(node.gpus), seen)  # fmt: skip
                if kind not in kinds:
                    kinds[kind] = len(examples)
                    examples.append(i)
                codes[i] = kinds[kind]
            found = self._codes[label_keys] = (codes, examples)
        return found

    # --- tiers of models ------------------------------------------------------------------------------------------

    def tiers(self, request: TaskRequest, alone: bool) -> tuple[Tier, ...]:
        """Sets of models to try, in order of preference (rule 11).

        A single task may land on any model of an entry; several tasks need one model, so each gets its own tier.
        Without a preference the tiers of several tasks stand in order of model name; who has room decides.
        """
        key = (request.id, alone)
        found = self._tiers.get(key)
        if found is None:
            found = self._tiers[key] = tuple(self._find_tiers(request, alone))
        return found

    def _find_tiers(self, request: TaskRequest, alone: bool) -> list[Tier]:
        models = self.columns.models
        if request.resources.cpu_only:
            return [frozenset(range(len(models)))]
        fits = self.static(request, STATIC_CHECKERS)
        present = set(self.columns.model[fits].tolist())
        tiers: list[Tier] = []
        for wanted in request.models or ("",):
            matching = [i for i in sorted(present) if not wanted or model_matches(wanted, models[i])]
            present -= set(matching)
            if alone and matching:
                tiers.append(frozenset(matching))
            else:
                tiers.extend(frozenset((i,)) for i in matching)
        return tiers


def _label_keys(request: TaskRequest) -> tuple[str, ...]:
    keys = {key for key, _ in request.node_selector}
    keys |= {expression.key for term in request.affinity for expression in term.expressions}
    return tuple(sorted(keys))


def _gpu_kind(gpus: Sequence[Gpu]) -> object:
    """What checkers can see of a node's GPUs: how many whole ones, or every slice."""
    if all(gpu.slices is None for gpu in gpus):
        return len(gpus)
    return tuple(gpu.slices for gpu in gpus)
