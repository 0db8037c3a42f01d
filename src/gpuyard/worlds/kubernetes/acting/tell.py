"""Why a pod waits, told on the pod itself: one condition per change of reason, one event a gang.

Called by `world` in its loop. What is to be told is a value per gang, and the newest wins; it is asked for when
somebody has waited for a while, and sent slowly, because it must never stand in the way of a binding.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol

import msgspec

from gpuyard.kube.client import STRATEGIC, ApiUnreachable, KubeClient
from gpuyard.kube.gpu_grants import event_name
from gpuyard.kube.objects import PodObject
from gpuyard.kube.replies import Forbidden
from gpuyard.model.actions import Waiting
from gpuyard.model.outside import text
from gpuyard.model.outside.ports import Clock
from gpuyard.model.reasons import Code, Reason
from gpuyard.model.snapshot import Snapshot
from gpuyard.worlds.kubernetes.asking.refusals import Refusal
from gpuyard.worlds.kubernetes.cache import Cache
from gpuyard.worlds.kubernetes.observe import is_free

AFTER_S = 2.0
"""A pod that is placed sooner is never told that it waits."""
PAUSE_S = 0.05
"""Between two writes: twenty a second."""
SENT_KEPT = 1000
UNSCHEDULABLE = "Unschedulable"
"""Autoscalers buy nodes for whoever is told this, so nobody is who would not start on them."""
REWORD_S = 60.0
"""So often at most a pod hears other numbers for the same reason."""
REST_SHARE = 20.0
"""Explaining takes turns away from deciding: after so many times as long as it took it is done again."""


class GangTold(Protocol):
    """What a job that waits is told."""

    @property
    def reason(self) -> Reason:
        """As `yard why` has it."""

    @property
    def new_nodes(self) -> bool:
        """Whether it would start if there were more nodes."""

    @property
    def budget(self) -> str:
        """The disruption budget but for which others would give way to it."""


Explain = Callable[[Snapshot], Mapping[str, GangTold]]
"""What everybody is told who waits, by name. Asked in a thread of its own."""


@dataclass(frozen=True, slots=True)
class Message:
    """What a pod is told."""

    reason: str
    text: str
    code: str = ""
    """Which reason it is, where several go by one name; "" where only the pod itself tells what it was told."""

    def says_the_same(self, other: Message) -> bool:
        """Whether only words differ, if anything does."""
        return self.reason == other.reason and self.code in ("", other.code)


def message_of(told: GangTold) -> Message:
    """In the words of `yard why`."""
    code = told.reason.code.value
    return Message(UNSCHEDULABLE if told.new_nodes else code, str(told.reason), code)


class ConditionTeller:
    """What waits is told why. `run` is a task of the loop."""

    def __init__(self, client: KubeClient, cache: Cache, clock: Clock, identity: str) -> None:
        self.told = 0
        """Conditions written in all."""
        self.hindrance: Callable[[str], str] = lambda _name: ""
        """Why a gang cannot be taken back without harm."""
        self._client = client
        self._cache = cache
        self._clock = clock
        self._identity = identity
        self._waiting: Sequence[Waiting] = ()
        self._first_reasons: dict[str, Reason] = {}
        self._refused: Mapping[str, Refusal] = {}
        self._plans = 0
        self._explained = -1
        """After how many plans it was last explained why who waits, and from when on it may be again."""
        self._rests_until = 0.0
        self._answers: Mapping[str, GangTold] = {}
        self._since: dict[str, float] = {}
        """Since when each has waited."""
        self._sent: dict[str, tuple[Message, float]] = {}
        """By uid, and when, as long as the pod waits."""
        self._events: dict[str, Message] = {}
        """What was last told of each gang as a whole."""
        self.forbidden = Forbidden()

    def hear(self, waiting: Sequence[Waiting], refused: Mapping[str, Refusal]) -> None:
        """Who waits after the last plan; and who was never asked about."""
        self._waiting, self._refused = waiting, refused
        self._plans += 1

    async def run(self, leads: Callable[[], bool], picture: Callable[[], Snapshot], explain: Explain) -> None:
        """Until it is cancelled."""
        while True:
            await self._clock.sleep(AFTER_S / 4)
            if leads():
                await self.turn(picture, explain)

    async def turn(self, picture: Callable[[], Snapshot], explain: Explain) -> None:
        """Those who have waited for a while hear why, if they have not."""
        ripe = self._ripe()
        if any(name not in self._refused for name in ripe):
            await self._learn(picture, explain)
        for name in ripe:
            message = self._message(name)
            if message is not None and any(self._misses(pod, message) for pod in self._pods(name)):
                await self._tell(name, message)

    def _ripe(self) -> list[str]:
        """Who has waited for so long that it is worth a word."""
        now = self._clock.monotonic()
        self._forget_the_gone()
        self._first_reasons = {each.job: each.reason for each in self._waiting}
        self._since = {name: self._since.get(name, now) for name in (*self._first_reasons, *self._refused)}
        self._events = {name: message for name, message in self._events.items() if name in self._since}
        return [name for name, since in self._since.items() if now - since >= AFTER_S]

    def _forget_the_gone(self) -> None:
        if len(self._sent) > SENT_KEPT + 2 * len(self._cache.pods.objects):
            there = {pod.metadata.uid for pod in self._cache.pods.objects.values()}
            self._sent = {uid: sent for uid, sent in self._sent.items() if uid in there}

    async def _learn(self, picture: Callable[[], Snapshot], explain: Explain) -> None:
        """What everybody is to be told, if anything was decided since it was last asked."""
        begun = self._clock.monotonic()
        if self._explained == self._plans or begun < self._rests_until:
            return
        self._explained = self._plans
        self._answers = await asyncio.to_thread(explain, picture())
        took = self._clock.monotonic() - begun
        self._rests_until = begun + took * REST_SHARE

    def _message(self, name: str) -> Message | None:
        """The whole sentence; where there is none, what the plan said; None while nobody has asked."""
        if name in self._refused:
            refusal = self._refused[name]
            return Message(refusal.reason.value, refusal.message, refusal.reason.value)
        if name in self._answers:
            told = self._answers[name]
            return _with_budget(name, told.budget, self._with_hindrance(name, message_of(told)))
        found = self._first_reasons.get(name)
        if found is None or self._explained < 0:
            return None
        return Message(found.code.value, str(found), found.code.value)

    def _with_hindrance(self, name: str, message: Message) -> Message:
        """Who could borrow if it could be taken back hears why it cannot."""
        why = self.hindrance(name) if message.code == Code.OVER_QUOTA.value else ""
        return replace(message, text=f"{message.text}; it cannot borrow, because {why}") if why else message

    def _pods(self, name: str) -> Iterable[PodObject]:
        assumed = self._cache.assumed
        return [pod for pod in self._cache.gang(name) if is_free(pod) and pod.metadata.uid not in assumed]

    def _misses(self, pod: PodObject, message: Message) -> bool:
        """Whether it has to hear this: another reason at once, other words for the same one by and by."""
        known, at = self._knows(pod)
        if known is None or not known.says_the_same(message):
            return True
        return text.line(known.text) != text.line(message.text) and self._clock.monotonic() - at >= REWORD_S

    def _knows(self, pod: PodObject) -> tuple[Message | None, float]:
        if pod.metadata.uid in self._sent:
            return self._sent[pod.metadata.uid]
        said = next((each for each in pod.status.conditions or () if each.type == "PodScheduled"), None)
        told = Message(said.reason, said.message) if said is not None and said.status == "False" else None
        return told, -REWORD_S

    async def _tell(self, name: str, message: Message) -> None:
        """Every member that has not heard it, and one event for all of them."""
        pods = [pod for pod in self._pods(name) if self._misses(pod, message)]
        before = self._events.get(name)
        try:
            for pod in pods:
                await self.write_condition(pod, message)
                await self._clock.sleep(PAUSE_S)
            if pods and (before is None or not before.says_the_same(message)):
                self._events[name] = message
                await self.write_event(pods[0], "FailedScheduling", message.text)
        except ApiUnreachable:
            return  # it is told again, by and by

    async def write_condition(self, pod: PodObject, message: Message) -> None:
        """It is told, and that it was is remembered."""
        condition = condition_of(message.reason, message.text, self._clock)
        body = {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}}
        reply = await self._client.patch(f"{_path(pod)}/status", msgspec.json.encode(body), STRATEGIC)
        self.forbidden.heard("telling pods why they wait", reply)
        if reply.ok or reply.status in (404, 409):
            self.told += reply.ok
            self._sent[pod.metadata.uid] = message, self._clock.monotonic()

    async def write_event(self, pod: PodObject, reason: str, words: str, once: bool = False) -> None:
        """A warning about it, for people; `once`: not if it has been told this very thing already, by whomever."""
        metadata = pod.metadata
        stamp = _now(self._clock, "microseconds")
        told_at = f"{metadata.name[:200]}.{round(self._clock.now() * 1e9):x}"
        name = event_name(metadata.name, metadata.uid, words) if once else told_at
        body = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": metadata.namespace},
            "eventTime": stamp,
            "reportingController": "gpuyard",
            "reportingInstance": self._identity[:128],
            "action": "Scheduling",
            "reason": reason,
            "type": "Warning",
            "note": text.line(words),
            "regarding": {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": metadata.name,
                "namespace": metadata.namespace,
                "uid": metadata.uid,
            },
        }
        path = f"/apis/events.k8s.io/v1/namespaces/{metadata.namespace}/events"
        self.forbidden.heard("writing events", await self._client.post(path, msgspec.json.encode(body)))

    def forget(self, uid: str) -> None:
        """It waits no longer, or is no more."""
        self._sent.pop(uid, None)


def _with_budget(name: str, budget: str, message: Message) -> Message:
    """Which budget it is only those hear whose namespace it is in."""
    if not budget:
        return message
    mine = budget.partition("/")[0] == name.partition("/")[0]
    which = f"the disruption budget {budget}" if mine else "a disruption budget of another namespace"
    words = f"{message.text}; {which} keeps those who would give way to it"
    return replace(message, text=words, code=f"{message.code} {budget}")


def _path(pod: PodObject) -> str:
    return f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}"


def condition_of(reason: str, message: str, clock: Clock) -> dict[str, str]:
    """`PodScheduled=False`, as the API has it."""
    return {
        "type": "PodScheduled",
        "status": "False",
        "reason": reason,
        "message": text.line(message),
        "lastTransitionTime": _now(clock, "seconds"),
    }


def _now(clock: Clock, precision: str) -> str:
    return datetime.fromtimestamp(clock.now(), UTC).isoformat(timespec=precision).replace("+00:00", "Z")
