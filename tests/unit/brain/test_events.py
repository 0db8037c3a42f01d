"""What single events change in the picture of the fleet, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from gpuyard.brain.decide import decide, observe
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Evictions, Memory
from gpuyard.brain.engine.placing import fragmentation
from gpuyard.brain.engine.sharing.amounts import GPUS
from gpuyard.model.actions import Start
from gpuyard.model.events import (
    ActionFailed,
    GpuHealthChanged,
    JobEvicted,
    JobGone,
    JobSeen,
    NodeLost,
    NodeSeen,
    PolicyChanged,
    TasksAssigned,
    TasksEnded,
    TasksRunning,
    TasksStopping,
)
from gpuyard.model.job import Expression, Job, JobClass, Neighbour, TaskGroup, one_group
from gpuyard.model.node import Health
from gpuyard.model.policy import ClassPolicy, Policy, Style
from gpuyard.model.reasons import Code, Reason
from gpuyard.model.resources import WHOLE, Request
from tests.support.moments import moment
from tests.support.pictures import differences, picture

TWO = """
nodes: [{name: n0, gpus: 4, cpu: 16, memory: 64Gi}]
jobs: [{name: j, tasks: 2, gpus: 1, cpu: 2, at: ["n0:0", "n0:1"]}]
"""


def test_tasks_that_run_are_no_longer_merely_assigned_and_the_first_of_them_starts_the_job():
    found = moment(TWO)
    fleet = Fleet(found)
    places = fleet.jobs["j"].placements
    fleet.apply([TasksEnded("j", places), TasksAssigned("j", places, at=found.now)])
    assert [p.assigned for p in fleet.jobs["j"].placements] == [True, True]
    fleet.apply([TasksRunning("j", places[:1], at=found.now + 5)])
    assert [p.assigned for p in fleet.jobs["j"].placements] == [False, True]
    assert fleet.jobs["j"].started == found.now + 5
    fleet.apply([TasksRunning("j", places[1:], at=found.now + 9)])
    assert [p.assigned for p in fleet.jobs["j"].placements] == [False, False]
    assert fleet.jobs["j"].started == found.now + 5


def test_tasks_that_run_beside_others_nobody_has_heard_of_are_all_taken_as_running():
    found = moment(TWO)
    fleet = Fleet(found)
    places = fleet.jobs["j"].placements
    fleet.apply([TasksEnded("j", places), TasksAssigned("j", places[:1], at=found.now)])
    fleet.apply([TasksRunning("j", places, at=found.now + 5)])
    assert [p.assigned for p in fleet.jobs["j"].placements] == [False, False]


@pytest.mark.parametrize("asked", ["gpu_memory: 20Gi", "gpus: 1"])
def test_a_label_that_moves_to_another_card_changes_what_a_share_costs_and_where_the_demand_can_go(asked: str):
    found = moment(f"""
    nodes:
      - {{name: n0, gpus: 2, model: H100-SXM5-80GB, gpu_memory: 80Gi, labels: {{zone: x}}}}
      - {{name: n1, gpus: 2, model: A100-SXM4-40GB, gpu_memory: 40Gi}}
    jobs: [{{name: part, {asked}, node_selector: {{zone: x}}}}]
    """)
    fleet = Fleet(found)
    before = stranded(fleet)
    n0, n1 = (replace(node, labels=n.labels) for node, n in zip(found.nodes, reversed(found.nodes), strict=True))
    fleet.apply([NodeSeen(n0), NodeSeen(n1)])
    fresh = Fleet(replace(found, nodes=(n0, n1)))
    assert differences(picture(fleet), picture(fresh)) == []
    assert stranded(fleet) == stranded(fresh) != before


def stranded(fleet: Fleet) -> list[float]:
    """What the demand seen strands on each node."""
    fragmentation.follow_demand(fleet)
    return list(map(float, fleet.shapes.gauge.now(np.arange(len(fleet.columns.nodes)))))


LARGE_AND_SMALL = """
nodes: [{name: n0, gpus: 2, gpu_memory: 80Gi}, {name: n1, gpus: 2, gpu_memory: 40Gi}]
jobs: [{name: part, gpu_memory: 20Gi, at: ["n0:0"]}, {name: whole, gpus: 1, at: ["n0:1"]}]
"""


def test_a_part_of_a_smaller_card_is_a_larger_part_and_its_queue_then_asks_for_more():
    fleet = Fleet(moment(LARGE_AND_SMALL))
    (queue,) = {row.queue for row in fleet.jobs.values()}
    asked = [fleet.demand[queue][GPUS] / WHOLE]
    for name in ("part", "whole"):
        (place,) = fleet.jobs[name].placements
        there = replace(place, node="n1")
        fleet.apply([TasksEnded(name, (place,)), TasksRunning(name, (there,), at=1.0)])
        asked.append(fleet.demand[queue][GPUS] / WHOLE)
    assert asked == [1.25, 1.5, 1.5]


@pytest.mark.parametrize(
    ("failed", "then"),
    [(0, 0.25), (1, 0.0)],
    ids=["who is stopped may run again on the larger card", "who failed and is stopped wants nothing"],
)
def test_a_task_on_its_way_out_is_not_what_its_job_asks_for(failed: int, then: float):
    nodes = "nodes: [{name: n0, gpus: 2, gpu_memory: 80Gi}, {name: n1, gpus: 2, gpu_memory: 40Gi}]\n"
    fleet = Fleet(moment(f"{nodes}jobs: [{{name: j, gpu_memory: 20Gi, failed: {failed}, at: ['n1:0']}}]"))
    row = fleet.jobs["j"]
    assert fleet.demand[row.queue][GPUS] == 0.5 * WHOLE
    fleet.apply([TasksStopping("j", row.placements)])
    assert fleet.demand[row.queue][GPUS] == then * WHOLE


def test_a_job_whose_tasks_are_all_gone_has_not_started():
    fleet = Fleet(moment(TWO))
    places = fleet.jobs["j"].placements
    started = fleet.jobs["j"].started
    fleet.apply([TasksEnded("j", places[:1])])
    assert (fleet.jobs["j"].started, len(fleet.jobs["j"].held)) == (started, 1)
    fleet.apply([TasksEnded("j", places[1:])])
    assert (fleet.jobs["j"].started, len(fleet.jobs["j"].held)) == (None, 0)


def test_a_node_that_has_more_cores_and_less_memory_than_before_has_so_much_more_and_less_free():
    fleet = Fleet(moment(TWO))
    node = fleet.columns.nodes[0]
    free = int(fleet.columns.cpu[0]), int(fleet.columns.memory[0])
    fleet.apply([NodeSeen(replace(node, cpu=node.cpu + 3000, memory=node.memory - (8 << 30)))])
    assert (int(fleet.columns.cpu[0]), int(fleet.columns.memory[0])) == (free[0] + 3000, free[1] - (8 << 30))


def test_what_happened_is_remembered_by_whom_it_concerns():
    fleet = Fleet(moment(TWO))
    seen = observe(fleet, Memory(), (JobEvicted("j", 5.0), JobEvicted("nobody", 6.0)), 10.0)
    assert seen.memory.of(Evictions).times == {"j": (5.0,), "nobody": (6.0,)}
    assert observe(fleet, Memory(), (), 10.0) == (Memory(), [])


def test_an_order_that_failed_forgets_who_was_assigned_lets_go_on_who_was_stopping_and_touches_nobody_else():
    found = moment(TWO)
    fleet = Fleet(found)
    before, (first, second) = picture(fleet), fleet.jobs["j"].placements
    late = Reason(Code.WORLD_CHANGED)
    fleet.apply([ActionFailed("j", (), late), ActionFailed("j", (replace(first, uid="gone"),), late)])
    assert differences(before, picture(fleet)) == []
    fleet.apply([TasksStopping("j", (first,)), ActionFailed("j", (first,), late)])
    assert differences(before, picture(fleet)) == []
    fleet.apply([TasksEnded("j", (second,)), TasksAssigned("j", (replace(second, uid="new"),), found.now)])
    fleet.apply([ActionFailed("j", (replace(second, uid="new"),), late)])
    assert fleet.jobs["j"].placements == (first,)


def test_who_keeps_apart_and_is_gone_is_heeded_by_nobody_however_often_it_began():
    term = "{level: node, matchExpressions: [{key: app, operator: In, values: [web]}]}"
    found = moment(TWO.replace("name: j,", f"name: j, labels: {{app: web}}, apart: [{term}],"))
    fleet = Fleet(found)
    places = fleet.jobs["j"].placements
    assert len(fleet.company.apart) == 1
    fleet.apply([TasksEnded("j", places), TasksRunning("j", places, at=found.now)])
    fleet.apply([JobGone("j")])
    assert fleet.company.apart == {}


def test_tasks_that_end_are_counted_one_after_the_other_and_their_numbers_are_never_run_again():
    fleet = Fleet(moment(TWO))
    places = fleet.jobs["j"].placements
    fleet.apply([TasksEnded("j", places[:1], failed=1), TasksEnded("j", places[1:], failed=1)])
    group = fleet.jobs["j"].group
    assert (group.succeeded, group.failed, group.ended) == (0, 2, (0, 1))
    fleet = Fleet(moment(TWO))
    fleet.apply([TasksEnded("j", places[:1], succeeded=1), TasksEnded("j", places[1:], succeeded=1)])
    assert (fleet.jobs["j"].group.succeeded, fleet.jobs["j"].group.failed) == (2, 0)


def test_a_device_of_a_node_that_is_only_just_seen_falls_sick_and_of_one_that_is_gone_nobody_speaks():
    fleet = Fleet(moment(TWO))
    n0 = fleet.columns.nodes[0]
    fleet.apply([NodeSeen(replace(n0, name="n1")), GpuHealthChanged("n1", 2, Health.SICK)])
    fleet.apply([GpuHealthChanged("n0", 3, Health.SICK)])
    sick = {node.name: [gpu.index for gpu in node.gpus if gpu.health is Health.SICK] for node in fleet.columns.nodes}
    assert sick == {"n0": [3], "n1": [2]}
    told = fleet.apply([GpuHealthChanged("n9", 0, Health.SICK), NodeLost("n1"), GpuHealthChanged("n1", 0, Health.SICK)])
    assert told == [f"an event speaks of node {name}, which nobody has seen" for name in ("n9", "n1")]


def test_a_node_that_is_sound_again_is_odd_no_more():
    fleet = Fleet(moment(TWO))
    fleet.apply([GpuHealthChanged("n0", 3, Health.SICK)])
    assert [node.name for node in fleet.odd_nodes()] == ["n0"]
    fleet.apply([GpuHealthChanged("n0", 3, Health.HEALTHY)])
    assert list(fleet.odd_nodes()) == []


def test_another_treatment_of_a_class_holds_for_jobs_that_were_there_before():
    found = moment(TWO)
    fleet = Fleet(found)
    before = fleet.jobs["j"].requests[0].style
    classes = {**found.policy.classes, JobClass.TRAINING: ClassPolicy(priority=50, placement=Style.SPREAD)}
    changed = replace(found, policy=replace(found.policy, classes=classes))
    fleet.apply([PolicyChanged(changed.policy)])
    assert (before, fleet.jobs["j"].requests[0].style) == (Style.PACK, Style.SPREAD)
    assert differences(picture(fleet), picture(Fleet(changed))) == []


@pytest.mark.parametrize(
    ("turned", "compiled"),
    [
        (lambda policy: replace(policy, search_limit=3), False),
        (lambda policy: replace(policy, reserve_after=5.0), False),
        (lambda policy: replace(policy, weights=replace(policy.weights, fragmentation=2.0)), True),
        (lambda policy: replace(policy, scoring=replace(policy.scoring, cores_per_gpu=7.0)), True),
        (lambda policy: replace(policy, priorities={"high": 20}), True),
        (lambda policy: replace(policy, critical_priority=90), True),
    ],
    ids=["search_limit", "reserve_after", "weights", "scoring", "priorities", "critical"],
)
def test_a_knob_that_nothing_was_compiled_by_is_turned_and_all_else_stands(
    turned: Callable[[Policy], Policy], compiled: bool
):
    fleet = Fleet(moment(TWO))
    row, policy = fleet.jobs["j"], turned(fleet.policy)
    fleet.apply([PolicyChanged(policy)])
    assert fleet.policy is policy
    assert (fleet.jobs["j"] is not row) is compiled


def test_nothing_in_the_picture_grows_with_all_that_was_ever_there(monkeypatch: pytest.MonkeyPatch):
    """Jobs come and go, each asks for what nobody asked for before, in a family of its own; a GPU ails now and then."""
    monkeypatch.setattr("gpuyard.brain.engine.picture.fleet.REQUESTS_KEPT", 8)
    monkeypatch.setattr("gpuyard.brain.engine.nodes.touch_log.LONG", 8)
    found = moment(TWO)
    fleet, memory = Fleet(found), Memory()
    sizes = []
    for number in range(80):
        term = Neighbour("node", (Expression("app", "In", (f"a{number}",)),))
        group = TaskGroup(request=Request(gpus=1, memory=number + 1), labels=(("app", f"a{number}"),), apart=(term,))
        fleet.apply([JobSeen(Job(f"j{number}", one_group(group), family=f"f{number}"))])
        plan, memory = decide(fleet, memory, found.now + number)
        (start,) = (action for action in plan.actions if isinstance(action, Start))
        fleet.apply([TasksRunning(start.job, start.placements, found.now + number)])
        fleet.apply([GpuHealthChanged("n0", 3, Health.SICK if number % 2 else Health.HEALTHY)])
        fleet.apply([TasksEnded(start.job, start.placements, succeeded=1), JobGone(start.job)])
        sizes.append(containers(fleet))
    most = {path: max(size.get(path, 0) for size in sizes[20:40]) for path in sizes[-1]}
    assert {path: found for path, found in sizes[-1].items() if found > most[path]} == {}
    assert most["fleet.requests"] > 2


def containers(value: object, path: str = "fleet", seen: set[int] | None = None) -> dict[str, int]:
    """How much every list, set and dictionary inside holds."""
    seen = set() if seen is None else seen
    if id(value) in seen:
        return {}
    seen.add(id(value))
    if isinstance(value, dict | list | set):
        return {path: len(value)}
    if not type(value).__module__.startswith("gpuyard.brain"):
        return {}
    slots = (name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ()))
    names = [*getattr(value, "__dict__", {}), *(name for name in slots if hasattr(value, name))]
    return {k: n for name in names for k, n in containers(getattr(value, name), f"{path}.{name}", seen).items()}


def test_who_is_ended_first_does_not_depend_on_who_was_seen_first():
    limited = "time_limit: 1h, started: '2025-12-31T22:00:00Z'"
    found = moment(f"""
nodes: [{{name: n, times: 1, gpus: 4}}]
jobs:
  - {{name: a, gpus: 1, at: "n0:0", {limited}}}
  - {{name: b, gpus: 1, at: "n0:1", {limited}}}
""")
    told = []
    for jobs in (found.jobs, found.jobs[::-1]):
        fleet = Fleet(replace(found, jobs=()))
        fleet.apply([JobSeen(job) for job in jobs])
        told.append(decide(fleet, Memory(), found.now).plan.actions)
    assert [action.job for action in told[0]] == ["a", "b"]  # type: ignore[union-attr]
    assert told[0] == told[1]
