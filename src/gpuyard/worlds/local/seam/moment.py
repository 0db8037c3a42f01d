"""The local world as one moment: what the brain is to see of it (`open_moment`), and the whole of it (`whole_moment`).

Called by `world` under the desk's lock. Nothing here changes anything.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import replace

from gpuyard.model.job import Job, Placement
from gpuyard.model.node import Budget
from gpuyard.model.snapshot import Reservation, Snapshot
from gpuyard.worlds.local.attempts.desk import Desk
from gpuyard.worlds.local.attempts.lifecycle import Lifecycle
from gpuyard.worlds.local.state.records import Entry


def bare_moment(desk: Desk, fleet: Snapshot) -> Snapshot:
    """The fleet as it stands, without jobs."""
    nodes = tuple(desk.nodes[name] for name in sorted(desk.nodes))
    return replace(fleet, now=desk.now(), nodes=nodes, jobs=(), reservations=())


def open_moment(desk: Desk, fleet: Snapshot) -> Snapshot:
    """With every job that is not behind a gate; two may have one GPU, the one going and the other promised it."""
    shown = tuple(entry.job() for entry in desk.book.active() if entry.shown)
    return replace(bare_moment(desk, fleet), jobs=shown)


def whole_moment(desk: Desk, fleet: Snapshot, life: Lifecycle) -> Snapshot:
    """With every job, as a file can say it; one whose places are promised has a reservation there."""
    jobs, reservations = [], []
    for entry in desk.book.active():
        job, promised = _as_told(entry, life)
        jobs.append(job)
        if promised:
            reservations.append(Reservation(job.name, promised))
    budgets = _about(fleet.budgets, {job.name for job in jobs})
    moment = bare_moment(desk, fleet)
    return replace(moment, jobs=tuple(jobs), reservations=tuple(reservations), budgets=budgets)


def _about(budgets: Iterable[Budget], jobs: Container[str]) -> tuple[Budget, ...]:
    """The budgets over jobs that are there; a fleet's may speak of jobs to come."""
    found = (replace(budget, jobs=tuple(job for job in budget.jobs if job in jobs)) for budget in budgets)
    return tuple(budget for budget in found if budget.jobs)


def _as_told(entry: Entry, life: Lifecycle) -> tuple[Job, tuple[Placement, ...]]:
    """A job for a snapshot, and what it is promised: behind a gate it is held; what it is to have and somebody else
    still holds it does not have yet, because no file can say that two jobs have one GPU."""
    job = entry.job()
    attempt = entry.attempt
    if attempt is None:
        return (job if entry.shown else replace(job, on_hold=True)), ()
    if entry.following is not None:
        kept = tuple(place for place in job.placements if place.terminating)
        return replace(job, placements=kept), tuple(place for place in job.placements if not place.terminating)
    if life.could_launch(entry):
        return job, ()
    if attempt.state == "promised":
        return replace(job, placements=(), started=None), job.placements
    late = {entry.told_place(attempt, task).uid for task in life.unbegun(entry, attempt)}
    return replace(job, placements=tuple(place for place in job.placements if place.uid not in late)), ()
