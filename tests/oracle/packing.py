"""Where a lone newcomer is put: rules 10 and 12, only where both leave no doubt.

Judged when the plan does nothing but start one job of one task that packs, on nodes of one model. Room is counted in
GPUs that are not cut into slices, so a task of slices, or without GPUs, is not judged: it may go where many are free.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from tests.oracle.places import Load, options
from tests.oracle.plans import Plan, Verdict
from tests.oracle.shapes import Job, Moment, Spot


def newcomers_pack(moment: Moment, plan: Plan) -> Iterator[Verdict]:
    """The domain with least room that holds it; a fraction joins a shared device before it opens one."""
    if len(plan.actions) != 1 or plan.reserves or moment.reserved or len({n.model for n in moment.nodes.values()}) > 1:
        return
    ((name, start),) = plan.starts.items() or [("", None)]
    if start is None or len(start.spots) != 1 or moment.state.get(name) or not _packs(moment, name):
        return
    job, spot = moment.jobs[name], start.spots[0]
    if sum(group.tasks for group in job.groups) > 1 or spot.mig or not spot.gpus:
        return
    load = Load.of(moment, moment.state)
    others = list(options(load, job, job.group(spot.group), ()))
    for level in ("rack", "node"):
        for other in others:
            mine, theirs = _room(moment, load, level, spot), _room(moment, load, level, other)
            joins = _opens(load, job, spot) and not _opens(load, job, other)
            if level == "rack" and None not in (mine, theirs) and mine > theirs:  # type: ignore[operator]
                yield Verdict(
                    "roomy-domain", name, f"{name} goes to {spot.node}, whose rack has more room than {other.node}'s"
                )
                return
            if joins and (level == "rack" or mine >= theirs) and (mine or 0) >= (theirs or 0):  # type: ignore[operator]
                yield Verdict(
                    "opened",
                    name,
                    f"{name} opens {spot.node}:{spot.gpus[0]}; {other.node}:{other.gpus[0]} is shared already",
                )
                return
        if _domain(moment, level, spot) is None:
            continue
        others = [o for o in others if _domain(moment, level, o) == _domain(moment, level, spot)]


def _packs(moment: Moment, name: str) -> bool:
    entry = next(e for e in moment.document["jobs"] if e["name"] == name)
    return bool(entry.get("class", "training") != "inference")


def _domain(moment: Moment, level: str, spot: Spot) -> tuple[str, str] | None:
    return moment.nodes[spot.node].domain(level)


def _room(moment: Moment, load: Load, level: str, spot: Spot) -> Fraction | None:
    """Free GPUs in the spot's domain; None where it has none."""
    domain = _domain(moment, level, spot)
    if domain is None:
        return None
    nodes = [node for node in moment.nodes.values() if node.domain(level) == domain]
    devices = [d for node in nodes for d in node.devices if not d.sick and d.slices is None]
    return sum((1 - load.used[d.node, d.index] for d in devices), Fraction(0))


def _opens(load: Load, job: Job, spot: Spot) -> bool:
    """Whether a part of a GPU would be the first on its device."""
    group = job.group(spot.group)
    part = bool(group.share or group.gpu_memory)
    return part and not load.used[spot.node, spot.gpus[0]]
