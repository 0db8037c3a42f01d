"""Every term of a score, alone and together, is what the same arithmetic done by hand says."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from gpuyard.brain.engine.nodes.demand import DemandClass, Proportion
from gpuyard.brain.engine.nodes.remainders import values
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.model.policy import Curve, DeviceChoice, Policy, Scoring, Weights
from gpuyard.model.resources import WHOLE
from tests.support.by_hand import LARGE, Judge, Machine, room
from tests.support.moments import moment

YARD = """
nodes:
  - {name: a, gpus: 8, cpu: 64, memory: 512Gi, model: H100, gpu_memory: 80Gi, islands: [[0, 1, 2, 3], [4, 5, 6, 7]]}
  - {name: b, gpus: 8, cpu: 32, memory: 256Gi, model: H100, gpu_memory: 80Gi, islands: [[0, 1], [2, 3, 4, 5, 6, 7]],
     health: {3: suspect}, unhealthy: [6]}
  - {name: c, gpus: 4, cpu: 16, memory: 64Gi, model: A100, gpu_memory: 40Gi,
     taints: [{key: spot, effect: PreferNoSchedule}]}
  - {name: d, gpus: 4, cpu: 12, memory: 128Gi, model: A100, gpu_memory: 40Gi, health: {0: suspect}}
  - {name: e, gpus: 4, model: A100, gpu_memory: 40Gi, mig: {3: [3g.20gb, 2g.10gb, 2g.10gb]}}
jobs:
  - {name: r0, gpus: 2, cpu: 10, memory: 40Gi, at: "a:0+1"}
  - {name: r1, fraction: 0.5, cpu: 3, at: "a:2"}
  - {name: r2, fraction: 0.25, cpu: 1, at: "a:4"}
  - {name: r3, gpus: 1, cpu: 4, at: "b:0"}
  - {name: r4, fraction: 0.3, memory: 9Gi, at: "b:2"}
  - {name: r5, fraction: 0.6, at: "c:1"}
  - {name: r6, gpus: 1, cpu: 2, at: "d:3"}
  - {name: r7, mig: 2g.10gb, at: [{node: e, gpus: [3], mig: [2g.10gb]}]}
  - {name: r8, cpu: 5, memory: 20Gi, at: c}
  - {name: asks, groups: [GROUP]}
"""
ASKED = (
    "{name: g, tasks: 1, gpus: 1, cpu: 4}",
    "{name: g, tasks: 1, gpus: 2, memory: 30Gi}",
    "{name: g, tasks: 1, gpus: 3, cpu: 9}",
    "{name: g, tasks: 1, gpus: 4}",
    "{name: g, tasks: 1, fraction: 0.25, cpu: 1}",
    "{name: g, tasks: 1, fraction: 0.5}",
    "{name: g, tasks: 1, fraction: 0.7, cpu: 2}",
    "{name: g, tasks: 1, gpu_memory: 20Gi}",
    "{name: g, tasks: 1, mig: 2g.10gb}",
    "{name: g, tasks: 1, cpu: 6}",
    "{name: g, tasks: 1, memory: 16Gi}",
)
NOTHING = Weights(*[0.0] * len(Weights.__slots__))
EACH = [replace(NOTHING, **{name: 1.0}) for name in Weights.__slots__]
POLICIES = {
    **{name: Policy(weights=weights) for name, weights in zip(Weights.__slots__, EACH, strict=True)},
    "all": Policy(),
    "flattened": Policy(weights=EACH[0], scoring=Scoring(curve=Curve.SIGMOID)),
    "stepped": Policy(scoring=Scoring(steps=8)),
    "tightest": Policy(scoring=Scoring(device=DeviceChoice.TIGHTEST)),
    "fixed": Policy(weights=replace(NOTHING, balance=2.0), scoring=Scoring(cores_per_gpu=3.0, spread=0.0)),
}
PROPORTION = Proportion(lean=4000.0, full=6000.0, mix=0.25, varies=0.8)


def demand(count: int) -> list[DemandClass]:
    """Whole, parted and CPU-only classes; some cannot go everywhere."""
    everywhere = np.ones(count, dtype=bool)
    large = np.array([n < 2 for n in range(count)])
    small = np.array([n >= 2 for n in range(count)])
    return [
        DemandClass(1, 0, 2000, everywhere, 3.0, 3.0),
        DemandClass(4, 0, 8000, large, 8.0, 2.0),
        DemandClass(2, 0, 9000, small, 2.0, 1.0),
        DemandClass(0, WHOLE // 2, 1000, everywhere, 2.5, 5.0),
        DemandClass(0, WHOLE * 3 // 10, 0, small, 1.5, 5.0),
        DemandClass(0, 0, 4000, everywhere, 1.0, 4.0),
    ]


@cache
def yard(group: str) -> Fleet:
    return Fleet(moment(YARD.replace("GROUP", group)))


def fleet_of(group: str, policy: Policy, classes: list[DemandClass]) -> Fleet:
    fleet = yard(group)
    fleet.shapes.weights, fleet.shapes.scoring = policy.weights, policy.scoring
    fleet.shapes.gauge.know(classes)
    if classes:
        fleet.shapes.gauge.proportion = PROPORTION
    fleet.shapes.revalue()
    return fleet


def machines(fleet: Fleet) -> list[Machine]:
    held = [h for row in fleet.jobs.values() for h in row.held]
    return [Machine(node, tuple(h for h in held if h.node == n)) for n, node in enumerate(fleet.columns.nodes)]


def judge_of(fleet: Fleet, policy: Policy, classes: list[DemandClass], careful: bool) -> Judge:
    request = fleet.jobs["asks"].requests[0].resources
    sizes = {500: 5.0, 300: 5.0} if classes else {}
    return Judge(
        policy,
        classes,
        machines(fleet),
        request,
        careful,
        disliked=frozenset([2]),
        proportion=PROPORTION if classes else Proportion(0.0, 0.0, 0.0, 0.0),
        remainders=values(tuple(sorted(sizes.items(), reverse=True))).tolist(),
    )


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("group", ASKED)
def test_scores_are_what_the_same_sums_by_hand_give(group: str, name: str):
    policy = POLICIES[name]
    for classes in ([], demand(5)):
        fleet = fleet_of(group, policy, classes)
        request = fleet.jobs["asks"].requests[0]
        for careful in (False, True):
            judge = judge_of(fleet, policy, classes, careful)
            shape = fleet.shapes.get(request, frozenset(range(len(fleet.columns.models))), careful)
            assert shape.room.tolist() == [min(room(judge.request, m, careful), LARGE) for m in judge.machines]
            assert shape.score.tolist() == pytest.approx([judge.score(n) for n in range(5)], abs=1e-9)
