"""The clusters and jobs that the benchmarks plan: same seed, same snapshot.

Only the model's words are used here; the engine sees what `files` would hand it.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, NamedTuple

from gpuyard.model.job import Job, JobClass, Placement, TaskGroup, one_group
from gpuyard.model.node import Gpu, Node
from gpuyard.model.queue import NO_LIMIT, Allowance, Queue
from gpuyard.model.resources import MILLI, WHOLE, Request
from gpuyard.model.snapshot import Snapshot
from gpuyard.model.topology import ANYWHERE, TopologyAsk

NOW = 1_767_225_600.0
GIB = 1 << 30
LEVELS = ("block", "rack")
NODES_PER_RACK = 8
RACKS_PER_BLOCK = 16
H100, A100 = "H100-SXM5-80GB", "A100-SXM4-80GB"
DEVICES = tuple(Gpu(index) for index in range(8))


def nodes(count: int, models: int = 2) -> tuple[Node, ...]:
    """Nodes of 8 GPUs in racks and blocks, disks of two kinds; with two models every fifth rack is older."""
    return tuple(_node(i, models) for i in range(count))


def _node(i: int, models: int) -> Node:
    rack = i // NODES_PER_RACK
    old = models > 1 and rack % 5 == 4
    return Node(
        name=f"n{i:05d}",
        pool="a100" if old else "h100",
        model=A100 if old else H100,
        architecture="ampere" if old else "hopper",
        gpu_memory=80 * GIB,
        gpus=DEVICES,
        cpu=96_000,
        memory=1024 * GIB,
        domains=(("block", f"b{rack // RACKS_PER_BLOCK:03d}"), ("rack", f"r{rack:04d}")),
        labels=(("disk", "nvme" if i % 2 else "ssd"), ("zone", f"z{i % 4}")),
    )


def queues(departments: int, teams: int, gpus: int) -> tuple[Queue, ...]:
    """A tree of departments with equal teams; quotas divide the GPUs evenly."""
    found = [_queue(f"d{d}", gpus // departments) for d in range(departments)]
    for d in range(departments):
        found += [_queue(f"d{d}t{t}", gpus // departments // teams, f"d{d}") for t in range(teams)]
    return tuple(found)


def _queue(name: str, gpus: int, parent: str = "root") -> Queue:
    return Queue(name, parent=parent, quota=Allowance(gpus * WHOLE), limit=NO_LIMIT)


def leaves(tree: Iterable[Queue]) -> list[str]:
    """The queues that jobs may stand in."""
    found = list(tree)
    parents = {queue.parent for queue in found}
    return [queue.name for queue in found if queue.name not in parents]


def job(name: str, queue: str, group: TaskGroup, age: float = 0.0, **more: Any) -> Job:
    """One waiting job."""
    return Job(name=name, gang=one_group(group), queue=queue, submitted=NOW - age, **more)


# --- (a) many small jobs of many shapes -------------------------------------------------------------------------------

SIZES, SIZE_WEIGHTS = (1, 2, 3, 4, 6, 8), (70, 12, 3, 8, 2, 5)
SHAPES_PER_QUEUE = 12


def small_jobs(node_count: int, job_count: int, seed: int = 1) -> Snapshot:
    """Jobs of 1 to 8 GPUs; each of 24 queues has its own 12 shapes (CPU, memory, selectors, models, class)."""
    dice = random.Random(seed)
    tree = queues(4, 6, node_count * 8)
    menu = {name: [_shape(dice) for _ in range(SHAPES_PER_QUEUE)] for name in leaves(tree)}
    names = list(menu)
    jobs = []
    for i in range(job_count):
        queue = dice.choice(names)
        jobs.append(_small_job(i, job_count, queue, dice.choice(menu[queue])))
    return Snapshot(now=NOW, topology=LEVELS, nodes=nodes(node_count), queues=tree, jobs=tuple(jobs))


def motley_jobs(node_count: int, job_count: int, seed: int = 1) -> Snapshot:
    """The same, but every job draws its own shape: thousands of them in every queue."""
    dice = random.Random(seed)
    tree = queues(4, 6, node_count * 8)
    names = leaves(tree)
    jobs = tuple(_small_job(i, job_count, dice.choice(names), _shape(dice)) for i in range(job_count))
    return Snapshot(now=NOW, topology=LEVELS, nodes=nodes(node_count), queues=tree, jobs=jobs)


class Shape(NamedTuple):
    """What makes two small jobs alike."""

    group: TaskGroup
    models: tuple[str, ...]
    job_class: JobClass


def _shape(dice: random.Random) -> Shape:
    gpus = dice.choices(SIZES, SIZE_WEIGHTS)[0]
    cpu, memory = dice.choice((2, 4, 6, 8, 10)) * 1000 * gpus, dice.choice((16, 32, 64)) * GIB * gpus
    selector = dice.choice(((), (), (), (("disk", "nvme"),), (("zone", f"z{dice.randrange(4)}"),)))
    group = TaskGroup(request=Request(gpus=gpus, cpu=cpu, memory=memory), node_selector=selector)
    models = dice.choice(((), (), (H100,), (H100, A100)))
    return Shape(group, models, dice.choice((JobClass.TRAINING, JobClass.TRAINING, JobClass.BATCH)))


def _small_job(i: int, count: int, queue: str, shape: Shape) -> Job:
    age = float(count - i)
    return job(f"j{i:06d}", queue, shape.group, age=age, models=shape.models, job_class=shape.job_class)


# --- (b) gangs --------------------------------------------------------------------------------------------------------


def gangs(node_count: int, load: float = 1.0, seed: int = 2) -> Snapshot:
    """Gangs of 1 to 512 GPUs, most with a level they need or prefer, until they ask for `load` of all GPUs."""
    dice = random.Random(seed)
    tree = queues(4, 6, node_count * 8)
    names, asked = leaves(tree), 0
    jobs: list[Job] = []
    while asked < load * node_count * 8:
        gpus = dice.choices((1, 2, 4, 8, 16, 32, 64, 128, 256, 512), weights=(25, 12, 12, 16, 12, 9, 6, 4, 2, 2))[0]
        jobs.append(_gang(dice, len(jobs), gpus, dice.choice(names)))
        asked += gpus
    return Snapshot(now=NOW, topology=LEVELS, nodes=nodes(node_count), queues=tree, jobs=tuple(jobs))


def _gang(dice: random.Random, i: int, gpus: int, queue: str) -> Job:
    each = min(gpus, 8)
    tasks = gpus // each
    group = TaskGroup(
        tasks=tasks, min=tasks, request=Request(gpus=each, cpu=8000 * each, memory=64 * GIB * each),
        topology=_wish(dice, gpus),
    )  # fmt: skip
    return job(f"g{i:06d}", queue, group, age=float(10**6 - i), models=dice.choice(((), (H100,), (H100, A100))))


def _wish(dice: random.Random, gpus: int) -> TopologyAsk:
    if gpus <= 8:
        return ANYWHERE
    if gpus <= NODES_PER_RACK * 8:
        return dice.choice((TopologyAsk(required="rack"), TopologyAsk(preferred="rack"), TopologyAsk("block", "rack")))
    return dice.choice((TopologyAsk(required="block"), TopologyAsk(preferred="block"), ANYWHERE))


# --- (c) a full fleet where little changes ----------------------------------------------------------------------------

PODS_PER_NODE = 35


def full_fleet(node_count: int, waiting: int = 1000, signatures: int = 100, pods: int = PODS_PER_NODE) -> Snapshot:
    """Every node runs `pods` one-pod jobs (6 whole GPUs, 8 quarters, then CPU-only); `waiting` more find no place."""
    tree = queues(4, 5, node_count * 8)
    names = leaves(tree)
    fleet = nodes(node_count)
    pods_running = [pod for n, node in enumerate(fleet) for pod in _pods(n, node.name, names)[:pods]]
    stuck = [_stuck(i, i % signatures, names) for i in range(waiting)]
    return Snapshot(now=NOW, topology=LEVELS, nodes=fleet, queues=tree, jobs=(*pods_running, *stuck))


def _pods(n: int, node: str, names: list[str]) -> list[Job]:
    found = []
    for i in range(PODS_PER_NODE):
        request, gpus = _pod(i)
        found.append(running(f"p{n:05d}-{i:02d}", names[(n + i) % len(names)], request, Placement(node, gpus)))
    return found


def _pod(i: int) -> tuple[Request, tuple[int, ...]]:
    if i < 6:
        return Request(gpus=1, cpu=4000, memory=32 * GIB), (i,)
    if i < 14:
        return Request(share=250 * MILLI, cpu=1000, memory=8 * GIB), (6 + (i - 6) // 4,)
    return Request(cpu=1000, memory=4 * GIB), ()


def running(name: str, queue: str, request: Request, place: Placement) -> Job:
    """A job of one task that runs since an hour."""
    return job(name, queue, TaskGroup(request=request), age=7200.0, started=NOW - 3600.0, placements=(place,))


def _stuck(i: int, kind: int, names: list[str]) -> Job:
    """Asks that no free place can meet: too many whole GPUs, too much CPU, a label nobody has; 100 kinds."""
    gpus = 1 + kind % 8
    selector = (("disk", "tape"),) if kind % 3 == 0 else ()
    tasks = 1 + kind % 5
    request = Request(gpus=gpus, cpu=(200_000 if kind % 3 == 1 else 1000) + kind, memory=GIB)
    group = TaskGroup(tasks=tasks, min=tasks, request=request, node_selector=selector)
    return job(f"w{i:05d}", names[kind % len(names)], group, age=float(3600 + i))


# --- (d) the peer's own allocate benchmark ----------------------------------------------------------------------------


def allocate(node_count: int = 100, job_count: int = 500) -> Snapshot:
    """One-GPU jobs in four queues of two departments on empty nodes."""
    tree = queues(2, 2, node_count * 8)
    names = leaves(tree)
    group = TaskGroup(request=Request(gpus=1))
    jobs = tuple(job(f"j{i:04d}", names[i % 4], group, age=float(job_count - i)) for i in range(job_count))
    return Snapshot(now=NOW, nodes=nodes(node_count, models=1), queues=tree, jobs=jobs)
