"""A drain as people ask for it and are told of it: plain documents. Called by the embedded yard."""

from __future__ import annotations

from typing import Any

from gpuyard.brain.foresee import Drainage
from gpuyard.model.actions import Evict, Move
from gpuyard.model.answers.bill import Toll
from gpuyard.model.errors import Refused
from gpuyard.model.node import Closure, Place
from gpuyard.model.outside import text
from gpuyard.model.resources import as_gpus
from gpuyard.model.snapshot import Snapshot

Document = dict[str, Any]

REASON_MAX = 200


def place_of(document: Document) -> Place:
    """What is spoken of: `node`, and `gpu` where it is only that."""
    return Place(str(document.get("node")), document.get("gpu"))


def closure(document: Document, user: str) -> Closure:
    """How it is to be closed, from `reason` and `force`."""
    given = str(document.get("reason") or "")
    reason = " ".join(given.split())
    if told := text.wrong_prose(given) or text.wrong_line(reason, REASON_MAX):
        raise Refused(f"the reason {told}")
    return Closure(reason, user, drains=True, force=bool(document.get("force")))


def answer(place: Place, moment: Snapshot, drainage: Drainage, held: int, applied: bool) -> Document:
    """Who moves, who stops, who stays, who is on the way out already, and what it costs; `held` GPUs are not free."""
    tolls = {toll.job: toll for toll in drainage.bill.tolls}
    moves = [
        _cost(action.job, tolls) | {"to": sorted({place.node for place in action.target})}
        for action in drainage.actions
        if isinstance(action, Move)
    ]
    stops = [
        _cost(action.job, tolls) | ({"tasks": len(action.placements)} if action.placements else {})
        for action in drainage.actions
        if isinstance(action, Evict)
    ]
    stays = [{"job": job, "message": told} for job, told in sorted(drainage.stays.items())]
    told = {str(each["job"]) for each in (*moves, *stops, *stays)}
    leaving = [{"job": job, "message": "is stopping already"} for job in _there(place, moment) if job not in told]
    counts = (len(moves), len(stops), len(stays), len(leaving))
    return {
        "place": str(place), "applied": applied, "moves": moves, "stops": stops, "stays": stays, "leaving": leaving,
        "held_gpus": held, "lost_gpu_seconds": round(drainage.bill.lost_gpu_s, 3),
        "message": _sentence(place, moment, counts, held),
    }  # fmt: skip


def _there(place: Place, moment: Snapshot) -> list[str]:
    """Everybody who holds something there, whatever becomes of them."""
    return sorted(
        job.name
        for job in moment.jobs
        if any(p.node == place.node and (place.gpu is None or place.gpu in p.gpus) for p in job.placements)
    )


def _cost(job: str, tolls: dict[str, Toll]) -> Document:
    toll = tolls[job]
    return {"job": job, "gpus": as_gpus(toll.gpus), "lost_gpu_seconds": round(toll.lost_gpu_s, 3)}


def _sentence(place: Place, moment: Snapshot, counts: tuple[int, int, int, int], held: int) -> str:
    node = next(node for node in moment.nodes if node.name == place.node)
    gpus = len(node.gpus) if place.gpu is None else 1
    what = f"{place} ({gpus} GPU{'' if gpus == 1 else 's'})"
    if not any(counts):
        rest = f"is not empty: of {held} it is not proven yet that their last holders are gone" if held else "is empty"
        return f"{what} {rest}; nothing new goes there"
    words = (
        ("moves", "move"), ("stops and waits again", "stop and wait again"), ("stays", "stay"),
        ("is stopping already", "are stopping already"),
    )  # fmt: skip
    told = [f"{n} {one if n == 1 else many}" for n, (one, many) in zip(counts, words, strict=True) if n]
    return f"{what}: {', '.join(told)}"
