"""Who holds what, as the snapshot stands."""

from __future__ import annotations

import dataclasses

from gpuyard.cli.rendering import inventory
from gpuyard.model.job import Job, Phase, Placement, TaskGroup, one_group
from gpuyard.model.node import Gpu, Node
from gpuyard.model.queue import Queue
from gpuyard.model.resources import MILLI, WHOLE, Request
from gpuyard.model.snapshot import Snapshot
from tests.unit.cli.hand_made import SNAPSHOT, job, placed

COUNTS = inventory.take(SNAPSHOT)


def phase_of(**more: object) -> Phase:
    return inventory.phase(dataclasses.replace(job("a", tasks=2), **more))  # type: ignore[arg-type]


def test_free_gpus_are_neither_held_nor_sick_nor_on_a_cordoned_node():
    assert {node.name: COUNTS.free(node) for node in SNAPSHOT.nodes} == {"n0": 6, "n1": 6, "n2": 5, "n10": 0}


def test_a_parent_queue_holds_what_its_children_hold():
    used = COUNTS.used_by_queue()
    assert (used["prod"], used["serving"], used["research"]) == (2 * WHOLE, 2 * WHOLE, 4 * WHOLE)


def test_cpu_and_memory_count_once_a_task():
    assert COUNTS.use["n2"].cpu == 16_000
    assert COUNTS.use["n2"].memory == 128 << 30


def test_parts_of_a_gpu_cost_their_share():
    node = Node("n", gpu_memory=80 << 30, gpus=(Gpu(0), Gpu(1), Gpu(2, slices=("1g.10gb",))))
    asks = {
        "half": (Request(share=500 * MILLI), Placement("n", (0,))),
        "memory": (Request(gpu_memory=20 << 30), Placement("n", (1,))),
        "slice": (Request(mig=(("1g.10gb", 1),)), Placement("n", (2,), mig=("1g.10gb",))),
    }
    jobs = tuple(
        Job(name, one_group(TaskGroup(request=asked)), placements=(place,)) for name, (asked, place) in asks.items()
    )
    counts = inventory.take(Snapshot(nodes=(node,), jobs=jobs))
    assert counts.held == {"half": WHOLE // 2, "memory": WHOLE // 4, "slice": WHOLE // 7}
    assert counts.free(node) == 0


def test_a_job_without_places_waits_unless_its_owner_holds_it():
    assert phase_of() is Phase.WAITING
    assert phase_of(on_hold=True) is Phase.HELD


def test_a_whole_gang_runs_and_a_half_placed_one_is_starting():
    assert phase_of(placements=(placed("n0", 0), placed("n0", 1, task=1))) is Phase.RUNNING
    assert phase_of(placements=(placed("n0", 0),)) is Phase.STARTING


def test_a_gang_that_lost_a_member_still_runs():
    assert phase_of(placements=(placed("n0", 0),), started=1.0) is Phase.RUNNING


def test_a_job_whose_tasks_are_all_leaving_is_stopping():
    leaving = dataclasses.replace(placed("n0", 0), terminating=True)
    assert phase_of(placements=(leaving,)) is Phase.STOPPING


def test_a_job_whose_tasks_all_ended_is_over():
    done = one_group(TaskGroup(tasks=2, min=2, succeeded=2))
    assert phase_of(gang=done) is Phase.SUCCEEDED
    assert phase_of(gang=one_group(TaskGroup(tasks=2, min=2, succeeded=1, failed=1))) is Phase.FAILED


def test_queues_come_in_the_order_of_their_tree():
    queues = [Queue("z"), Queue("b", parent="a"), Queue("a"), Queue("c", parent="b")]
    assert [(queue.name, depth) for queue, depth in inventory.in_tree_order(queues)] == [
        ("a", 0),
        ("b", 1),
        ("c", 2),
        ("z", 0),
    ]


def test_a_root_that_the_file_gives_is_the_top_of_the_tree():
    queues = [Queue("a"), Queue("root", parent="")]
    assert [(queue.name, depth) for queue, depth in inventory.in_tree_order(queues)] == [("root", 0), ("a", 1)]
