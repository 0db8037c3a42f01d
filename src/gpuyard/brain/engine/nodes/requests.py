"""Compiled requests: what one task of a group needs and which nodes it could ever use.

Called when a job enters the fleet. Equal requests share one `TaskRequest`, so whatever is worked out for one job serves
all jobs like it. Nothing here looks at what is free.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpuyard.brain.engine.nodes.layout import alignment
from gpuyard.model.job import AffinityTerm, Expression, Job, TaskGroup, Terms, Toleration, whole_number
from gpuyard.model.node import ARCHITECTURES, Effect, Node, Taint
from gpuyard.model.policy import ClassPolicy, ModelChoice, Style
from gpuyard.model.queue import model_matches
from gpuyard.model.resources import WHOLE, Request, mig_cost


class TaskRequest:
    """One kind of task. Compared by identity: `Fleet.request` hands out one object per distinct content."""

    __slots__ = (
        "aligns",
        "apart",
        "architectures",
        "class_name",
        "cost",
        "even",
        "gpus",
        "id",
        "labels",
        "likes",
        "min_gpu_memory",
        "models",
        "near",
        "node_selector",
        "older",
        "over",
        "resources",
        "shared",
        "social",
        "style",
        "terms",
        "tolerations",
        "waived",
    )  # fmt: skip

    def __init__(self, request_id: int, job: Job, group: TaskGroup, treatment: ClassPolicy) -> None:
        self.id = request_id
        self.resources: Request = group.request
        self.gpus = group.request.gpus
        self.shared = group.request.shared
        """Whether it takes a part of a device."""
        self.aligns = group.request.gpus > 0
        """Whether it matters to it that a kubelet insists on NUMA nodes."""
        self.cost: int | None = None if group.request.gpu_memory else _cost(group.request)
        """What one task costs, in grains; None where it depends on the card."""
        self.models = job.models
        self.class_name = job.job_class.value
        self.min_gpu_memory = job.min_gpu_memory
        self.architectures = architectures(job)
        """Those it may run on, as ages; None: all."""
        self.older = treatment.models is ModelChoice.OLDER and not job.models
        """Of the models that suit, the oldest comes first (rule 11)."""
        self.node_selector = group.node_selector
        self.terms = group.terms
        self.likes = group.likes
        self.labels = group.labels
        self.near, self.apart, self.even = group.near, group.apart, group.even
        self.social = bool(group.near or group.apart or group.even)
        """Whether it is particular about its neighbours."""
        self.tolerations = group.tolerations
        self.style: Style = treatment.placement
        self.over = treatment.over
        self.waived: frozenset[Checker] = frozenset()
        """Checks that are left out, to learn whether they are what stands in the way."""

    def share_on(self, node: Node) -> int:
        """The part of one device this task takes on the node; 0 if it does not share, more than WHOLE if it cannot.

        Rounded down: three thirds of a card's memory fit on it, and the error stays below a byte per task.
        """
        if not self.resources.gpu_memory:
            return self.resources.share
        if self.resources.gpu_memory > node.gpu_memory:
            return WHOLE + 1
        return self.resources.gpu_memory * WHOLE // node.gpu_memory

    def cost_on(self, node: Node) -> int:
        """What one task costs on the node, in grains (rule 5)."""
        return self.share_on(node) if self.cost is None else self.cost


def _cost(resources: Request) -> int:
    if resources.gpus:
        return resources.gpus * WHOLE
    return sum(mig_cost(profile) * count for profile, count in resources.mig) or resources.share


def content_key(job: Job, group: TaskGroup, waived: frozenset[Checker]) -> tuple[object, ...]:
    """Equal for tasks that are interchangeable to the engine, with these checks left out."""
    resources = group.request  # spelled out, for a dataclass hashes slowly and every job passes here
    return (
        resources.gpus, resources.share, resources.gpu_memory, resources.mig, resources.cpu, resources.memory,
        resources.extras, job.models, job.min_gpu_memory, job.min_architecture, job.architecture,
        group.node_selector, group.terms, group.likes, group.tolerations, job.job_class.value,
        group.labels, group.near, group.apart, group.even, waived,
    )  # fmt: skip


# --- which nodes a task could ever use; one checker per constraint, each True where the node passes -------------------

Checker = Callable[[TaskRequest, Node], bool]


def has_model(request: TaskRequest, node: Node) -> bool:
    """Models, minimum memory and minimum architecture (rule 11)."""
    if request.resources.cpu_only:
        return True
    if request.models and not any(model_matches(wanted, node.model) for wanted in request.models):
        return False
    if request.min_gpu_memory and node.gpu_memory < request.min_gpu_memory:
        return False
    return request.architectures is None or age(node.architecture) in request.architectures


def architectures(job: Job) -> frozenset[int] | None:
    """The ages of the architectures that the job takes; None: all, also those that nobody knows."""
    if not (job.min_architecture or job.architecture):
        return None
    newer = frozenset(range(age(job.min_architecture), len(ARCHITECTURES)))
    return newer & {age(job.architecture)} if job.architecture else newer


def age(architecture: str) -> int:
    """Its place among those known, the oldest first; -1 if nobody knows it."""
    name = architecture.lower()
    return ARCHITECTURES.index(name) if name in ARCHITECTURES else -1


def has_labels(request: TaskRequest, node: Node) -> bool:
    """Node selector and node affinity, and the classes that the node takes (rule 14)."""
    if node.workloads and request.class_name not in node.workloads:
        return False
    if not (request.node_selector or request.terms):
        return True
    labels = labels_of(node)
    if any(labels.get(key) != value for key, value in request.node_selector):
        return False
    return meets_affinity(request, node)


def meets_affinity(request: TaskRequest, node: Node) -> bool:
    """Of each of its alternatives one holds."""
    return not request.terms or not unmet_terms(request.terms, node)


def unmet_terms(terms: Terms, node: Node) -> list[tuple[AffinityTerm, ...]]:
    """The alternatives of which none holds on the node."""
    labels = labels_of(node)
    return [each for each in terms if not any(_term_holds(term, labels) for term in each)]


NODE_NAME = "metadata.name"
"""Every node has a label of this key, with its name; Kubernetes calls it a field."""


def labels_of(node: Node) -> dict[str, str]:
    """Its labels, the one with its name among them."""
    return {**dict(node.labels), NODE_NAME: node.name}


def selects(expressions: Sequence[Expression], labels: dict[str, str]) -> bool:
    """Whether all expressions hold of these labels."""
    return all(_expression_holds(expression, labels) for expression in expressions)


def _term_holds(term: AffinityTerm, labels: dict[str, str]) -> bool:
    return bool(term.expressions) and all(_expression_holds(expression, labels) for expression in term.expressions)


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
            return _compared(value, expression) > 0
        case "Lt":
            return _compared(value, expression) < 0
    return False


def _compared(value: str | None, expression: Expression) -> int:
    """Whether a label is more (1) or less (-1) than what it is compared with; 0 where one of the two is no number."""
    mine, other = whole_number(value or ""), whole_number("".join(expression.values))
    return 0 if mine is None or other is None else (mine > other) - (mine < other)


def bears_taints(request: TaskRequest, node: Node) -> bool:
    """Every taint that repels is tolerated (rule 14); PreferNoSchedule never excludes."""
    return all(
        tolerated(taint, request.tolerations) for taint in node.taints if taint.effect is not Effect.PREFER_NO_SCHEDULE
    )


def dislikes(request: TaskRequest, node: Node) -> bool:
    """Whether the node carries a PreferNoSchedule taint that the task does not tolerate."""
    soft = [taint for taint in node.taints if taint.effect is Effect.PREFER_NO_SCHEDULE]
    return not all(tolerated(taint, request.tolerations) for taint in soft)


def liking(request: TaskRequest, node: Node) -> float:
    """How much of what it likes the node has, 0 to 1."""
    labels = labels_of(node)
    found = sum(weight for term, weight in request.likes if _term_holds(term, labels))
    return found / max(1, sum(weight for _, weight in request.likes))


def tolerated(taint: Taint, tolerations: Sequence[Toleration]) -> bool:
    """Whether one of the tolerations bears the taint."""
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect.value:
        return False
    if toleration.operator == "Exists":
        return not toleration.key or toleration.key == taint.key
    return toleration.key == taint.key and toleration.value == taint.value


def is_open(request: TaskRequest, node: Node) -> bool:
    """A closed node takes nothing new."""
    return node.closed is None


def has_cpu(request: TaskRequest, node: Node) -> bool:
    """Whether the node, empty, has the CPU and memory for one task, and what else it needs."""
    resources = request.resources
    if resources.cpu > node.cpu or resources.memory > node.memory:
        return False
    return all(node.extra(name) >= amount for name, amount in resources.extras)


def has_shape(request: TaskRequest, node: Node) -> bool:
    """Whether the node, empty and healthy, has the GPUs for one task."""
    if request.resources.mig:
        have = [profile for gpu in node.gpus for profile in gpu.slices or ()]
        return all(have.count(profile) >= count for profile, count in request.resources.mig)
    whole = sum(gpu.slices is None for gpu in node.gpus)
    if request.shared:
        return whole > 0 and request.share_on(node) <= WHOLE
    return whole >= request.gpus


def can_align(request: TaskRequest, node: Node) -> bool:
    """Whether the node, empty and healthy, has the GPUs for one task where its kubelet would give them together."""
    if not request.aligns:
        return True
    aligned = alignment.aligned_of(node)
    return aligned is None or bool(alignment.spans(aligned, request.gpus))


STATIC_CHECKERS: tuple[Checker, ...] = (is_open, has_model, has_labels, bears_taints, has_shape, can_align, has_cpu)
"""What must hold for a node to be eligible at all, cheapest first."""
