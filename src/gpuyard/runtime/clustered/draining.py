"""`yard drain --kube`: whom it would hit, and the node closed by the caller's own rights.

Called by the command line. The scheduler itself changes no node: it reads that one is cordoned and to be emptied, and
moves whoever may be disturbed.
"""

from __future__ import annotations

import asyncio
from typing import Self

import msgspec

from gpuyard.kube.client import ApiRefused, KubeClient
from gpuyard.kube.credentials import KubeAccess
from gpuyard.model.errors import Conflict, Refused
from gpuyard.model.node import Closure, Node, Place
from gpuyard.model.outside.ports import Clock
from gpuyard.model.snapshot import Snapshot
from gpuyard.runtime.service import Document
from gpuyard.runtime.serving import draining
from gpuyard.worlds.kubernetes import nodes
from gpuyard.worlds.kubernetes.asking.marks import DRAIN


class ClusterNodes:
    """The nodes of one cluster, as `yard drain` and `yard undrain` speak of them; the same words as a client's."""

    def __init__(self, access: KubeAccess, clock: Clock, moment: Snapshot, user: str) -> None:
        self._access = access
        self._clock = clock
        self._moment = moment
        self._user = user

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is kept open."""

    def nodes(self) -> list[Document]:
        """Those that there are."""
        return [{"name": node.name} for node in self._moment.nodes]

    def drain(
        self, node: str, gpu: int | None, reason: str = "", force: bool = False, dry_run: bool = False
    ) -> Document:
        """Who moves, stops and stays; closed by the caller's own rights unless it was only asked."""
        self._one(node, gpu)
        place = Place(node)
        closure = draining.closure({"reason": reason, "force": force}, self._user)
        closed, foreseen = draining.foresee(self._moment, place, closure)
        held = sum(len(each.gpus) for job in self._moment.jobs for each in job.placements if each.node == node)
        if not dry_run:
            asyncio.run(_close(self._access, self._clock, node, closure))
        return draining.answer(place, closed, foreseen, held, applied=not dry_run)

    def undrain(self, node: str, gpu: int | None) -> Document:
        """Open again, whoever closed it."""
        if self._one(node, gpu).closed is None:
            raise Conflict(f"{node} is open already")
        asyncio.run(_close(self._access, self._clock, node, None))
        return {"place": node, "message": f"{node} is open again"}

    def _one(self, name: str, gpu: int | None) -> Node:
        if gpu is not None:
            raise Refused(f"of a cluster only whole nodes can be drained: leave out the :{gpu}")
        found = next((node for node in self._moment.nodes if node.name == name), None)
        if found is None:
            there = ", ".join(sorted(node.name for node in self._moment.nodes)[:8])
            raise Refused(f"there is no node {name} with GPUs; there is {there or 'none at all'}")
        return found


async def _close(access: KubeAccess, clock: Clock, name: str, closure: Closure | None) -> None:
    note = None if closure is None else nodes.drain_mark(closure)
    body = {"metadata": {"annotations": {DRAIN: note}}, "spec": {"unschedulable": closure is not None}}
    client = await KubeClient(access, clock).open()
    try:
        reply = await client.patch(f"/api/v1/nodes/{name}", msgspec.json.encode(body))
    finally:
        await client.close()
    if not reply.ok:
        raise ApiRefused(f"changing the node {name}", reply)
