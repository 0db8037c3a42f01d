"""Why a pod waits, told on the pod itself: one condition per change of reason, one event a gang.

Called by `world` in its loop. What is to be told is a value per gang, and the newest wins; it is sent slowly, because
it must never stand in the way of a binding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from gpuyard.kube.client import STRATEGIC, ApiUnreachable, KubeClient
from gpuyard.kube.objects import PodObject
from gpuyard.model.actions import Waiting
from gpuyard.model.outside.ports import Clock
from gpuyard.model.reasons import Code, Reason
from gpuyard.worlds.kubernetes.acting.words import Words
from gpuyard.worlds.kubernetes.asking.refusals import Refusal
from gpuyard.worlds.kubernetes.cache import Cache
from gpuyard.worlds.kubernetes.observe import is_free

AFTER_S = 2.0
"""A pod that is placed sooner is never told that it waits."""
PAUSE_S = 0.05
"""Between two writes: twenty a second."""
RENEW_S = 60.0
"""So long what a pod was told may be behind what is so, where the first reason stayed the same."""
SENT_KEPT = 1000
NOTE_MAX = 1000
"""Of an event; the API server takes 1,024 bytes."""
UNSCHEDULABLE = "Unschedulable"
MORE_NODES_HELP = frozenset(
    (
        Code.NOT_ENOUGH_GPUS,
        Code.SHAPE_IMPOSSIBLE,
        Code.FRAGMENTED,
        Code.TOPOLOGY_UNMET,
        Code.MODEL_UNAVAILABLE,
        Code.GPUS_SICK,
        Code.NODES_EXCLUDED,
        Code.NOT_ENOUGH_CPU,
        Code.NOT_ENOUGH_MEMORY,
        Code.NOT_ENOUGH_EXTRA,
        Code.NODES_UNAVAILABLE,
    )
)
"""Autoscalers buy nodes for whoever is `Unschedulable`, so nobody else may be called so."""


@dataclass(frozen=True, slots=True)
class Message:
    """What a pod is told."""

    reason: str
    text: str


def message_of(reason: Reason) -> Message:
    """In the words of `yard why`."""
    return Message(UNSCHEDULABLE if reason.code in MORE_NODES_HELP else reason.code.value, str(reason))


class ConditionTeller:
    """What waits is told why. `run` is a task of the loop."""

    def __init__(self, client: KubeClient, cache: Cache, clock: Clock, identity: str, words: Words) -> None:
        self.told = 0
        """Conditions written in all."""
        self._client = client
        self._cache = cache
        self._clock = clock
        self._identity = identity
        self._words = words
        self._waiting: Sequence[Waiting] = ()
        self._refused: Mapping[str, Refusal] = {}
        self._since: dict[str, tuple[Message, float]] = {}
        self._grounds: dict[str, tuple[Message, float]] = {}
        """The plan's reason for which each was told what it was told, and when; by uid, as long as the pod waits."""

    def hear(self, waiting: Sequence[Waiting], refused: Mapping[str, Refusal]) -> None:
        """Who waits after the last plan, and why; and who was never asked about."""
        self._waiting, self._refused = waiting, refused

    async def run(self, leads: Callable[[], bool]) -> None:
        """Until it is cancelled."""
        while True:
            await self._clock.sleep(AFTER_S / 4)
            if leads() and self._words.rested() and (due := self._due()):
                for name, message in (await self._in_full(due)).items():
                    await self._tell(name, message)

    async def _in_full(self, names: Sequence[str]) -> dict[str, Message]:
        """What each is to be told; where a whole account says nothing, what the plan said."""
        found = await self._words.of([name for name in names if name not in self._refused])
        return {name: message_of(found[name]) if name in found else self._since[name][0] for name in names}

    def _due(self) -> list[str]:
        """Gangs whose reason has stood for a while and was not told yet."""
        now = self._clock.monotonic()
        if len(self._grounds) > SENT_KEPT + 2 * len(self._cache.pods.objects):
            there = {pod.metadata.uid for pod in self._cache.pods.objects.values()}
            self._grounds = {uid: ground for uid, ground in self._grounds.items() if uid in there}
        before, self._since = self._since, {}
        messages = [(each.job, message_of(each.reason)) for each in self._waiting]
        messages += [(name, Message(refusal.reason.value, refusal.message)) for name, refusal in self._refused.items()]
        for name, message in messages:
            known = before.get(name)
            self._since[name] = known if known is not None and known[0] == message else (message, now)
        return [name for name, (_, since) in self._since.items() if now - since >= AFTER_S and self._untold(name)]

    def _untold(self, name: str) -> bool:
        return any(self._is_due(pod, self._since[name][0]) for pod in self._pods(name))

    def _is_due(self, pod: PodObject, ground: Message) -> bool:
        known, at = self._grounds.get(pod.metadata.uid, (None, 0.0))
        return known != ground or self._clock.monotonic() - at > RENEW_S

    def _pods(self, name: str) -> Iterable[PodObject]:
        assumed = self._cache.assumed
        return [pod for pod in self._cache.gang(name) if is_free(pod) and pod.metadata.uid not in assumed]

    async def _tell(self, name: str, message: Message) -> None:
        """Every member, and one event for all of them; who knows it already is not told again."""
        ground, _ = self._since[name]
        pods = [pod for pod in self._pods(name) if self._is_due(pod, ground)]
        new = [pod for pod in pods if _knows(pod) != message]
        try:
            for pod in new:
                if await self._write_condition(pod, message):
                    self._grounds[pod.metadata.uid] = ground, self._clock.monotonic()
                await self._clock.sleep(PAUSE_S)
            if new:
                await self._write_event(new[0], message)
        except ApiUnreachable:
            return  # it is told again, by and by
        told = {pod.metadata.uid for pod in new}
        for pod in pods:
            if pod.metadata.uid not in told:
                self._grounds[pod.metadata.uid] = ground, self._clock.monotonic()

    async def _write_condition(self, pod: PodObject, message: Message) -> bool:
        """Whether it is told, or is not there to be told."""
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": message.reason,
            "message": message.text,
            "lastTransitionTime": self._now("seconds"),
        }
        body = {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}}
        reply = await self._client.patch(f"{_path(pod)}/status", msgspec.json.encode(body), STRATEGIC)
        self.told += reply.ok
        return reply.ok or reply.status in (404, 409)

    async def _write_event(self, pod: PodObject, message: Message) -> None:
        metadata = pod.metadata
        stamp = self._now("microseconds")
        name = f"{metadata.name[:200]}.{round(self._clock.now() * 1e9):x}"
        body = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": metadata.namespace},
            "eventTime": stamp,
            "reportingController": "gpuyard",
            "reportingInstance": self._identity[:128],
            "action": "Scheduling",
            "reason": "FailedScheduling",
            "type": "Warning",
            "note": message.text[:NOTE_MAX],
            "regarding": {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": metadata.name,
                "namespace": metadata.namespace,
                "uid": metadata.uid,
            },
        }
        path = f"/apis/events.k8s.io/v1/namespaces/{metadata.namespace}/events"
        await self._client.post(path, msgspec.json.encode(body))

    def _now(self, precision: str) -> str:
        told = datetime.fromtimestamp(self._clock.now(), UTC).isoformat(timespec=precision)
        return told.replace("+00:00", "Z")

    def forget(self, uid: str) -> None:
        """It waits no longer, or is no more."""
        self._grounds.pop(uid, None)


def _knows(pod: PodObject) -> Message | None:
    """What it bears."""
    said = next((each for each in pod.status.conditions or () if each.type == "PodScheduled"), None)
    return Message(said.reason, said.message) if said is not None and said.status == "False" else None


def _path(pod: PodObject) -> str:
    return f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}"
