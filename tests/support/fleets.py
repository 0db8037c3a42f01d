"""Random snapshots for property tests: valid by construction, small enough to read once shrunk.

`snapshots()` draws a fleet, a queue tree and jobs of every kind, some of them running. Menus stand with the plain
entries first, because hypothesis shrinks towards them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from hypothesis import strategies as st

from gpuyard.model.job import (
    MAIN,
    AffinityTerm,
    Avoid,
    Bundle,
    Checkpoint,
    Evenness,
    Expression,
    Job,
    JobClass,
    Neighbour,
    TaskGroup,
    Toleration,
    one_group,
)
from gpuyard.model.node import CORDONED, Budget, Effect, Gpu, Health, Node, Pool, Taint
from gpuyard.model.policy import AcrossQueues, Policy
from gpuyard.model.queue import DEFAULT, NO_LIMIT, NO_QUOTA, ROOT, Allowance, Queue
from gpuyard.model.resources import MILLI, UNLIMITED, WHOLE, Request
from gpuyard.model.snapshot import Snapshot
from gpuyard.model.topology import ANYWHERE, NODE, NVLINK, TopologyAsk
from tests.support.placing import Places

Draw = Callable[[st.SearchStrategy[Any]], Any]

NOW = 1_767_225_600.0
GIB = 1 << 30
H100, H100_PCIE, A100, V100 = "H100-SXM5-80GB", "H100-PCIE-80GB", "A100-SXM4-40GB", "V100-SXM2-16GB"


@dataclass(frozen=True)
class Sku:
    """A kind of machine: its card, and the islands its GPUs lie in."""

    model: str
    architecture: str
    memory_gib: int
    islands: tuple[int, ...]
    """GPUs per island."""


@dataclass(frozen=True)
class Taste:
    """What is drawn from: machines and their blemishes, what jobs ask, what is odd about them, how they begin."""

    skus: tuple[Sku, ...]
    blemishes: tuple[str, ...]
    requests: tuple[Request, ...]
    twists: tuple[str, ...]
    states: tuple[str, ...]


@st.composite
def snapshots(draw: Draw, most_nodes: int = 8, most_jobs: int = 10, taste: Taste | None = None) -> Snapshot:
    """A whole moment; without a `taste` anything goes."""
    taste = taste or ANYTHING
    levels = draw(st.sampled_from(LEVELS))
    fleet = named("n", draw(st.lists(nodes(levels, taste), min_size=1, max_size=most_nodes)))
    tree = draw(queue_trees())
    drafts = draw(st.lists(jobs(_leaves(tree), levels, taste), max_size=most_jobs))
    settled = tuple(_settled(named("j", [job for job, _ in drafts]), [state for _, state in drafts], fleet))
    return Snapshot(
        now=NOW,
        topology=levels,
        policy=draw(st.sampled_from(POLICIES)),
        pools=_pools(draw, fleet, levels),
        nodes=fleet,
        queues=tree,
        jobs=settled,
        budgets=_budgets(draw, settled),
    )


def crowded(most_nodes: int = 4, most_jobs: int = 12) -> st.SearchStrategy[Snapshot]:
    """Few nodes, most of them full, and jobs that would have to be given room."""
    return snapshots(most_nodes, most_jobs, CROWD)


N = TypeVar("N", Node, Job)


def named(letter: str, things: Sequence[N]) -> tuple[N, ...]:
    """The things with names by their place, so that any of them can be left out while shrinking."""
    return tuple(replace(thing, name=f"{letter}{i}") for i, thing in enumerate(things))


LEVELS = ((), ("rack",), ("block", "rack"))
POLICIES = (
    Policy(),
    Policy(min_runtime=1800.0),
    Policy(preempt_across_queues=AcrossQueues.BORROWED),
    Policy(preempt_across_queues=AcrossQueues.ANY),
)

# --- nodes ------------------------------------------------------------------------------------------------------------


SKUS = (
    Sku(H100, "hopper", 80, (8,)),
    Sku(H100, "hopper", 80, (4,)),
    Sku(A100, "ampere", 40, (4, 4)),
    Sku(A100, "ampere", 40, (2, 2)),
    Sku(V100, "volta", 16, (2,)),
    Sku(H100_PCIE, "hopper", 80, (1, 1, 1)),
    Sku("", "", 0, ()),
)
BLEMISHES = (
    "none", "none", "none", "sick", "suspect", "cut", "cut-sick", "two-suspects", "cordoned", "taint", "soft-taint",
    "nowhere",
)  # fmt: skip
SIZES = ((UNLIMITED, UNLIMITED), (16_000, 64 * GIB), (96_000, 512 * GIB))
SLICES = {40: (("3g.20gb", "3g.20gb"), ("1g.5gb",) * 7), 80: (("1g.10gb",) * 7, ("3g.40gb", "3g.40gb"))}


@st.composite
def nodes(draw: Draw, levels: tuple[str, ...], taste: Taste) -> Node:
    """One machine, its name left open."""
    sku = draw(st.sampled_from(taste.skus))
    blemish = draw(st.sampled_from(taste.blemishes))
    rack = draw(st.integers(0, 2)) if levels else 0
    odd, (cpu, memory) = draw(st.booleans()), draw(st.sampled_from(SIZES))
    domains = {"block": f"b{rack // 2}", "rack": f"r{rack}"}
    node = Node(
        name="",
        pool=sku.model.partition("-")[0].lower() or "cpu",
        model=sku.model,
        architecture=sku.architecture,
        gpu_memory=sku.memory_gib * GIB,
        gpus=_gpus(sku),
        cpu=cpu,
        memory=memory,
        domains=tuple((level, domains[level]) for level in levels),
        labels=(("disk", "nvme" if odd else "ssd"), ("tier", str(rack))),
        extras=((ADAPTER, 2),) if odd else (),
    )
    return _blemished(node, blemish, odd)


def _gpus(sku: Sku) -> tuple[Gpu, ...]:
    islands = [island for island, count in enumerate(sku.islands) for _ in range(count)]
    return tuple(Gpu(index, island) for index, island in enumerate(islands))


def _blemished(node: Node, blemish: str, odd: bool) -> Node:
    match blemish:
        case "sick" | "suspect" | "two-suspects":
            state = Health.SICK if blemish == "sick" else Health.SUSPECT
            return replace(node, gpus=_with_health(node.gpus, state, 2 if blemish == "two-suspects" else 1))
        case "cut" | "cut-sick":
            return replace(node, gpus=_cut(node, Health.SICK if blemish == "cut-sick" else Health.HEALTHY))
        case "cordoned":
            return replace(node, closed=CORDONED)
        case "taint":
            return replace(node, taints=(Taint("dedicated", "x", Effect.NO_SCHEDULE if odd else Effect.NO_EXECUTE),))
        case "soft-taint":
            return replace(node, taints=(Taint("spot", "", Effect.PREFER_NO_SCHEDULE),))
        case "nowhere":
            return replace(node, domains=node.domains[:1] if odd else ())
    return node


def _with_health(gpus: tuple[Gpu, ...], state: Health, count: int) -> tuple[Gpu, ...]:
    return tuple(replace(gpu, health=state) if gpu.index in range(1, 1 + count) else gpu for gpu in gpus)


def _cut(node: Node, health: Health) -> tuple[Gpu, ...]:
    """The first devices cut into MIG slices, where the card can be cut."""
    menus = SLICES.get(node.gpu_memory // GIB, ())
    cut = {index: replace(node.gpus[index], slices=menu) for index, menu in enumerate(menus) if index < len(node.gpus)}
    if 0 in cut:
        cut[0] = replace(cut[0], health=health)
    return tuple(cut.get(gpu.index, gpu) for gpu in node.gpus)


def _pools(draw: Draw, fleet: tuple[Node, ...], levels: tuple[str, ...]) -> tuple[Pool, ...]:
    names = sorted({node.pool for node in fleet})
    caps = [(), (), (), ((NODE, 2),), *(((level, 4),) for level in levels)]
    return tuple(Pool(name, max_busy=draw(st.sampled_from(caps))) for name in names)


# --- queues -----------------------------------------------------------------------------------------------------------


def _gpu(count: float) -> int:
    return int(count * WHOLE)


QUOTAS = (
    Allowance(UNLIMITED), NO_QUOTA, Allowance(_gpu(4)), Allowance(_gpu(2)), Allowance(_gpu(8)), Allowance(_gpu(0.5)),
    Allowance(_gpu(6), models=(("H100", _gpu(4)),)), Allowance(_gpu(3), models=((A100, _gpu(3)),)),
    Allowance(_gpu(4), cpu=16_000), Allowance(_gpu(8), memory=64 * GIB),
)  # fmt: skip
LIMITS = (
    NO_LIMIT, NO_LIMIT, NO_LIMIT, Allowance(_gpu(8)), Allowance(_gpu(4)), Allowance(_gpu(2.5)),
    Allowance(UNLIMITED, models=(("H100", _gpu(2)),)), Allowance(UNLIMITED, cpu=24_000),
    Allowance(_gpu(12), memory=128 * GIB),
)  # fmt: skip
TREES: tuple[tuple[tuple[str, str], ...], ...] = (
    (("default", ROOT),),
    (("a", ROOT), ("b", ROOT)),
    (("a", ROOT), ("b", ROOT), ("c", ROOT)),
    (("d", ROOT), ("a", "d"), ("b", "d"), ("c", ROOT)),
    (("d", ROOT), ("a", "d"), ("e", ROOT), ("b", "e"), ("c", "e")),
    ((ROOT, ""), ("a", ROOT), ("b", ROOT)),
)
ONLY = (Queue(DEFAULT, quota=Allowance(UNLIMITED)),)


@st.composite
def queue_trees(draw: Draw) -> tuple[Queue, ...]:
    """Queues, flat or in two levels; sometimes the root is given."""
    tree = draw(st.sampled_from(TREES))
    if len(tree) == 1:
        return ONLY
    return tuple(_queue(draw, name, parent) for name, parent in tree)


def _queue(draw: Draw, name: str, parent: str) -> Queue:
    quota, limit = draw(st.sampled_from(QUOTAS)), draw(st.sampled_from(LIMITS))
    weight, priority = draw(st.sampled_from(((1.0, 0), (1.0, 0), (2.0, 0), (0.0, 0), (0.5, 1))))
    return Queue(name, parent, quota, limit, weight, priority)


def _leaves(tree: tuple[Queue, ...]) -> list[str]:
    parents = {queue.parent for queue in tree} | {ROOT}
    return [queue.name for queue in tree if queue.name not in parents]


# --- jobs -------------------------------------------------------------------------------------------------------------

ADAPTER = "rdma/hca"
REQUESTS = (
    Request(gpus=1), Request(gpus=2), Request(gpus=4), Request(gpus=8), Request(gpus=3),
    Request(gpus=1, cpu=4_000, memory=8 * GIB), Request(gpus=2, cpu=12_000, memory=48 * GIB),
    Request(share=500 * MILLI), Request(share=250 * MILLI, cpu=2_000), Request(share=333 * MILLI),
    Request(gpu_memory=20 * GIB), Request(gpu_memory=10 * GIB), Request(gpu_memory=8 * GIB + 1),
    Request(mig=(("1g.5gb", 1),)), Request(mig=(("1g.10gb", 2),)), Request(mig=(("1g.5gb", 1), ("3g.20gb", 1))),
    Request(cpu=4_000), Request(memory=32 * GIB), Request(cpu=15_000, memory=GIB),
    Request(gpus=1, extras=((ADAPTER, 1),)), Request(gpus=1, extras=(("port/TCP/80", 1),)),
)  # fmt: skip
COUNTS = ((1, 1), (2, 2), (3, 3), (2, 1), (4, 2), (3, 1))
"""Tasks and minimum."""
TWISTS = (
    "batch", "interactive", "inference", "high", "low", "firm", "loose", "old", "models", "prefers", "memory",
    "architecture", "selector", "affinity", "tolerates", "alone", "apart", "apart-in-rack", "held", "foreign",
    "protected", "saves", "limited", "evicted", "labelled", "near", "shuns", "shuns-in-rack", "even", "meek",
)  # fmt: skip


class State(NamedTuple):
    """How a job begins (`partly`: one task a group; `stops`: every other task is going), where and since when."""

    name: str
    offset: int
    age_s: float


ANYTHING = Taste(SKUS, BLEMISHES, REQUESTS, TWISTS, ("waits", "waits", "runs", "runs", "partly", "stops"))
CROWD = Taste(
    skus=SKUS[1:5],
    blemishes=("none", "none", "none", "none", "sick", "cut"),
    requests=(
        *REQUESTS[:3],
        *REQUESTS[:3],
        Request(share=500 * MILLI),
        Request(gpu_memory=8 * GIB),
        Request(cpu=4_000),
    ),
    twists=("high", "low", "firm", "old", "protected", "saves", "evicted", "batch", "limited"),
    states=("waits", "runs", "runs", "runs", "runs", "partly"),
)


@st.composite
def jobs(draw: Draw, leaves: list[str], levels: tuple[str, ...], taste: Taste) -> tuple[Job, State]:
    """One job, its name left open, and how it begins."""
    state = State(draw(st.sampled_from(taste.states)), draw(st.integers(0, 7)), draw(st.sampled_from((3600.0, 600.0))))
    submitted = NOW - 60.0 * draw(st.integers(0, 3))
    job = Job(name="", gang=_gang(draw, levels, taste), queue=draw(st.sampled_from(leaves)), submitted=submitted)
    for twist in draw(st.lists(st.sampled_from(taste.twists), max_size=3, unique=True)):
        job = _twisted(job, twist, leaves, levels)
    return job, state


def _gang(draw: Draw, levels: tuple[str, ...], taste: Taste) -> Bundle:
    asks = st.sampled_from(_wishes(levels))
    form = draw(st.sampled_from(("one", "one", "one", "two", "nested")))
    if form == "one":
        return one_group(draw(groups(MAIN, taste)), draw(asks))
    if form == "two":
        leader, worker = draw(groups("leader", taste)), draw(groups("worker", taste, asks))
        needed = draw(st.sampled_from((2, 2, 1)))
        return Bundle("", (leader, _perhaps_extras(draw, worker) if needed == 2 else worker), needed, draw(asks))
    inner = tuple(
        Bundle(
            f"replica-{r}",
            (draw(groups(f"head-{r}", taste)), _perhaps_extras(draw, draw(groups(f"tail-{r}", taste, asks)))),
            2,
            draw(asks),
        )
        for r in range(2)
    )
    return Bundle("", inner, draw(st.sampled_from((2, 1))), draw(asks))


def _perhaps_extras(draw: Draw, group: TaskGroup) -> TaskGroup:
    """None of it may be needed where the group beside it is."""
    return replace(group, min=0) if draw(st.sampled_from((False, False, True))) else group


def _wishes(levels: tuple[str, ...]) -> list[TopologyAsk]:
    found = [ANYWHERE, ANYWHERE, ANYWHERE]
    for level in (*levels, NODE, NVLINK):
        found += [TopologyAsk(required=level), TopologyAsk(preferred=level)]
    return [*found, TopologyAsk(levels[0], NODE)] if levels else found


NO_WISH = st.just(ANYWHERE)


@st.composite
def groups(draw: Draw, name: str, taste: Taste, asks: st.SearchStrategy[TopologyAsk] = NO_WISH) -> TaskGroup:
    """Identical tasks, some of which may have ended."""
    tasks, least = draw(st.sampled_from(COUNTS))
    ended = draw(st.sampled_from((0, 0, 0, 0, 1, 2)))
    group = TaskGroup(name, tasks, least, draw(st.sampled_from(taste.requests)), draw(asks))
    if not ended:
        return group
    return replace(group, succeeded=1) if ended == 1 else replace(group, failed=1)


def _twisted(job: Job, twist: str, leaves: list[str], levels: tuple[str, ...]) -> Job:
    change = PLAIN_TWISTS.get(twist)
    if change is not None:
        return replace(job, **change)
    match twist:
        case "selector":
            return _on_leaves(job, node_selector=(("disk", "nvme"),))
        case "affinity":
            return _on_leaves(job, terms=(AFFINITY,))
        case "tolerates":
            return _on_leaves(job, tolerations=(Toleration("dedicated", "Exists"),))
        case "alone":
            return replace(job, avoid=Avoid(NODE, own=True))
        case "apart" | "apart-in-rack":
            level = levels[-1] if levels and twist == "apart-in-rack" else NODE
            return replace(job, avoid=Avoid(level, queues=(leaves[0],)))
        case "labelled":
            return _on_leaves(job, labels=LABELS)
        case "near":
            return _on_leaves(job, labels=LABELS, near=(Neighbour(NODE, ALIKE),))
        case "shuns" | "shuns-in-rack":
            level = levels[-1] if levels and twist == "shuns-in-rack" else NODE
            return _on_leaves(job, apart=(Neighbour(level, ALIKE),))
        case "even":
            return _on_leaves(job, labels=LABELS, even=(Evenness(levels[-1] if levels else NODE, ALIKE),))
    return job


LABELS = (("app", "x"),)
ALIKE = (Expression("app", "In", ("x",)),)


AFFINITY = (
    AffinityTerm((Expression("tier", "In", ("1", "2")),)),
    AffinityTerm((Expression("disk", "NotIn", ("nvme",)), Expression("tier", "Gt", ("0",)))),
)
PLAIN_TWISTS: dict[str, dict[str, Any]] = {
    "batch": {"job_class": JobClass.BATCH},
    "interactive": {"job_class": JobClass.INTERACTIVE},
    "inference": {"job_class": JobClass.INFERENCE},
    "high": {"priority": 1000},
    "low": {"priority": 1},
    "firm": {"preemptible": False},
    "loose": {"preemptible": True},
    "old": {"submitted": NOW - 7200.0},
    "models": {"models": (A100,)},
    "prefers": {"models": ("H100", A100)},
    "memory": {"min_gpu_memory": 40 * GIB},
    "architecture": {"min_architecture": "ampere"},
    "held": {"on_hold": True},
    "foreign": {"foreign": True},
    "protected": {"min_runtime": 7200.0},
    "saves": {"checkpoint": Checkpoint(interval=600.0, last=NOW - 300.0), "warm_up": 120.0},
    "limited": {"time_limit": 7200.0},
    "evicted": {"evictions": 2},
    "meek": {"takes": False},
}


def _on_leaves(job: Job, **change: Any) -> Job:
    return replace(job, gang=on_leaves(job.gang, lambda group: replace(group, **change)))


def on_leaves(bundle: Bundle, change: Callable[[TaskGroup], TaskGroup]) -> Bundle:
    """The bundle with every task group inside it changed."""
    groups = tuple(on_leaves(g, change) if isinstance(g, Bundle) else change(g) for g in bundle.groups)
    return replace(bundle, groups=groups)


# --- what runs already ------------------------------------------------------------------------------------------------


def _settled(found: Sequence[Job], states: Sequence[State], fleet: tuple[Node, ...]) -> Iterator[Job]:
    """The jobs, some of them running: whole, in part, or on their way out. No GPU is held twice."""
    places = Places(fleet)
    for job, state in zip(found, states, strict=True):
        if state.name == "waits" and not job.foreign:
            yield job
            continue
        held = places.take(job, state.offset % len(fleet), most=1 if state.name == "partly" else None)
        if state.name == "stops":
            held = tuple(replace(place, terminating=n % 2 == 0) for n, place in enumerate(held))
        yield replace(job, placements=held, started=NOW - state.age_s) if held else job


def _budgets(draw: Draw, jobs: tuple[Job, ...]) -> tuple[Budget, ...]:
    running = [job.name for job in jobs if job.placements]
    if not running or not draw(st.booleans()):
        return ()
    name = draw(st.sampled_from(running))
    if draw(st.booleans()):
        return (Budget("keep", (name,), min_available=1),)
    return (Budget("keep", tuple(running[:2]), max_unavailable=1),)
