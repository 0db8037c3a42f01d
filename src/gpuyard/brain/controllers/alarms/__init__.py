"""What an operator should hear of without asking: waits, broken promises, knots, closed nodes, scattered GPUs.

Last of all, `decide` lets the watches look at the moment as the plan leaves it. Each says what is wrong now; here it is
told what is new and what is over. Nothing is planned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from gpuyard.brain.controllers import Controller
from gpuyard.brain.controllers.alarms import knots, promises, scatter, waits
from gpuyard.brain.controllers.alarms.remembering import AlarmsKept
from gpuyard.brain.engine.explaining.explain import Explainer
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.brain.engine.placing import gang
from gpuyard.model.alerts import Alert, in_order
from gpuyard.model.reasons import Explanation

__all__ = ["Alarms", "AlarmsKept", "look"]

MOST_EXPLAINED = 2
"""Kinds of jobs looked into in one plan: looking into one tries much. The others follow in the next plans."""


class Alarms(Controller[AlarmsKept]):
    """Raises each alert once, and clears it when it is over."""

    part = AlarmsKept
    timed = True

    def act(self, draft: Draft, part: AlarmsKept) -> AlarmsKept:
        """What stands now, in the draft and to be remembered."""
        inquiry = waits.Inquiry(_explainer(draft), MOST_EXPLAINED, waits.SOON_S)
        return look(draft, part, inquiry, draft.policy.alerts.fragmentation_after)


def look(draft: Draft, part: AlarmsKept, inquiry: waits.Inquiry, scattered_for: float) -> AlarmsKept:
    """Let every watch look; `inquiry` finds out why a job waits, for so many kinds of jobs, and GPUs are to have been
    `scattered_for` so long."""
    overdue, told, found = waits.watch(draft, part, inquiry)
    below, asking = promises.below_quota(draft, part.asking)
    broken, promised = promises.broken(draft, part.promised)
    scattered, part = scatter.watch(draft, part, scattered_for)
    watched = (overdue, below, broken, scattered, *_seldom(draft))
    alerts = {alert.key: alert for seen_now in watched for alert in seen_now}
    for key, before in part.alerts.items():
        if key in alerts and alerts[key].since != before.since:
            alerts[key] = replace(alerts[key], since=before.since)
    draft.said.alerts = in_order(alerts.values())
    return part.holding(alerts=alerts, told=told, found=found, asking=asking, promised=promised)


def _seldom(draft: Draft) -> tuple[Iterable[Alert], ...]:
    """What there is nothing to say of in most plans."""
    if not (draft.evictions or draft.said.deadlocks or draft.fleet.any_odd):
        return ()
    return promises.protected(draft), knots.deadlocks(draft), knots.closures(draft)


def _explainer(draft: Draft) -> Callable[[JobRow], Explanation]:
    """Made when it is first needed: most plans explain nothing."""
    made: Explainer | None = None

    def explain(row: JobRow) -> Explanation:
        nonlocal made
        if made is None:
            started = [draft.fleet.jobs[name] for name in sorted(draft.before) if draft.fleet.jobs[name].alive()]
            made = Explainer(draft, started, lambda each: gang.could_ever_fit(draft, each))
        return made.brief(row)

    return explain
