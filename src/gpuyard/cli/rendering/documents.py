"""Plans, reasons and fragmentation as plain dicts: what `-o json` and `-o yaml` print.

Called by the commands. Keys are part of the contract (additive changes only); nothing here draws or decides.
GPU amounts leave the model's grains here and become GPUs; what is None is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from gpuyard.files.explanations import explanation_document, reason_document
from gpuyard.model import alerts
from gpuyard.model.actions import (
    Action,
    Cordon,
    Deadlock,
    Drain,
    Evict,
    Move,
    QueueLine,
    Reserve,
    Scale,
    Start,
    Terminate,
    Warn,
)
from gpuyard.model.alerts import Alert
from gpuyard.model.answers.bill import Bill, Toll
from gpuyard.model.answers.defrag import DefragPlan, Offer, ShapeGain
from gpuyard.model.answers.outlook import Fragmentation, Outlook, PoolFragmentation, PoolStranding, ShapeFit
from gpuyard.model.job import Placement
from gpuyard.model.resources import as_gpus

Document = dict[str, Any]

__all__ = [
    "Document", "action_document", "alert_document", "bill_document", "defrag_document", "explanation_document",
    "fragmentation_document", "moment", "placement_documents", "plan_document", "queue_line_document",
    "reason_document",
]  # fmt: skip


def plan_document(outlook: Outlook, timing: Document) -> Document:
    """All of `yard plan -o json`."""
    return {
        "actions": [action_document(action) for action in outlook.actions],
        "waiting": [explanation_document(waiting) for waiting in outlook.waiting],
        "running": [
            {"job": running.job, "placements": placement_documents(running.placements)} for running in outlook.running
        ],
        "queues": [queue_line_document(line) for line in outlook.queues],
        "fragmentation": fragmentation_document(outlook.fragmentation),
        "deadlocks": [_deadlock_document(deadlock) for deadlock in outlook.deadlocks],
        **({"alerts": [alert_document(alert) for alert in outlook.alerts]} if outlook.alerts else {}),
        **({"bill": bill_document(outlook.bill)} if outlook.bill.tolls else {}),
        "timing": timing,
    }


def alert_document(alert: Alert) -> Document:
    """Something that somebody should look at."""
    return alerts.alert_document(alert) | {"since": moment(alert.since)}


def bill_document(bill: Bill) -> Document:
    """What moves and evictions cost: GPUs whose work is interrupted, GPU-seconds lost, job by job."""
    return {
        "gpus": as_gpus(bill.gpus),
        "lost_gpu_seconds": round(bill.lost_gpu_s, 3),
        "jobs": [_toll_document(toll) for toll in bill.tolls],
    }


def _toll_document(toll: Toll) -> Document:
    lost = round(toll.lost_gpu_s, 3)
    return {"job": toll.job, "moved": toll.moved, "gpus": as_gpus(toll.gpus), "lost_gpu_seconds": lost}


def action_document(action: Action) -> Document:
    """One action with its reason. `for` names the job that an eviction or a move makes room for."""
    document: Document = {"action": type(action).__name__.lower()}
    match action:
        case Start():
            document |= {"job": action.job, "placements": placement_documents(action.placements)}
            document |= _given(after=list(action.after))
        case Evict():
            document |= {"job": action.job} | _given(
                {"for": action.beneficiary}, placements=placement_documents(action.placements), uids=list(action.uids)
            )
        case Move():
            document |= {"job": action.job, "from": placement_documents(action.source)}
            document["to"] = placement_documents(action.target)
            document |= _given({"for": action.beneficiary}, after=list(action.after))
        case Terminate() | Warn():
            document |= {"job": action.job} | _given(uids=list(action.uids))
        case Reserve():
            document |= {"job": action.job, "placements": placement_documents(action.placements)}
            document |= _given(until=moment(action.until))
        case Cordon() | Drain():
            document["node"] = action.node
            document |= {} if action.gpu is None else {"gpu": action.gpu}
        case Scale():
            document |= {"pool": action.pool, "nodes": action.nodes}
    return document | {"reason": reason_document(action.reason)}


def placement_documents(placements: Iterable[Placement]) -> list[Document]:
    """Where each task runs."""
    return [_placement_document(placement) for placement in placements]


def _placement_document(placement: Placement) -> Document:
    document: Document = {
        "group": placement.group,
        "task": placement.task,
        "node": placement.node,
        "gpus": list(placement.gpus),
    }
    return document | _given(mig=list(placement.mig), terminating=placement.terminating, uid=placement.uid)


def fragmentation_document(fragmentation: Fragmentation) -> Document:
    """Rule 25's numbers, for the fleet and per pool."""
    return {
        "ratio": round(fragmentation.ratio, 4),
        "stranded_gpus": as_gpus(fragmentation.stranded),
        "free_gpus": as_gpus(fragmentation.free),
        "largest_gang": dict(fragmentation.largest_gang),
        "shapes": [_shape_document(shape) for shape in fragmentation.shapes],
        "pools": [_pool_document(pool) for pool in fragmentation.pools],
        **({"day": [_day_document(pool) for pool in fragmentation.day]} if fragmentation.day else {}),
    }


def _day_document(pool: PoolStranding) -> Document:
    """By the demand of the last day: what of a pool's free GPUs each shape could not use."""
    return {
        "pool": pool.name,
        "free_gpus": as_gpus(pool.free),
        "stranded_gpus": as_gpus(pool.stranded),
        "stranded_share": round(pool.share, 4),
        "shapes": [
            {"shape": each.shape, "asked_gpus": as_gpus(each.asked), "fits": each.fits,
             "stranded_gpus": as_gpus(each.stranded)}
            for each in pool.shapes
        ],
        "trend": [{"at": moment(at), "stranded_share": share} for at, share in pool.trend],
    }  # fmt: skip


def defrag_document(plan: DefragPlan) -> Document:
    """All of `yard defrag -o json`: the moves, their bill, what they gain, and the best that was not worth it."""
    return {
        "moves": [action_document(move) for move in plan.moves],
        "bill": bill_document(plan.proposal.bill),
        "gain": {
            "gpu_seconds": round(plan.proposal.gain_gpu_s, 3),
            "usable_gpus": _before_after(as_gpus(plan.usable_before), as_gpus(plan.usable_after)),
            "stranded_gpus": _before_after(as_gpus(plan.before.stranded), as_gpus(plan.after.stranded)),
            "largest_gang": _before_after(dict(plan.before.largest_gang), dict(plan.after.largest_gang)),
            "shapes": [_shape_gain_document(shape) for shape in plan.shapes],
        },
        "pays": {"ratio": _ratio(plan.proposal), "asked": plan.pays_at},
        "budgets": [{"name": room.name, "before": room.before, "after": room.after} for room in plan.budgets],
        "declined": None if plan.declined is None else _offer_document(plan.declined),
        "reason": reason_document(plan.reason),
        "after_changes": plan.after_changes,
    }


def _offer_document(offer: Offer) -> Document:
    return {
        "moves": [action_document(move) for move in offer.moves],
        "bill": bill_document(offer.bill),
        "gain_gpu_seconds": round(offer.gain_gpu_s, 3),
        "ratio": _ratio(offer),
    }


def _ratio(offer: Offer) -> float | None:
    """Gain per cost; none where nothing is lost, for JSON knows no infinity."""
    return round(offer.ratio, 4) if math.isfinite(offer.ratio) else None


def _before_after(before: Any, after: Any) -> Document:
    return {"before": before, "after": after}


def _shape_gain_document(shape: ShapeGain) -> Document:
    size = {"gpus": as_gpus(shape.gpus), "tasks": shape.tasks} | _given(level=shape.level)
    return size | {"weight": round(shape.weight, 4), "before": shape.before, "after": shape.after}


def queue_line_document(line: QueueLine) -> Document:
    """What a queue is due and holds, in GPUs."""
    share = as_gpus(line.fair_share)
    return {
        "name": line.name,
        "quota": as_gpus(line.quota),
        "limit": as_gpus(line.limit),
        "used": as_gpus(line.used),
        "fair_share": share if isinstance(share, str) else float(share),
        "waiting": line.waiting,
    }


def moment(seconds: float | None) -> str | None:
    """A time as RFC 3339 in UTC; None where there is none."""
    if seconds is None or not math.isfinite(seconds):
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _pool_document(pool: PoolFragmentation) -> Document:
    return {
        "name": pool.name,
        "gpus": as_gpus(pool.gpus),
        "free_gpus": as_gpus(pool.free),
        "stranded_gpus": as_gpus(pool.stranded),
        "largest_gang": dict(pool.largest_gang),
        "shapes": [_shape_document(shape) for shape in pool.shapes],
    }


def _shape_document(shape: ShapeFit) -> Document:
    return {"gpus": shape.gpus, "level": shape.level, "now": shape.now, "packed": shape.packed}


def _deadlock_document(deadlock: Deadlock) -> Document:
    document = {"jobs": list(deadlock.jobs), "message": deadlock.message, "break": deadlock.victim}
    return document | ({"way_out": deadlock.way_out} if deadlock.way_out else {})


def _given(more: Document | None = None, /, **values: Any) -> Document:
    """Those entries that say something."""
    return {key: value for key, value in ({**(more or {}), **values}).items() if value}
