"""Drains as people ask for them and are told of them: who would move, stop or stay, before and when it is done."""

from __future__ import annotations

from dataclasses import replace

from gpuyard.brain.foresee import Drainage, drainage
from gpuyard.model.actions import Evict, Move
from gpuyard.model.answers.bill import Toll
from gpuyard.model.errors import Conflict, Denied, Refused
from gpuyard.model.node import Closure, Node, Place
from gpuyard.model.outside import text
from gpuyard.model.outside.phrases import counted
from gpuyard.model.resources import as_gpus
from gpuyard.model.snapshot import Snapshot
from gpuyard.runtime.service import Caller, Document
from gpuyard.runtime.serving.port import JobRecord, KnownJobs, Site

REASON_MAX = 200


class Draining:
    """Closes and opens nodes and GPUs, for administrators."""

    def __init__(self, jobs: KnownJobs[JobRecord], site: Site) -> None:
        self._jobs = jobs
        self._site = site

    def drain(self, caller: Caller, document: Document, dry_run: bool) -> Document:
        """See `Service.drain`."""
        if not caller.admin:
            raise Denied(f"{caller.user} may not drain nodes; an administrator can")
        place, closed = place_of(document), closure(document, caller.user)
        with self._jobs.still():
            self._site.closure(place)  # so that there is such a place
            moment, foreseen = foresee(self._site.moment(), place, closed)
            held = sum(node == place.node and place.gpu in (None, gpu) for node, gpu in self._site.holders())
            if not dry_run:
                self._site.close(place, closed, caller.user)
        return answer(place, moment, foreseen, held, applied=not dry_run)

    def undrain(self, caller: Caller, document: Document) -> Document:
        """See `Service.undrain`."""
        if not caller.admin:
            raise Denied(f"{caller.user} may not open nodes; an administrator can")
        place = place_of(document)
        with self._jobs.still():
            if self._site.closure(place) is None:
                raise Conflict(f"{place} is open already")
            self._site.close(place, None, caller.user)
        return {"place": str(place), "message": f"{place} is open again"}


def foresee(moment: Snapshot, place: Place, closed: Closure) -> tuple[Snapshot, Drainage]:
    """What draining this would do in that moment, and the moment in which it is closed."""
    nodes = tuple(_closed(node, place, closed) if node.name == place.node else node for node in moment.nodes)
    moment = replace(moment, nodes=nodes)
    return moment, drainage(moment)


def _closed(node: Node, place: Place, closed: Closure) -> Node:
    if place.gpu is None:
        return replace(node, closed=closed)
    gpus = tuple(replace(gpu, closed=closed) if gpu.index == place.gpu else gpu for gpu in node.gpus)
    return replace(node, gpus=gpus)


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


def answer(place: Place, moment: Snapshot, foreseen: Drainage, held: int, applied: bool) -> Document:
    """Who moves, who stops, who stays, who is on the way out already, and what it costs; `held` GPUs are not free."""
    tolls = {toll.job: toll for toll in foreseen.bill.tolls}
    moves = [
        _cost(action.job, tolls) | {"to": sorted({place.node for place in action.target})}
        for action in foreseen.actions
        if isinstance(action, Move)
    ]
    stops = [
        _cost(action.job, tolls) | ({"tasks": len(action.placements)} if action.placements else {})
        for action in foreseen.actions
        if isinstance(action, Evict)
    ]
    stays = [{"job": job, "message": told} for job, told in sorted(foreseen.stays.items())]
    told = {str(each["job"]) for each in (*moves, *stops, *stays)}
    leaving = [{"job": job, "message": "is stopping already"} for job in _there(place, moment) if job not in told]
    counts = (len(moves), len(stops), len(stays), len(leaving))
    return {
        "place": str(place), "applied": applied, "moves": moves, "stops": stops, "stays": stays, "leaving": leaving,
        "held_gpus": held, "lost_gpu_seconds": round(foreseen.bill.lost_gpu_s, 3),
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
    what = f"{place} ({counted(gpus, 'GPU')})"
    if not any(counts):
        rest = f"is not empty: of {held} it is not proven yet that their last holders are gone" if held else "is empty"
        return f"{what} {rest}; nothing new goes there"
    words = (
        ("moves", "move"), ("stops and waits again", "stop and wait again"), ("stays", "stay"),
        ("is stopping already", "are stopping already"),
    )  # fmt: skip
    told = [f"{n} {one if n == 1 else many}" for n, (one, many) in zip(counts, words, strict=True) if n]
    return f"{what}: {', '.join(told)}"
