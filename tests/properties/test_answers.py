"""Laws of what is said: a "never" that is true, suggestions that work, and fair shares that add up."""

from __future__ import annotations

from dataclasses import replace

from gpuyard.brain.foresee import outlook
from gpuyard.model.answers.outlook import Outlook
from gpuyard.model.job import Job
from gpuyard.model.node import Health, Node
from gpuyard.model.reasons import Outcome, Suggestion
from gpuyard.model.snapshot import Snapshot
from tests.support.advice import followed
from tests.support.fleets import crowded, on_leaves, snapshots
from tests.support.invariants import applied
from tests.support.laws import law, tell


@law(snapshots())
def test_never_means_that_the_empty_fleet_cannot_run_it_either(snapshot: Snapshot):
    tell(snapshot)
    jobs = {job.name: job for job in snapshot.jobs}
    never = [told.job for told in outlook(snapshot).waiting if told.reason.outcome is Outcome.NEVER]
    assert [name for name in never if runs(outlook(alone(snapshot, jobs[name])), name)] == []


@law(snapshots())
def test_nobody_is_told_of_a_bug(snapshot: Snapshot):
    tell(snapshot)
    assert [told for told in outlook(snapshot).waiting if told.reason.outcome is Outcome.BUG] == []


def alone(snapshot: Snapshot, job: Job) -> Snapshot:
    """The job by itself on the same nodes, open and well."""
    whole = on_leaves(job.gang, lambda group: replace(group, failed=0))
    fresh = replace(job, gang=whole, placements=(), started=None, on_hold=False, foreign=False)
    return replace(snapshot, nodes=tuple(map(restored, snapshot.nodes)), jobs=(fresh,), budgets=(), reservations=())


def restored(node: Node) -> Node:
    """The node as it would be open and well."""
    return replace(node, closed=None, gpus=tuple(replace(gpu, health=Health.HEALTHY) for gpu in node.gpus))


def runs(found: Outlook, name: str) -> bool:
    """Whether the job runs after the plan and does not wait for anything."""
    return all(told.job != name for told in found.waiting)


@law(snapshots())
def test_a_suggestion_that_is_followed_lets_the_job_start(snapshot: Snapshot):
    tell(snapshot)
    check_suggestions(snapshot)


@law(crowded())
def test_a_suggestion_that_is_followed_lets_the_job_start_in_a_crowd_too(snapshot: Snapshot):
    tell(snapshot)
    check_suggestions(snapshot)


def check_suggestions(snapshot: Snapshot) -> None:
    """Follow each suggestion by itself where the plan ended."""
    found = outlook(snapshot)
    end = applied(snapshot, found)
    told = [(told.job, suggestion) for told in found.waiting for suggestion in told.suggestions]
    assert [f"{job}: {advice.change}" for job, advice in told if not helps(end, job, advice)] == []


def helps(end: Snapshot, name: str, advice: Suggestion) -> bool:
    """Whether the job starts once the advice is followed; whoever else waits is held back meanwhile."""
    changed = followed(end, name, advice)
    return changed is None or runs(outlook(changed), name)
