"""Every key of every file, declared once: the reader and the JSON Schema both come from these tables.

Called by the readers of this room and by `schema`. An entry is what stands in the file, checked key by key; whether
names exist and placements fit is for `crosscheck`. Defaults are those of RULES.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpuyard.files.format.gpu_amounts import AllowanceOf, Fraction, MigAsk
from gpuyard.files.format.kinds import (
    PATH,
    PROSE,
    VARIABLE,
    AllOr,
    ByIndex,
    Bytes,
    Choice,
    Cpu,
    Duration,
    Flag,
    ListOf,
    MapOf,
    Number,
    NumberOr,
    Opaque,
    Text,
    Time,
    Whole,
    Word,
)  # fmt: skip
from gpuyard.files.format.policies import POLICY
from gpuyard.files.format.tables import EntryOf, slot
from gpuyard.model.job import JobClass
from gpuyard.model.node import ARCHITECTURES, Alignment, Effect, Health
from gpuyard.model.outside import text
from gpuyard.model.queue import NO_LIMIT, NO_QUOTA, ROOT, Allowance
from gpuyard.model.resources import UNLIMITED

API_VERSION = "gpuyard.dev/v1"
GPUS_PER_NODE_MAX = 64
TASKS_MAX = 1_000_000
PRIORITY_MAX = 2_000_000_000

NAME = Text(least=1)
LABEL = Text()
KEY = Text(least=1, most=text.KEY_MAX)
VALUE = Text(most=text.KEY_MAX)
LABELS = MapOf(VALUE, KEY)
LEVEL = Text(least=1)
EXTRAS = MapOf(Bytes(), KEY)
JOB_NAME = Text(least=1, most=text.JOB_MAX)
FAMILY = Text(most=text.JOB_MAX)
SENTENCE = Text(most=text.LINE_MAX)
GPU_INDEX = Whole(most=GPUS_PER_NODE_MAX - 1)
PRIORITY = Whole(least=-PRIORITY_MAX, most=PRIORITY_MAX)
COUNT = Whole(most=TASKS_MAX)
MIG_PROFILE = Text(least=1, pattern=r"^[1-7]g\.[0-9]+gb(\+[a-z.]+)?$", example="1g.10gb")
SIGNAL = Text(least=1, pattern=r"^SIG[A-Z0-9]+$", example="SIGUSR1")
AFTER_MAX = 256
AFTER_PATTERN = r"^[^:]+(:(ok|any))?$"
ARRAY_PATTERN = r"^[0-9]{1,7}(-[0-9]{1,7})?(,[0-9]{1,7}(-[0-9]{1,7})?)*(%[1-9][0-9]{0,6})?$"
EFFECTS = tuple(effect.value for effect in Effect)
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")


# --- the fleet -----------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class PoolEntry:
    """Nodes of one SKU under one policy."""

    name: str = slot(NAME, "Unique among pools.")
    price: float = slot(Number(), "Price of an 8-GPU node a month; 0 is not known.", 0.0)
    max_busy: tuple[tuple[str, int], ...] = slot(
        MapOf(COUNT), "Per level: at most so many GPUs of this pool are busy in one domain (power, heat).", ()
    )
    labels: tuple[tuple[str, str], ...] = slot(
        LABELS, "Labels of all its nodes, such as their region; a node's own come first.", ()
    )
    workloads: tuple[JobClass, ...] = slot(
        ListOf(Choice(JobClass), distinct=True), "Classes of jobs that may run on its nodes; left out: all.", ()
    )
    min_nodes: int = slot(COUNT, "Never scaled below this.", 0)
    max_nodes: int = slot(COUNT, "Never scaled above this; 0: the pool is not scaled.", 0)


@dataclass(slots=True, kw_only=True)
class TaintEntry:
    """A mark on a node that repels tasks without a matching toleration."""

    key: str = slot(KEY, "As in Kubernetes.")
    value: str = slot(VALUE, "As in Kubernetes.", "")
    effect: Effect = slot(Choice(Effect), "What it does to tasks that do not tolerate it.", Effect.NO_SCHEDULE)


@dataclass(slots=True, kw_only=True)
class ClosureEntry:
    """Why nothing new goes on a node or GPU."""

    reason: str = slot(SENTENCE, "In somebody's words.", "")
    by: str = slot(LABEL, "Who closed it.", "")
    drains: bool = slot(Flag(), "What runs there is to go, too.", False)
    force: bool = slot(Flag(), "Also those who have a right to stay.", False)
    since: float = slot(Time(), "Since when.", 0.0)


@dataclass(slots=True, kw_only=True)
class LoadEntry:
    """What is used by others."""

    cpu: int = slot(Cpu(), "Cores.", 0)
    memory: int = slot(Bytes(), "Memory.", 0)
    extras: tuple[tuple[str, int], ...] = slot(EXTRAS, "What else, by name.", ())


@dataclass(slots=True, kw_only=True)
class NodeEntry:
    """A machine and its GPUs, which are all of one model and numbered from 0."""

    name: str = slot(NAME, "Unique among nodes.")
    pool: str = slot(LABEL, "The pool it belongs to; a pool named here exists.", "")
    gpus: int = slot(Whole(most=GPUS_PER_NODE_MAX), "How many GPUs it has.", 0)
    model: str = slot(LABEL, "Model of its GPUs, e.g. H100-SXM5-80GB.", "")
    gpu_memory: int = slot(Bytes(), "Memory of one GPU; known by itself for the usual models.", 0)
    architecture: str = slot(Word(ARCHITECTURES), "Architecture of its GPUs; known by itself for the usual models.", "")
    uuids: tuple[str, ...] = slot(ListOf(Text()), "The GPUs' UUIDs, in order; empty where one is not known.", ())
    cpu: int = slot(Cpu(unlimited=True), "Cores that tasks may use.", UNLIMITED)
    memory: int = slot(Bytes(unlimited=True), "Memory that tasks may use.", UNLIMITED)
    islands: tuple[tuple[int, ...], ...] = slot(
        ListOf(ListOf(GPU_INDEX, least=1)), "GPUs that NVLink joins, by number; left out, all are one island.", ()
    )
    switches: tuple[tuple[int, ...], ...] = slot(
        ListOf(ListOf(GPU_INDEX, least=1)), "GPUs behind one PCIe switch, likewise: next best to NVLink.", ()
    )
    numa: tuple[tuple[int, ...], ...] = slot(
        ListOf(ListOf(GPU_INDEX, least=1)), "GPUs of one NUMA node, likewise: next best to a switch.", ()
    )
    alignment: Alignment = slot(
        Choice(Alignment), "The kubelet's topology policy: NUMA nodes that a task's GPUs must keep to.", Alignment.NONE
    )
    domains: tuple[tuple[str, str], ...] = slot(MapOf(NAME), "Its place in the topology: domain by level.", ())
    labels: tuple[tuple[str, str], ...] = slot(LABELS, "As in Kubernetes.", ())
    taints: tuple[TaintEntry, ...] = slot(ListOf(EntryOf(lambda: TaintEntry)), "As in Kubernetes.", ())
    workloads: tuple[JobClass, ...] = slot(
        ListOf(Choice(JobClass), distinct=True), "Classes of jobs that may run here; left out: all.", ()
    )
    unhealthy: tuple[int, ...] = slot(ListOf(GPU_INDEX, distinct=True), "Short for health: sick.", ())
    health: tuple[tuple[int, Health], ...] = slot(
        ByIndex(Choice(Health)), "State by GPU number; the others are healthy.", ()
    )
    cordoned: bool | tuple[int, ...] = slot(
        AllOr(ListOf(GPU_INDEX, distinct=True)), "Nothing new goes here: true, or the GPUs by number.", False
    )
    closed: ClosureEntry | None = slot(
        EntryOf(lambda: ClosureEntry), "Nothing new goes here, and why; says more than cordoned.", None
    )
    closed_gpus: tuple[tuple[int, ClosureEntry], ...] = slot(
        ByIndex(EntryOf(lambda: ClosureEntry)), "The same for single GPUs, by number.", ()
    )
    taken: LoadEntry | None = slot(
        EntryOf(lambda: LoadEntry), "What others use of its CPU and memory; not ours to move.", None
    )
    extras: tuple[tuple[str, int], ...] = slot(EXTRAS, "What else is counted here, by name: adapters, storage.", ())
    mig: tuple[tuple[int, tuple[str, ...]], ...] = slot(
        ByIndex(ListOf(MIG_PROFILE)), "MIG slices by GPU number; a GPU listed here cannot be had whole.", ()
    )


@dataclass(slots=True, kw_only=True)
class QueueEntry:
    """A team's place in the tree, with what it is guaranteed and what it may never pass."""

    name: str = slot(NAME, "Unique among queues.")
    parent: str = slot(NAME, "The queue above; `root` exists by itself.", ROOT)
    quota: Allowance = slot(
        AllowanceOf(missing_gpu="sum"), "Guaranteed: a number of GPUs, or a mapping; default 0.", NO_QUOTA
    )
    limit: Allowance = slot(
        AllowanceOf(missing_gpu="unlimited"), "Hard cap: a number of GPUs, or a mapping; default unlimited.", NO_LIMIT
    )
    weight: float = slot(Number(), "Its part of what is left over, among queues of one priority.", 1.0)
    priority: int = slot(PRIORITY, "What is left over goes to the highest first.", 0)
    users: tuple[str, ...] = slot(ListOf(NAME, distinct=True), "Who may submit here; empty: everybody.", ())
    groups: tuple[str, ...] = slot(ListOf(NAME, distinct=True), "Whose members may submit here.", ())
    max_grace: float = slot(Duration(), "The longest checkpoint.grace of a job here; 0: as its class has it.", 0.0)
    max_min_runtime: float = slot(Duration(), "The longest min_runtime of a job here; 0: as its class has it.", 0.0)
    max_time_limit: float = slot(
        Duration(),
        "The longest time_limit of a job here, and of one that names none; 0: as its class has it.",
        0.0,
    )


# --- jobs ----------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class TopologyEntry:
    """The levels inside which tasks stay together."""

    required: str = slot(LEVEL, "Never crossed.", "")
    preferred: str = slot(LEVEL, "Crossed as little as possible; nobody is disturbed for it.", "")


@dataclass(slots=True, kw_only=True)
class TolerationEntry:
    """Which taints a task bears; as in Kubernetes."""

    key: str = slot(VALUE, "Empty with `Exists`: every taint.", "")
    operator: str = slot(Word(("Equal", "Exists")), "How key and value are compared.", "Equal")
    value: str = slot(VALUE, "The taint's value, for `Equal`.", "")
    effect: str = slot(Word((*EFFECTS, "")), "Empty: every effect.", "")


@dataclass(slots=True, kw_only=True)
class ExpressionEntry:
    """One node-affinity requirement; as in Kubernetes."""

    key: str = slot(KEY, "The label.")
    operator: str = slot(Word(OPERATORS), "How its value is compared.")
    values: tuple[str, ...] = slot(ListOf(VALUE), "Empty for Exists and DoesNotExist, one number for Gt and Lt.", ())


@dataclass(slots=True, kw_only=True)
class TermEntry:
    """A node-affinity term: all its expressions must hold; terms in one list are alternatives."""

    match_expressions: tuple[ExpressionEntry, ...] = slot(
        ListOf(EntryOf(lambda: ExpressionEntry)),
        "As in Kubernetes; a term without any matches nothing.",
        as_key="matchExpressions",
    )


@dataclass(slots=True, kw_only=True)
class LikeEntry(TermEntry):
    """A term that should hold."""

    weight: int = slot(Whole(1, 100), "How much, 1 to 100.", 1)


@dataclass(slots=True, kw_only=True)
class NeighbourEntry(TermEntry):
    """Tasks by their labels, within one domain of a level; without expressions, all."""

    level: str = slot(LEVEL, "The domain that is shared or not.", "node")


@dataclass(slots=True, kw_only=True)
class EvennessEntry(NeighbourEntry):
    """How evenly such tasks lie over domains."""

    skew: int = slot(Whole(1, TASKS_MAX), "No domain has more than this above the least.", 1)
    least_domains: int = slot(COUNT, "Where there are fewer domains, the least is none.", 0)
    among: tuple[tuple[TermEntry, ...], ...] | None = slot(
        ListOf(ListOf(EntryOf(lambda: TermEntry), least=1)),
        "The nodes compared, as lists of which each has one that holds; default: those it may use by its labels.",
        None,
    )


@dataclass(slots=True, kw_only=True)
class CheckpointEntry:
    """How a job saves its work."""

    interval: float | None = slot(Duration(zero=False), "How often.", None)
    last: float | None = slot(Time(), "When last.", None)
    grace: float = slot(Duration(), "How long it may take once told to.", 60.0)
    signal: str = slot(SIGNAL, "How it is told to.", "SIGUSR1")


@dataclass(slots=True, kw_only=True)
class AvoidEntry:
    """Whom a job will not share a domain with."""

    level: str = slot(LEVEL, "The domain that is not shared.", "node")
    queues: tuple[str, ...] = slot(ListOf(NAME, distinct=True), "Whose jobs.", ())
    own: bool = slot(Flag(), "Keeps the job's own tasks apart.", False, as_key="self")


@dataclass(slots=True, kw_only=True)
class PlacementEntry:
    """Where one task runs."""

    node: str = slot(NAME, "The node's name.")
    gpus: tuple[int, ...] = slot(ListOf(GPU_INDEX), "GPUs by number, one for each MIG slice.", ())
    group: str = slot(NAME, "The task group's name; may be left out if there is only one.", "")
    task: int | None = slot(Whole(most=TASKS_MAX), "The task's number in its group; default: the lowest free.", None)
    mig: tuple[str, ...] = slot(ListOf(MIG_PROFILE), "The slice of each GPU listed.", ())
    terminating: bool = slot(Flag(), "Told to stop; holds its GPUs until it is gone.", False)
    assigned: bool = slot(Flag(), "The place is its own, and it does not run yet.", False)
    uid: str = slot(LABEL, "Tells the task from every other there ever was.", "")


@dataclass(slots=True, kw_only=True)
class AskEntry:
    """What a job and a task group may both say."""

    name: str = slot(NAME, "Unique among its siblings.")
    tasks: int | None = slot(Whole(1, TASKS_MAX), "How many identical tasks; default 1.", None)
    min: int | None = slot(Whole(0, TASKS_MAX), "So many start together or none; default: all. 0: extras alone.", None)
    gpus: int | None = slot(COUNT, "Whole GPUs a task; default 0.", None)
    fraction: int | None = slot(Fraction(), "Or a part of one GPU.", None)
    gpu_memory: int | None = slot(Bytes(), "Or so much memory of one GPU.", None)
    mig: tuple[tuple[str, int], ...] = slot(MigAsk(MIG_PROFILE), "Or a MIG slice, or several.", ())
    cpu: int | None = slot(Cpu(), "Cores a task; default 0.", None)
    memory: int | None = slot(Bytes(), "Memory a task; default 0.", None)
    extras: tuple[tuple[str, int], ...] | None = slot(
        EXTRAS, "What else a task needs of its node, by name; port/TCP/80 is there once on each.", None
    )
    topology: TopologyEntry | None = slot(EntryOf(lambda: TopologyEntry), "Levels to stay together in.", None)
    node_selector: tuple[tuple[str, str], ...] | None = slot(LABELS, "Labels a node must have.", None)
    tolerations: tuple[TolerationEntry, ...] | None = slot(
        ListOf(EntryOf(lambda: TolerationEntry)), "Taints it bears.", None
    )
    affinity: tuple[TermEntry, ...] | None = slot(
        ListOf(EntryOf(lambda: TermEntry)), "Node-affinity terms; any one holds.", None
    )
    likes: tuple[LikeEntry, ...] | None = slot(
        ListOf(EntryOf(lambda: LikeEntry)), "Node-affinity terms that make a node better liked.", None
    )
    labels: tuple[tuple[str, str], ...] | None = slot(LABELS, "What its tasks are known by to their neighbours.", None)
    near: tuple[NeighbourEntry, ...] | None = slot(
        ListOf(EntryOf(lambda: NeighbourEntry)), "Tasks there must be in its domain.", None
    )
    apart: tuple[NeighbourEntry, ...] | None = slot(
        ListOf(EntryOf(lambda: NeighbourEntry)), "Tasks there must not be; it binds both sides.", None
    )
    even: tuple[EvennessEntry, ...] | None = slot(
        ListOf(EntryOf(lambda: EvennessEntry)), "Tasks among which it lies evenly over domains.", None
    )
    terms: tuple[tuple[TermEntry, ...], ...] = slot(
        ListOf(ListOf(EntryOf(lambda: TermEntry), least=1)), "Further such lists; of each any one holds.", ()
    )
    failed: int | None = slot(COUNT, "Members that failed; default 0.", None)
    succeeded: int | None = slot(COUNT, "Members that succeeded; default 0.", None)
    absent: int | None = slot(COUNT, "Members that do not exist yet; default 0.", None)
    ended: tuple[int, ...] = slot(
        ListOf(COUNT, distinct=True), "Numbers of members that ended by themselves; none is run again.", ()
    )
    tried: tuple[int, ...] = slot(
        ListOf(COUNT, distinct=True), "Numbers of members that were stopped; those that never ran come first.", ()
    )
    min_groups: int | None = slot(Whole(1, TASKS_MAX), "So many of the groups start together; default: all.", None)
    groups: tuple[GroupEntry, ...] | None = slot(
        ListOf(EntryOf(lambda: GroupEntry), least=1), "Task groups instead of tasks; may nest.", None
    )


@dataclass(slots=True, kw_only=True)
class GroupEntry(AskEntry):
    """Identical tasks, or a group made of groups."""


@dataclass(slots=True, kw_only=True)
class RunEntry:
    """What a task executes."""

    command: tuple[str, ...] = slot(ListOf(PROSE), "Program and arguments, as a list.", ())
    env: tuple[tuple[str, str], ...] = slot(MapOf(PROSE, VARIABLE), "Environment variables.", ())
    workdir: str = slot(PATH, "Where it starts.", "")
    retries: int = slot(Whole(most=1000), "How often a failed task is started again.", 0)
    image: str = slot(Text(most=1000), "Container image, where there are containers.", "")
    tty: bool = slot(Flag(), "Whether it gets a terminal, for `yard attach`.", False)


@dataclass(slots=True, kw_only=True)
class JobEntry(AskEntry):
    """A request to run one gang or more."""

    name: str = slot(JOB_NAME, "Unique among jobs.")
    queue: str | None = slot(NAME, "A leaf queue; default `default`.", None)
    user: str = slot(LABEL, "Whose it is.", "")
    job_class: JobClass = slot(
        Choice(JobClass), "What kind of work it is; decides defaults.", JobClass.TRAINING, as_key="class"
    )
    priority: int | str | None = slot(
        NumberOr(PRIORITY, Text(least=1)), "A number, or a name of the policy's priorities. Default: by class.", None
    )
    preemptible: bool | None = slot(Flag(), "Whether its GPUs may be taken back; default: by class.", None)
    submitted: float | None = slot(Time(), "Default: `started` if given, else now.", None)
    started: float | None = slot(Time(), "Since when it runs.", None)
    models: tuple[str, ...] = slot(
        ListOf(NAME, distinct=True), "GPU models it accepts, best first: whole names, or up to a `-`; default any.", ()
    )
    min_gpu_memory: int = slot(Bytes(), "Instead of models: memory of a GPU at least this.", 0)
    min_architecture: str = slot(Word(ARCHITECTURES), "Instead of models: this architecture or newer.", "")
    architecture: str = slot(Word(ARCHITECTURES), "Instead of models: this architecture and no other.", "")
    avoid: AvoidEntry | None = slot(EntryOf(lambda: AvoidEntry), "Whom it will not share a domain with.", None)
    time_limit: float | None = slot(Duration(zero=False), "It is ended after this.", None)
    min_runtime: float | None = slot(Duration(), "It is no victim before this; default: by policy.", None)
    warm_up: float | None = slot(Duration(), "What a restart costs; default: by policy.", None)
    duration: float | None = slot(Duration(), "How long it runs in all, if somebody knows.", None)
    attained: float = slot(Duration(), "How long it has run so far, before its present start.", 0.0)
    checkpoint: CheckpointEntry | None = slot(EntryOf(lambda: CheckpointEntry), "How it saves its work.", None)
    evictions: int = slot(COUNT, "How often it was evicted.", 0)
    waiting_since: float | None = slot(Time(), "Since when it waits, if not since it was submitted.", None)
    stale_since: float | None = slot(Time(), "Since when it is below its minimum.", None)
    stale_grace: float | None = slot(
        Duration(negative=True), "How long that is borne; negative: for ever; default: by policy.", None
    )
    placements: tuple[PlacementEntry, ...] = slot(ListOf(EntryOf(lambda: PlacementEntry)), "Where it runs.", ())
    foreign: bool = slot(Flag(), "Not ours to move or evict.", False)
    held: bool = slot(Flag(), "Held back by its owner.", False)
    held_for: str = slot(SENTENCE, "What it is held back for, in words.", "")
    takes: bool = slot(Flag(), "Whether others may be moved or stopped for it.", True)
    family: str = slot(FAMILY, "Jobs of one family are spread and kept apart as the tasks of one job are.", "")
    run: RunEntry | None = slot(EntryOf(lambda: RunEntry), "What its tasks execute.", None)


@dataclass(slots=True, kw_only=True)
class JobFileEntry(JobEntry):
    """A job file: one entry of a snapshot's jobs, and how it is submitted."""

    name: str = slot(NAME, "Unique among jobs.")
    api_version: str = slot(Word((API_VERSION,)), "May be left out.", API_VERSION, as_key="apiVersion")
    kind: str = slot(Word(("Job",)), "May be left out.", "Job")
    after: tuple[str, ...] = slot(
        ListOf(Text(1, 260, AFTER_PATTERN, "JOB, JOB:ok or JOB:any"), most=AFTER_MAX),
        "Jobs that must have ended, well or anyhow.",
        (),
    )
    array: str = slot(Text(0, 253, ARRAY_PATTERN, "0-99, or 0-99%8 for eight at once"), "One job for each number.", "")


# --- the rest of a moment ------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class BudgetEntry:
    """How many tasks of some jobs may be disturbed at once; one of the two bounds."""

    name: str = slot(JOB_NAME, "Unique among budgets.")
    jobs: tuple[str, ...] = slot(ListOf(JOB_NAME, least=1, distinct=True), "The jobs it covers.")
    min_available: int | None = slot(COUNT, "Tasks that keep running.", None)
    max_unavailable: int | None = slot(COUNT, "Tasks that may be disturbed.", None)
    allowed: int | None = slot(COUNT, "Tasks that may be disturbed now, as somebody else counts them.", None)
    covers: tuple[tuple[str, tuple[str, ...]], ...] = slot(
        MapOf(ListOf(NAME, least=1), JOB_NAME), "Groups of its jobs that it is about, by job; default: all.", ()
    )


@dataclass(slots=True, kw_only=True)
class ReservationEntry:
    """Places kept free for a job."""

    job: str = slot(JOB_NAME, "The job's name.")
    placements: tuple[PlacementEntry, ...] = slot(ListOf(EntryOf(lambda: PlacementEntry)), "Where.", ())
    until: float | None = slot(Time(), "Until when; left out: until it starts.", None)


@dataclass(slots=True, kw_only=True)
class SnapshotEntry:
    """A whole moment: fleet, queues, jobs, policy and what the brain remembers."""

    api_version: str = slot(Word((API_VERSION,)), "The version of this format.", as_key="apiVersion")
    kind: str = slot(Word(("Snapshot",)), "Always Snapshot.")
    now: float | None = slot(Time(), "The moment; left out: the present.", None)
    topology: tuple[str, ...] = slot(
        ListOf(LEVEL, distinct=True), "Levels above the node, outermost first; node and nvlink are implied.", ()
    )
    policy: dict[str, Any] | None = slot(POLICY, "Overrides of the policy; the same keys.", None)
    pools: tuple[PoolEntry, ...] = slot(ListOf(EntryOf(lambda: PoolEntry)), "What is known about pools.", ())
    nodes: tuple[NodeEntry, ...] = slot(ListOf(EntryOf(lambda: NodeEntry)), "The fleet.", ())
    queues: tuple[QueueEntry, ...] = slot(
        ListOf(EntryOf(lambda: QueueEntry)), "The tree; without it there is one queue, `default`, without bounds.", ()
    )
    jobs: tuple[JobEntry, ...] = slot(ListOf(EntryOf(lambda: JobEntry)), "What runs and what waits.", ())
    budgets: tuple[BudgetEntry, ...] = slot(ListOf(EntryOf(lambda: BudgetEntry)), "PDBs and the like.", ())
    reservations: tuple[ReservationEntry, ...] = slot(
        ListOf(EntryOf(lambda: ReservationEntry)), "Places kept free.", ()
    )
    memory: dict[str, Any] | None = slot(Opaque(), "What the brain remembers; nothing to edit.", None)
