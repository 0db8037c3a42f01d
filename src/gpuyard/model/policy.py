"""The typed policy: every knob of the brain with its default, its unit and one sentence (`yard schema policy`).

Each field's metadata carries `unit` and `doc`; `files` turns them into JSON Schema and reference pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from gpuyard.model.job import Job, JobClass
from gpuyard.model.queue import Queue
from gpuyard.model.topology import NODE

CRITICAL = "critical"
"""The name of the lowest priority at which jobs are critical (rule 18)."""


class Style(Enum):
    """How a class is laid out: close together and tight, or apart so that one failure hits few."""

    PACK = "pack"
    SPREAD = "spread"


class ModelChoice(Enum):
    """Which model a job that names none gets (rule 11)."""

    ANY = "any"
    """The one with least room that holds it."""
    OLDER = "older"
    """The oldest architecture, then the smallest memory, so that newer cards stay free for those who name them."""


class AcrossQueues(Enum):
    """What a critical job may take from other queues by priority (rule 18)."""

    NEVER = "never"
    BORROWED = "borrowed"
    ANY = "any"


class PdbRule(Enum):
    """Whether a disruption budget may ever be broken (rule 19)."""

    NEVER = "never"
    LAST_RESORT = "last-resort"


class DeadlockRule(Enum):
    """Whether a deadlock is broken at once or only reported (rule 23)."""

    BREAK = "break"
    PROPOSE = "propose"


class DefragRule(Enum):
    """What becomes of moves that nobody waits for (rule 15)."""

    OFF = "off"
    PROPOSE = "propose"
    DO = "do"


class Curve(Enum):
    """How GPUs saved from being stranded become a score: in proportion, or flattened out far from zero."""

    LINEAR = "linear"
    SIGMOID = "sigmoid"


class DeviceChoice(Enum):
    """Which device of a node a fraction takes: the fullest that holds it, or the one that strands least."""

    TIGHTEST = "tightest"
    BEST = "best"


class Weigh(Enum):
    """What makes a class of demand count: the GPUs it asks for, or its number of tasks."""

    GPUS = "gpus"
    TASKS = "tasks"


class OrderBy(Enum):
    """What makes a job come before others of its queue and priority."""

    DEFAULT = "default"
    """Those that run, then the older (rule 7)."""
    SJF = "sjf"
    """The shorter, by the duration it names; unknown ones last."""
    SRSF = "srsf"
    """Whoever needs the fewest GPU-seconds more."""
    ATTAINED = "attained"
    """Whoever has had the fewest GPU-seconds, in levels; needs no durations."""


def _knob(default: Any, doc: str, unit: str = "") -> Any:
    return field(default=default, metadata={"doc": doc, "unit": unit})


@dataclass(frozen=True, slots=True)
class ClassPolicy:
    """How jobs of one class are treated; each cell may be changed."""

    priority: int = _knob(50, "Priority of jobs that name none.")
    preemptible: bool = _knob(True, "Whether jobs that do not say so may be taken back.")
    placement: Style = _knob(Style.PACK, "Lay tasks close together (pack) or apart (spread).")
    over: tuple[str, ...] = _knob((), "The levels to spread over, the most important first; pack ignores it.")
    models: ModelChoice = _knob(
        ModelChoice.ANY, "Jobs that name no model get any, or the older that suits and has room (older)."
    )
    max_grace: float = _knob(1800.0, "The longest checkpoint.grace a job may ask for; 0: any.", "seconds")
    max_min_runtime: float = _knob(14400.0, "The longest min_runtime a job may ask for; 0: any.", "seconds")
    max_time_limit: float = _knob(
        0.0, "The longest time_limit a job may ask for, and that of one that names none; 0: any.", "seconds"
    )
    warm_up: float = _knob(
        120.0,
        "What a restart costs a job that names no warm_up, until jobs like it have shown what it does.",
        "seconds",
    )
    alert_after: float = _knob(
        3600.0, "A job waiting longer than this raises an alert with its reason; 0: none.", "seconds"
    )


@dataclass(frozen=True, slots=True)
class Weights:
    """How much each term of a placement score counts; every term lies in 0..1."""

    fragmentation: float = _knob(0.5, "Leave free GPUs that the demand seen can still use (the FGD measure).", "weight")
    remainders: float = _knob(5.0, "Leave rests of shared devices that fractions of the demand fill well.", "weight")
    tightness: float = _knob(0.00001, "Prefer nodes that are nearly full, so that others stay whole.", "weight")
    island: float = _knob(2.0, "Prefer nodes where a task's GPUs lie in one NVLink island.", "weight")
    snug: float = _knob(0.75, "Prefer NVLink islands that the task fills, so that large ones stay whole.", "weight")
    sharing: float = _knob(2.0, "Prefer nodes where a fraction joins a device that is shared already.", "weight")
    health: float = _knob(4.0, "Prefer nodes where no suspect GPU must be used.", "weight")
    taste: float = _knob(1.0, "Prefer nodes without PreferNoSchedule taints.", "weight")
    cpu_tightness: float = _knob(0.0, "Prefer nodes whose CPU is nearly used up.", "weight")
    balance: float = _knob(1.3, "Keep free CPU and free GPUs of a node in proportion.", "weight")
    scarcity: float = _knob(3.0, "Spare models that others cannot do without, where the task has a choice.", "weight")


@dataclass(frozen=True, slots=True)
class Scoring:
    """How the terms of a placement score are worked out."""

    curve: Curve = _knob(Curve.LINEAR, "How GPUs kept usable count: linear, or sigmoid (as FGD has it).")
    steps: int = _knob(0, "Round scores down to this many steps, so that near equals tie; 0 does not round.", "steps")
    device: DeviceChoice = _knob(DeviceChoice.BEST, "Which device a fraction takes: tightest, or best (strands least).")
    cores_per_gpu: float = _knob(
        0.0, "CPU cores that belong to a GPU, for the balance; 0 takes what the demand asks.", "cores"
    )
    spread: float = _knob(0.6, "How far tasks' differing need of CPU softens the balance; 0: not at all.", "ratio")


@dataclass(frozen=True, slots=True)
class DemandView:
    """How demand that is known beforehand is turned into classes; demand merely seen is always coarse."""

    weigh: Weigh = _knob(Weigh.GPUS, "What a class counts by: gpus, or tasks.")
    cover: float = _knob(1.0, "Drop the rarest classes beyond this share of all tasks.", "share")


@dataclass(frozen=True, slots=True)
class OrderPolicy:
    """Who comes first inside a queue among jobs of one priority, and whether that may stop a job that runs."""

    by: OrderBy = _knob(OrderBy.DEFAULT, "What decides: default (age), sjf, srsf, attained.")
    strict: bool = _knob(False, "A job that cannot start holds back everybody after it.")
    time_slicing: bool = _knob(False, "Running jobs stop for waiting ones that come before them, and resume later.")
    time_slice: float = _knob(0.0, "Running jobs are looked at again at most this often.", "seconds")
    first_level: float = _knob(3600.0, "GPU time that ends the first level of `attained`.", "seconds")
    level_factor: float = _knob(4.0, "How many times longer each further level is.", "ratio")
    stay: bool = _knob(True, "Who keeps its turn keeps its place; false lays everyone anew first, which packs tighter.")
    small_first: bool = _knob(False, "Inside a level of `attained` those with fewer GPUs come first.")
    patience: float = _knob(
        0.0, "Who has waited this long in all comes first, while the fleet could run all that waits; 0: off.", "seconds"
    )


@dataclass(frozen=True, slots=True)
class AlertPolicy:
    """When something is worth an operator's attention; how long a job may wait is its class's `alert_after`."""

    below_quota_after: float = _knob(
        3600.0, "A queue that asks this long for what its quota guarantees raises an alert; 0: none.", "seconds"
    )
    fragmentation: float = _knob(
        0.5, "A pool raises an alert when the demand of a day cannot use this share of its free GPUs; 0: none.", "share"
    )
    fragmentation_gpus: float = _knob(8.0, "As long as so few GPUs of a pool are stranded, it raises none.", "GPUs")
    fragmentation_after: float = _knob(600.0, "So long they must have been stranded.", "seconds")


def _classes() -> dict[JobClass, ClassPolicy]:
    return {
        JobClass.BATCH: ClassPolicy(
            priority=25,
            models=ModelChoice.OLDER,
            max_grace=600.0,
            max_min_runtime=3600.0,
            warm_up=30.0,
            alert_after=21600.0,
        ),
        JobClass.TRAINING: ClassPolicy(priority=50),
        JobClass.INTERACTIVE: ClassPolicy(
            priority=75,
            models=ModelChoice.OLDER,
            preemptible=False,
            max_grace=600.0,
            warm_up=10.0,
            alert_after=600.0,
        ),
        JobClass.INFERENCE: ClassPolicy(
            priority=100,
            preemptible=False,
            placement=Style.SPREAD,
            over=(NODE, "rack"),
            models=ModelChoice.OLDER,
            max_grace=600.0,
            warm_up=60.0,
            alert_after=600.0,
        ),
    }


@dataclass(frozen=True, slots=True)
class Policy:
    """All knobs. Overrides in a snapshot use the same keys."""

    classes: dict[JobClass, ClassPolicy] = field(
        default_factory=_classes,
        metadata={"doc": "Treatment per class: batch, training, interactive, inference.", "unit": ""},
    )
    weights: Weights = field(
        default_factory=Weights, metadata={"doc": "Weights of the placement score's terms.", "unit": ""}
    )
    scoring: Scoring = field(default_factory=Scoring, metadata={"doc": "How the terms are worked out.", "unit": ""})
    demand: DemandView = field(
        default_factory=DemandView, metadata={"doc": "How demand known beforehand is looked at.", "unit": ""}
    )
    order: OrderPolicy = field(
        default_factory=OrderPolicy, metadata={"doc": "Who comes first among equals.", "unit": ""}
    )
    alerts: AlertPolicy = field(
        default_factory=AlertPolicy, metadata={"doc": "What is worth an operator's attention.", "unit": ""}
    )
    consolidate: bool = _knob(True, "Move running jobs when that lets a waiting one start (rule 15).")
    preempt: bool = _knob(True, "Take GPUs back by priority and by shares (rules 16 to 19).")
    move_factor: float = _knob(
        2.0, "A claimant above its fair share moves at most this many times its own GPUs.", "ratio"
    )
    preempt_across_queues: AcrossQueues = _knob(
        AcrossQueues.NEVER, "What critical jobs may take from other queues by priority: never, borrowed, any."
    )
    priorities: dict[str, int] = field(
        default_factory=lambda: {"low": 10, "high": 200},
        metadata={"doc": "Names that jobs may give as their priority; `critical` is there too.", "unit": ""},
    )
    critical_priority: int = _knob(1000, "Jobs at or above this priority are critical.")
    pdb: PdbRule = _knob(PdbRule.NEVER, "Whether disruption budgets may be broken: never, or last-resort.")
    min_runtime: float = _knob(
        0.0, "How long a job that names no min_runtime runs before it can be a victim.", "seconds"
    )
    eviction_grace: float = _knob(
        600.0,
        "How long a victim is spared after its first eviction; doubles with each further one.",
        "seconds",
    )
    protect_after: int = _knob(
        3, "A job evicted this often in a day is protected and raises an alert; 0 is as 1.", "evictions"
    )
    warn_before: float = _knob(
        0.1, "Share of its time limit before whose end a job is warned; no later than its checkpoint.grace.", "share"
    )
    stale_grace: float = _knob(60.0, "How long a gang below its minimum is borne; negative is for ever.", "seconds")
    deadlock: DeadlockRule = _knob(DeadlockRule.BREAK, "Break deadlocks at once, or only propose it.")
    reserve_after: float = _knob(3600.0, "A gang that waited this long gets a reservation.", "seconds")
    reservations_per_pool: int = _knob(1, "How many gangs may hold a reservation in one pool.", "reservations")
    search_limit: int = _knob(512, "How many victim sets are tried for one claim before it waits.", "sets")
    search_total: int = _knob(20_000, "How many victim sets one cycle tries for all claims together.", "sets")
    claim_again: float = _knob(5.0, "A claim that found no room to make is asked again after this long.", "seconds")
    defragment: DefragRule = _knob(DefragRule.PROPOSE, "Timed defragmentation: off, propose (only say what), or do.")
    defrag_every: float = _knob(3600.0, "How often timed defragmentation looks for moves that pay.", "seconds")
    defrag_from: float = _knob(0.0, "From this hour of the day on (UTC); the same as defrag_until: always.", "hours")
    defrag_until: float = _knob(0.0, "Until this hour of the day (UTC).", "hours")
    defrag_budget: int = _knob(8, "How many jobs one timed defragmentation may move.", "jobs")
    defrag_pays: float = _knob(1.0, "Timed defragmentation must gain this many times what it costs.", "ratio")
    defrag_horizon: float = _knob(3600.0, "How long at most a gap counts that timed defragmentation closes.", "seconds")

    def of(self, job: Job) -> ClassPolicy:
        """The treatment of a job's class."""
        return self.classes[job.job_class]

    def priority(self, job: Job) -> int:
        """The job's own priority, else its class's."""
        if isinstance(job.priority, int):
            return job.priority
        own = self.of(job).priority
        return self.named_priorities().get(job.priority, own) if job.priority else own

    def named_priorities(self) -> dict[str, int]:
        """Every name a job may give as its priority. `critical` is as high as critical jobs begin, unless it is set."""
        return {CRITICAL: self.critical_priority, **self.priorities}

    def preemptible(self, job: Job) -> bool:
        """Whether the job may be taken back: as it says, else as its class says."""
        return self.of(job).preemptible if job.preemptible is None else job.preemptible


# --- how long a job may ask for ------------------------------------------------------------------

# While a job saves its work or is inside its minimum runtime nobody takes its GPUs back, so without bounds a quota
# would be whatever a user writes.

GRACE = "max_grace"
MIN_RUNTIME = "max_min_runtime"
TIME_LIMIT = "max_time_limit"


@dataclass(frozen=True, slots=True, order=True)
class Bound:
    """Seconds, whose bound it is, and the key that sets it."""

    seconds: float
    whose: str
    key: str


def bound_of(job: Job, policy: Policy, queues: Sequence[Queue], name: str) -> Bound | None:
    """The one that holds for a job, of its class and of every queue above it; 0 bounds nothing."""
    return min((bound for bound in _bounds(job, policy, queues, name) if bound.seconds > 0), default=None)


def _bounds(job: Job, policy: Policy, queues: Sequence[Queue], name: str) -> Iterator[Bound]:
    word = job.job_class.value
    yield Bound(getattr(policy.of(job), name), f"class {word}", f"policy classes.{word}.{name}")
    known = {queue.name: queue for queue in queues}
    queue = known.get(job.queue)
    while queue is not None:
        yield Bound(getattr(queue, name), f"queue {queue.name}", name)
        queue = known.get(queue.parent)


def kept_within(job: Job, policy: Policy, queues: Sequence[Queue]) -> Job:
    """A job that was accepted before, with no more grace and minimum runtime than it could ask for now.

    Its time limit stays: that keeps nobody from anything that is theirs, and a later bound ends no work that was
    promised its time.
    """
    grace, least = (bound_of(job, policy, queues, name) for name in (GRACE, MIN_RUNTIME))
    if grace is not None and job.checkpoint is not None and job.checkpoint.grace > grace.seconds:
        job = replace(job, checkpoint=replace(job.checkpoint, grace=grace.seconds))
    if least is not None and job.min_runtime is not None and job.min_runtime > least.seconds:
        job = replace(job, min_runtime=least.seconds)
    return job
