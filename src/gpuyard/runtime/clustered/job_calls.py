"""Jobs of a cluster as people handle them: made, followed, held, ended, with the rights of whoever asks.

Called by the command line for `--kube`. Nothing of ours stands in between: the API server is asked, so what somebody
may do is what its rights say. A job goes by `namespace/name`; without a namespace, that of the kubeconfig is meant.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from typing import Any

from gpuyard.kube.client import MERGE, ApiReply, KubeClient
from gpuyard.model.errors import Conflict, Denied, NotFound, Refused
from gpuyard.model.outside.ports import Clock
from gpuyard.worlds.kubernetes.asking.marks import SUSPENDED

Document = dict[str, Any]
LOOK_S = 0.3
LOOK_MAX_S = 3.0
"""So seldom it is looked again for what does not come."""
SILENCE_S = 24 * 3600.0
"""A job may say nothing for long."""
ACTIVE, ENDED = ("Pending", "Running"), ("Succeeded", "Failed")
OWNED_ALONE = "batch.kubernetes.io/job-name"


@dataclass(frozen=True, slots=True)
class JobEnd:
    """How a Job ended."""

    phase: str
    code: int = 0
    message: str = ""


class ClusterJobs:
    """One caller's, over one API server."""

    def __init__(self, client: KubeClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    def key(self, name: str) -> tuple[str, str]:
        """Namespace and name."""
        namespace, _, rest = name.rpartition("/")
        return namespace or self._client.access.namespace, rest

    # --- made ----------------------------------------------------------------------------------------

    async def submit(self, manifests: list[Document]) -> str:
        """Made; what belongs to the Job goes with it. `Refused` in the API server's words."""
        job = await self._made(manifests[0])
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": job["metadata"]["name"],
            "uid": job["metadata"]["uid"],
        }
        for other in manifests[1:]:
            await self._made({**other, "metadata": {**other["metadata"], "ownerReferences": [owner]}})
        return f"{job['metadata']['namespace']}/{job['metadata']['name']}"

    async def _made(self, document: Document) -> Document:
        namespace, kind = document["metadata"]["namespace"], document["kind"]
        path = f"{_folder(namespace)}" if kind == "Job" else f"/api/v1/namespaces/{namespace}/services"
        reply = await self._client.post(path, json.dumps(document).encode())
        _check(reply, f"The {kind} {namespace}/{document['metadata']['name']} was not made")
        return dict(json.loads(reply.body))

    # --- looked at -----------------------------------------------------------------------------------

    async def job(self, name: str) -> Document:
        """The Job; `NotFound` if there is none."""
        namespace, plain = self.key(name)
        reply = await self._client.get(f"{_folder(namespace)}/{plain}")
        if reply.status == 404:
            raise NotFound(f"There is no Job {namespace}/{plain}; `yard jobs --kube` lists what there is.")
        _check(reply, f"{namespace}/{plain} cannot be read")
        return dict(json.loads(reply.body))

    async def pods(self, name: str) -> list[Document]:
        """Of that Job, in the order of their numbers; the newest of each."""
        return list((await self.numbered(name)).values())

    async def numbered(self, name: str) -> dict[int, Document]:
        """The same by their numbers; pods of a Job that does not number them have theirs by their age."""
        namespace, plain = self.key(name)
        reply = await self._client.get(
            f"/api/v1/namespaces/{namespace}/pods", {"labelSelector": f"{OWNED_ALONE}={plain}"}
        )
        _check(reply, f"The pods of {namespace}/{plain} cannot be read")
        by_age = sorted(json.loads(reply.body)["items"], key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
        newest: dict[int, Document] = {}
        for age, pod in enumerate(by_age):
            told = _index(pod)
            newest[age if told is None else told] = pod
        return {index: newest[index] for index in sorted(newest)}

    async def priority_classes(self) -> dict[str, int]:
        """Those that people may name, with their values; `Denied` where the caller may not list them."""
        reply = await self._client.get("/apis/scheduling.k8s.io/v1/priorityclasses")
        _check(
            reply, "A priority by number is the PriorityClass with that value, which was not found; name one instead"
        )
        found = {each["metadata"]["name"]: int(each.get("value", 0)) for each in json.loads(reply.body)["items"]}
        return {name: value for name, value in found.items() if not name.startswith("system-")}

    async def why(self, name: str) -> str:
        """What its first pod that waits is told."""
        for pod in await self.pods(name):
            for condition in pod["status"].get("conditions", ()):
                if condition["type"] == "PodScheduled" and condition["status"] == "False" and condition.get("message"):
                    return str(condition["message"])
        return ""

    async def started(self, name: str, index: int, seen: Collection[str] = ()) -> Document | None:
        """The pod with that number that was not `seen` (uids), once it runs or has ended; None if the Job has ended."""
        pause = LOOK_S
        while True:
            over = is_over(await self.job(name))
            found = (await self.numbered(name)).get(index)
            begun = found is not None and found["status"].get("phase") in ("Running", *ENDED)
            if found is not None and begun and found["metadata"]["uid"] not in seen:
                return found
            if over:
                return None
            await self._clock.sleep(pause)
            pause = min(1.5 * pause, LOOK_MAX_S)

    async def end(self, name: str) -> JobEnd:
        """How it ended, once it has."""
        while True:
            job = await self.job(name)
            if (ended := _ended(job)) is not None:
                return JobEnd(ended[0], 0 if ended[0] == "succeeded" else _code(await self.pods(name)), ended[1])
            await self._clock.sleep(LOOK_S)

    async def output(self, pod: Document, follow: bool, tail: int | None = None) -> AsyncIterator[bytes]:
        """What it writes, until it ends if it is followed. Of a pod that is gone, which gave way, nothing is left."""
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/log"
        params = {"tailLines": str(tail)} if tail is not None else {}
        told = 0
        if follow:
            async with self._client.lines(path, {**params, "follow": "true"}, SILENCE_S) as opened:
                if opened.reply.status == 404:
                    return
                _check(opened.reply, f"The output of {metadata['namespace']}/{metadata['name']} cannot be read")
                async for lines in opened.batches:
                    part = b"".join(line + b"\n" for line in lines)
                    told += len(part)
                    yield part
        if follow and tail is not None:  # the last line, which has no end
            reply = await self._client.get(path, {"tailLines": "1"})
            if reply.ok and not reply.body.endswith(b"\n"):
                yield reply.body
            return
        reply = await self._client.get(path, params)
        if follow and reply.status == 404:
            return
        _check(reply, f"The output of {metadata['namespace']}/{metadata['name']} cannot be read")
        if reply.body[told:]:  # of one that was followed: the last line, which has no end
            yield reply.body[told:]

    # --- one word ------------------------------------------------------------------------------------

    async def cancel(self, name: str) -> str:
        """The Job, or the pod that stands alone, goes with all that belongs to it."""
        namespace, plain = self.key(name)
        body = json.dumps({"propagationPolicy": "Background"}).encode()
        for path in (f"{_folder(namespace)}/{plain}", f"/api/v1/namespaces/{namespace}/pods/{plain}"):
            reply = await self._client.send("DELETE", path, body)
            if reply.status != 404:
                _check(reply, f"{namespace}/{plain} was not cancelled")
                return "is cancelled"
        raise NotFound(f"There is no Job and no pod {namespace}/{plain}; `yard jobs --kube` lists what there is.")

    async def hold(self, name: str, requeue: bool = False) -> str:
        """Suspended. What runs is left alone unless it is to stop: a suspended Job has no pods."""
        job = await self.job(name)
        running = sum(pod["status"].get("phase") == "Running" for pod in await self.pods(name))
        if running and not requeue:
            raise Conflict(
                f"{name} runs ({running} of its pods); to hold a Job is to stop it: `yard hold --requeue` does."
            )
        if _ended(job) is not None:
            raise Conflict(f"{name} has ended.")
        if SUSPENDED in job["metadata"].get("annotations", {}):
            raise Conflict(f"{name} gave way to others and waits; it can be held once it runs again, or cancelled.")
        await self._suspend(name, True)
        return "is being stopped, and is held" if running else "is held"

    async def release(self, name: str) -> str:
        """Let it start again."""
        job = await self.job(name)
        if SUSPENDED in job["metadata"].get("annotations", {}):
            raise Conflict(
                f"{name} gave way to others; the scheduler resumes it by itself when there is a place for it."
            )
        await self._suspend(name, False)
        return "is released"

    async def _suspend(self, name: str, held: bool) -> None:
        namespace, plain = self.key(name)
        body = json.dumps({"spec": {"suspend": held}}).encode()
        reply = await self._client.patch(f"{_folder(namespace)}/{plain}", body, MERGE)
        _check(reply, f"{namespace}/{plain} was not changed")


def _folder(namespace: str) -> str:
    return f"/apis/batch/v1/namespaces/{namespace}/jobs"


def _check(reply: ApiReply, told: str) -> None:
    if reply.ok:
        return
    sentence = f"{told}: {' '.join(reply.why().split())}"
    raise Denied(sentence) if reply.status == 403 else Conflict(sentence) if reply.status == 409 else Refused(sentence)


def _index(pod: Document) -> int | None:
    told = pod["metadata"].get("annotations", {}).get("batch.kubernetes.io/job-completion-index", "")
    return int(told) if told.isdecimal() else None


def is_over(job: Document) -> bool:
    """Whether the Job has ended, however."""
    return _ended(job) is not None


def _ended(job: Document) -> tuple[str, str] | None:
    for condition in job["status"].get("conditions", ()):
        if condition["status"] == "True" and condition["type"] in ("Complete", "Failed"):
            phase = "succeeded" if condition["type"] == "Complete" else "failed"
            return phase, str(condition.get("message", ""))
    return None


def _code(pods: list[Document]) -> int:
    """Of the first that failed by itself; 1 where none says."""
    for pod in pods:
        for status in pod["status"].get("containerStatuses", ()):
            code = (status.get("state", {}).get("terminated") or {}).get("exitCode", 0)
            if code:
                return int(code)
    return 1
