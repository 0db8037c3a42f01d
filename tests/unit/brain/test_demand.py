"""The demand that placement is measured by: what is counted, how it is weighed, and what CPU belongs to a GPU."""

from __future__ import annotations

import numpy as np
import pytest

from gpuyard.brain.decide import decide
from gpuyard.brain.engine.nodes.demand import Demand, DemandClass, Proportion, as_class, demand_known, proportion
from gpuyard.brain.engine.nodes.remainders import values
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.brain.engine.placing.fragmentation import follow_demand, stranded_now
from gpuyard.model.policy import DemandView, Weigh
from gpuyard.model.resources import UNLIMITED, WHOLE
from tests.support.moments import moment

EVERYWHERE = np.ones(3, dtype=bool)


def wanted(tasks: float, cpu: int, gpus: int = 0, share: float = 0.0) -> DemandClass:
    return DemandClass(gpus, int(share * WHOLE), cpu, EVERYWHERE, 1.0, tasks)


WHOLES, HALVES = wanted(2, 4000, gpus=1), wanted(4, 1000, share=0.5)
CPU = np.array([32_000, 16_000, UNLIMITED])
LITTLE = np.array([4000, 2000, UNLIMITED])
GPUS = np.array([4, 8, 4])


@pytest.mark.parametrize(
    ("classes", "cpu", "found"),
    [
        # Four GPUs with 12 cores beside them; what differs among them is a third of the mean.
        ((WHOLES, HALVES), CPU, Proportion(3000.0, 3000.0, 0.0, 1 / 3)),
        # Two cores more without GPUs would take 8 of the 20 that four GPUs on the first node leave.
        ((WHOLES, HALVES, wanted(0.25, 8000)), CPU, Proportion(3000.0, 3500.0, 0.4**3, 1 / 3)),
        # More than there is to spare is all of it.
        ((WHOLES, HALVES, wanted(3, 8000)), CPU, Proportion(3000.0, 9000.0, 1.0, 1 / 3)),
        # Where nothing is to spare, whoever asks takes all of nothing.
        ((WHOLES, HALVES, wanted(3, 8000)), LITTLE, Proportion(3000.0, 9000.0, 1.0, 1 / 3)),
        ((WHOLES, HALVES), LITTLE, Proportion(3000.0, 3000.0, 0.0, 1 / 3)),
        # Nobody asks for CPU beside GPUs.
        ((wanted(2, 0, gpus=1), wanted(3, 8000)), CPU, Proportion(12_000.0, 12_000.0, 0.0, 0.0)),
        # Nobody asks for GPUs.
        ((wanted(3, 8000),), CPU, Proportion(0.0, 0.0, 0.0, 0.0)),
        ((), CPU, Proportion(0.0, 0.0, 0.0, 0.0)),
    ],
)
def test_cpu_belongs_to_gpus_as_the_demand_asks_for_it(
    classes: tuple[DemandClass, ...], cpu: np.ndarray, found: Proportion
):
    got = proportion(classes, cpu, GPUS)
    assert tuple(got) == pytest.approx(tuple(found), abs=1e-12)
    assert got.matters is (found.lean > 0)


def test_a_node_in_proportion_is_not_strained_and_tasks_that_differ_round_the_corner():
    even = Proportion(lean=2000.0, full=4000.0, mix=0.0, varies=0.0)
    cpu, idle = np.array([8000, 4000, 0, 8000]), np.array([4.0, 4.0, 4.0, 0.0])
    assert even.strain(cpu, idle, 0.6).tolist() == [0.0, 2.0, 4.0, 4.0]
    assert even._replace(mix=1.0).strain(cpu, idle, 0.6).tolist() == [2.0, 3.0, 4.0, 2.0]
    assert even._replace(mix=0.25).strain(cpu, idle, 0.6).tolist() == [0.5, 2.25, 4.0, 3.5]
    assert even._replace(varies=0.5).strain(cpu, idle, 3.0).tolist() == pytest.approx([3.0, 13**0.5, 5.0, 4.0])


def test_shares_of_one_size_are_one_and_a_size_is_rounded_up():
    classes = (wanted(3, 0, share=0.5), wanted(4, 0, share=0.5), wanted(5, 0, share=0.2995), wanted(9, 0, gpus=1))
    assert Demand(classes, 8).remainders.tolist() == values(((500, 7.0), (300, 5.0))).tolist()
    assert Demand((wanted(9, 0, gpus=1),), 8).remainders.tolist() == values(()).tolist()


JOBS = """
nodes:
  - {name: n, gpus: 4, cpu: 64, gpu_memory: 80Gi, model: H100}
  - {name: m, gpus: 4, cpu: 64, gpu_memory: 40Gi, model: A100}
jobs:
  - {name: a, tasks: 2, gpus: 1, cpu: 2, submitted: -5m}
  - {name: b, tasks: 2, gpus: 1, cpu: 5, submitted: -4m}
  - {name: c, tasks: 8, fraction: 0.5, cpu: 1, submitted: -3m}
  - {name: d, tasks: 6, gpus: 4, models: [H100], submitted: -2m}
  - {name: rare, fraction: 0.01, submitted: -1m}
  - {name: desk, cpu: 40}
"""


def test_the_demand_seen_is_told_by_kind_in_parts_of_its_gpus_and_rare_kinds_fall_out():
    fleet = Fleet(moment(JOBS))
    seen = fleet.seen.outline(fleet.shapes)
    told = {(o.request.gpus, o.request.resources.share): (o.weight, o.cpu) for o in seen}
    assert told == {(1, 0): (4, 4000), (0, WHOLE // 2): (4, 1000), (4, 0): (24, 0)}
    classes = [as_class(fleet.shapes, each) for each in seen]
    assert [(c.gpus, c.share, c.cpu, c.weight, c.tasks) for c in classes] == [
        (1, 0, 4000, 4, 4.0),
        (0, WHOLE // 2, 1000, 4, 8.0),
        (4, 0, 0, 24, 6.0),
    ]
    assert [c.eligible.tolist() for c in classes] == [[True, True], [True, True], [False, True]]
    assert [fleet.columns.nodes[i].model for i in (0, 1)] == ["A100", "H100"]


def test_a_kind_that_nobody_asks_for_any_more_is_not_told():
    fleet = Fleet(moment(JOBS))
    request = fleet.jobs["c"].requests[0]
    fleet.seen.count(request, -7)
    assert [tasks for kind, (tasks, _) in fleet.seen.counts().items() if kind[1] == WHOLE // 2] == [1]
    fleet.seen.count(request, -1)
    assert [kind for kind in fleet.seen.counts() if kind[1] == WHOLE // 2] == []
    assert all(o.request.resources.share != WHOLE // 2 for o in fleet.seen.outline(fleet.shapes))


def test_memory_is_demand_by_the_largest_card_it_could_lie_on():
    text = "nodes: [{name: n, gpus: 4, gpu_memory: 80Gi}, {name: m, gpus: 4, gpu_memory: 40Gi}]\n"
    fleet = Fleet(moment(text + "jobs: [{name: a, tasks: 4, gpu_memory: 20Gi}, {name: b, gpus: 1}]"))
    seen = fleet.seen.outline(fleet.shapes)
    assert [(o.weight, as_class(fleet.shapes, o).share) for o in seen] == [(16, WHOLE // 4), (16, 0)]


@pytest.mark.parametrize("part", ["fraction: 0.5", "gpu_memory: 10Gi"])
def test_parts_of_gpus_are_waited_for_also_where_there_are_no_nodes_yet(part: str):
    fleet = Fleet(moment(f"nodes: []\njobs: [{{name: a, {part}}}]"))
    decided = decide(fleet, Memory(), 0.0).plan
    assert [waiting.job for waiting in decided.waiting] == ["a"]


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (DemandView(), [("c", 15.0, 30), ("a", 10.0, 10), ("desk", 8.0, 8), ("d", 8.0, 2)]),
        (DemandView(weigh=Weigh.TASKS), [("c", 30, 30), ("a", 10, 10), ("desk", 8, 8), ("d", 2, 2)]),
        (DemandView(cover=0.81), [("c", 15.0, 30), ("a", 10.0, 10), ("desk", 8.0, 8)]),
        (DemandView(cover=0.8), [("c", 15.0, 30), ("a", 10.0, 10)]),
        (DemandView(cover=0.0), []),
    ],
)
def test_known_demand_keeps_the_commonest_kinds_up_to_a_share(
    view: DemandView, expected: list[tuple[str, float, float]]
):
    fleet = Fleet(moment(JOBS))
    request = {name: row.requests[0] for name, row in fleet.jobs.items()}
    kinds = [(request["d"], 2.0), (request["a"], 10.0), (request["desk"], 8.0), (request["c"], 30.0)]
    classes = demand_known(fleet.shapes, kinds, view)
    assert [(c.gpus, c.share, c.cpu, c.weight, c.tasks) for c in classes] == [
        (request[name].gpus, request[name].resources.share, request[name].resources.cpu, weight, tasks)
        for name, weight, tasks in expected
    ]


@pytest.mark.parametrize(
    ("jobs", "stranded"),
    [
        ("[{name: one, at: 'n:0'}, {name: two, gpus: 2}]", 0.0),  # two are free, for one as for the other
        ("[{name: four, gpus: 4}]", 3.0),
        # The 0.6 is 17 of 32 parts of the demand, and cannot use the half that is left beside the 0.5.
        ("[{name: more, fraction: 0.6}, {name: half, fraction: 0.5, at: 'n:0'}]", 0.5 * 17 / 32),
        ("[{name: desk, cpu: 1}]", 0.0),  # nobody asks for GPUs, so none is missed
    ],
)
def test_what_is_stranded_is_measured_by_the_demand_that_there_is(jobs: str, stranded: float):
    fleet = Fleet(moment(f"nodes: [{{name: n, gpus: 3, cpu: 8}}]\njobs: {jobs}"))
    follow_demand(fleet)
    assert stranded_now(fleet) == pytest.approx(stranded)


# --- the tables -----------------------------------------------------------------------------------

FIRST_ONLY = np.array([True, False, False])


def of_class(
    gpus: int, share: int, cpu: int, weight: float, tasks: float, eligible: np.ndarray = EVERYWHERE
) -> DemandClass:
    return DemandClass(gpus, share, cpu, eligible, weight, tasks)


def test_what_the_demand_could_use_of_a_node_is_looked_up_by_its_cpu_and_what_is_free():
    half = WHOLE // 2
    classes = (
        of_class(2, 0, 4000, 4.0, 2.0),
        of_class(1, 0, 2000, 1.0, 1.0, FIRST_ONLY),
        of_class(0, half, 1000, 3.0, 6.0),
    )
    demand = Demand(classes, 4)
    assert (demand.count, demand.fractional, demand.needs.tolist()) == (3, True, [half])
    assert demand.cpus.tolist() == [1000, 2000, 4000]
    assert demand.group.tolist() == [0, 1, 1]
    nodes = np.array([0, 1, 2, 0])
    rows = demand.rows(nodes, np.array([4000, 3999, 999, 1000]))
    assert rows.tolist() == [3, 4 + 2, 4 + 0, 1]
    # whole-GPU tasks by weight: 4 of 8 take pairs, 1 of 8 singles on the first node
    assert demand.gangs(rows, np.array([2, 2, 2, 2])).tolist() == [2 * 5 / 8, 0.0, 0.0, 0.0]
    assert demand.gangs(rows, np.array([1, 1, 1, 1])).tolist() == [1 / 8, 0.0, 0.0, 0.0]
    assert demand.gangs(rows[:1], np.array([0])).tolist() == [0.0]
    assert demand.gangs(rows[:1], np.array([4])).tolist() == [4 * 5 / 8]
    free = np.array([[half, half - 1, half, WHOLE]])
    assert demand.useful(rows, free).tolist() == [[half / WHOLE * 3 / 8, 0.0, 0.0, 3 / 8]]
    both = demand.useful(np.array([rows, rows * 0]), np.concatenate([free, free * 0]))
    assert both.tolist() == [[[half / WHOLE * 3 / 8, 0.0, 0.0, 3 / 8], [0.0] * 4], [[0.0] * 4] * 2]
    assert demand.useful_whole(rows).tolist() == [3 / 8, 3 / 8, 0.0, 3 / 8]
    whole_only = Demand(classes[:1], 4)
    assert whole_only.useful(rows[:1] * 0, np.array([[WHOLE], [half]])).tolist() == [[0.0], [0.0]]


def test_demand_that_cannot_go_everywhere_makes_scarce_where_it_can():
    classes = (
        of_class(1, 0, 0, 1.0, 3.0, FIRST_ONLY),
        of_class(1, 0, 0, 1.0, 1.0),
        of_class(2, 0, 0, 1.0, 4.0, ~EVERYWHERE),
    )
    found = Demand(classes, 4).scarcity(classes, np.array([4, 4, 8]))
    # 3 of 12 GPUs asked for can go to 4 of 16 alone
    assert found.tolist() == [3 / 12 * 16 / 4, 0.0, 0.0]
    assert Demand((), 4).scarcity((), np.array([4, 4, 8])).tolist() == [0.0, 0.0, 0.0]
