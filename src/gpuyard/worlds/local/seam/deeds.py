"""A plan becomes deeds: attempts begun, moved, stopped, ended, places closed; as far as the world still is as seen.

Called by `world` under the desk's lock. What a deed leads to comes back as events.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpuyard.model.actions import Action, Cordon, Drain, Evict, Move, Start, Terminate, Warn
from gpuyard.model.events import ActionFailed
from gpuyard.model.job import Placement
from gpuyard.model.node import Closure, Place
from gpuyard.model.reasons import Code, Reason
from gpuyard.worlds.local.attempts.lifecycle import Lifecycle
from gpuyard.worlds.local.seam import stopping_words
from gpuyard.worlds.local.seam.closures import Closures
from gpuyard.worlds.local.state.records import Attempt, Entry, Task

Disturbing = Evict | Move | Terminate | Warn


class Deeds:
    """One for each kind of action."""

    def __init__(self, life: Lifecycle, closures: Closures) -> None:
        self.desk = life.desk
        self.gates = life.gates
        self.life = life
        self.closures = closures
        self._too_large: set[int] = set()
        """Jobs that were told to grow and cannot for now, and the brain knows."""

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
                    case Terminate():
                        self._terminate(action)
                    case Warn():
                        self._warn(action)
                    case Cordon(node=name, gpu=gpu) | Drain(node=name, gpu=gpu):
                        closure = Closure(str(action.reason), "the scheduler", drains=isinstance(action, Drain))
                        self.closures.set(Place(name, gpu), closure)
                    case _:
                        pass
            self._launch_promised()

    def _start(self, action: Start) -> None:
        entry = self.desk.book.find(action.job)
        if entry is None or not entry.shown:
            return  # the brain was told that it is gone
        if lost := self._not_here(action.placements):
            self._fail(action, entry, f"{lost} is not there any more")
        elif entry.attempt is None:
            if not self.gates.keep_out(entry, len(action.placements)):
                self.life.begin(entry, action.placements)
        elif entry.attempt.state == "stopping":
            if entry.following is None and entry.attempt.why in ("preempted", "requeued", "drained"):
                self.life.follow(entry, action.placements)
        elif not entry.attempt.why:
            self._grow(action, entry)

    def _grow(self, action: Start, entry: Entry) -> None:
        """The brain asks for the same again at its next look, so that it cannot be is told once, until it can."""
        hindrance = self.gates.crowd.hindrance(entry, len(action.placements))
        if hindrance is None:
            self._too_large.discard(entry.id)
            self.life.grow(entry, action.placements)
        elif entry.id not in self._too_large:
            self._too_large = {entry.id, *self._too_large.intersection(each.id for each in self.desk.book.active())}
            self._fail(action, entry, hindrance.message)

    def _not_here(self, places: Iterable[Placement]) -> str:
        """A node of these that this yard does not have; "" if it has them all."""
        return next((place.node for place in places if place.node not in self.desk.nodes), "")

    def _meant(self, action: Disturbing) -> tuple[Entry, Attempt] | None:
        """The attempt that is spoken of, unless it is on its way out; one that followed it is another."""
        entry = self.desk.book.find(action.job)
        if entry is None or entry.attempt is None or entry.attempt.why:
            return None
        attempt = entry.attempt
        if not action.uids or not {entry.uid(attempt, task) for task in attempt.live()}.isdisjoint(action.uids):
            return entry, attempt
        told = f"{action.uids[0]} is not there any more; {entry.name} has been started anew since"
        self._fail(action, entry, told)
        return None

    def _fail(self, action: Action, entry: Entry, told: str) -> None:
        """It is told to the brain, which decides anew, and to whoever follows the yard."""
        if entry.shown:
            reason = Reason(Code.WORLD_CHANGED, where=entry.key, message=told)
            self.desk.events.append(ActionFailed(entry.key, (), reason))
        self.desk.say("undone", entry, message=f"{type(action).__name__.lower()} was not carried out: {told}")

    def _evict(self, action: Evict) -> None:
        if (meant := self._meant(action)) is None:
            return
        entry, attempt = meant
        entry.reason = action.reason
        tasks = _standing(entry, attempt, action.placements)
        told = stopping_words.of(self.desk, entry, attempt, action)
        stopping_words.tell_who_gains(self.desk, entry, attempt, action)
        if not action.placements or len(tasks) == len(attempt.live()):
            self.life.stop(entry, "drained" if action.reason.code is Code.DRAINED else "preempted", told)
        elif tasks:
            self.life.shrink(entry, tasks, told)

    def _move(self, action: Move) -> None:
        """The whole gang is started anew: ranks that know each other by number cannot be moved one by one."""
        if (meant := self._meant(action)) is None:
            return
        entry, attempt = meant
        if lost := self._not_here(action.target):
            self._fail(action, entry, f"{lost} is not there any more")
            return
        leaving = {task.serial for task in _standing(entry, attempt, action.source)}
        staying = [task.placement for task in attempt.live() if task.serial not in leaving]
        told = stopping_words.of(self.desk, entry, attempt, action)
        stopping_words.tell_who_gains(self.desk, entry, attempt, action)
        self.life.follow(entry, [*staying, *action.target], told)

    def _terminate(self, action: Terminate) -> None:
        if (meant := self._meant(action)) is not None:
            self.life.stop(meant[0], "timeout")

    def _warn(self, action: Warn) -> None:
        if (meant := self._meant(action)) is not None:
            self.life.warn(meant[0], str(action.reason))

    def _launch_promised(self) -> None:
        for entry in self.desk.book.active():
            if entry.attempt is not None and entry.attempt.state in ("promised", "starting", "running"):
                self.life.launch(entry)


def _standing(entry: Entry, attempt: Attempt, places: Iterable[Placement]) -> list[Task]:
    """The tasks that are spoken of: by their uid, or by group, number and node where none is given."""
    wanted = {place.identity for place in places}
    return [
        task
        for task in attempt.live()
        if not wanted.isdisjoint((entry.uid(attempt, task), (*task.number, task.placement.node)))
    ]
