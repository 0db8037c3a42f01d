"""What clearing a node is said to cost at least, held against what it does cost: on small crowded fleets of dice."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from gpuyard.brain.engine.cycle import open_draft
from gpuyard.brain.engine.giving_way import clearing
from gpuyard.brain.engine.giving_way.claims import Claim
from gpuyard.brain.engine.giving_way.clearing import Key
from gpuyard.brain.engine.giving_way.preemption import MixedTakers, Takers
from gpuyard.brain.engine.nodes.columns import Held
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.brain.engine.picture.notes import Kept
from gpuyard.brain.engine.placing import gang
from gpuyard.brain.engine.reserving import stand_ins
from gpuyard.model.job import Job, Placement, TaskGroup, one_group
from gpuyard.model.node import Gpu, Node
from gpuyard.model.queue import Allowance, Queue
from gpuyard.model.resources import MILLI, WHOLE, Request
from gpuyard.model.snapshot import Snapshot

NOW = 10_000.0
NODES = tuple(Node(f"n{i}", model="H100", gpus=tuple(Gpu(g) for g in range(8))) for i in range(4))


def fleet_of_dice(seed: int, gpus: int) -> Snapshot:
    """Jobs of three queues fill most GPUs, some share one, some are elastic; one of a fourth queue has a claim."""
    dice = random.Random(seed)
    quotas = {name: Allowance(dice.randrange(0, 14) * WHOLE) for name in "abc"}
    queues = [Queue(name, quota=quota, priority=dice.randrange(2)) for name, quota in quotas.items()]
    jobs = [job for node in NODES for job in holders(dice, node.name)]
    claimant = Job(
        "claim", queue="d", gang=one_group(TaskGroup(request=Request(gpus=gpus))), submitted=NOW, priority=50
    )
    tree = (*queues, Queue("d", quota=Allowance(16 * WHOLE)))
    return Snapshot(now=NOW, nodes=NODES, queues=tree, jobs=(*jobs, claimant))


def holders(dice: random.Random, node: str) -> Iterator[Job]:
    """Who stands on one node."""
    at = dice.choice((0, 0, 0, 1))
    while at < 8:
        size = min(dice.choice((1, 1, 2, 3)), 8 - at)
        shared = dice.random() < 0.15
        request = Request(share=dice.choice((250, 500)) * MILLI) if shared else Request(gpus=size)
        gpus = tuple(range(at, at + (1 if shared else size)))
        at = gpus[-1] + 1
        begun = NOW - dice.choice((60.0, 600.0, 600.0, 3600.0))
        yield Job(
            f"{node}-{gpus[0]}", queue=dice.choice("abcd"), gang=one_group(TaskGroup(request=request)),
            submitted=begun, started=begun, priority=dice.choice((25, 50, 50)), placements=(Placement(node, gpus),),
        )  # fmt: skip


@pytest.mark.parametrize("takers", [Takers, MixedTakers])
@pytest.mark.parametrize("gpus", [1, 2, 4])
def test_no_node_is_cleared_for_less_than_was_said(takers: type[Takers], gpus: int):
    told = [pair for seed in range(60) for pair in floors_and_keys(fleet_of_dice(seed, gpus), takers)]
    assert [pair for pair in told if pair[1] and (pair[0] is None or pair[0] > pair[1])] == []


@pytest.mark.parametrize("gpus", [1, 2, 4])
def test_what_is_said_is_near_enough_to_tell_nodes_apart(gpus: int):
    told = [pair for seed in range(60) for pair in floors_and_keys(fleet_of_dice(seed, gpus), Takers)]
    cleared = [(floor, key) for floor, key in told if key]
    assert len(cleared) > 20
    assert sum(floor[:2] == key[:2] and floor != () for floor, key in cleared if floor is not None) > len(cleared) // 2


def keep_one(draft: Draft, row: JobRow) -> None:
    """Keep a free GPU for somebody: what stands in for the reservation holds it and pays nothing for it."""
    free = [n for n, mask in enumerate(draft.fleet.columns.free_mask) if mask]
    if free:
        place = Held(0, 0, free[0], (0,), 0, (), WHOLE, 0, 0, False)
        stand_ins.keep(draft, Kept(row, (place,), None, False, stand_ins.stand_in(draft, row)))


def floors_and_keys(snapshot: Snapshot, kind: type[Takers]) -> Iterator[tuple[Key | None, Key]]:
    """For every node the claimant could run on: what is said that clearing it costs, and what it costs; () if nothing
    clears it."""
    draft = open_draft(Fleet(snapshot), Memory(), snapshot.now)
    row = draft.fleet.jobs["claim"]
    keep_one(draft, row)
    takers = kind(Claim(draft, row, draft.fleet.shortfall(row)))
    shape = next(gang.shapes(draft, row, 0))
    nodes = clearing.plausible(draft, shape, draft.fleet.columns.everywhere)
    for node, short in zip(nodes, clearing.short_of(shape, nodes), strict=True):
        units = clearing.cheapest_set(draft, takers, shape, node)
        yield takers.floor(node, short), takers.key(units) if units else ()
