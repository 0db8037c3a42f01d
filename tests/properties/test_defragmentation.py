"""Laws of timed defragmentation (rule 15), on random moments: everybody still runs whole, nothing gets worse."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, target
from hypothesis import strategies as st

from gpuyard.brain import foresee
from gpuyard.brain.engine.defrag import defragmentation
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.model.actions import Running
from gpuyard.model.answers.defrag import DefragPlan
from gpuyard.model.answers.outlook import Outlook
from gpuyard.model.job import Job, JobClass, Placement, TaskGroup, one_group
from gpuyard.model.node import Budget, Gpu, Node
from gpuyard.model.queue import DEFAULT, Allowance, Queue
from gpuyard.model.resources import UNLIMITED, WHOLE, Request
from gpuyard.model.snapshot import Snapshot
from gpuyard.model.topology import NVLINK, TopologyAsk
from tests.support.fleets import NOW, snapshots
from tests.support.invariants import CHECKS, applied, everybody_below_the_minimum_is_listed
from tests.support.tasks import complete, key

JUDGES = [check for check in CHECKS if check is not everybody_below_the_minimum_is_listed]
"""Waiting jobs are no part of the proposal."""

FOR_NOBODY = "was disturbed for nobody"
"""A broken promise in a plan; here it is the point."""


TWISTS: tuple[dict[str, Any], ...] = ({}, {}, {}, {"preemptible": False}, {"min_runtime": 7200.0}, {"warm_up": 60.0})


@st.composite
def untidy(draw: st.DrawFn) -> Snapshot:
    """Equal nodes in two racks with gaps between jobs of many sizes, most of which may be moved."""
    width = draw(st.sampled_from((8, 4)))
    count = draw(st.integers(2, 6))
    islands = draw(st.sampled_from((1, 2)))
    gpus = tuple(Gpu(index, index * islands // width) for index in range(width))
    nodes = tuple(Node(f"n{n}", "h100", gpus=gpus, domains=(("rack", f"r{n % 2}"),)) for n in range(count))
    jobs = tuple(job for node in nodes for job in _tenants(draw, node.name, width))
    budgets = (Budget("some", tuple(job.name for job in jobs[:4]), max_unavailable=1),) if jobs else ()
    return Snapshot(
        NOW, ("rack",), nodes=nodes, queues=(Queue(DEFAULT, quota=Allowance(UNLIMITED)),), jobs=jobs,
        budgets=budgets if draw(st.booleans()) else (),
    )  # fmt: skip


def _tenants(draw: st.DrawFn, node: str, width: int) -> list[Job]:
    found, at = [], 0
    while at < width:
        size, gap = draw(st.sampled_from((1, 2, 1, 4, 3, width))), draw(st.integers(0, 3))
        size = min(size, width - at)
        group = TaskGroup(request=Request(gpus=size))
        twist = draw(st.sampled_from(TWISTS))
        near = TopologyAsk(required=draw(st.sampled_from(("", "", NVLINK if size <= width // 2 else ""))))
        place = Placement(node, tuple(range(at, at + size)))
        name = f"{node}-{at}"
        found.append(Job(name, one_group(group, near), submitted=NOW, started=NOW - 3600, placements=(place,), **twist))
        at += size + gap
    # a job that reaches across islands may not ask for one
    return [job if _in_one_island(job, width) else replace(job, gang=one_group(job.task_groups()[0])) for job in found]


def _in_one_island(job: Job, width: int) -> bool:
    return len({gpu * 2 // width for gpu in job.placements[0].gpus}) == 1


MOMENTS = st.one_of(untidy(), untidy(), snapshots(most_nodes=6, most_jobs=12))


def at_rest(snapshot: Snapshot) -> Snapshot:
    """The moment after its own plan, so that what is proposed is defragmentation alone; any gain pays."""
    policy = replace(snapshot.policy, defrag_pays=0.0)
    return replace(applied(snapshot, foresee.outlook(snapshot)), policy=policy)


def end_of(snapshot: Snapshot, plan: DefragPlan) -> Outlook:
    """The moves as an outlook, so that the judges of plans can judge them."""
    places = {job.name: list(job.placements) for job in snapshot.jobs}
    for move in plan.moves:
        here = places[move.job]
        for left in move.source:
            here.remove(next(place for place in here if key(place) == key(left) and not place.terminating))
        here += move.target
    running = tuple(Running(name, tuple(held)) for name, held in places.items() if held)
    return Outlook(plan.moves, (), running, (), plan.after, (), 1)


@given(MOMENTS)
def test_after_the_moves_everybody_runs_whole_and_nothing_is_worse(snapshot: Snapshot):
    before = at_rest(snapshot)
    plan = foresee.defrag(before)
    target(float(len(plan.moves)))
    if plan.after_changes:
        return  # a plan that has not settled is judged elsewhere
    outlook = end_of(before, plan)
    assert [sentence for check in JUDGES for sentence in check(before, outlook) if FOR_NOBODY not in sentence] == []
    assert plan.after.stranded <= plan.before.stranded + WHOLE // 1000
    assert plan.usable_after >= plan.usable_before
    assert len({move.job for move in plan.moves}) == len(plan.moves) <= before.policy.defrag_budget
    assert all(room.after >= 0 for room in plan.budgets if room.after < room.before)
    running = {line.job: line.placements for line in outlook.running}
    for job in before.jobs:
        if complete(job, job.placements):
            assert complete(job, running.get(job.name, ())), f"{job.name} no longer runs whole"


@given(MOMENTS)
def test_only_those_are_moved_who_may_be_and_the_proposal_holds_at_once(snapshot: Snapshot):
    before = at_rest(snapshot)
    plan = foresee.defrag(before)
    jobs = {job.name: job for job in before.jobs}
    for move in plan.moves:
        job = jobs[move.job]
        assert before.policy.preemptible(job)
        assert job.job_class is not JobClass.INFERENCE
        assert not job.foreign
    if not plan.after_changes:
        assert defragmentation.valid(plan, Fleet(before)) is None
    turned = replace(before, nodes=before.nodes[::-1], jobs=before.jobs[::-1], queues=before.queues[::-1])
    assert foresee.defrag(turned) == plan
