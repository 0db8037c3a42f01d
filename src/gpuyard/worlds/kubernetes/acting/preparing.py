"""Volumes made ready on the nodes that were chosen, before any pod of a gang is bound.

Called by `starting` in the world's loop. A claim that waits for its first consumer is given a volume that is free
there, or its node is written on it for whoever makes volumes; then it is waited for. The pods are assumed to be on
their nodes meanwhile, and nobody else is given what they are to have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from gpuyard.kube.client import ApiUnreachable, KubeClient
from gpuyard.kube.objects import PodObject
from gpuyard.kube.storage import VolumeClaimObject, VolumeObject
from gpuyard.model.outside.ports import Clock
from gpuyard.worlds.kubernetes.asking import volumes
from gpuyard.worlds.kubernetes.asking.selectors import meets
from gpuyard.worlds.kubernetes.asking.volumes import SELECTED_NODE
from gpuyard.worlds.kubernetes.cache import Cache
from gpuyard.worlds.kubernetes.storage import KnownStorage

LIMIT_S = 60.0
"""So long a claim may take to be bound; meanwhile its pod holds GPUs that it does not use."""
POLL_S = 0.1
TRIES = 5
BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"


@dataclass(frozen=True, slots=True)
class Unprepared:
    """Why a gang cannot be bound where it was to be, and on which node that is so; on none where only we ended it."""

    node: str
    why: str


STOPPED = Unprepared("", "its pods are gone, or another scheduler leads by now")


@dataclass(frozen=True, slots=True)
class _Wish:
    """One claim, and the node on which its volume is wanted."""

    key: str
    node: str


class VolumePreparer:
    """Prepares; whoever asks waits for it as long as it takes."""

    def __init__(
        self, client: KubeClient, cache: Cache, storage: KnownStorage, clock: Clock, leads: Callable[[], bool]
    ) -> None:
        self._client = client
        self._cache = cache
        self._storage = storage
        self._clock = clock
        self._leads = leads
        self._given: dict[str, str] = {}
        """Claims by the volume that they were given, until the API server tells it."""

    def wants(self, pod: PodObject) -> bool:
        """Whether something is to be prepared for it."""
        return bool(pod.spec.volumes) and bool(self.unbound(pod))

    def unbound(self, pod: PodObject) -> list[str]:
        """Its claims that are not bound yet, by their keys."""
        found = volumes.unbound_of(pod.spec, pod.metadata, self._storage.picture())
        return sorted(claim.metadata.key for claim in found)

    async def prepare(self, placed: Sequence[tuple[PodObject, str]]) -> Unprepared | None:
        """None once every volume of these pods is bound, each where its pod's node reaches it."""
        wishes = self._wishes(placed)
        try:
            for wish in wishes:
                if why := await self._ask(wish):
                    return Unprepared(wish.node, why) if self._leads() else STOPPED
            return await self._bound(wishes, {pod.metadata.uid for pod, _ in placed})
        finally:
            for name in [name for name, key in self._given.items() if key in {wish.key for wish in wishes}]:
                del self._given[name]

    def _wishes(self, placed: Iterable[tuple[PodObject, str]]) -> list[_Wish]:
        picture = self._storage.picture()
        found = {
            claim.metadata.key: _Wish(claim.metadata.key, node)
            for pod, node in placed
            for claim in volumes.unbound_of(pod.spec, pod.metadata, picture)
        }
        return list(found.values())

    # --- asking --------------------------------------------------------------------------------------------

    async def _ask(self, wish: _Wish) -> str:
        """A volume given to the claim, or the node written on it; why not, if neither can be."""
        told = "no answer"
        for _ in range(TRIES):
            claim, node = self._storage.claims.get(wish.key), self._cache.nodes.get(wish.node)
            if claim is None or node is None or not self._leads():
                return f"the volume claim {wish.key} or the node {wish.node} is gone"
            if volumes.is_bound(claim) or claim.metadata.annotation(SELECTED_NODE) == wish.node:
                return ""
            try:
                told = await self._give_or_select(claim, wish.node)
            except ApiUnreachable as error:
                told = str(error)
            if not told:
                return ""
            await self._clock.sleep(POLL_S)  # it changed under our hands; the watch tells how
        return f"the volume claim {wish.key}: {told}"

    async def _give_or_select(self, claim: VolumeClaimObject, node: str) -> str:
        picture, key = self._storage.picture(), claim.metadata.key
        there = self._cache.nodes.objects[node].metadata
        free = [
            volume
            for volume in volumes.fitting(claim, picture, there)
            if self._given.get(volume.metadata.name, key) == key
        ]
        if free:
            return await self._give(free[0], claim)
        made = picture.classes.get(claim.spec.storage_class_name or "")
        if made is None or not volumes.is_made(made):
            return f"no volume that {node} reaches is free"
        notes: dict[str, str | None] = {SELECTED_NODE: node}
        return await self._annotate(claim, notes)

    async def _give(self, volume: VolumeObject, claim: VolumeClaimObject) -> str:
        """As Kubernetes' own scheduler does: whose volume it is is written, and its controller does the rest."""
        meant = volume.spec.claim_ref
        if meant is not None and meant.uid == claim.metadata.uid:
            return ""
        self._given[volume.metadata.name] = claim.metadata.key
        metadata = claim.metadata
        reference = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": metadata.namespace,
            "name": metadata.name,
            "uid": metadata.uid,
        }
        body = {
            "metadata": {
                "resourceVersion": volume.metadata.resource_version,
                "annotations": {BY_CONTROLLER: "yes"},
            },
            "spec": {"claimRef": reference},
        }
        path = f"/api/v1/persistentvolumes/{volume.metadata.name}"
        reply = await self._client.patch(path, msgspec.json.encode(body))
        if not reply.ok:
            self._given.pop(volume.metadata.name, None)
        return "" if reply.ok else reply.why()

    async def _annotate(self, claim: VolumeClaimObject, notes: dict[str, str | None]) -> str:
        metadata = claim.metadata
        path = f"/api/v1/namespaces/{metadata.namespace}/persistentvolumeclaims/{metadata.name}"
        body = {"metadata": {"resourceVersion": metadata.resource_version, "annotations": notes}}
        reply = await self._client.patch(path, msgspec.json.encode(body))
        return "" if reply.ok else reply.why()

    # --- waiting ---------------------------------------------------------------------------------------------

    async def _bound(self, wishes: Sequence[_Wish], pods: set[str]) -> Unprepared | None:
        end = self._clock.monotonic() + LIMIT_S
        selected: set[str] = set()
        while waiting := [wish for wish in wishes if not self._is_bound(wish.key)]:
            for wish in waiting:
                if why := self._lost(wish, selected):
                    return Unprepared(wish.node, why)
            if not self._leads() or not any(uid in self._cache.assumed for uid in pods):
                return STOPPED
            if self._clock.monotonic() > end:
                await self._give_up(waiting)
                return Unprepared(waiting[0].node, _too_long(waiting[0]))
            await self._clock.sleep(POLL_S)
        return next(filter(None, map(self._out_of_reach, wishes)), None)

    def _is_bound(self, key: str) -> bool:
        claim = self._storage.claims.get(key)
        return claim is not None and volumes.is_bound(claim)

    def _lost(self, wish: _Wish, selected: set[str]) -> str:
        """Whoever makes volumes takes the node off the claim when it cannot make one there."""
        claim = self._storage.claims.get(wish.key)
        if claim is None:
            return f"the volume claim {wish.key} is gone"
        if claim.metadata.annotation(SELECTED_NODE) == wish.node:
            selected.add(wish.key)
        elif wish.key in selected:
            return f"no volume could be made on {wish.node} for the claim {wish.key}"
        return ""

    def _out_of_reach(self, wish: _Wish) -> Unprepared | None:
        claim, node = self._storage.claims.get(wish.key), self._cache.nodes.get(wish.node)
        volume = self._storage.volumes.get(claim.spec.volume_name) if claim is not None else None
        if node is not None and volume is not None and not meets(volumes.affinity_of(volume), node.metadata):
            name = volume.metadata.name
            return Unprepared(
                wish.node, f"the volume {name} of the claim {wish.key} cannot be reached from {wish.node}"
            )
        return None

    async def _give_up(self, waiting: Iterable[_Wish]) -> None:
        """The claims are free to be made elsewhere; one that is made after all binds its pod to where it is."""
        for wish in waiting:
            claim = self._storage.claims.get(wish.key)
            if claim is not None and claim.metadata.annotation(SELECTED_NODE):
                try:
                    await self._annotate(claim, {SELECTED_NODE: None})
                except ApiUnreachable:
                    return


def _too_long(wish: _Wish) -> str:
    namespace, name = wish.key.split("/")
    told = f"the volume claim {wish.key} was not bound on {wish.node} within {LIMIT_S:g} s"
    return f"{told}; kubectl describe pvc -n {namespace} {name} may say why"
