"""Which selector, affinity or taint keeps a task off which nodes, by name (rules 14 and 24).

Asked by `rungs` once a job is found to be kept off. Nodes that are described alike are looked at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from gpuyard.brain.engine.nodes import requests
from gpuyard.brain.engine.nodes.columns import Bools
from gpuyard.brain.engine.nodes.feasibility import Shapes
from gpuyard.brain.engine.nodes.requests import TaskRequest
from gpuyard.model.job import AffinityTerm, Expression
from gpuyard.model.node import Effect, Node, Taint
from gpuyard.model.outside.phrases import SHOWN, counted, listed

VALUES_SHOWN = 5
"""So many values of a label that do exist are named to somebody who asks for one that does not."""


class _Group(NamedTuple):
    """Nodes that one cause keeps a task off: how many, and the first of them."""

    nodes: int
    names: list[str]

    def __str__(self) -> str:
        return listed(self.names, SHOWN, self.nodes)


def kept_off(shapes: Shapes, request: TaskRequest, out: Bools) -> str:
    """The nodes that `out` marks, and what about them or about the task keeps it off each."""
    groups = _by_cause(shapes, request, out)
    count = int(out.sum())
    if count == 1:
        told = f"{next(iter(groups.values()))} by {next(iter(groups))}"
    elif len(groups) == 1:
        told = f"{counted(count, 'node')} by {next(iter(groups))} ({next(iter(groups.values()))})"
    else:
        parts = "; ".join(f"by {cause} ({group})" for cause, group in groups.items())
        told = f"{counted(count, 'node')}: {parts}"
    return told + "".join(_wanted_in_vain(shapes, request))


def _by_cause(shapes: Shapes, request: TaskRequest, out: Bools) -> dict[str, _Group]:
    """Nodes by what keeps the task off, the cause of most nodes first."""
    codes, examples = shapes.kinds_for(request)
    nodes, there = shapes.columns.nodes, np.flatnonzero(out)
    groups: dict[str, _Group] = {}
    for code in np.flatnonzero(np.bincount(codes[there])).tolist():  # np.unique loads modules worth many decisions
        alike = there[codes[there] == code]
        cause = " and ".join(_causes(request, examples[code]))
        known = groups.get(cause, _Group(0, []))
        names = sorted([*known.names, *(nodes[n].name for n in alike[:SHOWN].tolist())])
        groups[cause] = _Group(known.nodes + len(alike), names[:SHOWN])
    return dict(sorted(groups.items(), key=lambda item: (-item[1].nodes, item[0])))


def _causes(request: TaskRequest, node: Node) -> Iterator[str]:
    labels = requests.labels_of(node)
    if node.workloads and request.class_name not in node.workloads:
        yield f"its class, for they take {' and '.join(node.workloads)} only"
    unmet = [f"{key}={value}" for key, value in request.node_selector if labels.get(key) != value]
    if unmet:
        yield f"its own selector {', '.join(unmet)}"
    for alternatives in requests.unmet_terms(request.terms, node):
        yield f"its own affinity, {' or '.join(map(_term_words, alternatives)) or 'which names nothing'}"
    taints = [_taint_words(taint) for taint in node.taints if _repels(request, taint)]
    if taints:
        yield f"the taint{'s' if len(taints) > 1 else ''} {', '.join(taints)}"


def _repels(request: TaskRequest, taint: Taint) -> bool:
    return taint.effect is not Effect.PREFER_NO_SCHEDULE and not requests.tolerated(taint, request.tolerations)


def _taint_words(taint: Taint) -> str:
    return f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect.value}"


def _term_words(term: AffinityTerm) -> str:
    return " and ".join(map(_expression_words, term.expressions)) or "a term that matches nothing"


def _expression_words(expression: Expression) -> str:
    return " ".join(filter(None, (expression.key, expression.operator, ", ".join(expression.values))))


def _wanted_in_vain(shapes: Shapes, request: TaskRequest) -> Iterator[str]:
    """Labels that a selector asks for and no node has, with the values that there are: most often it is a slip."""
    for key, value in request.node_selector:
        there = {found for node in shapes.kinds_for(request)[1] for label, found in node.labels if label == key}
        if value not in there:
            others = ", ".join(f"{key}={other}" for other in sorted(there)[:VALUES_SHOWN])
            yield f"; no node has {key}={value}" + (f", there is {others}" if others else "")
