"""What takes nothing new: nodes and single GPUs that somebody has closed, and whether they are to be emptied too.

Kept by `world`, under the desk's lock; written down, because a closed node must not open by itself after a crash. The
brain knows no closed GPU: it sees it as sick, on which nothing new goes either; people are told the true health.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

from gpuyard.model.errors import NotFound
from gpuyard.model.events import GpuHealthChanged, NodeSeen
from gpuyard.model.node import Health, Node
from gpuyard.worlds.local.desk import Desk

FACT = "cordon/"


@dataclass(frozen=True, slots=True)
class Closure:
    """One node or GPU: closed, or (`closed` False) opened against what the fleet file says."""

    node: str
    gpu: int | None = None
    closed: bool = True
    drains: bool = False
    """What runs there is to go."""
    force: bool = False
    """Also those who have a right to stay."""
    reason: str = ""
    by: str = ""
    since: float = 0.0

    @property
    def name(self) -> str:
        """As people write it: `n0`, `n0:3`."""
        return self.node if self.gpu is None else f"{self.node}:{self.gpu}"


class Closures:
    """Everything that is closed, and how well closed GPUs really are."""

    def __init__(self, desk: Desk, nodes: Iterable[Node]) -> None:
        self._desk = desk
        self._standing: dict[tuple[str, int | None], Closure] = {}
        self._health: dict[tuple[str, int], Health] = {}
        desk.nodes = {node.name: node for node in nodes}
        for (document,) in desk.store.rows("SELECT document FROM facts WHERE name LIKE ?", (f"{FACT}%",)):
            closure = Closure(**json.loads(document))
            if closure.node in desk.nodes and (closure.gpu or 0) < max(1, len(desk.nodes[closure.node].gpus)):
                self._lay(closure)

    def set(self, closure: Closure) -> None:
        """Close or open; written down, told to the brain and to people. A second time changes only the words."""
        with self._desk.change() as batch:
            self.check(closure)
            node = self._desk.nodes[closure.node]
            batch.add(
                "INSERT INTO facts(name, document) VALUES (?, ?) "
                "ON CONFLICT(name) DO UPDATE SET document=excluded.document",
                (f"{FACT}{closure.node}#{'' if closure.gpu is None else closure.gpu}", json.dumps(asdict(closure))),
            )
            self._lay(closure)
            after = self._desk.nodes[closure.node]
            if after != node:
                self._tell(closure, after)
            kind = "draining" if closure.drains else "cordoned" if closure.closed else "opened"
            self._desk.say(kind, node=closure.node, gpu=closure.gpu, message=_told(kind, closure))
        self._desk.launcher.wake()

    def check(self, closure: Closure) -> None:
        """Whether there is such a node and GPU."""
        node = self._node(closure.node)
        if closure.gpu is not None and not 0 <= closure.gpu < len(node.gpus):
            raise NotFound(f"{node.name} has no GPU {closure.gpu}; it has {len(node.gpus)}, counted from 0")

    def _tell(self, closure: Closure, node: Node) -> None:
        if closure.gpu is None:
            self._desk.events.append(NodeSeen(node))
        else:
            self._desk.events.append(GpuHealthChanged(node.name, closure.gpu, node.gpus[closure.gpu].health))

    def _lay(self, closure: Closure) -> None:
        node = self._desk.nodes[closure.node]
        if closure.gpu is None:
            self._desk.nodes[node.name] = replace(node, cordoned=closure.closed)
        else:
            key = (node.name, closure.gpu)
            true = self._health.setdefault(key, node.gpus[closure.gpu].health)
            self._put_health(*key, Health.SICK if closure.closed else true)
            if not closure.closed:
                del self._health[key]
        if closure.closed:
            self._standing[closure.node, closure.gpu] = closure
        else:
            self._standing.pop((closure.node, closure.gpu), None)

    def see_health(self, name: str, gpu: int, health: Health) -> None:
        """A device's state changed; a closed one stays as it is for the brain."""
        node = self._node(name)
        if (name, gpu) in self._health:
            self._health[name, gpu] = health
        elif node.gpus[gpu].health is not health:
            self._put_health(name, gpu, health)
            self._desk.events.append(GpuHealthChanged(name, gpu, health))

    def _put_health(self, name: str, gpu: int, health: Health) -> None:
        node = self._desk.nodes[name]
        gpus = tuple(replace(each, health=health) if each.index == gpu else each for each in node.gpus)
        self._desk.nodes[name] = replace(node, gpus=gpus)

    def _node(self, name: str) -> Node:
        if name not in self._desk.nodes:
            raise NotFound(f"there is no node {name}")
        return self._desk.nodes[name]

    # --- questions -------------------------------------------------------------------------------

    def of(self, node: str, gpu: int | None = None) -> Closure | None:
        """What closes this node or GPU."""
        return self._standing.get((node, gpu))

    def draining(self) -> list[Closure]:
        """Those that are to be emptied."""
        return [closure for _, closure in sorted(self._standing.items(), key=str) if closure.drains]

    def true_health(self, node: str, gpu: int) -> Health | None:
        """How well a closed GPU really is; None for one that is not closed."""
        return self._health.get((node, gpu))


def _told(kind: str, closure: Closure) -> str:
    what = {"draining": "is being drained", "cordoned": "takes nothing new", "opened": "is open again"}[kind]
    by = f" by {closure.by}" if closure.by else ""
    return f"{closure.name} {what}{by}" + (f": {closure.reason}" if closure.reason else "")
