"""Which nodes could ever run one kind of task, whatever is free: models, labels, taints, size.

Looks at descriptions only, node kind by node kind, and remembers the answers; the nodes of a fleet change rarely.
How much room there is now is `feasibility`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpuyard.brain.engine.nodes.columns import Bools, Columns, Floats, Ints
from gpuyard.brain.engine.nodes.layout import alignment
from gpuyard.brain.engine.nodes.requests import (
    STATIC_CHECKERS,
    Checker,
    TaskRequest,
    age,
    dislikes,
    has_cpu,
    labels_of,
    liking,
    unmet_terms,
)
from gpuyard.model.job import Terms
from gpuyard.model.node import ARCHITECTURES, Gpu, Node
from gpuyard.model.queue import model_matches

Tier = frozenset[int]
"""Models (by id) that are equally good for a task group."""


class _Kinds:
    """Nodes grouped by what checkers can see of them: a kind per node, and per kind an example.

    Their CPU, memory and extras are looked at one by one: machines that are alike differ by kilobytes.
    """

    def __init__(self, label_keys: tuple[str, ...], nodes: Sequence[Node]) -> None:
        self._keys = label_keys
        self._known: dict[object, int] = {}
        self.examples: list[Node] = []
        self.codes: Ints = np.array([self._code(node) for node in nodes], dtype=np.int64)

    def _code(self, node: Node) -> int:
        labels = labels_of(node) if self._keys else {}
        seen = tuple(labels.get(key) for key in self._keys)
        kind = (node.model, node.gpu_memory, node.architecture, node.taints, node.workloads, node.closed is None,
                _gpu_kind(node.gpus), alignment.aligned_of(node), seen)  # fmt: skip
        code = self._known.get(kind)
        if code is None:
            code = self._known[kind] = len(self.examples)
            self.examples.append(node)
        return code

    def change(self, n: int, node: Node) -> None:
        """A node is described otherwise now."""
        self.codes[n] = self._code(node)


class Eligibility:
    """What the nodes' descriptions say to each kind of task. Thrown away when nodes come, go or take other places."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self._static: dict[tuple[int, tuple[Checker, ...]], tuple[TaskRequest, Bools]] = {}
        self._meeting: dict[Terms, Bools] = {}
        self._needs: dict[int, Ints] = {}
        self._tiers: dict[tuple[int, bool], tuple[Tier, ...]] = {}
        self._kinds_by: dict[tuple[str, ...], _Kinds] = {}
        self._cpu = np.array([node.cpu for node in columns.nodes], dtype=np.int64)
        self._memory = np.array([node.memory for node in columns.nodes], dtype=np.int64)
        columns.kind = self._kinds(()).codes.tolist()

    def eligible(self, request: TaskRequest, tier: Tier) -> Bools:
        """Nodes that could ever run the task, on models of the tier."""
        fits = self.static(request, STATIC_CHECKERS)
        if request.resources.cpu_only or len(tier) == len(self.columns.models):
            return fits
        return fits & np.isin(self.columns.model, sorted(tier))

    def is_eligible(self, request: TaskRequest, tier: Tier, n: int) -> bool:
        """The same for one node."""
        fits = bool(self.static(request, STATIC_CHECKERS)[n])
        return fits and (request.resources.cpu_only or int(self.columns.model[n]) in tier)

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
        found = self._static.get((request.id, checkers))
        if found is None:
            kinds = self._kinds(_label_keys(request))
            by_kind = tuple(check for check in checkers if check is not has_cpu)
            verdicts = [_passes(request, by_kind, node) for node in kinds.examples]
            mask = np.array(verdicts, dtype=bool)[kinds.codes] if verdicts else np.zeros(0, dtype=bool)
            if has_cpu in checkers and has_cpu not in request.waived:
                mask &= self._large_enough(request)
            found = self._static[request.id, checkers] = (request, mask)
        return found[1]

    def meeting(self, terms: Terms) -> Bools:
        """Where of each of these alternatives one holds, whoever asks."""
        found = self._meeting.get(terms)
        if found is None:
            kinds = self._kinds(tuple(sorted(_keys_of(terms))))
            verdicts = [not unmet_terms(terms, node) for node in kinds.examples]
            found = self._meeting[terms] = np.array(verdicts, dtype=bool)[kinds.codes]
        return found

    def _large_enough(self, request: TaskRequest) -> Bools:
        """`has_cpu` of every node."""
        resources = request.resources
        there: Bools = (self._cpu >= resources.cpu) & (self._memory >= resources.memory)
        for name, amount in resources.extras:
            there &= np.array([node.extra(name) >= amount for node in self.columns.nodes], dtype=bool)
        return there

    def distaste(self, request: TaskRequest) -> Bools | Floats:
        """How little each node is liked by the task: its soft taints, less what it has of what is liked."""
        disliked = self.static(request, (dislikes,))
        if not request.likes:
            return disliked
        kinds = self._kinds(_label_keys(request))
        liked = np.array([liking(request, node) for node in kinds.examples], dtype=float)
        found: Floats = disliked - liked[kinds.codes]
        return found

    def examples(self, request: TaskRequest, checkers: tuple[Checker, ...] = STATIC_CHECKERS) -> list[Node]:
        """One node of every kind that could run the task, as far as these look at it."""
        able = np.flatnonzero(self.static(request, checkers))[::-1]
        kinds = self._kinds(_label_keys(request))
        first = np.full(len(kinds.examples), -1)
        first[kinds.codes[able]] = able  # the last that is written stays: the first node of each kind
        return [self.columns.nodes[n] for n in first.tolist() if n >= 0]

    def kinds_for(self, request: TaskRequest) -> tuple[Ints, list[Node]]:
        """Nodes that look alike to the task: a kind for each node, and an example of each kind."""
        kinds = self._kinds(_label_keys(request))
        return kinds.codes, kinds.examples

    def _kinds(self, label_keys: tuple[str, ...]) -> _Kinds:
        found = self._kinds_by.get(label_keys)
        if found is None:
            found = self._kinds_by[label_keys] = _Kinds(label_keys, self.columns.nodes)
        return found

    def describe(self, n: int) -> None:
        """The node's labels, taints, closure, CPU or memory changed: its entry in every answer so far is asked anew."""
        node = self.columns.nodes[n]
        self._cpu[n], self._memory[n] = node.cpu, node.memory
        for kinds in self._kinds_by.values():
            kinds.change(n, node)
        self.columns.kind[n] = int(self._kinds(()).codes[n])
        for (_, checkers), (request, mask) in self._static.items():
            mask[n] = _passes(request, checkers, node)
        for terms, mask in self._meeting.items():
            mask[n] = not unmet_terms(terms, node)
        self._tiers.clear()

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
        if request.older:
            return self._oldest_first(present, fits, alone)
        tiers: list[Tier] = []
        for wanted in request.models or ("",):
            matching = [i for i in sorted(present) if not wanted or model_matches(wanted, models[i])]
            present -= set(matching)
            if alone and matching:
                tiers.append(frozenset(matching))
            else:
                tiers.extend(frozenset((i,)) for i in matching)
        return tiers

    def _oldest_first(self, present: set[int], fits: Bools, alone: bool) -> list[Tier]:
        """By architecture, then by memory; one whose architecture nobody knows is not known to be old."""
        ranks: dict[tuple[int, int], list[int]] = {}
        for model in sorted(present):
            node = self.columns.nodes[int(np.argmax(fits & (self.columns.model == model)))]
            place = age(node.architecture)
            ranks.setdefault((place if place >= 0 else len(ARCHITECTURES), node.gpu_memory), []).append(model)
        tiers = [models for _, models in sorted(ranks.items())]
        if alone:
            return [frozenset(models) for models in tiers]
        return [frozenset((model,)) for models in tiers for model in models]


def _passes(request: TaskRequest, checkers: tuple[Checker, ...], node: Node) -> bool:
    return all(check(request, node) for check in checkers if check not in request.waived)


def _label_keys(request: TaskRequest) -> tuple[str, ...]:
    keys = {key for key, _ in request.node_selector} | _keys_of(request.terms)
    keys |= {expression.key for term, _ in request.likes for expression in term.expressions}
    return tuple(sorted(keys))


def _keys_of(terms: Terms) -> set[str]:
    return {expression.key for alternatives in terms for term in alternatives for expression in term.expressions}


def _gpu_kind(gpus: Sequence[Gpu]) -> object:
    """What checkers can see of a node's GPUs: how many whole ones, or every slice."""
    if all(gpu.slices is None for gpu in gpus):
        return len(gpus)
    return tuple(gpu.slices for gpu in gpus)
