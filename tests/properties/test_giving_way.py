"""Laws of giving way, on random crowded clusters: whoever is disturbed may be, and somebody is better off for it.

Judged on the next plan of a live yard (one cycle) as well as on the net change up to the fixed point.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from gpuyard.brain.foresee import Foresight, outlook
from gpuyard.model.actions import Evict, Move, Reserve, Start
from gpuyard.model.answers.outlook import Outlook
from gpuyard.model.job import Job
from gpuyard.model.node import Budget
from gpuyard.model.policy import PdbRule
from gpuyard.model.reasons import Code
from gpuyard.model.snapshot import Snapshot
from tests.support.fleets import crowded
from tests.support.invariants import (
    Check,
    applied,
    budgets_are_kept,
    extras_alone,
    shrinking_keeps_the_minimum,
    what_is_reclaimed_was_borrowed,
)
from tests.support.laws import law, tell

pytestmark = pytest.mark.timeout(900)
"""Hundreds of crowds, and where many could give way a plan weighs many sets of them."""

MOST_CYCLES = 6
"""A plan settles within so many cycles: nobody goes back and forth."""

UNFIT_TO_STAY = (Code.STALE, Code.DEADLOCK)
"""Gangs below their minimum may go whatever they are (rules 22 and 23)."""


@law(crowded())
def test_whoever_is_disturbed_may_be_and_somebody_is_better_off_for_it(snapshot: Snapshot):
    """Every law of what a plan disturbs, on the same crowds: planning is what costs, and not looking at a plan."""
    tell(snapshot)
    next_plan, settled = one_cycle(snapshot), outlook(snapshot)
    assert [sentence for check in CHECKS for found in (next_plan, settled) for sentence in check(snapshot, found)] == []
    assert settled.cycles <= MOST_CYCLES


def disturbed_in_vain(snapshot: Snapshot, found: Outlook) -> Iterator[str]:
    """A beneficiary starts, grows or gets a reservation; a stale gang needs none."""
    helped = {action.job for action in found.actions if isinstance(action, Start | Reserve)}
    for action, job in disturbances(snapshot, found):
        if action.reason.code is not Code.STALE and action.beneficiary not in helped:
            yield f"{job.name} is disturbed for {action.beneficiary or 'nobody'}, who does not start"


def disturbed_too_soon(snapshot: Snapshot, found: Outlook) -> Iterator[str]:
    """The minimum is protected, the extra is not (rule 19)."""
    for action, job in disturbances(snapshot, found):
        least = snapshot.policy.min_runtime if job.min_runtime is None else job.min_runtime
        ran = snapshot.now - (snapshot.now if job.started is None else job.started)
        if ran < least and action.reason.code not in UNFIT_TO_STAY and not extras_alone(action, job):
            yield f"{job.name} ran {ran} of its {least} seconds and is disturbed"


def disturbed_against_its_word(snapshot: Snapshot, found: Outlook) -> Iterator[str]:
    """Stale gangs aside, who is not preemptible or not ours is left alone."""
    for action, job in disturbances(snapshot, found):
        firm = not snapshot.policy.preemptible(job) and action.reason.code not in UNFIT_TO_STAY
        if firm or job.foreign:
            yield f"{job.name} is {'foreign' if job.foreign else 'not preemptible'} and is disturbed"


CHECKS: tuple[Check, ...] = (
    disturbed_in_vain,
    disturbed_too_soon,
    disturbed_against_its_word,
    what_is_reclaimed_was_borrowed,
    budgets_are_kept,
    shrinking_keeps_the_minimum,
)


@law(crowded(), share=0.5)
def test_nobody_is_disturbed_whom_a_budget_keeps(snapshot: Snapshot):
    """The budget is put over the very jobs that would be disturbed without one: elsewhere it would seldom bind."""
    tell(snapshot)
    unkept = replace(snapshot, budgets=(), policy=replace(snapshot.policy, pdb=PdbRule.NEVER))
    taken = sorted({job.name for _, job in disturbances(unkept, one_cycle(unkept))})
    if not taken:
        return
    for budget in (Budget("keep", tuple(taken), max_unavailable=0), Budget("keep", tuple(taken), min_available=1)):
        kept = replace(unkept, budgets=(budget,))
        assert [*budgets_are_kept(kept, one_cycle(kept))] == []


@law(crowded(), share=0.5)
def test_a_yard_that_does_what_it_is_told_comes_to_rest(snapshot: Snapshot):
    """Cycle by cycle, each plan carried out before the next is made, and the clock standing still."""
    tell(snapshot)
    for _ in range(MOST_CYCLES):
        found = one_cycle(snapshot)
        if not any(isinstance(action, Start | Evict | Move) for action in found.actions):
            return
        snapshot = applied(snapshot, found)
    tell(snapshot, f"still restless after {MOST_CYCLES} cycles")
    raise AssertionError(one_cycle(snapshot).actions)


@law(crowded(), share=0.2)
def test_nobody_is_evicted_for_ever_as_time_goes_by(snapshot: Snapshot):
    """An hour of plans, one every two minutes, each carried out: evictions are counted, and end (rule 21)."""
    tell(snapshot)
    evicted: Counter[str] = Counter()
    for _ in range(HOUR_OF_PLANS):
        found = one_cycle(snapshot)
        gone = {action.job for action, _ in disturbances(snapshot, found) if taken_whole(action)}
        evicted.update(gone)
        snapshot = later(applied(snapshot, found), gone)
    assert {job: times for job, times in evicted.items() if times > snapshot.policy.protect_after} == {}


HOUR_OF_PLANS = 30


def taken_whole(action: Evict | Move) -> bool:
    """Whether a gang was evicted by a claim, all of it."""
    return isinstance(action, Evict) and not action.placements and action.reason.code not in UNFIT_TO_STAY


def later(snapshot: Snapshot, gone: set[str]) -> Snapshot:
    """Two minutes on, and whoever was evicted remembers it."""
    jobs = tuple(replace(job, evictions=job.evictions + (job.name in gone)) for job in snapshot.jobs)
    return replace(snapshot, now=snapshot.now + 120.0, jobs=jobs)


# --- looking at plans -------------------------------------------------------------------------------------------------


def one_cycle(snapshot: Snapshot) -> Outlook:
    """What a live yard would do next."""
    return Foresight(snapshot, cycles=1).outlook()


def disturbances(snapshot: Snapshot, found: Outlook) -> Iterator[tuple[Evict | Move, Job]]:
    """Every eviction and move, with the job as it was."""
    jobs = {job.name: job for job in snapshot.jobs}
    for action in found.actions:
        if isinstance(action, Evict | Move):
            yield action, jobs[action.job]
