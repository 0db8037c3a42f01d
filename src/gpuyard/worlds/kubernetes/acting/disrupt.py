"""The writes that take pods back, each by a way that whoever made them does not count as a failure.

Called by `taking_back` in the world's loop. An owner is suspended and marked in one write, and resumed in one; pods
without such an owner are told that they are disrupted and deleted, or evicted where nobody claims their place. Every
write is for one uid or version: whoever came in its place is left alone. Grace periods are the pods' own.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from gpuyard.kube.client import JSON, MERGE, STRATEGIC, ApiReply, ApiUnreachable, KubeClient
from gpuyard.kube.objects import BudgetObject, Metadata, PodObject, moment
from gpuyard.kube.owners import JobObject
from gpuyard.model.outside import text
from gpuyard.model.outside.phrases import counted
from gpuyard.model.outside.ports import Clock
from gpuyard.worlds.kubernetes import budgets, kinds, pods
from gpuyard.worlds.kubernetes.asking import selectors
from gpuyard.worlds.kubernetes.asking.marks import DEADLINE, ENDED, FULL_SIZE, SUSPENDED
from gpuyard.worlds.kubernetes.gangs import Gathered
from gpuyard.worlds.kubernetes.gathering import controllers, kept_back

CALL_S = 2.5
"""Shorter than what is left of a lease when we stop acting on it."""
TRIES = 8
PAUSE_S = 0.25
EVICTING_S = 60.0
"""So long the Eviction API is asked again where it says that a budget allows nobody to go just now."""
OVER = frozenset(("Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"))


class _Budgets(msgspec.Struct):
    items: list[BudgetObject]


Change = Callable[[Any], dict[str, Any] | str | None]
"""An owner as it is → what to change of it; None: nothing is to be changed; words: it must not be."""


class Disruptor:
    """Takes back, and lets begin again. What could not be done is told in words; "" is done."""

    def __init__(self, client: KubeClient, clock: Clock, leads: Callable[[], bool], paths: Mapping[str, str]) -> None:
        """`paths` has where owners of each kind are kept."""
        self._paths = paths
        self._client = client
        self._clock = clock
        self._leads = leads

    # --- budgets -----------------------------------------------------------------------------------------

    async def refusing(self, going: Sequence[PodObject]) -> str:
        """The budget that does not allow all of these to go now, in words; "" if all may."""
        running = [pod for pod in going if pod.status.phase == "Running" and not pods.is_leaving(pod)]
        for namespace in sorted({pod.metadata.namespace for pod in running}):
            try:
                reply = await self._send("GET", f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets")
            except ApiUnreachable as error:
                return str(error)
            if not reply.ok:
                return f"its disruption budgets could not be read: {reply.why()}"
            found = msgspec.json.decode(reply.body, type=_Budgets).items
            there = [pod for pod in running if pod.metadata.namespace == namespace]
            if told := _refused_by(found, there):
                return told
        return ""

    # --- owners ------------------------------------------------------------------------------------------

    async def suspend(self, found: Gathered, why: str) -> str:
        """Its owner makes no pods for now; the mark is written with it."""
        examples = {chair.group: chair.pod for chair in reversed(found.chairs)}
        mark = kept_back.written(text.line(why), self._clock.now(), [examples[group] for group in sorted(examples)])
        owners: list[Metadata] = []

        def change(owner: Any) -> dict[str, Any] | str | None:
            owners.append(owner.metadata)
            return self._suspended(found, owner, mark)

        told = await self._change(found.owner_kind, found.owner, change)
        if not told:
            note = f"suspended until there is a place for it again: {why}"
            await self._tell(found.owner_kind, owners[-1], "Suspending", note)
        return told

    async def resize(self, found: Gathered, size: int, why: str) -> str:
        """A Job has so many pods from now on; how many it had at first stands on it until it has them again."""
        jobs: list[Metadata] = []

        def change(job: Any) -> dict[str, Any] | str | None:
            full = controllers.full_size(job) if isinstance(job, JobObject) else 0
            if not isinstance(job, JobObject) or _is_over(job) or controllers.is_suspended(job):
                return None
            if job.spec.parallelism == size:
                return None
            if job.spec.parallelism != job.spec.completions:
                return f"somebody else has changed the size of {found.owner}"
            jobs.append(job.metadata)
            full = max(full, job.spec.parallelism or 0)
            notes = {FULL_SIZE: str(full) if size < full else None}
            return {"metadata": {"annotations": notes}, "spec": {"parallelism": size, "completions": size}}

        told = await self._change(found.owner_kind, found.owner, change)
        if jobs and not told:
            await self._tell(found.owner_kind, jobs[-1], "Resizing", f"has {counted(size, 'pod')} from now on: {why}")
        return told

    async def _tell(self, kind: str, owner: Metadata, action: str, note: str) -> None:
        """An event on the owner; one that is lost is no harm, for the mark says the same."""
        root, _, _ = self._paths[kind].removeprefix("/apis/").rpartition("/")
        regarding = {"apiVersion": root, "kind": kind.partition(".")[0], "name": owner.name}
        stamp = datetime.fromtimestamp(self._clock.now(), UTC).isoformat(timespec="microseconds")
        body = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "name": f"{owner.name[:200]}.{round(self._clock.now() * 1e9):x}",
                "namespace": owner.namespace,
            },
            "eventTime": stamp.replace("+00:00", "Z"),
            "reportingController": "gpuyard",
            "reportingInstance": "gpuyard",
            "action": action,
            "reason": "Preempted" if action == "Suspending" else "Resized",
            "type": "Normal",
            "note": text.line(note),
            "regarding": {**regarding, "namespace": owner.namespace, "uid": owner.uid},
        }
        path = f"/apis/events.k8s.io/v1/namespaces/{owner.namespace}/events"
        with contextlib.suppress(ApiUnreachable):
            await self._send("POST", path, msgspec.json.encode(body))

    def _suspended(self, found: Gathered, owner: Any, mark: str) -> dict[str, Any] | str | None:
        if controllers.is_suspended(owner) or _is_over(owner):
            return None  # by us, and the answer was lost; or by somebody else, who will resume it
        notes: dict[str, str] = {SUSPENDED: mark}
        spec = controllers.suspension(found.owner_kind, True)
        if isinstance(owner, JobObject) and (left := self._time_left(owner)) is not None:
            spec["activeDeadlineSeconds"] = left
            if not owner.metadata.annotation(DEADLINE):
                notes[DEADLINE] = str(owner.spec.active_deadline_seconds)
        return {"metadata": {"annotations": notes}, "spec": spec}

    def _time_left(self, job: JobObject) -> int | None:
        """Of its deadline: Kubernetes would let it begin anew with every resumption."""
        deadline, begun = job.spec.active_deadline_seconds, moment(job.status.start_time)
        if not deadline or not begun:
            return None
        return max(1, math.ceil(deadline - max(0.0, self._clock.now() - begun)))

    async def end(self, found: Gathered, why: str) -> str:
        """Its owner ends it now: a Job by its deadline; of other kinds it is suspended without a way back."""

        def change(owner: Any) -> dict[str, Any] | str | None:
            if _is_over(owner) or owner.metadata.annotation(ENDED):
                return None
            spec = controllers.suspension(found.owner_kind, True)
            if isinstance(owner, JobObject):
                ran = self._clock.now() - (moment(owner.status.start_time) or self._clock.now())
                spec = {"activeDeadlineSeconds": max(1, int(min(owner.spec.active_deadline_seconds or ran, ran)))}
            return {"metadata": {"annotations": {ENDED: text.line(why)}}, "spec": spec}

        return await self._change(found.owner_kind, found.owner, change)

    async def resume(self, kind: str, key: str) -> str:
        """It makes its pods again, and bears no mark; one that somebody else suspended meanwhile is left alone."""

        def change(owner: Any) -> dict[str, Any] | str | None:
            if not controllers.is_suspended(owner):
                return None
            if not owner.metadata.annotation(SUSPENDED):
                return f"somebody else has suspended {key}"
            spec = controllers.suspension(kind, False)
            return {"metadata": {"annotations": {SUSPENDED: None}}, "spec": spec}

        return await self._change(kind, key, change)

    async def _change(self, kind: str, key: str, change: Change) -> str:
        """Read, change, write; again where somebody was faster, or where no answer came."""
        path, told = self._path(kind, key), "no answer"
        for attempt in range(TRIES):
            if attempt:
                await self._clock.sleep(PAUSE_S * attempt)
            if not self._leads():
                return "another scheduler may lead by now"
            try:
                reply = await self._send("GET", path)
                if reply.ok:
                    owner = msgspec.json.decode(reply.body, type=kinds.SHAPES[kind])
                    body = change(owner)
                    if not isinstance(body, dict):
                        return body or ""
                    reply = await self._send("PATCH", path, _for(owner.metadata, body), MERGE)
                    if reply.ok:
                        return ""
            except ApiUnreachable as error:
                told = str(error)
                continue
            told = reply.why()
            if reply.status not in (409, 429) and reply.status < 500:
                break
        return told

    def _path(self, kind: str, key: str) -> str:
        """`/apis/batch/v1/jobs` and `team/train` → the one Job."""
        root, _, plural = self._paths[kind].rpartition("/")
        namespace, name = key.split("/")
        return f"{root}/namespaces/{namespace}/{plural}/{name}"

    # --- pods --------------------------------------------------------------------------------------------

    async def delete(self, going: Sequence[PodObject], why: str) -> str:
        """Told that they are disrupted, and deleted: their places are claimed. A Job would count one that was not told
        as failed, so nobody is deleted before all of them were."""
        for pod in going:
            if told := await self._disrupted(pod, why):
                return told
        for pod in going:
            body = {"preconditions": {"uid": pod.metadata.uid}}
            try:
                reply = await self._send("DELETE", _pod_path(pod), msgspec.json.encode(body))
            except ApiUnreachable as error:
                return str(error)
            if not reply.ok and reply.status not in (404, 409):
                return reply.why()
        return ""

    async def _disrupted(self, pod: PodObject, why: str) -> str:
        """It bears the condition; again where somebody was faster, or where no answer came. Without a time of its own
        Kubernetes takes the condition for one of long ago and turns it off, and the Job counts a failure."""
        since = datetime.fromtimestamp(self._clock.now(), UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        target = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": text.line(why),
            "lastTransitionTime": since,
        }
        body = {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [target]}}
        told = "no answer"
        for attempt in range(TRIES):
            if attempt:
                await self._clock.sleep(PAUSE_S * attempt)
            if not self._leads():
                return "another scheduler may lead by now"
            try:
                reply = await self._send("PATCH", f"{_pod_path(pod)}/status", msgspec.json.encode(body), STRATEGIC)
            except ApiUnreachable as error:
                told = str(error)
                continue
            if reply.ok or reply.status == 404:
                return ""
            told = reply.why()
            if reply.status not in (409, 429) and reply.status < 500:
                break
        return told

    async def evict(self, going: Sequence[PodObject]) -> str:
        """By the Eviction API, which asks budgets once more; one that refuses is waited for, and then named."""
        end = self._clock.monotonic() + EVICTING_S
        for pod in going:
            while told := await self._evict(pod):
                if self._clock.monotonic() > end or not self._leads():
                    return told
                await self._clock.sleep(PAUSE_S * 4)
        return ""

    async def _evict(self, pod: PodObject) -> str:
        metadata = {"name": pod.metadata.name, "namespace": pod.metadata.namespace}
        options = {"preconditions": {"uid": pod.metadata.uid}}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, "deleteOptions": options}
        try:
            reply = await self._client.post(f"{_pod_path(pod)}/eviction", msgspec.json.encode(body), CALL_S)
        except ApiUnreachable as error:
            return str(error)
        return "" if reply.ok or reply.status in (404, 409) else f"{pod.metadata.key}: {reply.why()}"

    async def _send(self, method: str, path: str, body: bytes | None = None, kind: str = JSON) -> ApiReply:
        return await self._client.send(method, path, body, kind, timeout=CALL_S)


def _for(metadata: Metadata, body: dict[str, Any]) -> bytes:
    """Only of the very object that was read, as it was read."""
    told = {"uid": metadata.uid, "resourceVersion": metadata.resource_version, **body["metadata"]}
    return msgspec.json.encode({**body, "metadata": told})


def _is_over(owner: Any) -> bool:
    """Whether it makes no more pods anyway."""
    if owner.metadata.deletion_timestamp is not None:
        return True
    conditions = (owner.status.conditions or ()) if isinstance(owner, JobObject) else ()
    return any(each.type in OVER and each.status == "True" for each in conditions)


def _refused_by(found: Sequence[BudgetObject], going: Sequence[PodObject]) -> str:
    """A budget that would be broken; where two meet on one pod nobody may go, as with the Eviction API."""
    covered = {budget.metadata.key: [pod for pod in going if _covers(budget, pod)] for budget in found}
    times = Counter(pod.metadata.uid for members in covered.values() for pod in members)
    for budget in sorted(found, key=lambda each: each.metadata.key):
        members = covered[budget.metadata.key]
        allowed = budgets.allowed(budget, any(times[pod.metadata.uid] > 1 for pod in members))
        if len(members) > allowed:
            going_now = f"{allowed} of {counted(len(members), 'pod')}"
            return f"the disruption budget {budget.metadata.key} allows {going_now} to go now"
    return ""


def _covers(budget: BudgetObject, pod: PodObject) -> bool:
    return selectors.selects(budget.spec.selector, pod.metadata.labels or {})


def _pod_path(pod: PodObject) -> str:
    return f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}"
