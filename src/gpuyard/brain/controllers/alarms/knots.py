"""Deadlocks that the plan found (rule 23), and nodes that take nothing new."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from gpuyard.brain.controllers.alarms.phrasing import some
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.model.actions import Deadlock
from gpuyard.model.alerts import Alert, AlertKind, Severity
from gpuyard.model.node import Closure, Place
from gpuyard.model.policy import DeadlockRule


def deadlocks(draft: Draft) -> Iterator[Alert]:
    """One for each circle: good to know where the plan breaks it, critical where nobody does."""
    for deadlock in draft.said.deadlocks:
        broken = bool(deadlock.victim) and draft.policy.deadlock is DeadlockRule.BREAK
        yield Alert(
            f"deadlock/{'+'.join(sorted(deadlock.jobs))}",
            AlertKind.DEADLOCK,
            Severity.INFO if broken else Severity.CRITICAL,
            draft.now,
            f"deadlock: {deadlock.message}; {_way_out(deadlock, broken)}",
            f"yard why {min(deadlock.jobs)}",
            len(deadlock.jobs),
            jobs=tuple(sorted(deadlock.jobs)),
        )


def _way_out(deadlock: Deadlock, broken: bool) -> str:
    if broken:
        return f"{deadlock.victim} gives way"
    return deadlock.way_out


def closures(draft: Draft) -> Iterator[Alert]:
    """One for each reason for which nodes or GPUs are closed, however many those are."""
    causes: dict[tuple[str, str, bool], list[tuple[Place, Closure]]] = {}
    for node in draft.fleet.odd_nodes():
        gpus = [(Place(node.name, gpu.index), gpu.closed) for gpu in node.gpus]
        for place, closure in [(Place(node.name), node.closed), *gpus]:
            if closure is not None:
                causes.setdefault((closure.by, closure.reason, closure.drains), []).append((place, closure))
    for cause, found in sorted(causes.items()):
        names = [str(place) for place, _ in found]
        are = "takes" if len(names) == 1 else "take"
        yield Alert(
            f"closed/{zlib.crc32(repr(cause).encode()):08x}",
            AlertKind.CLOSED,
            Severity.INFO,
            min((closure.since for _, closure in found if closure.since), default=draft.now),
            f"{some(names)} {are} nothing new: {found[0][1]}",
            f"yard undrain {names[0]}",
            len(names),
        )
