"""Random snapshots that are right: built from the model, for the tests that write them down and read them back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from gpuyard.files.data.gpu_models import architecture_of, memory_of
from gpuyard.files.reading.fleet import ONLY_QUEUE
from gpuyard.model.job import (
    AffinityTerm,
    Avoid,
    Bundle,
    Checkpoint,
    Evenness,
    Expression,
    Job,
    JobClass,
    Neighbour,
    Placement,
    Run,
    TaskGroup,
    Toleration,
    one_group,
)  # fmt: skip
from gpuyard.model.node import CORDONED, Alignment, Budget, Closure, Effect, Gpu, Health, Load, Node, Pool, Taint
from gpuyard.model.policy import AcrossQueues, Policy, Weights
from gpuyard.model.queue import NO_LIMIT, NO_QUOTA, Allowance, Queue
from gpuyard.model.resources import UNLIMITED, WHOLE, Request
from gpuyard.model.snapshot import Reservation, Snapshot
from gpuyard.model.topology import ANYWHERE, TopologyAsk

GIB = 1 << 30
LEVELS = ("block", "rack")
WORDS = st.sampled_from(["a", "b", "c", "d-1", "true", "07", "1e3", "null", "é"])
NAMED = st.dictionaries(st.sampled_from(["A", "b", "_c1"]), WORDS, max_size=2)
VARIABLES = NAMED.map(lambda found: tuple(sorted(found.items())))
PAIRS = st.dictionaries(WORDS, WORDS, max_size=2).map(lambda found: tuple(sorted(found.items())))
MOMENTS = st.integers(0, 4_000_000_000).map(float) | st.integers(0, 10**9).map(lambda half: half + 0.5)
SPANS = st.integers(0, 10**6).map(float) | st.sampled_from([0.5, 90.0, 5400.0])
SOME_SPANS = st.none() | SPANS
ASKS = st.builds(
    TopologyAsk, st.sampled_from(["", "rack", "node"]), st.sampled_from(["", "block", "rack", "node", "nvlink"])
)
AMOUNTS = st.integers(0, 64 * 1000).map(lambda milli: milli * WHOLE // 1000) | st.just(UNLIMITED)
CLOSURES = st.sampled_from(
    [None, None, CORDONED, Closure("fan is loud", "alice", True, True, 90.5), Closure("not Ready")]
)
STATES = st.sampled_from([(False, False, ""), (True, False, ""), (False, True, "u1"), (False, False, "07")])
Draw = Callable[[st.SearchStrategy[Any]], Any]

EXTRAS = st.sampled_from([(), (("port/TCP/80", 1),), (("hugepages-2Mi", 3 * GIB), ("rdma/hca", 2))])


@st.composite
def nodes(draw: Draw, name: str) -> Node:
    model = draw(st.sampled_from(["", "H100-SXM5-80GB", "A100", "odd"]))
    count = draw(st.integers(0, 4))
    islands = draw(st.sampled_from([(0, 0, 0, 0), (0, 0, 1, 1), (0, 1, 0, 1)]))
    uuids = draw(st.booleans())
    gpus = [
        Gpu(
            index,
            islands[index] if count > 2 else 0,
            draw(st.sampled_from(Health)),
            draw(st.sampled_from([None, None, (), ("1g.10gb", "2g.20gb")])),
            f"GPU-{index}" if uuids else "",
            closed=draw(CLOSURES),
            switch=index // 2,
            numa=islands[index],
        )
        for index in range(count)
    ]
    return Node(
        alignment=draw(st.sampled_from(Alignment)),
        name=name,
        pool=draw(st.sampled_from(["", "p0", "p1"])),
        model=model,
        architecture=architecture_of(model),
        gpu_memory=draw(st.sampled_from([memory_of(model), 24 * GIB])),
        gpus=tuple(gpus),
        cpu=draw(st.sampled_from([UNLIMITED, 96_000, 1500])),
        memory=draw(st.sampled_from([UNLIMITED, GIB, 12345])),
        domains=draw(st.sampled_from([(), (("block", "b0"), ("rack", "r0")), (("rack", "r1"),)])),
        labels=draw(PAIRS),
        workloads=draw(st.sampled_from(((), ("batch",), ("training", "inference")))),
        taints=tuple(draw(st.lists(st.builds(Taint, WORDS, st.just("") | WORDS, st.sampled_from(Effect)), max_size=2))),
        closed=draw(CLOSURES),
        taken=Load(draw(st.sampled_from((0, 500))), draw(st.sampled_from((0, 2**30))), draw(EXTRAS)),
        extras=draw(EXTRAS),
    )


ALLOWANCES = st.builds(
    Allowance,
    AMOUNTS,
    st.sampled_from([(), (("A100", WHOLE), ("H100", 4 * WHOLE))]),
    st.none() | st.sampled_from([0, 500, 64_000, UNLIMITED]),
    st.none() | st.sampled_from([0, 5 * GIB, UNLIMITED]),
)


@st.composite
def queues(draw: Draw) -> tuple[Queue, ...]:
    """None, or two teams under one department."""
    if draw(st.booleans()):
        return (ONLY_QUEUE,)
    made = [
        Queue(
            name, parent, draw(st.just(NO_QUOTA) | ALLOWANCES), draw(st.just(NO_LIMIT) | ALLOWANCES),
            draw(st.sampled_from([0.0, 1.0, 2.5])), draw(st.integers(-5, 5)), draw(st.sampled_from([(), ("u1", "u2")])),
            max_grace=draw(st.sampled_from([0.0, 90.0])), max_time_limit=draw(st.sampled_from([0.0, 86400.0])),
        )
        for name, parent in (("department", "root"), ("default", "department"), ("team", "department"))
    ]  # fmt: skip
    return (*made, *draw(st.sampled_from([(), (Queue("root", "", limit=Allowance(8 * WHOLE)),)])))


REQUESTS = st.one_of(
    st.builds(
        Request,
        gpus=st.integers(0, 3),
        cpu=st.sampled_from([0, 500, 8000]),
        memory=st.sampled_from([0, 7 * GIB]),
        extras=EXTRAS,
    ),
    st.builds(Request, share=st.sampled_from([WHOLE // 3, WHOLE // 2, WHOLE])),
    st.builds(Request, gpu_memory=st.sampled_from([GIB, 20 * GIB])),
    st.builds(Request, mig=st.sampled_from([(("1g.10gb", 1),), (("1g.10gb", 1), ("2g.20gb", 1)), (("1g.10gb", 2),)])),
)
TOLERATIONS = st.sampled_from([(), (Toleration("", "Exists"), Toleration("k", "Equal", "v", "NoExecute"))])
TERM = AffinityTerm((Expression("zone", "In", ("a", "b")), Expression("x", "Exists")))
TERMS = st.sampled_from([(), ((TERM,),), ((TERM, AffinityTerm(())),), ((AffinityTerm(()),), (TERM, TERM))])

LIKES = st.sampled_from([(), ((TERM, 1),), ((TERM, 100), (AffinityTerm(()), 7))])
NEIGHBOURS = st.sampled_from([(), (Neighbour(),), (Neighbour("rack", TERM.expressions), Neighbour())])
EVEN = st.sampled_from(
    [
        (),
        (Evenness(),),
        (Evenness("rack", TERM.expressions, 2, 3),),
        (Evenness(among=()),),
        (Evenness(among=((TERM, TERM), (TERM,))),),
    ]
)

BUDGETS = st.builds(Budget, st.just("b"), st.just(("j0",)), min_available=st.integers(0, 2)) | st.builds(
    Budget, st.just("b"), st.just(("j0",)), allowed=st.integers(0, 2), covers=st.sampled_from([(), (("j0", "main"),)])
)


@st.composite
def groups(draw: Draw, name: str, topology: st.SearchStrategy[TopologyAsk] = ASKS) -> TaskGroup:
    tasks = draw(st.integers(1, 4))
    return TaskGroup(
        name, tasks, draw(st.integers(1, tasks)), draw(REQUESTS), draw(topology), draw(PAIRS),
        draw(TERMS), draw(LIKES), draw(PAIRS), draw(NEIGHBOURS), draw(NEIGHBOURS), draw(EVEN), draw(TOLERATIONS),
        **draw(st.sampled_from([{}, {"failed": 1}, {"absent": 1}])),
    )  # fmt: skip


@st.composite
def gangs(draw: Draw) -> Bundle:
    if draw(st.booleans()):
        return one_group(draw(groups("main", st.just(ANYWHERE))), draw(ASKS))
    inner = Bundle("replica", (draw(groups("x")), draw(groups("y"))), draw(st.integers(1, 2)), draw(ASKS))
    return Bundle("", (inner, draw(groups("main"))), draw(st.integers(1, 2)), draw(ASKS))


@st.composite
def jobs(draw: Draw, name: str, queue: st.SearchStrategy[str]) -> Job:
    foreign = draw(st.booleans())
    return Job(
        name=name, gang=draw(gangs()), queue=draw(st.just("") | queue if foreign else queue),
        user=draw(st.just("") | WORDS), job_class=draw(st.sampled_from(JobClass)),
        priority=draw(st.none() | st.integers(-9, 9) | st.sampled_from(("low", "critical"))),
        preemptible=draw(st.none() | st.booleans()),
        submitted=draw(MOMENTS), started=draw(st.none() | MOMENTS),
        models=draw(st.sampled_from([(), ("H100", "A100")])),
        min_gpu_memory=draw(st.sampled_from([0, 40 * GIB])), min_architecture=draw(st.sampled_from(["", "ampere"])),
        architecture=draw(st.sampled_from(["", "hopper"])),
        avoid=draw(st.none() | st.builds(Avoid, st.sampled_from(["node", "rack"]), st.just(("default",)))),
        time_limit=draw(st.none() | st.sampled_from([90.0, 7200.0, 0.5])), min_runtime=draw(SOME_SPANS),
        warm_up=draw(SOME_SPANS), checkpoint=draw(st.none() | st.builds(Checkpoint, st.just(60.0), MOMENTS, SPANS)),
        evictions=draw(st.integers(0, 2)), stale_since=draw(st.none() | MOMENTS),
        stale_grace=draw(st.sampled_from([None, -1.0, 0.0, 60.0])), foreign=foreign, on_hold=draw(st.booleans()),
        held_for=draw(st.just("") | WORDS), takes=draw(st.booleans()), family=draw(st.just("") | WORDS),
        run=draw(st.none() | st.builds(Run, st.just(("sh", "-c", "")), VARIABLES, st.just("w"), st.integers(0, 2))),
    )  # fmt: skip


@st.composite
def placements(draw: Draw, groups: tuple[TaskGroup, ...]) -> tuple[Placement, ...]:
    """CPU-only tasks anywhere: GPUs that fit each other are for the brain's own generators."""
    made = []
    for group in groups:
        numbers = draw(st.permutations(range(group.tasks))) if group.request.cpu_only else []
        made += [Placement("n0", (), group.name, number, (), *draw(STATES)) for number in numbers[: group.min]]
    return tuple(made)


@st.composite
def reservations(draw: Draw, job: Job) -> Reservation:
    """Places kept for a job."""
    return Reservation(job.name, draw(placements(job.task_groups())), draw(st.none() | MOMENTS))


POLICIES = st.builds(
    Policy,
    weights=st.builds(Weights, island=SPANS),
    stale_grace=st.sampled_from([-1.0, 60.0]),
    preempt_across_queues=st.sampled_from(AcrossQueues),
    min_runtime=SPANS,
    priorities=st.sampled_from([{"low": 10, "high": 200}, {"low": -5, "high": 200, "urgent": 900}]),
)


@st.composite
def snapshots(draw: Draw) -> Snapshot:
    """A whole moment."""
    fleet = tuple(draw(nodes(name)) for name in draw(st.sampled_from([("n0",), ("n0", "n1"), ("n0", "n1", "n2")])))
    tree = draw(queues())
    leaves = st.sampled_from(["default"] if len(tree) == 1 else ["default", "team"])
    work = [draw(jobs(name, leaves)) for name in draw(st.sampled_from([(), ("j0",), ("j0", "j1")]))]
    running = [job_with(job, draw(placements(job.task_groups()))) for job in work]
    pools = tuple(Pool(name) for name in sorted({node.pool for node in fleet} - {""}))
    described = (Pool("p9", 30000.0, (("rack", 24),), 1, 4),)
    return Snapshot(
        now=draw(MOMENTS),
        topology=LEVELS,
        policy=draw(POLICIES),
        pools=(*draw(st.sampled_from([(), described])), *pools),
        nodes=fleet,
        queues=tree,
        jobs=tuple(running),
        budgets=(draw(BUDGETS),) if work else (),
        reservations=tuple(draw(reservations(job)) for job in work[:1]),
        memory=draw(st.dictionaries(WORDS, st.integers() | WORDS, max_size=2)),
    )  # fmt: skip


def job_with(job: Job, where: tuple[Placement, ...]) -> Job:
    """The job, placed."""
    return Job(**{name: getattr(job, name) for name in Job.__slots__ if name != "placements"}, placements=where)
