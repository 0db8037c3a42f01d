"""A moment in which jobs go by other names, for those who may not know of them. Called by `viewing`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpuyard.model.job import Job
from gpuyard.model.snapshot import Snapshot

IN_WORDS = "alerts"
"""The part of the memory that tells of jobs in sentences: those cannot be renamed, and decide nothing."""


def renamed(moment: Snapshot, own: Mapping[str, str], hidden: Mapping[str, str]) -> Snapshot:
    """The same moment under those names; of hidden ones, no owner or command either. Nothing else about it changes, so
    the brain decides the same."""
    names = {**own, **hidden}
    return replace(
        moment,
        jobs=tuple(_job(job, names.get(job.name, job.name), job.name in hidden) for job in moment.jobs),
        reservations=tuple(replace(each, job=names.get(each.job, each.job)) for each in moment.reservations),
        budgets=tuple(
            replace(
                budget,
                jobs=tuple(names.get(job, job) for job in budget.jobs),
                covers=tuple((names.get(job, job), group) for job, group in budget.covers),
            )
            for budget in moment.budgets
        ),
        memory={key: _memory(value, names) for key, value in moment.memory.items() if key != IN_WORDS},
    )


def _job(job: Job, name: str, hidden: bool) -> Job:
    return replace(job, name=name, user="", run=None) if hidden else replace(job, name=name)


def _memory(value: Any, names: Mapping[str, str]) -> Any:
    """What is remembered by job goes by the new names too."""
    if not isinstance(value, dict):
        return value
    return {names.get(key, key): _memory(each, names) for key, each in value.items()}
