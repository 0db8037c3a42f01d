"""A moment in which some jobs go by other names, for those who may not know of them. Called by the embedded yard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpuyard.model.snapshot import Snapshot


def renamed(moment: Snapshot, names: Mapping[str, str]) -> Snapshot:
    """The same moment under those names; nothing else about it changes, so the brain decides the same."""
    return replace(
        moment,
        jobs=tuple(
            replace(job, name=names[job.name], user="", run=None) if job.name in names else job for job in moment.jobs
        ),
        reservations=tuple(replace(each, job=names.get(each.job, each.job)) for each in moment.reservations),
        budgets=tuple(
            replace(budget, jobs=tuple(names.get(job, job) for job in budget.jobs)) for budget in moment.budgets
        ),
        memory={key: _memory(value, names) for key, value in moment.memory.items()},
    )


def _memory(value: Any, names: Mapping[str, str]) -> Any:
    """What is remembered by job goes by the new names too."""
    return {names.get(key, key): each for key, each in value.items()} if isinstance(value, dict) else value
