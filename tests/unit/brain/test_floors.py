"""What clearing a node is said to cost at least, held against what it does cost: on small crowded fleets of dice."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from gpuyard.brain.engine.cycle import open_draft
from gpuyard.brain.engine.giving_way import clearing
from gpuyard.brain.engine.giving_way.bounds import many_floors
from gpuyard.brain.engine.giving_way.claims import Claim
from gpuyard.brain.engine.giving_way.clearing import Key
from gpuyard.brain.engine.giving_way.preemption import MixedTakers, Takers
from gpuyard.brain.engine.giving_way.room_making import RoomMaker
from gpuyard.brain.engine.nodes.columns import Held, Region
from gpuyard.brain.engine.picture.draft import Draft, Kept
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.job_rows import JobRow, work_key
from gpuyard.brain.engine.picture.memory import Memory, Progresses
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
        sharers = dice.choice((1, 2, 3)) if dice.random() < 0.3 else 0
        request = Request(share=dice.choice((250, 300)) * MILLI) if sharers else Request(gpus=size)
        gpus = tuple(range(at, at + (1 if sharers else size)))
        at = gpus[-1] + 1
        for i in range(sharers or 1):
            begun = NOW - dice.choice((60.0, 600.0, 600.0, 3600.0))
            yield Job(
                f"{node}-{gpus[0]}-{i}", queue=dice.choice("abcd"), gang=one_group(TaskGroup(request=request)),
                submitted=begun, started=begun, priority=dice.choice((25, 50, 50)), placements=(Placement(node, gpus),),
                preemptible=dice.random() < 0.9,
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
    said = takers.floors(nodes, clearing.short_of(shape, nodes))
    for node, floor in zip(nodes, said, strict=True):
        units = clearing.cheapest_set(draft, takers, shape, node)
        yield floor, takers.key(units) if units else ()


# --- nodes that are cleared whole -------------------------------------------------------------------------------------


def cleared_whole(snapshot: Snapshot) -> Iterator[tuple[bool, Key | None]]:
    """For every node: whether it is said to be too dear for a best so far that is as dear as what comes of clearing it,
    and the rank of that; None if nothing does."""
    draft = open_draft(Fleet(snapshot), Memory(), snapshot.now)
    row = draft.fleet.jobs["claim"]
    rights = MixedTakers(Claim(draft, row, draft.fleet.shortfall(row)))
    for node in range(len(NODES)):
        maker, region = RoomMaker(draft, row, rights), Region(node, node + 1)
        said = maker._is_too_dear(region)
        with pytest.MonkeyPatch.context() as patch, draft.trial():
            patch.setattr(maker, "_is_too_dear", lambda _: False)
            outcome = maker.by_clearing(region)
            maker._best = None if outcome is None else rights.rank(outcome)
        yield said or (maker._best is not None and maker._is_too_dear(region)), maker._best


@pytest.mark.parametrize("gpus", [2, 4, 8])
def test_no_node_that_is_worth_clearing_is_said_to_be_too_dear(gpus: int):
    told = [pair for seed in range(60) for pair in cleared_whole(fleet_of_dice(seed, gpus))]
    assert sum(rank is not None for _, rank in told) > 20
    assert [pair for pair in told if pair[0] and pair[1] is not None] == []


@pytest.mark.parametrize(
    ("best", "too_dear"),
    [
        (None, [True, False, False, True]),  # two have nobody to stop who holds enough
        ((True, True, True), [True, False, False, True]),
        ((True, False, True, False, False, 50), [True, True, True, True]),
    ],
)
def test_a_node_is_too_dear_once_something_better_is_known(best: Key | None, too_dear: list[bool]):
    draft = open_draft(Fleet(fleet_of_dice(13, 8)), Memory(), NOW)
    row = draft.fleet.jobs["claim"]
    maker = RoomMaker(draft, row, MixedTakers(Claim(draft, row, draft.fleet.shortfall(row))))
    maker._best = best
    assert [maker._is_too_dear(Region(node, node + 1)) for node in range(len(NODES))] == too_dear


# --- hundreds of nodes at once ----------------------------------------------------------------------------------------


def told(draft: Draft, takers: Takers, few: int, monkeypatch: pytest.MonkeyPatch) -> list[list[Key | None]]:
    """What is said of all nodes, whatever they lack, one by one or together."""
    monkeypatch.setattr(many_floors, "FEW", few)
    nodes = range(len(draft.fleet.columns.nodes))
    lacks = [(0, 1, 2, 3), (4, 3, 2, 1), (8, 8, 8, 8), (0, 0, 0, 0), (5, -1, 1, 1)]
    return [takers.floors(nodes, shorts) for shorts in lacks]


def words_of_dice(dice: random.Random, snapshot: Snapshot) -> Memory:
    """What jobs have said of themselves: when they last saved, how long they take to warm up."""
    names = [job.name for job in snapshot.jobs if job.started is not None and dice.random() < 0.5]
    families = {work_key(job) for job in snapshot.jobs}
    return Memory().keeping(
        Progresses(
            saved={name: NOW - dice.randrange(900) for name in names},
            warm_ups=dict.fromkeys(families, (30.0, 40.0, 50.0)),
        )
    )


@pytest.mark.parametrize("kind", [Takers, MixedTakers])
@pytest.mark.parametrize("said", [False, True])
def test_nodes_looked_at_together_are_told_the_same_as_one_by_one(
    kind: type[Takers], said: bool, monkeypatch: pytest.MonkeyPatch
):
    for seed in range(40):
        dice, snapshot = random.Random(seed), fleet_of_dice(seed, 2)
        memory = words_of_dice(dice, snapshot) if said else Memory()
        draft = open_draft(Fleet(snapshot), memory, snapshot.now)
        row = draft.fleet.jobs["claim"]
        keep_one(draft, row)
        for _ in range(3):
            takers = kind(Claim(draft, row, draft.fleet.shortfall(row)))
            assert told(draft, takers, 0, monkeypatch) == told(draft, takers, 4, monkeypatch)
            gone = dice.choice([row for row in draft.fleet.rows() if row.held])
            draft.tx.lift_all(gone, gone.held)


def test_where_nobody_may_be_asked_no_set_is_found_together_either(monkeypatch: pytest.MonkeyPatch):
    draft = open_draft(Fleet(fleet_of_dice(1, 2)), Memory(), NOW)
    monkeypatch.setattr(many_floors, "FEW", 0)
    row = draft.fleet.jobs["claim"]
    assert many_floors.least_keys(draft, row, frozenset(), [0, 1, 2], [1, 0, 2]) == [None, (), None]
