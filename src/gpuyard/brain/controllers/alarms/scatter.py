"""Free GPUs that the demand of a day could not use where they lie, seen before somebody waits for them (rule 25).

Measured every few minutes at most. What was found is remembered, for `/metrics` and the page, with one figure an hour
for a day.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gpuyard.brain.controllers.alarms.remembering import AlarmsKept
from gpuyard.brain.engine.defrag import asked
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.model.alerts import Alert, AlertKind, Severity
from gpuyard.model.answers.outlook import PoolStranding
from gpuyard.model.outside.phrases import agreeing, counted
from gpuyard.model.resources import WHOLE, as_gpus

EVERY_S = 300.0
"""Every shape is tried on every node, so not at every event."""
SOON_S = 10.0
HOURS = 24


def watch(draft: Draft, part: AlarmsKept, after: float) -> tuple[list[Alert], AlarmsKept]:
    """Pools that have been scattered for so long, and what was measured."""
    last = part.looked_at
    if last is None:  # not in the first plan of all, which has enough to do
        draft.look_again(draft.now + SOON_S)
        return [], replace(part, looked_at=draft.now + SOON_S - EVERY_S)
    if last <= draft.now < last + EVERY_S and not (part.scattered and _due(draft, part, last, after)):
        if draft.fleet.fresh:
            draft.look_again(last + EVERY_S)
        kept = [alert for alert in part.alerts.values() if alert.kind is AlertKind.FRAGMENTATION]
        _foresee(draft, part.scattered, after)
        return kept, part
    pools = asked.measure(draft, asked.day_s_demand(draft))
    scattered = {p.name: min(part.scattered.get(p.name, draft.now), draft.now) for p in pools if is_scattered(draft, p)}
    _foresee(draft, scattered, after)
    alerts = [
        _alert(pool, scattered[pool.name] + after)
        for pool in pools
        if pool.name in scattered and draft.now >= scattered[pool.name] + after
    ]
    trend = {pool.name: _longer(part.trend.get(pool.name, ()), draft.now, pool.share) for pool in pools}
    return alerts, replace(part, looked_at=draft.now, scattered=scattered, stranding=asked.written(pools), trend=trend)


def is_scattered(draft: Draft, pool: PoolStranding) -> bool:
    """Whether so much of what is free is of no use that somebody should look."""
    policy = draft.policy.alerts
    return bool(policy.fragmentation) and (
        pool.share >= policy.fragmentation and pool.stranded >= policy.fragmentation_gpus * WHOLE
    )


def _due(draft: Draft, part: AlarmsKept, last: float, after: float) -> bool:
    """Whether a pool has become an alert since, if it is still scattered."""
    return any(last < since + after <= draft.now for since in part.scattered.values())


def _foresee(draft: Draft, scattered: Mapping[str, float], after: float) -> None:
    for since in scattered.values():
        draft.look_again(since + after)


def _longer(trend: tuple[tuple[float, float], ...], now: float, share: float) -> tuple[tuple[float, float], ...]:
    """One more figure, if the last one is an hour old."""
    if trend and now < trend[-1][0] + 3600.0:
        return trend
    return (*trend, (now, round(share, 4)))[-HOURS:]


def _alert(pool: PoolStranding, since: float) -> Alert:
    worst = max(pool.shapes, key=lambda shape: (shape.asked * shape.stranded, shape.shape))
    stranded = round(pool.stranded / WHOLE, 1)
    return Alert(
        f"fragmentation/{pool.name}",
        AlertKind.FRAGMENTATION,
        Severity.WARNING,
        since,
        f"{stranded:g} of {counted(as_gpus(pool.free), 'free GPU')} of pool {pool.name} "
        f"{agreeing(stranded, 'is of no use where it lies', 'are of no use where they lie')} to what was asked for in "
        f"the last day; the shape {worst.shape} fits {counted(worst.fits, 'time')}",
        "yard defrag --dry-run",
        round(stranded),
        (("pool", pool.name),),
    )
