"""What was worked out before is used again only where everything it depends on is the same."""

from __future__ import annotations

from gpuyard.brain.engine.nodes.columns import Held
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.placing.fragmentation import follow_demand
from gpuyard.model.job import Job, TaskGroup, one_group
from gpuyard.model.node import Gpu, Health, Node
from gpuyard.model.queue import Queue
from gpuyard.model.resources import MILLI, WHOLE, Request
from gpuyard.model.snapshot import Snapshot


def fleet_of(nodes: tuple[Node, ...], *groups: TaskGroup) -> Fleet:
    """A fleet where one job of each group waits; the demand is known."""
    jobs = tuple(Job(f"j{i}", one_group(group), queue="q", submitted=0.0) for i, group in enumerate(groups))
    fleet = Fleet(Snapshot(now=10.0, nodes=nodes, queues=(Queue("q"),), jobs=jobs))
    follow_demand(fleet)
    return fleet


def scores(fleet: Fleet) -> list[tuple[int, float]]:
    """Room and score of every node for the first job."""
    request = fleet.jobs["j0"].requests[0]
    shape = fleet.shapes.get(request, fleet.shapes.tiers(request, True)[0])
    return list(zip(shape.room.tolist(), shape.score.tolist(), strict=True))


def test_nodes_that_differ_only_in_a_label_somebody_asks_for_are_not_taken_for_each_other():
    gpus = tuple(Gpu(i) for i in range(4))
    nodes = tuple(
        Node(f"n{i}", model="H", gpus=gpus, cpu=9000, labels=(("disk", disk),)) for i, disk in ((0, "a"), (1, "b"))
    )
    picky = TaskGroup(request=Request(gpus=3), node_selector=(("disk", "a"),))
    fleet = fleet_of(nodes, TaskGroup(request=Request(gpus=1)), picky)
    afresh = scores(fleet)
    assert afresh[0] != afresh[1]
    for n in (0, 1):
        held = Held(0, 0, n, (0,), 0, (), WHOLE, 0, 0, False)
        fleet.columns.put(held)
        fleet.columns.lift(held)
        assert scores(fleet) == afresh


def test_a_part_left_on_a_sick_gpu_is_not_taken_for_one_on_a_sound_gpu():
    sick = (Gpu(0, health=Health.SICK), Gpu(1), Gpu(2))
    sound = (Gpu(0), Gpu(1), Gpu(2))
    nodes = (Node("n0", model="H", gpus=sound, cpu=9000), Node("n1", model="H", gpus=sick, cpu=9000))
    fleet = fleet_of(nodes, TaskGroup(request=Request(share=500 * MILLI)))
    for n in (0, 1):  # half of GPU 0 is in use on both, and GPU 1; on one of them nobody may join the other half
        fleet.columns.put(Held(0, 0, n, (0,), WHOLE // 2, (), WHOLE // 2, 0, 0, False))
    scores(fleet)
    for n in (0, 1):
        held = Held(0, 0, n, (1,), 0, (), WHOLE, 0, 0, False)
        fleet.columns.put(held)
        assert scores(fleet)[n][0] == (3, 2)[n]
