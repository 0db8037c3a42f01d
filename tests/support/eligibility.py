"""Whether a node may hold a task at all: cordon, taints, selector, affinity, model, memory, architecture.

The rules of Kubernetes where Kubernetes has them, told a second time and plainly, to check the engine by.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuyard.model.job import AffinityTerm, Expression, Job, TaskGroup, Toleration
from gpuyard.model.node import Effect, Node, Taint
from gpuyard.model.queue import model_matches

ARCHITECTURES = (
    "kepler", "maxwell", "pascal", "volta", "turing", "ampere", "ada", "hopper", "blackwell", "rubin",
)  # fmt: skip


def unfit(job: Job, group: TaskGroup, node: Node) -> Iterator[str]:
    """Every reason why the node may not hold a new task of the group."""
    if node.closed is not None:
        yield f"{node.name} is cordoned"
    for taint in node.taints:
        if taint.effect is not Effect.PREFER_NO_SCHEDULE and not tolerated(taint, group.tolerations):
            yield f"the taint {taint.key} of {node.name} is not tolerated"
    labels = dict(node.labels)
    if any(labels.get(name) != value for name, value in group.node_selector):
        yield f"{node.name} does not have the labels asked for"
    labels["metadata.name"] = node.name
    if not all(any(holds(term, labels) for term in alternatives) for alternatives in group.terms):
        yield f"{node.name} does not meet the affinity"
    if not group.request.cpu_only:
        yield from wrong_card(job, node)


def wrong_card(job: Job, node: Node) -> Iterator[str]:
    """Every reason why the node's GPUs are not what the job asked for."""
    if job.models and not any(model_matches(wanted, node.model) for wanted in job.models):
        yield f"{node.name} has {node.model}, which the job does not list"
    if node.gpu_memory < job.min_gpu_memory:
        yield f"{node.name} has cards with too little memory"
    if job.architecture and node.architecture != job.architecture:
        yield f"{node.name} has cards of another architecture"
    if job.min_architecture and rank(node.architecture) < rank(job.min_architecture):
        yield f"{node.name} has cards that are too old"


def rank(architecture: str) -> int:
    """Older architectures first; one that nobody knows is the oldest."""
    return ARCHITECTURES.index(architecture) if architecture in ARCHITECTURES else -1


def tolerated(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    """Whether one of the tolerations bears the taint."""
    return any(bears(toleration, taint) for toleration in tolerations)


def bears(toleration: Toleration, taint: Taint) -> bool:
    """As Kubernetes says it."""
    if toleration.effect and toleration.effect != taint.effect.value:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.value == taint.value


def holds(term: AffinityTerm, labels: dict[str, str]) -> bool:
    """Whether the term has expressions, and all of them hold."""
    return bool(term.expressions) and all(true(expression, labels) for expression in term.expressions)


def true(expression: Expression, labels: dict[str, str]) -> bool:
    """Whether one expression holds; NotIn holds for a label that is not there, Gt and Lt do not."""
    value = labels.get(expression.key)
    match expression.operator:
        case "In":
            return value in expression.values
        case "NotIn":
            return value not in expression.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return value is not None and int(value) > int(expression.values[0])
        case "Lt":
            return value is not None and int(value) < int(expression.values[0])
    raise ValueError(f"no such operator: {expression.operator}")
