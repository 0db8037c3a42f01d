"""While others leave for it, a pod names the node that is kept for it: for people, and for whoever buys nodes.

Called by `world` in its loop, slowly. A binding takes the name away; where nothing is kept any more, we do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from gpuyard.kube.client import STRATEGIC, ApiUnreachable, KubeClient
from gpuyard.kube.objects import PodObject
from gpuyard.model.outside.ports import Clock
from gpuyard.worlds.kubernetes.acting.tell import AFTER_S, PAUSE_S, condition_of
from gpuyard.worlds.kubernetes.gathering.promises import matched
from gpuyard.worlds.kubernetes.observe import ClusterObserver

ROOM_IS_MADE = "RoomIsMade"
"""The reason of `PodScheduled=False` while others leave."""


@dataclass(frozen=True, slots=True)
class Nomination:
    """The node that is kept for a pod, and for whom it waits."""

    node: str
    leavers: tuple[str, ...]

    def words(self) -> str:
        """For the pod's condition."""
        more = f" and {len(self.leavers) - 1} more" if len(self.leavers) > 1 else ""
        return f"its place on {self.node} is kept until {self.leavers[0]}{more} {'have' if more else 'has'} left"


class Nominator:
    """Writes nominations, and takes them back. `run` is a task of the loop."""

    def __init__(self, client: KubeClient, observer: ClusterObserver, clock: Clock) -> None:
        self._client = client
        self._observer = observer
        self._clock = clock
        self._written: dict[str, tuple[str, str]] = {}
        """Keys of pods, and the node that each was told, by uid."""

    async def run(self, leads: Callable[[], bool]) -> None:
        """Until it is cancelled."""
        while True:
            await self._clock.sleep(AFTER_S / 4)
            if leads() and (self._written or any(True for _ in self._observer.promises)):
                try:
                    await self.turn()
                except ApiUnreachable:
                    continue  # it is told by and by

    async def turn(self) -> None:
        """What is kept now is told, once; what is kept no more is taken back."""
        wanted = self._wanted()
        for uid, (pod, nomination) in wanted.items():
            if self._written.get(uid, ("", ""))[1] != nomination.node:
                await self._write(pod, nomination)
        for uid in self._written.keys() - wanted.keys():
            key, _ = self._written.pop(uid)
            left = self._observer.cache.pods.get(key)
            if left is not None and left.metadata.uid == uid and not left.node_name:
                await self._write(left, None)

    def _wanted(self) -> dict[str, tuple[PodObject, Nomination]]:
        found = {}
        for job in self._observer.promises:
            mine, free = self._observer.promises.get(job), self._observer.free.get(job, {})
            if mine is None or not mine.leavers:
                continue
            by_uid = {pod.metadata.uid: pod for pod in self._observer.cache.gang(job)}
            for chair, seat in matched(mine.places, free):
                if (pod := by_uid.get(free[seat])) is not None:
                    nomination = Nomination(mine.places[chair].node, tuple(sorted(mine.leavers)))
                    found[pod.metadata.uid] = pod, nomination
        return found

    async def _write(self, pod: PodObject, nomination: Nomination | None) -> None:
        metadata = pod.metadata
        status: dict[str, object] = {"nominatedNodeName": nomination.node if nomination is not None else None}
        if nomination is not None:
            status["conditions"] = [condition_of(ROOM_IS_MADE, nomination.words(), self._clock)]
        body = msgspec.json.encode({"metadata": {"uid": metadata.uid}, "status": status})
        path = f"/api/v1/namespaces/{metadata.namespace}/pods/{metadata.name}/status"
        reply = await self._client.patch(path, body, STRATEGIC)
        if nomination is not None and (reply.ok or reply.status in (404, 409)):
            self._written[metadata.uid] = metadata.key, nomination.node
        await self._clock.sleep(PAUSE_S)
