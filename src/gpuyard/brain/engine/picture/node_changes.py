"""Nodes that come, go, or turn out to be other machines than they were: gathered, so that the columns are laid anew
once for a whole storm of them. A node in another condition (health, closure, labels, load) needs none of this.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpuyard.model.node import Node


class NodeChanges:
    """What has happened to nodes since the columns were last laid."""

    def __init__(self) -> None:
        self._seen: dict[str, Node] = {}
        self.lost: set[str] = set()
        """Gone at some time, and every task on them; those that came back are new."""

    def __bool__(self) -> bool:
        return bool(self._seen or self.lost)

    def see(self, node: Node) -> None:
        """It is there, like this."""
        self._seen[node.name] = node

    def lose(self, name: str) -> None:
        """It is gone."""
        self._seen.pop(name, None)
        self.lost.add(name)

    def of(self, name: str) -> Node | None:
        """The node as it was last seen; None if nothing was seen of it, or it is gone."""
        return self._seen.get(name)

    def among(self, nodes: Iterable[Node]) -> list[Node]:
        """All nodes that there are now."""
        there = {node.name: node for node in nodes if node.name not in self.lost}
        return list((there | self._seen).values())


def is_same_machine(one: Node, other: Node) -> bool:
    """Whether it has the same model, place and devices, so that what runs there and all columns keep their meaning."""
    return (
        (one.model, one.architecture, one.gpu_memory) == (other.model, other.architecture, other.gpu_memory)
        and (one.domains, one.alignment) == (other.domains, other.alignment)
        and (one.gpus is other.gpus or _devices(one) == _devices(other))
    )


def _devices(node: Node) -> list[tuple[object, ...]]:
    return [(gpu.index, gpu.island, gpu.switch, gpu.numa, gpu.slices) for gpu in node.gpus]


def is_described_alike(one: Node, other: Node) -> bool:
    """Whether no checker could tell them apart."""
    return (one.labels, one.taints, one.workloads, one.closed is None, one.cpu, one.memory, one.extras) == (
        other.labels, other.taints, other.workloads, other.closed is None, other.cpu, other.memory, other.extras,
    )  # fmt: skip
