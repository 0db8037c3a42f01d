"""A node weighed alone, in plain numbers, is weighed as it is among others: same room, same score, to the last bit."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from gpuyard.brain.engine.nodes.columns import Held
from gpuyard.brain.engine.nodes.demand import DemandClass
from gpuyard.brain.engine.nodes.feasibility import PLENTY, Shape, Shapes, room_on
from gpuyard.brain.engine.nodes.weighing import one_by_one, scoring
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.model.job import Job, TaskGroup, one_group
from gpuyard.model.node import Effect, Gpu, Health, Node, Taint
from gpuyard.model.policy import Curve, DeviceChoice, Policy, Scoring, Weights
from gpuyard.model.resources import MILLI, UNLIMITED, WHOLE, Request
from gpuyard.model.snapshot import Snapshot

GI = 1 << 30
COUNT = 24
REQUESTS = (
    Request(gpus=1, cpu=4000),
    Request(gpus=3, cpu=9000, memory=30 * GI),
    Request(gpus=8),
    Request(share=250 * MILLI, cpu=1000),
    Request(share=730 * MILLI, memory=9 * GI),
    Request(gpu_memory=20 * GI, cpu=2000),
    Request(cpu=6000),
    Request(memory=16 * GI),
    Request(),
)
EVERY = Weights(*[0.1 * (i + 1) for i in range(len(Weights.__slots__))])
POLICIES = (
    Policy(),
    Policy(weights=EVERY),
    *(Policy(weights=replace(Weights(*[0.0] * len(Weights.__slots__)), **{name: 0.7})) for name in Weights.__slots__),
    Policy(weights=EVERY, scoring=Scoring(steps=8)),
    Policy(weights=EVERY, scoring=Scoring(device=DeviceChoice.TIGHTEST)),
    Policy(scoring=Scoring(cores_per_gpu=3.0, spread=0.0)),
)


def node(dice: Random, n: int) -> Node:
    """From none to sixteen GPUs, in islands, some of them sick or suspect."""
    count = dice.choice((0, 1, 4, 7, 8, 8, 8, 11, 16))
    states = (Health.HEALTHY,) * 9 + (Health.SUSPECT, Health.SICK)
    gpus = tuple(Gpu(i, island=i // dice.choice((4, 16)), health=dice.choice(states)) for i in range(count))
    model, memory = dice.choice((("H100", 80 * GI), ("A100", 40 * GI)))
    spared = (Taint("spot", effect=Effect.PREFER_NO_SCHEDULE),) if dice.random() < 0.3 else ()
    cpu = dice.choice((16_000, 64_000, 96_500, 96_500, UNLIMITED))
    return Node(f"n{n:02}", model=model, gpus=gpus, cpu=cpu, memory=512 * GI, gpu_memory=memory, taints=spared)


def demand(dice: Random) -> list[DemandClass]:
    """Whole, parted and CPU-only classes; some cannot go everywhere."""
    found = []
    for _ in range(dice.randrange(12)):
        gpus, share = dice.choice(((1, 0), (2, 0), (8, 0), (0, dice.randrange(1, 1000) * MILLI), (0, 0)))
        reach = np.array([dice.random() < 0.8 for _ in range(COUNT)])
        found.append(DemandClass(gpus, share, dice.randrange(0, 12_000, 500), reach, dice.random(), dice.random()))
    return found


def some_yard(seed: int, policy: Policy) -> Shapes:
    """Nodes that are used at random, measured by a demand drawn at random."""
    dice = Random(seed)
    fleet = Fleet(Snapshot(nodes=tuple(node(dice, n) for n in range(COUNT)), policy=policy))
    columns = fleet.columns
    for n, each in enumerate(columns.nodes):
        for gpu in each.gpus:
            if dice.random() < 0.7:
                share = dice.choice((0, dice.randrange(1, 1000) * MILLI))
                columns.shift(Held(0, 0, n, (gpu.index,), share, (), share or WHOLE, dice.randrange(9000), GI), 1)
    fleet.shapes.gauge.know(demand(dice))
    return fleet.shapes


def compiled(shapes: Shapes, request: Request, careful: bool, number: int) -> Shape:
    job = Job("asks", one_group(TaskGroup(request=request)))
    fleet = Fleet(Snapshot(jobs=()))
    asked = fleet.request(job, job.task_groups()[0])
    asked.id = number
    return shapes.get(asked, frozenset(range(len(shapes.columns.models))), careful)


@pytest.mark.parametrize("policy", range(len(POLICIES)))
def test_one_node_alone_is_weighed_as_it_is_among_others(policy: int):
    weighed = 0
    for seed in range(policy * 10, policy * 10 + 4):
        shapes = some_yard(seed, POLICIES[policy])
        everyone, known = np.arange(COUNT), shapes.known_nodes
        for number, request in enumerate(REQUESTS):
            for careful in (False, True):
                shape = compiled(shapes, request, careful, number)
                room = room_on(shapes.columns, shape.request, shape.need, everyone, careful)
                assert [one_by_one.room(shape, n, PLENTY) for n in range(COUNT)] == room.tolist()
                fitting = everyone[room > 0]
                among = scoring.pack(shape, fitting).tolist(), shape.device.tolist()
                shape.device[:] = 0
                alone = [one_by_one.pack(shape, known, n) for n in fitting.tolist()], shape.device.tolist()
                assert alone == among
                weighed += len(fitting)
    assert weighed > COUNT * len(REQUESTS)


def test_a_node_that_changed_is_looked_at_again_and_the_others_are_not():
    shapes = some_yard(1, Policy())
    known, columns = shapes.known_nodes, shapes.columns
    before = [known.node(n) for n in range(COUNT)]
    columns.shift(Held(0, 0, 5, (), 0, (), 0, 1000, 0), 1)
    assert [n for n in range(COUNT) if known.node(n) is not before[n]] == [5]
    assert known.node(5).cpu == before[5].cpu - 1000
    shapes.revalue()
    assert shapes.known_nodes is not known


def test_slices_extras_and_a_curve_of_numpy_s_own_are_left_to_columns():
    shapes = some_yard(1, Policy())
    assert one_by_one.can_weigh(compiled(shapes, Request(gpus=1), False, 0))
    for number, request in enumerate((Request(mig=(("1g.10gb", 1),)), Request(gpus=1, extras=(("nic", 1),))), start=1):
        assert not one_by_one.can_weigh(compiled(shapes, request, False, number))
    flattened = some_yard(1, Policy(scoring=Scoring(curve=Curve.SIGMOID)))
    assert not one_by_one.can_weigh(compiled(flattened, Request(gpus=1), False, 0))
