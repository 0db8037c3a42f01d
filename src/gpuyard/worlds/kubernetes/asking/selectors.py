"""Whether selectors hold, as the API means them. Pure; for what the brain is never asked about: budgets, volumes."""

from __future__ import annotations

from gpuyard.kube.objects import GRANTED_GPUS, LabelSelector, Metadata, NodeTerm, NodeTerms, Requirement
from gpuyard.model.job import NAMESPACE, Expression, whole_number

NODE_NAME = "metadata.name"
MADE_LABELS = (NODE_NAME, NAMESPACE, GRANTED_GPUS)
"""What is a label to the brain alone: a node's name, which is a field, a pod's namespace, and the resource by which a
node's GPUs are had."""


def label_key(key: str) -> str:
    """What the brain calls a label: one that is called as what is no label goes by a key that no label may have, as
    does one without a name."""
    return f"labels:{key}" if key in (*MADE_LABELS, "") else key


def selects(selector: LabelSelector | None, labels: dict[str, str]) -> bool:
    """An empty selector selects everybody, none at all nobody."""
    if selector is None:
        return False
    alike = all(labels.get(key) == value for key, value in (selector.match_labels or {}).items())
    return alike and all(holds(each, labels) for each in selector.match_expressions or ())


def meets(terms: NodeTerms | None, node: Metadata) -> bool:
    """Whether any of the terms holds of a node; none at all: every node will do."""
    return terms is None or any(_meets(term, node) for term in terms.node_selector_terms or ())


def _meets(term: NodeTerm, node: Metadata) -> bool:
    labels, fields = term.match_expressions or (), term.match_fields or ()
    if not (labels or fields):
        return False
    named = {NODE_NAME: node.name}
    return all(holds(each, node.labels or {}) for each in labels) and all(holds(each, named) for each in fields)


def holds(asked: Requirement | Expression, labels: dict[str, str]) -> bool:
    """Whether one expression does."""
    value, values = labels.get(asked.key), asked.values or ()
    match asked.operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _exceeds(value, values) if asked.operator == "Gt" else _exceeds("".join(values), [value or ""])
    return False


def _exceeds(more: str | None, less: list[str] | tuple[str, ...]) -> bool:
    """Whether one number is above the other; what is no number is neither above nor below."""
    one, other = whole_number(more or ""), whole_number("".join(less))
    return one is not None and other is not None and one > other
