"""Laws of fleets whose kubelets insist on NUMA nodes: nothing is sent to them that they would refuse for good."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from gpuyard.brain.engine.nodes.layout import alignment
from gpuyard.brain.foresee import outlook
from gpuyard.model.node import Alignment, Gpu, Node
from gpuyard.model.snapshot import Snapshot
from tests.support.fleets import crowded, snapshots
from tests.support.invariants import restless, violations
from tests.support.laws import law, tell

STRICT = st.sampled_from((Alignment.SINGLE, Alignment.RESTRICTED))


def insisting(snapshot: Snapshot, policy: Alignment, parts: int) -> Snapshot:
    """The same, with NUMA nodes of so many GPUs each."""
    return replace(snapshot, nodes=tuple(_insisting(node, policy, parts) for node in snapshot.nodes))


def _insisting(node: Node, policy: Alignment, parts: int) -> Node:
    return replace(node, alignment=policy, gpus=tuple(replace(gpu, numa=gpu.index // parts) for gpu in node.gpus))


@law(snapshots(), STRICT, st.integers(1, 4), share=0.2)
def test_no_plan_breaks_a_promise_where_kubelets_insist_on_numa_nodes(given: Snapshot, policy: Alignment, parts: int):
    snapshot = insisting(given, policy, parts)
    tell(snapshot)
    assert violations(snapshot, outlook(snapshot)) == []


@law(crowded(), STRICT, st.integers(2, 4), share=0.2)
def test_room_is_made_where_kubelets_would_give_it_and_then_all_is_quiet(
    given: Snapshot, policy: Alignment, parts: int
):
    snapshot = insisting(given, policy, parts)
    tell(snapshot)
    plan = outlook(snapshot)
    assert violations(snapshot, plan) == []
    assert restless(snapshot, plan, outlook) == []


@law(st.lists(st.integers(0, 3), min_size=2, max_size=8), st.data(), STRICT)
def test_as_many_tasks_find_a_place_as_are_counted_and_each_where_it_may_lie(
    numa: list[int], data: st.DataObject, policy: Alignment
):
    gpus = tuple(Gpu(index, numa=part) for index, part in enumerate(numa))
    aligned = alignment.aligned_of(Node("n", gpus=gpus, alignment=policy))
    free = data.draw(st.integers(0, 2 ** len(numa) - 1))
    suspect = data.draw(st.integers(0, 2 ** len(numa) - 1)) & free
    count = data.draw(st.integers(1, len(numa)))
    if aligned is None:
        assert len(set(numa)) == 1
        return
    placed = 0
    left = free
    while taken := alignment.choice(aligned, left, suspect & left, count):
        mask = sum(1 << gpu for gpu in taken)
        assert len(taken) == count
        assert mask & left == mask
        used = {numa[gpu] for gpu in taken}
        assert len(used) <= alignment.fewest(aligned, count)
        assert policy is Alignment.RESTRICTED or len(used) == 1
        left &= ~mask
        placed += 1
    assert placed == alignment.room(aligned, free, suspect, count)


def test_a_machine_with_very_many_numa_nodes_is_answered_at_once():
    gpus = tuple(Gpu(index, numa=index) for index in range(60))
    aligned = alignment.aligned_of(Node("n", gpus=gpus, alignment=Alignment.RESTRICTED))
    assert aligned is not None
    assert alignment.room(aligned, 2**60 - 1, 0, 30) == 2
