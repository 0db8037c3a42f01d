"""Jobs: one gang or more, told as task groups, and where their tasks run.

A job with a plain `tasks: 4` has one task group named `main`. Groups may nest: a `Bundle` is a group made of groups.
Times are seconds since the epoch (UTC), durations are seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from gpuyard.model.resources import Request
from gpuyard.model.topology import ANYWHERE, NODE, TopologyAsk

MAIN = "main"
"""The name of the only task group of a job that names none."""
NAMESPACE = "kubernetes.io/metadata.namespace"
"""Where there are namespaces: a task's own, as if it were a label of it."""


class JobClass(Enum):
    """What kind of work a job is; policy is per class, never one global rule."""

    TRAINING = "training"
    INFERENCE = "inference"
    INTERACTIVE = "interactive"
    BATCH = "batch"


class Phase(Enum):
    """Where a job is in its life; why it is there is its reason, never a second phase."""

    HELD = "held"
    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Toleration:
    """Which taints a task bears. An empty key with `Exists` bears all; an empty effect bears every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Expression:
    """One node-affinity requirement, as Kubernetes defines it: In, NotIn, Exists, DoesNotExist, Gt, Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


_LARGEST = 1 << 63


def whole_number(text: str) -> int | None:
    """A label's value as Kubernetes compares it: decimal digits, at most 64 bits with the sign; None if it is none."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdecimal()):
        return None
    significant = digits.lstrip("0")
    if len(significant) > len(str(_LARGEST)):  # a template may hold thousands, which int would not read
        return None
    value = int(significant or 0) * (-1 if text[0] == "-" else 1)
    return value if -_LARGEST <= value < _LARGEST else None


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """All expressions must hold; one without any matches nothing. Terms that stand together are alternatives."""

    expressions: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Tasks whose labels meet all expressions, in one domain of the level; without any expression, all tasks."""

    level: str = NODE
    labels: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class Evenness:
    """How evenly such tasks lie over the domains of a level: none has more than `skew` above the least. Counted is who
    does not leave, on nodes that are compared."""

    level: str = NODE
    labels: tuple[Expression, ...] = ()
    skew: int = 1
    least_domains: int = 0
    """Where there are fewer domains, the least is none."""
    among: Terms | None = None
    """The nodes that are compared: of each of these alternatives one holds there. None: those that the task's own
    selector and terms let it use."""


Terms = tuple[tuple[AffinityTerm, ...], ...]
Likes = tuple[tuple[AffinityTerm, int], ...]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How a job saves its work: how often, when last, how it is told to, and how long it may take."""

    interval: float | None = None
    last: float | None = None
    grace: float = 60.0
    signal: str = "SIGUSR1"


@dataclass(frozen=True, slots=True)
class Avoid:
    """Whom a job will not share a domain of `level` with (rule 14); it binds both sides."""

    level: str = NODE
    queues: tuple[str, ...] = ()
    own: bool = False
    """Keeps the job's own tasks apart."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one task runs. `gpus` names a device once per MIG slice; CPU-only tasks name none."""

    node: str
    gpus: tuple[int, ...] = ()
    group: str = MAIN
    task: int = 0
    mig: tuple[str, ...] = ()
    terminating: bool = False
    assigned: bool = False
    """The place is its own, and it does not run yet."""
    uid: str = ""
    """Tells it from every other task there ever was: a supervisor's attempt, a pod's uid; "" until it exists."""

    @property
    def identity(self) -> object:
        """What two accounts of one task have in common."""
        return self.uid or (self.group, self.task, self.node)


@dataclass(frozen=True, slots=True)
class TaskGroup:
    """Identical tasks: at least `min` of them or none, at most `tasks`; 0: all are extras of a job that needs others.
    Ended members are not restarted by a plan, and those `absent` do not exist yet: whoever makes them has not come to
    it."""

    name: str = MAIN
    tasks: int = 1
    min: int = 1
    request: Request = Request()
    topology: TopologyAsk = ANYWHERE
    node_selector: tuple[tuple[str, str], ...] = ()
    terms: Terms = ()
    """Of each of these alternatives one must hold."""
    likes: Likes = ()
    """Terms that make a node better liked, each with its weight."""
    labels: tuple[tuple[str, str], ...] = ()
    """What its tasks are known by to others that seek or shun neighbours."""
    near: tuple[Neighbour, ...] = ()
    """There must be one of each."""
    apart: tuple[Neighbour, ...] = ()
    """There must be none; it binds both sides."""
    even: tuple[Evenness, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    failed: int = 0
    succeeded: int = 0
    absent: int = 0
    ended: tuple[int, ...] = ()
    """Numbers of tasks that ended by themselves, as far as they are known: none of them is run again (rule 22)."""
    tried: tuple[int, ...] = ()
    """Numbers that have run and were stopped; those that never ran come before them."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """A group made of groups: at least `min_groups` of them (each whole by its own rule) or none."""

    name: str
    groups: tuple[TaskGroup | Bundle, ...]
    min_groups: int
    topology: TopologyAsk = ANYWHERE

    def leaves(self) -> Iterator[TaskGroup]:
        """The task groups inside, in order."""
        for group in self.groups:
            if isinstance(group, Bundle):
                yield from group.leaves()
            else:
                yield group

    def complete(self, counts: Mapping[str, int]) -> bool:
        """Whether it has its minimum (rule 22) with so many members of each task group."""
        done = 0
        for group in self.groups:
            done += group.complete(counts) if isinstance(group, Bundle) else counts.get(group.name, 0) >= group.min
        return done >= self.min_groups


KEPT_BACK = "(kept back)"


@dataclass(frozen=True, slots=True)
class Run:
    """What a task executes; the brain never looks inside."""

    command: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    workdir: str = ""
    retries: int = 0
    image: str = ""
    tty: bool = False

    def kept_back(self) -> Run:
        """The same for whoever only looks: variables by their names alone, because their values may be secrets."""
        return replace(self, env=tuple((name, KEPT_BACK) for name, _ in self.env))


@dataclass(frozen=True, slots=True)
class Job:
    """A request to run one gang or more. `priority` and `preemptible` None: as the class says in the policy.

    `gang` holds the task groups; its topology binds the whole job. Placements present mean it runs there.
    """

    name: str
    gang: Bundle
    queue: str = "default"
    user: str = ""
    job_class: JobClass = JobClass.TRAINING
    priority: int | str | None = None
    """A number, or a name of the policy's `priorities`."""
    preemptible: bool | None = None
    submitted: float = 0.0
    started: float | None = None
    models: tuple[str, ...] = ()
    min_gpu_memory: int = 0
    min_architecture: str = ""
    architecture: str = ""
    avoid: Avoid | None = None
    time_limit: float | None = None
    min_runtime: float | None = None
    warm_up: float | None = None
    duration: float | None = None
    """How long it runs in all, if somebody knows."""
    attained: float = 0.0
    """How long it has run so far, before its present start."""
    checkpoint: Checkpoint | None = None
    evictions: int = 0
    waiting_since: float | None = None
    """Since when it waits, if not since it was submitted: it ran before, or somebody kept it back."""
    stale_since: float | None = None
    stale_grace: float | None = None
    placements: tuple[Placement, ...] = ()
    foreign: bool = False
    on_hold: bool = False
    held_for: str = ""
    """What it is held back for, in words; "": its owner wants it so."""
    takes: bool = True
    """Whether others may be moved or stopped for it."""
    family: str = ""
    """Jobs of one family are each other's own: they are spread, and kept apart, as the tasks of one job are."""
    run: Run | None = None

    def task_groups(self) -> tuple[TaskGroup, ...]:
        """Every task group, in order."""
        groups = self.gang.groups
        if len(groups) == 1 and isinstance(groups[0], TaskGroup):
            return groups  # type: ignore[return-value]  # by far the most, and every job is asked again and again
        return tuple(self.gang.leaves())


def one_group(group: TaskGroup, topology: TopologyAsk = ANYWHERE) -> Bundle:
    """The gang of a job with a single task group."""
    return Bundle(name="", groups=(group,), min_groups=1, topology=topology)
