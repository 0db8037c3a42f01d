"""Laws of timed defragmentation (rule 15), on random moments: everybody still runs whole, nothing gets worse."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, target

from gpuyard.brain import foresee
from gpuyard.brain.engine import defragmentation
from gpuyard.brain.engine.fleet import Fleet
from gpuyard.model.actions import Running
from gpuyard.model.defrag import DefragPlan
from gpuyard.model.job import JobClass
from gpuyard.model.outlook import Outlook
from gpuyard.model.resources import WHOLE
from gpuyard.model.snapshot import Snapshot
from tests.support.fleets import snapshots
from tests.support.invariants import CHECKS, applied, everybody_below_the_minimum_is_listed
from tests.support.tasks import complete, key

JUDGES = [check for check in CHECKS if check is not everybody_below_the_minimum_is_listed]
"""Waiting jobs are no part of the proposal."""


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


@given(snapshots(most_nodes=6, most_jobs=12))
def test_after_the_moves_everybody_runs_whole_and_nothing_is_worse(snapshot: Snapshot):
    before = at_rest(snapshot)
    plan = foresee.defrag(before)
    target(float(len(plan.moves)))
    if plan.after_changes:
        return  # a plan that has not settled is judged elsewhere
    outlook = end_of(before, plan)
    assert [sentence for check in JUDGES for sentence in check(before, outlook)] == []
    assert plan.after.stranded <= plan.before.stranded + WHOLE // 1000
    assert plan.usable_after >= plan.usable_before
    assert len({move.job for move in plan.moves}) == len(plan.moves) <= before.policy.defrag_budget
    assert all(room.after >= 0 for room in plan.budgets if room.after < room.before)
    running = {line.job: line.placements for line in outlook.running}
    for job in before.jobs:
        if complete(job, job.placements):
            assert complete(job, running.get(job.name, ())), f"{job.name} no longer runs whole"


@given(snapshots(most_nodes=6, most_jobs=12))
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
