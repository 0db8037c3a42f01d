"""A plan becomes deeds: attempts begun, moved, stopped, ended, places closed; as far as the world still is as seen.

Called by `world` under the desk's lock. What a deed leads to comes back as events.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpuyard.model.actions import Action, Cordon, Drain, Evict, Move, Start, Terminate, Warn
from gpuyard.model.job import Placement
from gpuyard.model.node import Closure, Place
from gpuyard.model.reasons import Code
from gpuyard.worlds.local.attempts.lifecycle import Lifecycle
from gpuyard.worlds.local.seam import stopping_words
from gpuyard.worlds.local.seam.closures import Closures
from gpuyard.worlds.local.state.records import Attempt, Task


class Deeds:
    """One for each kind of action."""

    def __init__(self, life: Lifecycle, closures: Closures) -> None:
        self.desk = life.desk
        self.gates = life.gates
        self.life = life
        self.closures = closures

    def carry_out(self, actions: Iterable[Action]) -> None:
        """Do these; what they lead to comes back as events."""
        with self.desk.change():
            for action in actions:
                match action:
                    case Evict():
                        self._evict(action)
                    case Move():
                        self._move(action)
                    case Start():
                        self._start(action)
                    case Terminate(job=name):
                        self._terminate(name)
                    case Warn(job=name, reason=reason):
                        self._warn(name, str(reason))
                    case Cordon(node=name, gpu=gpu) | Drain(node=name, gpu=gpu):
                        closure = Closure(str(action.reason), "the scheduler", drains=isinstance(action, Drain))
                        self.closures.set(Place(name, gpu), closure)
                    case _:
                        pass
            self._launch_promised()

    def _start(self, action: Start) -> None:
        entry = self.desk.book.find(action.job)
        if entry is None or not entry.shown or not self._all_here(action.placements):
            return
        if entry.attempt is None:
            if not self.gates.keep_out(entry, len(action.placements)):
                self.life.begin(entry, action.placements)
        elif entry.attempt.state == "stopping":
            if entry.following is None and entry.attempt.why in ("preempted", "requeued", "drained"):
                self.life.follow(entry, action.placements)
        elif not entry.attempt.why and not self.gates.crowd.hindrance(entry, len(action.placements)):
            self.life.grow(entry, action.placements)

    def _all_here(self, places: Iterable[Placement]) -> bool:
        return all(place.node in self.desk.nodes for place in places)

    def _evict(self, action: Evict) -> None:
        entry = self.desk.book.find(action.job)
        if entry is None or entry.attempt is None or entry.attempt.why:
            return
        entry.reason = action.reason
        tasks = _standing(entry.attempt, action.placements)
        told = stopping_words.of(self.desk, entry, entry.attempt, action)
        if not action.placements or len(tasks) == len(entry.attempt.live()):
            self.life.stop(entry, "drained" if action.reason.code is Code.DRAINED else "preempted", told)
        elif tasks:
            self.life.shrink(entry, tasks, told)

    def _move(self, action: Move) -> None:
        """The whole gang is started anew: ranks that know each other by number cannot be moved one by one."""
        entry = self.desk.book.find(action.job)
        if entry is None or entry.attempt is None or entry.attempt.why or not self._all_here(action.target):
            return
        leaving = {task.serial for task in _standing(entry.attempt, action.source)}
        staying = [task.placement for task in entry.attempt.live() if task.serial not in leaving]
        told = stopping_words.of(self.desk, entry, entry.attempt, action)
        self.life.follow(entry, [*staying, *action.target], told)

    def _terminate(self, name: str) -> None:
        entry = self.desk.book.find(name)
        if entry is not None and entry.attempt is not None and not entry.attempt.why:
            self.life.stop(entry, "timeout")

    def _warn(self, name: str, told: str) -> None:
        entry = self.desk.book.find(name)
        if entry is not None and entry.attempt is not None and not entry.attempt.why:
            self.life.warn(entry, told)

    def _launch_promised(self) -> None:
        for entry in self.desk.book.active():
            if entry.attempt is not None and entry.attempt.state in ("promised", "starting", "running"):
                self.life.launch(entry)


def _standing(attempt: Attempt, places: Iterable[Placement]) -> list[Task]:
    wanted = {(place.group, place.task, place.node) for place in places}
    return [t for t in attempt.live() if (t.placement.group, t.placement.task, t.placement.node) in wanted]
