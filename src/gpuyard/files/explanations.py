"""Reasons and explanations as plain documents: what `why` answers, of a file and of a running yard alike.

Called by the command line and by the control plane. Amounts leave the model's grains here and become GPUs, cores or
bytes; what says nothing is left out.
"""

from __future__ import annotations

from typing import Any

from gpuyard.model.reasons import Code, Explanation, Obstacle, Reason, RungCount, Suggestion
from gpuyard.model.resources import UNLIMITED, as_gpus

Document = dict[str, Any]


def reason_document(reason: Reason) -> Document:
    """A reason with its numbers. The outcome is told of a "no" only: an action has no "not now"."""
    return {"code": reason.code.value, "message": str(reason)} | {
        key: value
        for key, value in (
            ("needed", _amount(reason.code, reason.needed)),
            ("free", _amount(reason.code, reason.free)),
            ("largest_fit", _amount(reason.code, reason.largest_fit)),
            ("outcome", reason.outcome.value if reason.code.rung is not None else None),
            ("where", reason.where or None),
        )
        if value is not None
    }


def explanation_document(explanation: Explanation) -> Document:
    """Why a job waits: the dominant reason with what would help, the ladder, and who is in the way."""
    suggestions = [_suggestion_document(suggestion) for suggestion in explanation.suggestions]
    document: Document = {
        "job": explanation.job,
        "reason": reason_document(explanation.reason) | {"suggestions": suggestions},
        "ladder": [_rung_document(rung) for rung in explanation.ladder],
    }
    if explanation.in_the_way:
        document["in_the_way"] = [_obstacle_document(obstacle) for obstacle in explanation.in_the_way]
    if explanation.eta is not None:
        document["eta_seconds"] = [round(seconds) for seconds in explanation.eta]
    return document


def _rung_document(rung: RungCount) -> Document:
    told = {"note": rung.note} if rung.note else {}
    return {"rung": rung.rung.title, "holds": rung.holds, "nodes": rung.nodes} | told


def _suggestion_document(suggestion: Suggestion) -> Document:
    told = {"effect": suggestion.effect} if suggestion.effect else {}
    return {"change": suggestion.change, "kind": suggestion.kind} | told


def _obstacle_document(obstacle: Obstacle) -> Document:
    told = {"budget": obstacle.budget} if obstacle.budget else {}
    return told | {
        "job": obstacle.job,
        "must": obstacle.must,
        "gpus": as_gpus(obstacle.gpus),
        "queue": obstacle.queue,
        "priority": obstacle.priority,
        "preemptible": obstacle.preemptible,
        "lost_seconds": round(obstacle.lost),
    }


def _amount(code: Code, amount: int | None) -> float | int | str | None:
    """A reason's number in the unit people use: cores, bytes, else GPUs."""
    if amount is None or amount >= UNLIMITED:
        return None if amount is None else "unlimited"
    if code in (Code.NOT_ENOUGH_MEMORY, Code.NOT_ENOUGH_EXTRA):
        return amount
    if code is Code.NOT_ENOUGH_CPU:
        return amount / 1000 if amount % 1000 else amount // 1000
    return as_gpus(amount)
