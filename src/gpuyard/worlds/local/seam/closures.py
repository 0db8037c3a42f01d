"""What takes nothing new: nodes and single GPUs that somebody has closed, and whether they are to be emptied too.

Kept by `world`, under the desk's lock; written down, because a closed node must not open by itself after a crash. The
nodes of the desk say themselves how they are closed; what that leads to is the brain's business.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from typing import Any

from gpuyard.model.errors import NotFound
from gpuyard.model.events import GpuHealthChanged, NodeSeen
from gpuyard.model.node import Closure, Gpu, Health, Node, Place
from gpuyard.worlds.local.attempts.desk import Desk
from gpuyard.worlds.local.seam import archive

FACT = "cordon/"


class Closures:
    """Lays what was closed and opened over the nodes as the fleet file has them."""

    def __init__(self, desk: Desk, nodes: Iterable[Node]) -> None:
        self._desk = desk
        self._foreign: dict[Place, Closure] = {}
        """What is not ours to open: somebody else on this machine has it."""
        desk.nodes = {node.name: node for node in nodes}
        for name, document in desk.store.rows("SELECT name, document FROM facts WHERE name LIKE ?", (f"{FACT}%",)):
            try:
                place, closure = _read(json.loads(document))
                if place.node in desk.nodes and (place.gpu or 0) < max(1, len(desk.nodes[place.node].gpus)):
                    self._lay(place, closure)
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                self._forget(name, document, error)

    def _forget(self, name: str, document: str, error: Exception) -> None:
        """One that cannot be read closes nothing, and is told of instead."""
        self._desk.aside.put("closure", name, str(error), document)
        with self._desk.change() as batch:
            batch.add("DELETE FROM facts WHERE name = ?", (name,))

    def set(self, place: Place, closure: Closure | None, by: str = "") -> None:
        """Close or open; written down, told to the brain and to people. A second time changes only the words."""
        with self._desk.change() as batch:
            self.check(place)
            closure = closure and replace(closure, since=self._desk.now())
            archive.keep(batch, f"{FACT}{place.node}/{place.gpu}", _written(place, closure))
            self._lay(place, closure)
            self._desk.events.append(NodeSeen(self._desk.nodes[place.node]))
            kind = "opened" if closure is None else "draining" if closure.drains else "cordoned"
            message = _told(kind, place, closure or Closure(by=by))
            self._desk.say(kind, node=place.node, gpu=place.gpu, message=message)
        self._desk.launcher.wake()

    def check(self, place: Place) -> None:
        """Whether there is such a node and GPU."""
        node = self._node(place.node)
        if place.gpu is not None and not 0 <= place.gpu < len(node.gpus):
            raise NotFound(f"{node.name} has no GPU {place.gpu}; it has {len(node.gpus)}, counted from 0")

    def of(self, place: Place) -> Closure | None:
        """What closes this node or GPU by itself."""
        node = self._node(place.node)
        return node.closed if place.gpu is None else node.gpus[place.gpu].closed

    def draining(self) -> list[tuple[Place, Closure]]:
        """What is to be emptied."""
        nodes = [self._desk.nodes[name] for name in sorted(self._desk.nodes)]
        return [each for node in nodes for each in closures_of(node) if each[1].drains]

    def see_health(self, name: str, gpu: int, health: Health) -> None:
        """A device's state changed."""
        if self._node(name).gpus[gpu].health is not health:
            self._change_gpu(name, gpu, lambda each: replace(each, health=health))
            self._desk.events.append(GpuHealthChanged(name, gpu, health))

    def is_ours(self, place: Place) -> bool:
        """Whether there is such a GPU, and nobody else has it."""
        node = self._desk.nodes.get(place.node)
        return node is not None and (place.gpu or 0) < len(node.gpus) and place not in self._foreign

    def give_away(self, place: Place, why: str) -> None:
        """Somebody else on this machine has a GPU: nothing goes on it, whoever opens it. Not written down."""
        self._foreign[place] = Closure(reason=why, since=self._desk.now())
        self._lay(place, self.of(place))

    def take_back(self, place: Place) -> None:
        """It is ours after all."""
        with self._desk.change():
            foreign = self._foreign.pop(place, None)
            if self.of(place) == foreign:
                self._lay(place, None)
            self._desk.events.append(NodeSeen(self._desk.nodes[place.node]))
            self._desk.say("opened", node=place.node, gpu=place.gpu, message=f"{place} is offered here now")
        self._desk.launcher.wake()

    def _lay(self, place: Place, closure: Closure | None) -> None:
        closure = closure or self._foreign.get(place)
        if place.gpu is None:
            self._desk.nodes[place.node] = replace(self._desk.nodes[place.node], closed=closure)
        else:
            self._change_gpu(place.node, place.gpu, lambda gpu: replace(gpu, closed=closure))

    def _change_gpu(self, name: str, index: int, change: Callable[[Gpu], Gpu]) -> None:
        node = self._desk.nodes[name]
        gpus = tuple(change(gpu) if gpu.index == index else gpu for gpu in node.gpus)
        self._desk.nodes[name] = replace(node, gpus=gpus)

    def _node(self, name: str) -> Node:
        if name not in self._desk.nodes:
            raise NotFound(f"there is no node {name}")
        return self._desk.nodes[name]


def closures_of(node: Node) -> Iterator[tuple[Place, Closure]]:
    """What of a node is closed, itself first."""
    if node.closed is not None:
        yield Place(node.name), node.closed
    yield from ((Place(node.name, gpu.index), gpu.closed) for gpu in node.gpus if gpu.closed is not None)


def _written(place: Place, closure: Closure | None) -> dict[str, Any]:
    return {"node": place.node, "gpu": place.gpu, "closed": closure is not None} | asdict(closure or Closure())


def _read(document: dict[str, Any]) -> tuple[Place, Closure | None]:
    place, closed = Place(document.pop("node"), document.pop("gpu")), document.pop("closed")
    return place, Closure(**document) if closed else None


def _told(kind: str, place: Place, closure: Closure) -> str:
    what = {"draining": "is being drained", "cordoned": "takes nothing new", "opened": "is open again"}[kind]
    by = f" by {closure.by}" if closure.by else ""
    return f"{place} {what}{by}" + (f": {closure.reason}" if closure.reason else "")
