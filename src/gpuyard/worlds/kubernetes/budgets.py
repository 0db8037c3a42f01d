"""PodDisruptionBudgets in the model's words. Pure: API objects and gangs in, budgets out.

`budgets_of(found, gathered)` gives a budget for each PodDisruptionBudget that covers anybody. How many may go now is as
its controller says; where that is stale, or where two meet on one pod (the API server then evicts neither), none may.
A budget that covers some pods of a group covers the group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from gpuyard.kube.objects import BudgetObject, LabelSelector, Requirement
from gpuyard.model.node import Budget
from gpuyard.worlds.kubernetes.gangs import Gathered
from gpuyard.worlds.kubernetes.gathering.members import Chair

Covered = tuple[str, Chair]
"""A job's name, and one of its pods."""


def budgets_of(found: Iterable[BudgetObject], gathered: Iterable[Gathered]) -> tuple[Budget, ...]:
    """In order of their names."""
    chairs = [(gang.name, chair) for gang in gathered if gang.job is not None for chair in gang.chairs]
    covered = [(budget, [each for each in chairs if _covers(budget, each[1])]) for budget in found]
    times = Counter(chair.pod.metadata.uid for _, members in covered for _, chair in members)
    made = [_budget(budget, members, times) for budget, members in covered if members]
    return tuple(sorted(made, key=lambda budget: budget.name))


def _budget(budget: BudgetObject, members: Sequence[Covered], times: Counter[str]) -> Budget:
    stale = budget.status.observed_generation < budget.metadata.generation
    meet = any(times[chair.pod.metadata.uid] > 1 for _, chair in members)
    return Budget(
        name=budget.metadata.key,
        jobs=tuple(sorted({job for job, _ in members})),
        allowed=0 if stale or meet else max(0, budget.status.disruptions_allowed),
        covers=tuple(sorted({(job, chair.group) for job, chair in members})),
    )


def _covers(budget: BudgetObject, chair: Chair) -> bool:
    metadata = chair.pod.metadata
    return metadata.namespace == budget.metadata.namespace and selects(budget.spec.selector, metadata.labels or {})


def selects(selector: LabelSelector | None, labels: dict[str, str]) -> bool:
    """As the API means it: an empty selector selects everybody, none at all nobody."""
    if selector is None:
        return False
    alike = all(labels.get(key) == value for key, value in (selector.match_labels or {}).items())
    return alike and all(_holds(each, labels) for each in selector.match_expressions or ())


def _holds(asked: Requirement, labels: dict[str, str]) -> bool:
    value, values = labels.get(asked.key), asked.values or ()
    match asked.operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    return False
