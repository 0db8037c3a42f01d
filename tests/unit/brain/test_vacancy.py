"""What a node would have free if some left: the arithmetic says what lifting them from the fleet says."""

from __future__ import annotations

from itertools import chain, combinations

import numpy as np
import pytest

from gpuyard.brain.engine.nodes.feasibility import PLENTY, room_on
from gpuyard.brain.engine.nodes.vacancy import Vacancy
from gpuyard.brain.engine.picture.fleet import Fleet
from tests.support.moments import moment

CROWD = """
nodes:
  - {name: n0, gpus: 4, cpu: 16, memory: 64Gi, unhealthy: [3]}
  - {name: n1, gpus: 2, cpu: 16, memory: 64Gi, model: A100-SXM4-40GB,
     mig: {0: [3g.20gb, 3g.20gb], 1: [2g.10gb, 1g.5gb]}}
jobs:
  - {name: whole, cpu: 2, memory: 8Gi, at: "n0:0"}
  - {name: half, fraction: 0.5, cpu: 3, memory: 4Gi, at: "n0:1"}
  - {name: third, fraction: 0.3, at: "n0:1"}
  - {name: ill, cpu: 1, at: "n0:3"}
  - {name: desk, cpu: 6, memory: 24Gi, at: n0}
  - {name: large, mig: 3g.20gb, cpu: 4, at: [{node: n1, gpus: [0], mig: [3g.20gb]}]}
  - {name: small, mig: {1g.5gb: 1}, memory: 32Gi, at: [{node: n1, gpus: [1], mig: [1g.5gb]}]}
  - {name: asks, groups: [GROUP]}
"""

ASKED = (
    "{name: g, tasks: 1, gpus: 1}",
    "{name: g, tasks: 1, gpus: 2, cpu: 3}",
    "{name: g, tasks: 1, fraction: 0.2}",
    "{name: g, tasks: 1, fraction: 0.5, cpu: 4, memory: 9Gi}",
    "{name: g, tasks: 1, mig: 3g.20gb}",
    "{name: g, tasks: 1, mig: {3g.20gb: 1, 2g.10gb: 1}}",
    "{name: g, tasks: 1, mig: {3g.20gb: 2}}",
    "{name: g, tasks: 1, mig: 1g.5gb, cpu: 4, memory: 20Gi}",
    "{name: g, tasks: 1, cpu: 5}",
    "{name: g, tasks: 1, memory: 7Gi}",
)


@pytest.mark.parametrize("group", ASKED)
def test_room_after_leaving_is_the_room_that_lifting_makes(group: str):
    fleet = Fleet(moment(CROWD.replace("GROUP", group)))
    columns, request = fleet.columns, fleet.jobs["asks"].requests[0]
    need = np.array([max(request.share_on(node), 1) for node in columns.nodes])
    for n in range(len(columns.nodes)):
        there = [(row, held) for row in fleet.jobs.values() for held in row.held if held.node == n]
        for gone in chain.from_iterable(combinations(there, size) for size in range(len(there) + 1)):
            vacancy = Vacancy(columns, request, n)
            before = vacancy.room(), vacancy.lacks_devices_only()
            for _, held in gone:
                vacancy.leave(held)
            room = vacancy.room()
            for row, held in gone:
                fleet.shift(row, held, -1)
            assert room == room_on(columns, request, need, np.array([n]), False)[0]
            assert room == Vacancy(columns, request, n).room()
            assert vacancy.lacks_devices_only() == Vacancy(columns, request, n).lacks_devices_only()
            for row, held in gone:
                fleet.shift(row, held, 1)
                vacancy.enter(held)
            assert (vacancy.room(), vacancy.lacks_devices_only()) == before


@pytest.mark.parametrize(
    ("group", "lacks"),
    [
        ("{name: g, tasks: 1, gpus: 1, cpu: 2}", True),  # 4 cores for two, one GPU is free
        ("{name: g, tasks: 1, gpus: 1, cpu: 3}", False),
        ("{name: g, tasks: 1, gpus: 1, memory: 14Gi}", True),  # 28Gi are free
        ("{name: g, tasks: 1, gpus: 1, memory: 15Gi}", False),
        ("{name: g, tasks: 1, gpus: 1, cpu: 2, memory: 15Gi}", False),
    ],
)
def test_devices_alone_are_lacking_if_cores_and_memory_would_do_for_one_more(group: str, lacks: bool):
    fleet = Fleet(moment(CROWD.replace("GROUP", group)))
    n0 = next(n for n, node in enumerate(fleet.columns.nodes) if node.name == "n0")
    assert Vacancy(fleet.columns, fleet.jobs["asks"].requests[0], n0).lacks_devices_only() is lacks


def test_who_asks_for_nothing_finds_plenty_of_room():
    fleet = Fleet(moment(CROWD.replace("GROUP", "{name: g, tasks: 1}")))
    assert Vacancy(fleet.columns, fleet.jobs["asks"].requests[0], 0).room() == PLENTY


ALIGNED = """
nodes: [{name: n0, gpus: 8, numa: [[0, 1, 2, 3], [4, 5, 6, 7]], alignment: single-numa-node, unhealthy: [7]}]
jobs:
  - {name: low, gpus: 1, at: "n0:0"}
  - {name: high, gpus: 1, at: "n0:4"}
  - {name: asks, gpus: GPUS}
"""


@pytest.mark.parametrize(
    ("gpus", "full", "without_low", "without_high"),
    [(1, 5, 6, 6), (2, 2, 3, 2), (3, 1, 1, 2), (4, 0, 1, 0)],  # free: 1, 2, 3 and 5, 6; 7 is sick
)
def test_room_is_counted_in_each_numa_node_where_the_kubelet_insists(
    gpus: int, full: int, without_low: int, without_high: int
):
    fleet = Fleet(moment(ALIGNED.replace("GPUS", str(gpus))))
    vacancy = Vacancy(fleet.columns, fleet.jobs["asks"].requests[0], 0)
    found = [vacancy.room()]
    for name in ("low", "high"):
        (held,) = fleet.jobs[name].held
        vacancy.leave(held)
        found.append(vacancy.room())
        vacancy.enter(held)
    assert found == [full, without_low, without_high]
