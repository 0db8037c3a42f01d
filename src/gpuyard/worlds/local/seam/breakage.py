"""What breaks in the local world: GPUs that fall sick, nodes that are gone and come back; at a moment, or by a test."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from gpuyard.model.errors import NotFound
from gpuyard.model.events import JobSeen, NodeLost, NodeSeen
from gpuyard.model.node import Health, Node
from gpuyard.worlds.local.attempts.lifecycle import Lifecycle
from gpuyard.worlds.local.ports import TaskKey
from gpuyard.worlds.local.seam.closures import Closures
from gpuyard.worlds.local.state.records import Attempt, Entry, survives


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that breaks at a moment: a GPU's health changes, or a whole node is gone (and comes back)."""

    at: float
    """By the monotonic clock."""
    node: str
    gpu: int | None = None
    health: Health = Health.SICK
    lasts: float | None = None
    """How long; None is for good."""
    kills: bool = False
    """Whether what runs on the GPU dies of it."""


class Breakage:
    """Faults that are to come, and nodes that are away."""

    def __init__(self, life: Lifecycle, closures: Closures, faults: Iterable[Fault]) -> None:
        self.desk = life.desk
        self.life = life
        self.closures = closures
        self._lost: dict[str, Node] = {}
        self._faults = sorted(faults, key=lambda fault: fault.at)

    def next_due(self) -> float | None:
        """When the next fault comes, by the monotonic clock."""
        return self._faults[0].at if self._faults else None

    def strike(self, now: float) -> None:
        """Let come what is due."""
        while self._faults and self._faults[0].at <= now:
            self.break_down(self._faults.pop(0))

    def break_down(self, fault: Fault) -> None:
        """A fault from the fleet file or a test."""
        if fault.gpu is None:
            self.lose_node(fault.node)
            if fault.lasts is not None:
                back = replace(fault, at=fault.at + fault.lasts, lasts=None, gpu=-1)
                self._faults = sorted([*self._faults, back], key=lambda each: each.at)
        elif fault.gpu < 0:
            self.return_node(fault.node)
        else:
            self.set_health(fault.node, fault.gpu, fault.health, fault.kills)
            if fault.lasts is not None:
                well = replace(fault, at=fault.at + fault.lasts, lasts=None, health=Health.HEALTHY, kills=False)
                self._faults = sorted([*self._faults, well], key=lambda each: each.at)

    def set_health(self, name: str, gpu: int, health: Health, kills: bool = False, why: str = "") -> None:
        """One device changed its state; what runs on it may die of that."""
        told = f"GPU {gpu} of {name} is {health.value}{f' ({why})' if why else ''}"
        with self.desk.change():
            self.closures.see_health(name, gpu, health)
            self.desk.say("health", node=name, gpu=gpu, health=health.value, message=told)
            self.life.drop_unsound_promises()
            if kills:
                holders = sorted(self.desk.holdings.holders(name, gpu))
                self.desk.then(lambda: self.desk.launcher.kill(*holders))
        self.desk.launcher.wake()

    def lose_node(self, name: str) -> None:
        """A node is gone with everything on it; its gangs end and wait again."""
        with self.desk.change():
            self._lost[name] = self._node(name)
            struck = [entry for entry in self.desk.book.active() if _stands_on(entry, name)]
            for entry in struck:
                assert entry.attempt is not None
                self._kill_on(entry, entry.attempt, name)
            del self.desk.nodes[name]
            self.desk.events.append(NodeLost(name))
            self.desk.say("health", node=name, message=f"node {name} is gone")
            self.desk.events += [JobSeen(entry.job()) for entry in struck if entry.shown]
        self.desk.launcher.wake()

    def _kill_on(self, entry: Entry, attempt: Attempt, name: str) -> None:
        there = [task.serial for task in attempt.live() if task.placement.node == name]
        if not attempt.why and not survives(entry, attempt, without=there):
            self.life.stop(entry, "node")
        elif late := [task for task in self.life.unbegun(entry, attempt) if task.serial in there]:
            self.life.shrink(entry, late)
        keys = [TaskKey(entry.id, attempt.number, serial) for serial in there]
        self.desk.then(lambda: self.desk.launcher.kill(*keys))

    def return_node(self, name: str) -> None:
        """A lost node is back."""
        with self.desk.change():
            node = self._lost.pop(name, None)
            if node is not None:
                self.desk.nodes[name] = node
                self.desk.events.append(NodeSeen(node))
                self.desk.say("health", node=name, message=f"node {name} is back")
        self.desk.launcher.wake()

    def _node(self, name: str) -> Node:
        try:
            return self.desk.nodes[name]
        except KeyError:
            raise NotFound(f"there is no node {name}") from None


def _stands_on(entry: Entry, node: str) -> bool:
    return entry.attempt is not None and any(task.placement.node == node for task in entry.attempt.live())
