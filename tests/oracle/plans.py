"""A plan as printed, read from its document; and the moment it leads to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import NamedTuple

from tests.oracle.shapes import Document, Moment, Spot, State, read, spot_of

Planner = Callable[[Document], Document]
"""From a snapshot document to the document of `yard plan -o json`."""

UNASKED = ("Stale", "Deadlock")
"""Reasons of evictions that make room for nobody (rules 22 and 23)."""


class Verdict(NamedTuple):
    """One thing that is wrong with a plan."""

    kind: str
    job: str
    sentence: str


class Evict(NamedTuple):
    """Who goes, for whom; no spots: whole."""

    job: str
    spots: tuple[Spot, ...]
    claimant: str
    code: str


class Move(NamedTuple):
    """Who changes places, for whom."""

    job: str
    source: tuple[Spot, ...]
    target: tuple[Spot, ...]
    claimant: str
    after: tuple[str, ...]


class Start(NamedTuple):
    """Who starts or grows, once whom it waits for is gone."""

    job: str
    spots: tuple[Spot, ...]
    after: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """The printed actions and the end state they promise."""

    actions: tuple[Evict | Move | Start, ...]
    end: State
    waiting: tuple[str, ...]
    reserves: tuple[Document, ...]
    shares: dict[str, float]
    deadlocks: tuple[Document, ...]

    @property
    def evicts(self) -> list[Evict]:
        """Evictions only."""
        return [a for a in self.actions if isinstance(a, Evict)]

    @property
    def moves(self) -> list[Move]:
        """Moves only."""
        return [a for a in self.actions if isinstance(a, Move)]

    @property
    def starts(self) -> dict[str, Start]:
        """Starts by job."""
        return {a.job: a for a in self.actions if isinstance(a, Start)}


def read_plan(document: Document) -> Plan:
    """The plan of its document."""
    actions: list[Evict | Move | Start] = []
    for entry in document["actions"]:
        after = tuple(entry.get("after", ()))
        if entry["action"] == "start":
            actions.append(Start(entry["job"], _spots(entry["placements"]), after))
        elif entry["action"] == "move":
            actions.append(Move(entry["job"], _spots(entry["from"]), _spots(entry["to"]), entry.get("for", ""), after))
        elif entry["action"] == "evict":
            code = entry["reason"]["code"]
            actions.append(Evict(entry["job"], _spots(entry.get("placements", [])), entry.get("for", ""), code))
    return Plan(
        actions=tuple(actions),
        end={
            line["job"]: _spots([p for p in line["placements"] if not p.get("terminating")])
            for line in document["running"]
        },
        waiting=tuple(line["job"] for line in document["waiting"]),
        reserves=tuple(entry for entry in document["actions"] if entry["action"] == "reserve"),
        shares={line["name"]: line["fair_share"] for line in document["queues"]},
        deadlocks=tuple(document.get("deadlocks", [])),
    )


def _spots(entries: list[Document]) -> tuple[Spot, ...]:
    return tuple(spot_of(entry) for entry in entries)


def places(spots: tuple[Spot, ...]) -> Counter[tuple[str, str, tuple[int, ...], tuple[str, ...]]]:
    """Where tasks run, whatever their numbers."""
    return Counter((s.group, s.node, tuple(sorted(s.gpus)), tuple(sorted(s.mig))) for s in spots)


def changed(moment: Moment, plan: Plan, job: str) -> bool:
    """Whether the plan does anything to the job."""
    return places(moment.state.get(job, ())) != places(plan.end.get(job, ()))


def after(moment: Moment, plan: Plan) -> Document:
    """The snapshot after the plan: effects instant, the clock standing still, tasks numbered anew in their order."""
    document = deepcopy(moment.document)
    for entry in document.get("jobs", []):
        name = entry["name"]
        live = sorted(plan.end.get(name, ()), key=lambda s: (s.group, s.task, s))
        going = [p for p in entry.pop("placements", []) if p.get("terminating")]
        stays = places(tuple(live)) & places(moment.state.get(name, ()))
        job = moment.jobs[name]
        if not stays:
            entry.pop("started", None)
            entry.pop("stale_since", None)
            entry.setdefault("submitted", _told(job.submitted))
            if live:
                entry["started"] = document["now"]
        if moment.complete(job, tuple(live)):
            entry.pop("stale_since", None)
        if live or going:
            entry["placements"] = [_written(spot) for spot in live] + going
    kept = {entry["job"]: _reservation(entry) for entry in document.get("reservations", [])}
    kept.update({entry["job"]: _reservation(entry) for entry in plan.reserves})
    running = {name for name, spots in plan.end.items() if spots and moment.complete(moment.jobs[name], spots)}
    document["reservations"] = [kept[name] for name in sorted(kept) if name not in running]
    return document


def end_moment(moment: Moment, plan: Plan) -> Moment:
    """The moment after the plan."""
    return read(after(moment, plan))


def _reservation(entry: Document) -> Document:
    return {key: entry[key] for key in ("job", "placements", "until") if key in entry}


def _written(spot: Spot) -> Document:
    written: Document = {"node": spot.node, "gpus": list(spot.gpus)}
    if spot.group != "main":
        written["group"] = spot.group
    if spot.mig:
        written["mig"] = list(spot.mig)
    return written


def _told(time: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
