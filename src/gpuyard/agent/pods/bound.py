"""Keeps what the API server says of the pods on this node, in a thread with a loop of its own.

Used by `yard agent --device-plugin` where a cluster is named. Reading only. Any thread may ask; one that misses a pod
may have the API server asked once more, for a moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterable
from typing import Any

import msgspec

from gpuyard.agent.pods.grants import Grant, granted
from gpuyard.kube.client import ApiUnreachable, KubeClient
from gpuyard.kube.credentials import KubeAccess
from gpuyard.kube.objects import PodObject
from gpuyard.kube.reflector import ObjectKind, Reflector
from gpuyard.model.errors import GpuYardError
from gpuyard.model.outside.ports import Clock, Dice

PODS = "/api/v1/pods"
CLOSE_S = 10.0


class _PodList(msgspec.Struct, gc=False):
    items: list[PodObject]


class BoundPods:
    """The grants of one node."""

    def __init__(self, access: KubeAccess, clock: Clock, dice: Dice, node: str, resource: str) -> None:
        self._client = KubeClient(access, clock)
        self._clock, self._dice = clock, dice
        self._resource = resource
        self._selector = ("fieldSelector", f"spec.nodeName={node}")
        self._grants: dict[str, Grant] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._work, name="bound pods", daemon=True)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to follow; what is bound is known soon after."""
        self._thread.start()

    def stop(self) -> None:
        """Follow no more."""
        self._loop.call_soon_threadsafe(self._cancel)
        self._thread.join(CLOSE_S)

    def grants(self) -> list[Grant]:
        """As far as they are known."""
        return list(self._grants.values())

    def read(self, seconds: float) -> list[Grant]:
        """As the API server has them now; as they were known if it does not answer in time."""
        asked = asyncio.run_coroutine_threadsafe(self._read(seconds), self._loop)
        with contextlib.suppress(GpuYardError, msgspec.MsgspecError, TimeoutError, RuntimeError):
            asked.result(seconds)
        asked.cancel()
        return self.grants()

    def tell(self, method: str, path: str, body: Any) -> None:
        """Something for the API server, once, without waiting; what it answers changes nothing here."""
        asyncio.run_coroutine_threadsafe(self._send(method, path, body), self._loop)

    def ask(self, method: str, path: str, body: Any, kind: str, seconds: float) -> int:
        """The same, waiting for what it answers; 0 if it does not in time."""
        data = msgspec.json.encode(body)
        asked = asyncio.run_coroutine_threadsafe(
            self._client.send(method, path, data, kind, timeout=seconds), self._loop
        )
        with contextlib.suppress(GpuYardError, TimeoutError, RuntimeError):
            return asked.result(seconds + 1.0).status
        asked.cancel()
        return 0

    # --- where the reflector keeps them ------------------------------------------------------------

    def put(self, seen: PodObject) -> None:
        """It is so now."""
        found = granted(seen, self._resource)
        if found is None:
            self.drop(seen.metadata.key)
        else:
            self._grants = {**self._grants, found.key: found}

    def drop(self, key: str) -> None:
        """It is gone."""
        self._grants = {other: grant for other, grant in self._grants.items() if other != key}

    def keys(self) -> Iterable[str]:
        """Who is known."""
        return list(self._grants)

    # --- the loop ------------------------------------------------------------------------------------

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._task = self._loop.create_task(self._follow())
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._task)
        self._loop.run_until_complete(self._client.close())

    async def _follow(self) -> None:
        await self._client.open()
        kind = ObjectKind(PODS, PodObject, (self._selector,))
        await Reflector(self._client, kind, self, self._clock, self._dice).run()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _send(self, method: str, path: str, body: Any) -> None:
        with contextlib.suppress(GpuYardError):
            await self._client.send(method, path, msgspec.json.encode(body))

    async def _read(self, seconds: float) -> None:
        try:
            reply = await self._client.send("GET", PODS, params=dict([self._selector]), timeout=seconds)
        except ApiUnreachable:
            return
        if reply.ok:
            for pod in msgspec.json.decode(reply.body, type=_PodList).items:
                self.put(pod)
