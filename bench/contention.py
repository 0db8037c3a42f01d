"""Clusters that are full, and jobs with a claim on them: the peer's own reclaim benchmarks, and three of ours."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace

from bench.workloads import DEVICES, GIB, LEVELS, NOW, job, leaves, nodes, queues, running
from gpuyard.model.job import Checkpoint, Job, Placement, TaskGroup
from gpuyard.model.node import Node
from gpuyard.model.queue import Allowance, Queue
from gpuyard.model.resources import WHOLE, Request
from gpuyard.model.snapshot import Snapshot

ONE = Request(gpus=1)


def half_for_a_gang(node_count: int) -> Snapshot:
    """(e) A queue with quota 0 holds every GPU with one-GPU jobs; a gang of half the nodes has full quota."""
    tasks = node_count // 2
    gang = TaskGroup(tasks=tasks, min=tasks, request=Request(gpus=8))
    return _contest(node_count, Queue("holder"), [job("gang", "claimant", gang, age=60.0)])


def all_change_hands(node_count: int) -> Snapshot:
    """(f) A queue with quota 0 and weight 0 holds every GPU; as many one-GPU jobs wait in a queue with full quota."""
    waiting = [job(f"w{i:05d}", "claimant", TaskGroup(request=ONE), age=60.0) for i in range(node_count * 8)]
    return _contest(node_count, Queue("holder", weight=0.0), waiting)


def one_short(node_count: int, spare: int = 0) -> Snapshot:
    """(g) A 10 × 8 gang within its quota; taking its 80 GPUs would leave the holder one below its own.

    With `spare` 1 the holder's quota is one lower and the gang may have them.
    """
    holder = Queue("holder", quota=Allowance((node_count * 8 - 79 - spare) * WHOLE))
    gang = TaskGroup(tasks=10, min=10, request=Request(gpus=8))
    return _contest(node_count, holder, [job("gang", "claimant", gang, age=60.0)], claim=80)


def gang_of_512(node_count: int) -> Snapshot:
    """A gang of 64 × 8 within its quota on a fleet full of one-GPU jobs that borrow."""
    gang = TaskGroup(tasks=64, min=64, request=Request(gpus=8))
    return _contest(node_count, Queue("holder"), [job("gang", "claimant", gang, age=60.0)])


def _contest(node_count: int, holder: Queue, claims: Iterable[Job], claim: int | None = None) -> Snapshot:
    claimant = Queue("claimant", quota=Allowance((node_count * 8 if claim is None else claim) * WHOLE))
    fleet = nodes(node_count, models=1)
    holders = [
        running(f"h{n:05d}-{g}", "holder", ONE, Placement(node.name, (g,)))
        for n, node in enumerate(fleet)
        for g in range(8)
    ]
    return Snapshot(now=NOW, topology=LEVELS, nodes=fleet, queues=(claimant, holder), jobs=(*holders, *claims))


# --- ours -------------------------------------------------------------------------------------------------------------


def scattered(node_count: int, load: float = 0.95, seed: int = 3) -> Snapshot:
    """Small jobs fill `load` of all GPUs with the gaps spread thin, and a gang of 4 whole nodes waits."""
    dice = random.Random(seed)
    fleet = nodes(node_count, models=1)
    gaps = round(node_count * 8 * (1 - load))
    with_gap = set(dice.sample(range(node_count), min(gaps, node_count)))
    jobs = [job for n, node in enumerate(fleet) for job in _small(dice, n, node, 1 if n in with_gap else 0)]
    gang = TaskGroup(tasks=4, min=4, request=Request(gpus=8))
    tree = (Queue("all", quota=Allowance(node_count * 8 * WHOLE)),)
    return Snapshot(
        now=NOW, topology=LEVELS, nodes=fleet, queues=tree, jobs=(*jobs, job("gang", "all", gang, age=60.0))
    )


def _small(dice: random.Random, n: int, node: Node, gap: int) -> list[Job]:
    found, at = [], gap
    while at < 8:
        gpus = min(dice.choice((1, 1, 1, 2, 2, 4)), 8 - at)
        place = Placement(node.name, tuple(range(at, at + gpus)))
        found.append(running(f"s{n:05d}-{at}", "all", Request(gpus=gpus), place))
        at += gpus
    return found


OPENB_SIZES = ((8, 617), (4, 54), (2, 518), (1, 24))
"""GPUs a node and nodes of the openb cluster: 1,213 nodes, 6,212 GPUs."""


def untidy(load: float = 0.95, seed: int = 4) -> Snapshot:
    """Nodes of the openb sizes; jobs of 1 to 8 GPUs that save their work hold `load` of all GPUs. Nobody waits."""
    dice = random.Random(seed)
    sizes = [gpus for gpus, count in OPENB_SIZES for _ in range(count)]
    dice.shuffle(sizes)
    fleet = tuple(replace(node, gpus=DEVICES[:size]) for node, size in zip(nodes(len(sizes), 1), sizes, strict=True))
    jobs = [each for n, node in enumerate(fleet) for each in _saving(dice, n, node)]
    dice.shuffle(jobs)
    gaps, kept = round(sum(sizes) * (1 - load)), []
    for each in jobs:
        gpus = len(each.placements[0].gpus)
        if gpus <= gaps and gpus <= 4:
            gaps -= gpus  # it has just ended
        else:
            kept.append(each)
    tree = (Queue("all", quota=Allowance(sum(sizes) * WHOLE)),)
    return Snapshot(now=NOW, topology=LEVELS, nodes=fleet, queues=tree, jobs=tuple(kept))


def _saving(dice: random.Random, n: int, node: Node) -> list[Job]:
    found, at, width = [], 0, len(node.gpus)
    while at < width:
        gpus = min(dice.choice((1, 1, 1, 1, 1, 2, 2, 4, 8)), width - at)
        place = Placement(node.name, tuple(range(at, at + gpus)))
        saved = Checkpoint(interval=1800.0, last=NOW - dice.uniform(0, 1800))
        plain = running(f"t{n:05d}-{at}", "all", Request(gpus=gpus), place)
        found.append(replace(plain, checkpoint=saved, warm_up=120.0))
        at += gpus
    return found


def busy_morning(node_count: int, arrivals: int, hopeless: int) -> Snapshot:
    """Half of every node runs; `arrivals` small jobs can start, `hopeless` high-priority ones never can."""
    tree = queues(2, 3, node_count * 8)
    names = leaves(tree)
    fleet = nodes(node_count, models=1)
    held = [
        running(f"h{n:05d}-{g}", names[(n + g) % len(names)], ONE, Placement(node.name, (g,)))
        for n, node in enumerate(fleet)
        for g in range(4)
    ]
    fresh = [job(f"f{i:05d}", names[i % len(names)], TaskGroup(request=ONE), age=60.0) for i in range(arrivals)]
    stuck = [_hopeless(i, i % 100, names[i % len(names)], node_count) for i in range(hopeless)]
    return Snapshot(now=NOW, topology=LEVELS, nodes=fleet, queues=tree, jobs=(*held, *fresh, *stuck))


def _hopeless(i: int, kind: int, queue: str, node_count: int) -> Job:
    """High priority, and no room can be made: more nodes than there are, more CPU than a node has, a missing label."""
    tasks = node_count + 1 + kind if kind % 3 == 0 else 1 + kind % 7
    cpu = 200_000 + kind if kind % 3 == 1 else 1000
    selector = (("disk", f"tape{kind}"),) if kind % 3 == 2 else ()
    group = TaskGroup(tasks=tasks, min=tasks, request=Request(gpus=8, cpu=cpu, memory=GIB), node_selector=selector)
    return job(f"u{i:05d}", queue, group, age=3600.0, priority=500)
