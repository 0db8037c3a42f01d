"""Compiled requests: what one task of a group needs and which nodes it could ever use.

Called when a job enters the fleet. Equal requests share one `Ask`, so whatever is worked out for one job serves all
jobs like it. Nothing here looks at what is free.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpuyard.model.job import AffinityTerm, Expression, Job, TaskGroup, Toleration
from gpuyard.model.node import ARCHITECTURES, Effect, Node, Taint
from gpuyard.model.policy import ClassPolicy, Style
from gpuyard.model.queue import model_matches
from gpuyard.model.resources import WHOLE, Request, mig_cost


class Ask:
    """One kind of task. Compared by identity: `Catalog.ask` hands out one object per distinct content."""

    __slots__ = (
        "affinity", "gpus", "id", "min_architecture", "min_gpu_memory", "models", "node_selector", "over", "request",
        "style", "tolerations", "waived",
    )  # fmt: skip

    def __init__(self, ask_id: int, job: Job, group: TaskGroup, treatment: ClassPolicy) -> None:
        self.id = ask_id
        self.request: Request = group.request
        self.gpus = group.request.gpus
        self.models = job.models
        self.min_gpu_memory = job.min_gpu_memory
        self.min_architecture = job.min_architecture
        self.affinity = job.affinity
        self.node_selector = group.node_selector
        self.tolerations = group.tolerations
        self.style: Style = treatment.placement
        self.over = treatment.over
        self.waived: frozenset[Checker] = frozenset()
        """Checks that are left out, to learn whether they are what stands in the way."""

    def share_on(self, node: Node) -> int:
        """The part of one device this task takes on the node; 0 if it does not share, more than WHOLE if it cannot.

        Rounded down: three thirds of a card's memory fit on it, and the error stays below a byte per task.
        """
        if not self.request.gpu_memory:
            return self.request.share
        if self.request.gpu_memory > node.gpu_memory:
            return WHOLE + 1
        return self.request.gpu_memory * WHOLE // node.gpu_memory

    def cost_on(self, node: Node) -> int:
        """What one task costs on the node, in grains (rule 5)."""
        if self.gpus:
            return self.gpus * WHOLE
        if self.request.mig:
            return sum(mig_cost(profile) * count for profile, count in self.request.mig)
        return self.share_on(node)


def content_key(job: Job, group: TaskGroup) -> tuple[object, ...]:
    """Equal for tasks that are interchangeable to the engine."""
    request = group.request  # spelled out, for a dataclass hashes slowly and every job passes here
    return (
        request.gpus, request.share, request.gpu_memory, request.mig, request.cpu, request.memory,
        job.models, job.min_gpu_memory, job.min_architecture, job.affinity, group.node_selector, group.tolerations,
        job.job_class.value,
    )  # fmt: skip


# --- which nodes a task could ever use; one checker per constraint, each True where the node passes -------------------

Checker = Callable[[Ask, Node], bool]


def has_model(ask: Ask, node: Node) -> bool:
    """Models, minimum memory and minimum architecture (rule 11)."""
    if ask.request.cpu_only:
        return True
    if ask.models and not any(model_matches(wanted, node.model) for wanted in ask.models):
        return False
    if ask.min_gpu_memory and node.gpu_memory < ask.min_gpu_memory:
        return False
    return not ask.min_architecture or _age(node.architecture) >= _age(ask.min_architecture)


def _age(architecture: str) -> int:
    name = architecture.lower()
    return ARCHITECTURES.index(name) if name in ARCHITECTURES else -1


def has_labels(ask: Ask, node: Node) -> bool:
    """Node selector and node affinity (rule 14)."""
    if not (ask.node_selector or ask.affinity):
        return True
    labels = dict(node.labels)
    if any(labels.get(key) != value for key, value in ask.node_selector):
        return False
    return not ask.affinity or any(_term_holds(term, labels) for term in ask.affinity)


def _term_holds(term: AffinityTerm, labels: dict[str, str]) -> bool:
    return all(_expression_holds(expression, labels) for expression in term.expressions)


def _expression_holds(expression: Expression, labels: dict[str, str]) -> bool:
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
            return _number(value) is not None and _number(value) > int(expression.values[0])  # type: ignore[operator]
        case "Lt":
            return _number(value) is not None and _number(value) < int(expression.values[0])  # type: ignore[operator]
    return False


def _number(value: str | None) -> int | None:
    try:
        return int(value) if value is not None else None
    except ValueError:
        return None


def bears_taints(ask: Ask, node: Node) -> bool:
    """Every taint that repels is tolerated (rule 14); PreferNoSchedule never excludes."""
    return all(_borne(taint, ask.tolerations) for taint in node.taints if taint.effect is not Effect.PREFER_NO_SCHEDULE)


def dislikes(ask: Ask, node: Node) -> bool:
    """Whether the node carries a PreferNoSchedule taint that the task does not tolerate."""
    soft = [taint for taint in node.taints if taint.effect is Effect.PREFER_NO_SCHEDULE]
    return not all(_borne(taint, ask.tolerations) for taint in soft)


def _borne(taint: Taint, tolerations: Sequence[Toleration]) -> bool:
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect.value:
        return False
    if toleration.operator == "Exists":
        return not toleration.key or toleration.key == taint.key
    return toleration.key == taint.key and toleration.value == taint.value


def is_open(ask: Ask, node: Node) -> bool:
    """A closed node takes nothing new."""
    return node.closed is None


def has_cpu(ask: Ask, node: Node) -> bool:
    """Whether the node, empty, has the CPU and memory for one task."""
    return ask.request.cpu <= node.cpu and ask.request.memory <= node.memory


def has_shape(ask: Ask, node: Node) -> bool:
    """Whether the node, empty and healthy, has the GPUs for one task."""
    if ask.request.mig:
        have = [profile for gpu in node.gpus for profile in gpu.slices or ()]
        return all(have.count(profile) >= count for profile, count in ask.request.mig)
    whole = sum(gpu.slices is None for gpu in node.gpus)
    if ask.request.shared:
        return whole > 0 and ask.share_on(node) <= WHOLE
    return whole >= ask.gpus


STATIC_CHECKERS: tuple[Checker, ...] = (is_open, has_model, has_labels, bears_taints, has_shape, has_cpu)
"""What must hold for a node to be eligible at all, cheapest first."""
