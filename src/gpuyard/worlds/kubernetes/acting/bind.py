"""Pods brought to their nodes: one write each, many at once, and an honest end for each of them.

Called by `world` in its loop. A pod is *assumed* to be where it was sent from the moment that is decided; only the
API server's own word, or a failure that is certain, ends the assumption. An answer that was lost is asked for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import msgspec

from gpuyard.kube.client import LANES, ApiReply, ApiUnreachable, KubeClient
from gpuyard.kube.objects import PodObject
from gpuyard.kube.replies import Forbidden
from gpuyard.model.job import Placement
from gpuyard.model.outside.ports import Clock
from gpuyard.worlds.kubernetes.asking.marks import GPUS, JOB, TASK

CALL_S = 2.5
"""Shorter than what is left of a lease when we stop acting on it."""
TRIES = 3
BUSY_S = 1.0


class Ending(Enum):
    """How a binding that failed came to its end."""

    NOT_OURS = "not ours"
    """Somebody else placed it, or it is gone."""
    REFUSED = "refused"
    """The API server will not have it; asking again at once would not help."""
    TROUBLED = "troubled"
    """The API server could not do it, again and again; it may the next time."""
    UNPREPARED = "unprepared"
    """What it needs on its node, a volume, could not be had there."""
    NOT_LEADING = "not leading"
    """We may not act any more, and have not."""


@dataclass(frozen=True, slots=True)
class Binding:
    """One pod on its way to its node."""

    job: str
    namespace: str
    name: str
    place: Placement
    gpus: tuple[str, ...] = ()
    """The very devices, by UUID, where our plugin hands them out."""
    marks: tuple[tuple[str, str], ...] = ()
    """For others to read, beside our own."""

    @property
    def path(self) -> str:
        """The pod."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"

    def body(self) -> bytes:
        """As the API server takes it: for this uid alone, and what the next leader must know written with it."""
        metadata = {"name": self.name, "namespace": self.namespace, "uid": self.place.uid, "annotations": self.notes()}
        target = {"apiVersion": "v1", "kind": "Node", "name": self.place.node}
        return msgspec.json.encode({"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target})

    def notes(self) -> dict[str, str]:
        """What is written on the pod. A pod that is a job by itself goes by its own name, and is told neither that nor
        its number: annotations are a twentieth of what a Binding costs the API server."""
        member = {JOB: self.job, TASK: str(self.place.task)} if self.job != f"{self.namespace}/{self.name}" else {}
        return dict(self.marks) | member | ({GPUS: ",".join(self.gpus)} if self.gpus else {})


Failed = Callable[[Binding, Ending, str], None]


class Binder:
    """Sends bindings, so many at once. `failed` hears of every one that did not come about."""

    def __init__(
        self,
        client: KubeClient,
        clock: Clock,
        leads: Callable[[], bool],
        failed: Callable[[Binding, Ending, str], None],
    ) -> None:
        self.sent = 0
        self.in_flight = 0
        """Sent or waiting to be."""
        self.forbidden = Forbidden()
        self._client = client
        self._clock = clock
        self._leads = leads
        self._failed = failed
        self._queue: deque[Binding] = deque()
        self._lanes: set[asyncio.Task[None]] = set()

    def send(self, binding: Binding) -> None:
        """Soon; the caller has assumed it."""
        self.in_flight += 1
        self._queue.append(binding)
        if len(self._lanes) < LANES:
            lane = asyncio.get_running_loop().create_task(self._drive())
            self._lanes.add(lane)
            lane.add_done_callback(self._lanes.discard)

    async def settle(self) -> None:
        """Return when nothing is under way any more; what has not been sent is not sent."""
        while self._queue:
            self._end(self._queue.popleft(), Ending.NOT_LEADING, "the scheduler was stopped")
        if self._lanes:
            await asyncio.wait(self._lanes)

    async def _drive(self) -> None:
        while self._queue:
            binding = self._queue.popleft()
            try:
                failure = await self._bind(binding)
            except ApiUnreachable as error:
                failure = Ending.TROUBLED, str(error)
            if failure is None:
                self.in_flight -= 1
                self.sent += 1
            else:
                self._end(binding, *failure)

    def _end(self, binding: Binding, ending: Ending, told: str) -> None:
        self.in_flight -= 1
        self._failed(binding, ending, told)

    async def _bind(self, binding: Binding) -> tuple[Ending, str] | None:
        """None when the pod is where it belongs."""
        tries, told = 0, ""
        while tries < TRIES:
            if not self._leads():
                return Ending.NOT_LEADING, "another scheduler may lead by now"
            reply = await self._post(binding)
            if reply is not None and reply.ok:
                return None
            if reply is not None and reply.status == 429:  # it stays where it is assumed to be, and is sent later
                await self._clock.sleep(max(reply.retry_after, BUSY_S))
                continue
            told = reply.why() if reply is not None else "no answer"
            if reply is not None and reply.status in (403, 404, 422):
                return (Ending.NOT_OURS if reply.status == 404 else Ending.REFUSED), told
            tries += 1
            where = await self._where(binding)
            if where is None:
                return Ending.NOT_OURS, "the pod is gone"
            if where:
                return None if where == binding.place.node else (Ending.NOT_OURS, f"somebody else put it on {where}")
        return Ending.TROUBLED, told

    async def _post(self, binding: Binding) -> ApiReply | None:
        """None where no answer came: it may have happened."""
        try:
            reply = await self._client.post(f"{binding.path}/binding", binding.body(), CALL_S)
        except ApiUnreachable:
            return None
        self.forbidden.heard("binding pods", reply)
        return reply

    async def _where(self, binding: Binding) -> str | None:
        """The node that the pod is bound to; "" if to none, None if it is gone, is another one by now, or is going."""
        rest = 0.1
        while True:
            try:
                reply = await self._client.send("GET", binding.path, timeout=CALL_S)
                if reply.status == 404:
                    return None
                if reply.ok:
                    break
            except ApiUnreachable:
                pass
            if not self._leads():  # whoever leads next will see for itself
                return None
            await self._clock.sleep(rest)
            rest = min(2 * rest, 2.0)
        pod = msgspec.json.decode(reply.body, type=PodObject)
        if pod.metadata.uid != binding.place.uid:
            return None
        if not pod.node_name and pod.metadata.deletion_timestamp is not None:
            return None
        return pod.node_name
