"""What the oracle sees: a moment read from a snapshot document, in shapes of its own.

Nothing here or in its neighbours comes from the engine or the model. Amounts are exact fractions; a moment is small
(one to three nodes, eight GPUs and eight jobs at most), so everything may be tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from functools import cached_property
from typing import Any

Document = dict[str, Any]
NAMED_MODEL = "H100"
"""The one model that quotas name, where they name one."""
RESOURCES = ("gpu", "cpu", NAMED_MODEL)
Amounts = tuple[Fraction, ...]
"""Of each of these."""

NOTHING: Amounts = (Fraction(0),) * len(RESOURCES)
ENDLESS = Fraction(10**12)
ROOT = "root"
CLASSES = {"batch": (25, True), "training": (50, True), "interactive": (75, False), "inference": (100, False)}
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
BYTES = {"Gi": 2**30, "Mi": 2**20, "Ti": 2**40, "G": 10**9}


@dataclass(frozen=True)
class Device:
    """One GPU; `slices` is None where it is not cut."""

    node: str
    index: int
    island: int
    slices: tuple[str, ...] | None = None
    sick: bool = False
    numa: int = 0


@dataclass(frozen=True)
class Node:
    """A machine."""

    name: str
    pool: str
    model: str
    memory: int
    devices: tuple[Device, ...]
    cpu: Fraction
    domains: tuple[tuple[str, str], ...]
    taints: tuple[str, ...] = ()
    """Keys of taints that keep away whoever does not tolerate them."""
    alignment: str = "none"
    """How strictly the GPUs of a task are kept to NUMA nodes."""

    def aligned(self, chosen: Iterable[Device]) -> bool:
        """Whether its kubelet would give these to one task: of one NUMA node, or of as few as have as many at all."""
        chosen = list(chosen)
        numa = {d.numa for d in chosen}
        if self.alignment == "none" or len(numa) < 2:
            return True
        if self.alignment == "single-numa-node":
            return False
        whole = Counter(d.numa for d in self.devices if d.slices is None)
        return sum(count for _, count in whole.most_common(len(numa) - 1)) < len(chosen)

    def domain(self, level: str) -> tuple[str, str] | None:
        """The domain of a level at or above the node; None where the node has none."""
        if level == "node":
            return (level, self.name)
        found = dict(self.domains).get(level)
        return (level, found) if found else None


@dataclass(frozen=True)
class Queue:
    """Quota and limit per resource; what a quota does not name is not counted (None)."""

    name: str
    parent: str
    quota: tuple[Fraction | None, ...]
    limit: Amounts
    weight: Fraction
    priority: int


@dataclass(frozen=True)
class Group:
    """Identical tasks."""

    name: str
    tasks: int
    least: int
    gpus: int
    share: Fraction
    gpu_memory: int
    mig: tuple[str, ...]
    cpu: Fraction
    required: str
    succeeded: int
    failed: int

    @property
    def wanted(self) -> int:
        """Live tasks that make the group complete: who succeeded counts."""
        return max(0, self.least - self.succeeded)

    @property
    def most(self) -> int:
        """Live tasks it may have at all: who ended is not run again."""
        return self.tasks - self.succeeded - self.failed


@dataclass(frozen=True, order=True)
class Spot:
    """Where one task runs. `task` is its number: the extra is what came last."""

    group: str
    node: str
    gpus: tuple[int, ...]
    mig: tuple[str, ...] = ()
    task: int = 0

    @property
    def place(self) -> tuple[str, str, tuple[int, ...], tuple[str, ...]]:
        """Everything but the number."""
        return (self.group, self.node, self.gpus, self.mig)


@dataclass(frozen=True)
class Avoid:
    """Whom a job will not share a domain with (rule 14)."""

    level: str
    queues: tuple[str, ...]
    own: bool


@dataclass(frozen=True)
class Job:
    """A gang."""

    name: str
    queue: str
    priority: int
    preemptible: bool
    submitted: float
    started: float | None
    groups: tuple[Group, ...]
    required: str
    models: tuple[str, ...]
    min_runtime: float
    warm_up: float
    saved: float | None
    time_limit: float | None
    evictions: int
    stale_since: float | None
    stale_grace: float
    held: bool
    bundles: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Levels required of several groups together, and which."""
    tolerates: tuple[str, ...] = ()
    avoid: Avoid | None = None

    def group(self, name: str) -> Group:
        """The group of that name."""
        return next(group for group in self.groups if group.name == name)

    @property
    def can_complete(self) -> bool:
        """Whether enough of its members may still run."""
        return all(group.most >= group.wanted for group in self.groups)


State = dict[str, tuple[Spot, ...]]
"""Live tasks by job; a job that has none is absent or empty."""


@dataclass(frozen=True)
class Budget:
    """So many tasks of these jobs must be there, or so many may be away."""

    name: str
    jobs: tuple[str, ...]
    min_available: int | None
    max_unavailable: int | None
    left: int | None = None
    """Tasks that may still be disturbed, where a plan has disturbed some already."""


@dataclass(frozen=True)
class Moment:
    """A snapshot as the oracle reads it."""

    now: float
    nodes: dict[str, Node]
    queues: dict[str, Queue]
    jobs: dict[str, Job]
    state: State
    going: tuple[tuple[str, Spot], ...]
    """Members that are on their way out: they hold their GPUs."""
    budgets: tuple[Budget, ...]
    reserved: tuple[tuple[str, tuple[Spot, ...], float | None], ...]
    across: str = "never"
    critical: int = 1000
    protect_after: int = 3
    reserve_after: float = 3600.0
    caps: tuple[tuple[str, str, int], ...] = ()
    """Pools, levels, and how many GPUs of the pool may be in use in one domain of the level."""
    document: Document = field(default_factory=dict, compare=False)

    @cached_property
    def children(self) -> dict[str, list[str]]:
        """Queues by parent."""
        found: dict[str, list[str]] = {name: [] for name in self.queues}
        for queue in self.queues.values():
            if queue.name != ROOT:
                found[queue.parent].append(queue.name)
        return found

    def path(self, queue: str) -> list[str]:
        """The queue and those above it, the root last."""
        found = [queue]
        while found[-1] != ROOT:
            found.append(self.queues[found[-1]].parent)
        return found

    @cached_property
    def counted(self) -> tuple[int, ...]:
        """The resources that count: GPUs, and others where quotas name them."""
        queues = [queue for queue in self.queues.values() if queue.name != ROOT]
        return tuple(r for r in range(len(RESOURCES)) if r == 0 or any(q.quota[r] is not None for q in queues))

    def cost(self, job: Job, group: Group, node: Node | None) -> Amounts:
        """What one task costs (rule 5); before it is placed, memory is measured by the largest card it could get."""
        if group.gpu_memory:
            cards = [
                n.memory for n in self.nodes.values() if suits(job, n) and any(d.slices is None for d in n.devices)
            ]
            memory = node.memory if node else max(cards, default=0)
            share = Fraction(group.gpu_memory, memory) if memory else Fraction(1)
        else:
            share = group.gpus + group.share + slices_cost(group.mig)
        model = node.model if node else (job.models or ("",))[0]
        return (share, group.cpu, share if is_model(model, NAMED_MODEL) else Fraction(0))

    def spot_cost(self, job: Job, spot: Spot) -> Amounts:
        """What a placed task costs."""
        return self.cost(job, job.group(spot.group), self.nodes[spot.node])

    def missing(self, job: Job, spots: tuple[Spot, ...]) -> dict[str, int]:
        """Tasks that a job lacks of its minimum, by group."""
        live = Counter(spot.group for spot in spots)
        return {g.name: g.wanted - live[g.name] for g in job.groups if g.wanted > live[g.name]}

    def need(self, job: Job, spots: tuple[Spot, ...]) -> Amounts:
        """What those missing tasks cost."""
        lacking = self.missing(job, spots)
        return total([scaled(self.cost(job, job.group(name), None), n) for name, n in lacking.items()])

    def complete(self, job: Job, spots: tuple[Spot, ...]) -> bool:
        """Whether the job has its minimum."""
        return not self.missing(job, spots)


def suits(job: Job, node: Node) -> bool:
    """Whether the job takes this model: whole name, or a prefix that ends before a dash."""
    return not job.models or any(is_model(node.model, name) for name in job.models)


def is_model(model: str, name: str) -> bool:
    """Whether a model goes by this name."""
    return model == name or model.startswith(name + "-")


def slices_cost(profiles: tuple[str, ...]) -> Fraction:
    """MIG slices cost g of 7."""
    return sum((Fraction(int(profile.split("g.")[0]), 7) for profile in profiles), Fraction(0))


def total(amounts: list[Amounts]) -> Amounts:
    """The sum."""
    return tuple(sum(column, Fraction(0)) for column in zip(*amounts, strict=True)) or NOTHING


def scaled(amounts: Amounts, times: int) -> Amounts:
    """So many times as much."""
    return tuple(amount * times for amount in amounts)


# --- reading ----------------------------------------------------------------------------------------------------------


def read(document: Document) -> Moment:
    """The moment of a snapshot document, as the generator writes it."""
    policy = document.get("policy", {})
    queues = {q.name: q for q in (_queue(entry) for entry in document.get("queues", []))}
    if not queues:
        queues["default"] = _queue({"name": "default", "quota": "unlimited"})
    queues.setdefault(ROOT, _queue({"name": ROOT, "quota": "unlimited"}))
    now = read_time(document["now"]) or 0.0
    jobs = {entry["name"]: _job(entry, policy, now) for entry in document.get("jobs", [])}
    live, going = {}, []
    for entry in document.get("jobs", []):
        spots = _numbered(entry.get("placements", []))
        live[entry["name"]] = tuple(spot for spot, leaves in spots if not leaves)
        going += [(entry["name"], spot) for spot, leaves in spots if leaves]
    return Moment(
        now=now,
        nodes={entry["name"]: _node(entry) for entry in document["nodes"]},
        queues=queues,
        jobs=jobs,
        state=live,
        going=tuple(going),
        budgets=tuple(_budget(entry) for entry in document.get("budgets", [])),
        reserved=tuple(_reservation(entry) for entry in document.get("reservations", [])),
        across=policy.get("preempt_across_queues", "never"),
        critical=policy.get("critical_priority", 1000),
        reserve_after=seconds(policy.get("reserve_after", "1h")),
        caps=tuple(
            (pool["name"], level, most)
            for pool in document.get("pools", [])
            for level, most in sorted(pool.get("max_busy", {}).items())
        ),
        document=document,
    )


def _node(entry: Document) -> Node:
    count = entry.get("gpus", 0)
    islands = entry.get("islands") or [list(range(count))]
    where = {gpu: i for i, island in enumerate(islands) for gpu in island}
    numa = {gpu: i for i, part in enumerate(entry.get("numa") or [list(range(count))]) for gpu in part}
    mig = {int(key): tuple(value) for key, value in entry.get("mig", {}).items()}
    sick = set(entry.get("unhealthy", []))
    name = entry["name"]
    return Node(
        name=name,
        pool=entry.get("pool", ""),
        model=entry.get("model", ""),
        memory=size(entry.get("gpu_memory", 0)),
        devices=tuple(Device(name, i, where[i], mig.get(i), i in sick, numa[i]) for i in range(count)),
        cpu=Fraction(entry["cpu"]) if "cpu" in entry else ENDLESS,
        domains=tuple(sorted(entry.get("domains", {}).items())),
        taints=tuple(taint["key"] for taint in entry.get("taints", [])),
        alignment=entry.get("alignment", "none"),
    )


def _queue(entry: Document) -> Queue:
    quota, limit = entry.get("quota", 0), entry.get("limit", "unlimited")
    quotas = quota if isinstance(quota, dict) else {"gpu": quota}
    limits = limit if isinstance(limit, dict) else {"gpu": limit}
    gpus = quotas.get("gpu", quotas.get(NAMED_MODEL, 0))
    return Queue(
        name=entry["name"],
        parent=entry.get("parent", ROOT if entry["name"] != ROOT else ""),
        quota=(amount(gpus), *(amount(quotas[r]) if r in quotas else None for r in RESOURCES[1:])),
        limit=tuple(amount(limits.get(r, "unlimited")) for r in RESOURCES),
        weight=Fraction(str(entry.get("weight", 1))),
        priority=entry.get("priority", 0),
    )


WARM_UP = {"training": 120, "batch": 30, "interactive": 10, "inference": 60}
"""What a restart costs a job that does not say, by class."""


def _job(entry: Document, policy: Document, now: float) -> Job:
    priority, preemptible = CLASSES[entry.get("class", "training")]
    started = read_time(entry.get("started"))
    submitted = read_time(entry.get("submitted"))
    return Job(
        name=entry["name"],
        queue=entry.get("queue", "default"),
        priority=entry.get("priority", priority),
        preemptible=entry.get("preemptible", preemptible),
        submitted=submitted if submitted is not None else started if started is not None else now,
        started=started,
        groups=tuple(_group(group) for group in _leaves(entry)),
        bundles=tuple(
            (bundle["topology"]["required"], tuple(leaf["name"] for leaf in _leaves(bundle)))
            for bundle in entry.get("groups", [])
            if "groups" in bundle and bundle.get("topology")
        ),
        required=entry.get("topology", {}).get("required", ""),
        models=tuple(entry.get("models", [])),
        min_runtime=seconds(entry.get("min_runtime", policy.get("min_runtime", 0))),
        warm_up=seconds(entry.get("warm_up", WARM_UP[entry.get("class", "training")])),
        saved=read_time(entry.get("checkpoint", {}).get("last")),
        time_limit=seconds(entry["time_limit"]) if "time_limit" in entry else None,
        evictions=entry.get("evictions", 0),
        stale_since=read_time(entry.get("stale_since")),
        stale_grace=seconds(entry.get("stale_grace", policy.get("stale_grace", 60))),
        held=entry.get("held", False),
        tolerates=tuple(each["key"] for each in entry.get("tolerations", [])),
        avoid=_avoid(entry["avoid"]) if "avoid" in entry else None,
    )


def _leaves(entry: Document) -> list[Document]:
    """The groups that have tasks, out of groups of groups."""
    return [leaf for group in entry["groups"] for leaf in _leaves(group)] if "groups" in entry else [entry]


def _avoid(entry: Document) -> Avoid:
    return Avoid(entry.get("level", "node"), tuple(entry.get("queues", [])), entry.get("self", False))


def _group(entry: Document) -> Group:
    tasks: int = entry.get("tasks", 1)
    mig = entry.get("mig", ())
    inside = "groups" not in entry and "queue" not in entry
    return Group(
        name=entry["name"] if inside else "main",
        tasks=tasks,
        least=entry.get("min", tasks),
        gpus=entry.get("gpus", 0),
        share=Fraction(str(entry.get("fraction", 0))),
        gpu_memory=size(entry.get("gpu_memory", 0)),
        mig=(mig,) if isinstance(mig, str) else tuple(p for p, n in dict(mig).items() for _ in range(n)),
        cpu=Fraction(entry.get("cpu", 0)),
        required=entry.get("topology", {}).get("required", "") if inside else "",
        succeeded=entry.get("succeeded", 0),
        failed=entry.get("failed", 0),
    )


def _budget(entry: Document) -> Budget:
    return Budget(entry["name"], tuple(entry["jobs"]), entry.get("min_available"), entry.get("max_unavailable"))


def _reservation(entry: Document) -> tuple[str, tuple[Spot, ...], float | None]:
    return entry["job"], tuple(spot for spot, _ in _numbered(entry["placements"])), read_time(entry.get("until"))


def _numbered(entries: list[Document]) -> list[tuple[Spot, bool]]:
    """Placements with their numbers; where the file gives none they count up, group by group."""
    seen: Counter[str] = Counter()
    found = []
    for entry in entries:
        group = entry.get("group", "main")
        found.append((spot_of(entry, seen[group]), entry.get("terminating", False)))
        seen[group] += 1
    return found


def spot_of(entry: Document, task: int = 0) -> Spot:
    """One placement document."""
    gpus, mig = tuple(entry.get("gpus", [])), tuple(entry.get("mig", []))
    return Spot(entry.get("group", "main"), entry["node"], gpus, mig, entry.get("task", task))


def amount(value: Any) -> Fraction:
    """A quota or limit."""
    return ENDLESS if value == "unlimited" else Fraction(str(value))


def size(value: Any) -> int:
    """Bytes."""
    if isinstance(value, int):
        return value
    unit = next(unit for unit in BYTES if str(value).endswith(unit))
    return int(str(value).removesuffix(unit)) * BYTES[unit]


def seconds(value: Any) -> float:
    """A duration."""
    if isinstance(value, int | float):
        return float(value)
    return float(value[:-1]) * UNITS[value[-1]]


def read_time(value: Any) -> float | None:
    """A date."""
    if value is None:
        return None
    moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value).replace("Z", "+00:00"))
    return moment.timestamp()
