"""Kubelets without machines: nodes with GPUs, pods that run for as long as they say, and every way to go wrong.

One asyncio loop in a thread plays all of them. It admits pods as a kubelet does: whoever asks for more GPUs, CPU or
memory than are left fails with `UnexpectedAdmissionError` or `OutOf…`, for good. Annotations tell what a pod does:

    fake/run-s: "2"        run so long, then succeed; without it for ever
    fake/exit: "1"         fail instead of succeeding
    fake/linger: "…"       do not end when told to, until `let_go` is set
    fake/image: missing    never start: the image cannot be pulled
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from gpuyard.kube.client import STRATEGIC, ApiUnreachable, KubeClient
from gpuyard.kube.objects import PodObject
from gpuyard.kube.quantities import milli, whole
from gpuyard.runtime.clock import SystemClock
from tests.support.kube.cluster import ApiError, Cluster

GPU = "nvidia.com/gpu"
HEARTBEAT_S = 20.0


@dataclass
class FakeNode:
    """One machine."""

    name: str
    gpus: int = 8
    cpu: str = "64"
    memory: str = "512Gi"
    labels: dict[str, str] = field(default_factory=dict)
    alive: bool = True
    admitted: dict[str, dict[str, int]] = field(default_factory=dict)
    """What each pod holds, by uid."""

    @property
    def amounts(self) -> dict[str, str]:
        return {GPU: str(self.gpus), "cpu": self.cpu, "memory": self.memory, "pods": "250"}


class FakeKubelets:
    """All kubelets of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.nodes: dict[str, FakeNode] = {}
        self.admissions: list[tuple[str, str, str]] = []
        """(pod, node, what became of it), in the order in which they were admitted."""
        self.time: Callable[[], float] = time.monotonic
        """By this clock pods run for as long as they say."""
        self.let_go = threading.Event()
        """Whether pods that linger end now."""
        self._seen: set[str] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._up = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live()), daemon=True)
        self._thread.start()
        self._up.wait()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(60)

    # --- nodes -----------------------------------------------------------------------------------------

    def add(self, *nodes: FakeNode) -> None:
        """Machines that are there, and ready."""
        for node in nodes:
            self.nodes[node.name] = node
            labels = {"kubernetes.io/hostname": node.name, "nvidia.com/gpu.product": "H100-SXM5-80GB", **node.labels}
            self.cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node.name, "labels": labels}})
            self.report(node)
            self.cluster.merge(f"/api/v1/nodes/{node.name}", {"spec": {"taints": None}})

    def report(self, node: FakeNode, allocatable: int | None = None, ready: str = "True") -> None:
        """What its kubelet says; with `allocatable` it lies about its GPUs."""
        amounts = node.amounts if allocatable is None else node.amounts | {GPU: str(allocatable)}
        status = {"capacity": node.amounts, "allocatable": amounts, "conditions": [condition(ready)]}
        path = f"/api/v1/nodes/{node.name}/status"
        self.cluster.call("PATCH", path, {"status": status}, STRATEGIC)

    def die(self, name: str) -> None:
        """No sign of life from now on, and its controller has waited long enough for one; its pods are never heard of
        again."""
        self.nodes[name].alive = False
        self.report(self.nodes[name], ready="Unknown")

    def remove(self, name: str) -> None:
        """The machine is taken away."""
        del self.nodes[name]
        self.cluster.delete(f"/api/v1/nodes/{name}")

    def lose(self, name: str) -> None:
        """The machine is taken away, and its pods go as the collector of orphaned pods does it after a minute."""
        self.remove(name)
        target = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC", "message": "no node"}
        for pod in self.cluster.get(f"/api/v1/pods?fieldSelector=spec.nodeName={name}")["items"]:
            where = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
            failed = {"status": {"phase": "Failed", "conditions": [target]}}
            with contextlib.suppress(ApiError):
                if pod["status"]["phase"] not in ("Succeeded", "Failed"):
                    self.cluster.call("PATCH", f"{where}/status", failed, STRATEGIC)
            self.cluster.delete(where, 0)

    def finish(self, prefix: str) -> None:
        """Pods of that name that run end now, and have succeeded."""
        for pod in self.cluster.pods():
            metadata = pod["metadata"]
            if metadata["name"].startswith(prefix) and pod["status"]["phase"] == "Running":
                self.nodes[pod["spec"]["nodeName"]].admitted.pop(metadata["uid"], None)
                over = [container({"terminated": {"exitCode": 0, "finishedAt": now()}})]
                status = {"phase": "Succeeded", "containerStatuses": over}
                path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/status"
                self.cluster.call("PATCH", path, {"status": status}, STRATEGIC)

    def forget_all(self) -> None:
        """As after `Cluster.clean`."""
        self.nodes.clear()
        self.admissions.clear()
        self.time = time.monotonic
        self.let_go.clear()

    # --- the loop --------------------------------------------------------------------------------------

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self.client = await KubeClient(self.cluster.access(self.cluster.token), SystemClock()).open()
        works = [asyncio.create_task(self._watch()), asyncio.create_task(self._beat())]
        self._up.set()
        await self._stopping.wait()
        for task in (*works, *self._tasks):
            task.cancel()
        await asyncio.gather(*works, *self._tasks, return_exceptions=True)
        await self.client.close()

    async def _watch(self) -> None:
        decoder = msgspec.json.Decoder(_Event)
        while True:
            try:
                params = {"watch": "1", "fieldSelector": "spec.nodeName!="}
                async with self.client.lines("/api/v1/pods", params, 600.0) as lines:
                    async for batch in lines.batches:
                        for line in filter(None, batch):
                            if line.startswith((b'{"type":"ADDED"', b'{"type":"MODIFIED"')):
                                self._see(decoder.decode(line).object)
            except ApiUnreachable:
                await asyncio.sleep(0.2)
            else:
                await asyncio.sleep(0.05)

    def _see(self, pod: PodObject) -> None:
        node = self.nodes.get(pod.spec.node_name)
        if node is None or not node.alive:
            return
        uid = pod.metadata.uid
        if pod.metadata.deletion_timestamp is not None:
            if f"{uid}!" not in self._seen:
                self._seen.add(f"{uid}!")
                self._do(self._end(node, pod))
        elif uid not in self._seen and pod.status.phase == "Pending":
            self._seen.add(uid)
            self._do(self._run(node, pod))

    def _do(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- pods ------------------------------------------------------------------------------------------

    async def _run(self, node: FakeNode, pod: PodObject) -> None:
        refused = self._admit(node, pod)
        self.admissions.append((pod.metadata.key, node.name, refused or "admitted"))
        if refused:
            reason = "UnexpectedAdmissionError" if refused == GPU else f"OutOf{refused}"
            await self._status(pod, {"phase": "Failed", "reason": reason, "message": f"not enough {refused}"})
            return
        if pod.metadata.annotation("fake/image") == "missing":
            waiting = {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}
            await self._status(pod, {"containerStatuses": [container(waiting)]})
            return
        running = {"running": {"startedAt": now()}}
        ready = {"type": "Ready", "status": "True"}
        status = {
            "phase": "Running",
            "startTime": now(),
            "containerStatuses": [container(running)],
            "conditions": [ready],
        }
        await self._status(pod, status)
        if lasts := pod.metadata.annotation("fake/run-s"):
            await self._last(float(lasts))
            if not node.alive:
                return
            code = int(pod.metadata.annotation("fake/exit") or 0)
            node.admitted.pop(pod.metadata.uid, None)
            over = {"terminated": {"exitCode": code, "finishedAt": now()}}
            phase = "Failed" if code else "Succeeded"
            await self._status(pod, {"phase": phase, "containerStatuses": [container(over)]})

    async def _last(self, seconds: float) -> None:
        end = self.time() + seconds
        while (left := end - self.time()) > 0:
            await asyncio.sleep(min(left, 0.05))

    def _admit(self, node: FakeNode, pod: PodObject) -> str:
        """The resource that it may not have; "" if it is admitted."""
        wanted = {GPU: 0, "cpu": 0, "memory": 0}
        for each in pod.spec.containers or ():
            asked = (each.resources.requests or {}) if each.resources is not None else {}
            wanted[GPU] += whole(asked.get(GPU))
            wanted["cpu"] += milli(asked.get("cpu"))
            wanted["memory"] += whole(asked.get("memory"))
        there = {GPU: node.gpus, "cpu": milli(node.cpu), "memory": whole(node.memory)}
        for name, amount in wanted.items():
            if amount + sum(held[name] for held in node.admitted.values()) > there[name]:
                return name
        node.admitted[pod.metadata.uid] = wanted
        return ""

    async def _end(self, node: FakeNode, pod: PodObject) -> None:
        await asyncio.sleep(0.05)
        while pod.metadata.annotation("fake/linger") and not self.let_go.is_set():
            await asyncio.sleep(0.05)
        node.admitted.pop(pod.metadata.uid, None)
        body = msgspec.json.encode({"gracePeriodSeconds": 0, "preconditions": {"uid": pod.metadata.uid}})
        await self._say("DELETE", path(pod), body)
        if pod.status.phase not in ("Succeeded", "Failed"):  # a Job with a failure policy waits to hear how it ended
            over = [container({"terminated": {"exitCode": 137, "finishedAt": now()}})]
            await self._status(pod, {"phase": "Failed", "containerStatuses": over})

    async def _status(self, pod: PodObject, status: dict[str, Any]) -> None:
        body = {"metadata": {"uid": pod.metadata.uid}, "status": status}
        await self._say("PATCH", f"{path(pod)}/status", msgspec.json.encode(body), STRATEGIC)

    async def _say(self, method: str, where: str, body: bytes, kind: str = "application/json") -> None:
        """Until it was heard: an API server that is away comes back."""
        while True:
            try:
                reply = await self.client.send(method, where, body, kind)
                if reply.status < 500 and reply.status != 429:
                    return
            except ApiUnreachable:
                pass
            await asyncio.sleep(0.2)

    async def _beat(self) -> None:
        """Signs of life, so that the controllers leave the nodes alone."""
        while True:
            for node in [node for node in self.nodes.values() if node.alive]:
                body = msgspec.json.encode({"status": {"conditions": [condition()]}})
                try:
                    await self.client.patch(f"/api/v1/nodes/{node.name}/status", body, STRATEGIC)
                except ApiUnreachable:
                    break
            await asyncio.sleep(HEARTBEAT_S)


class _Event(msgspec.Struct):
    object: PodObject


def path(pod: PodObject) -> str:
    return f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}"


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def condition(ready: str = "True") -> dict[str, str]:
    reason = {"True": "KubeletReady", "False": "KubeletNotReady", "Unknown": "NodeStatusUnknown"}[ready]
    return {
        "type": "Ready", "status": ready, "reason": reason, "message": "",
        "lastHeartbeatTime": now(), "lastTransitionTime": now(),
    }  # fmt: skip


def container(state: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "main",
        "image": "x",
        "imageID": "x",
        "ready": "running" in state,
        "restartCount": 0,
        "state": state,
    }


# --- what is asked for ---------------------------------------------------------------------------------


def pod(name: str, gpus: int = 1, **more: Any) -> dict[str, Any]:
    """A pod for our scheduler; `notes` are annotations, `spec` and `labels` are added to."""
    notes = {f"fake/{key}": str(value) for key, value in more.pop("notes", {}).items()}
    metadata = {"name": name, "annotations": notes, "labels": more.pop("labels", {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec(gpus, **more)}


def pod_spec(
    gpus: int = 1, cpu: str = "1", memory: str = "1Gi", scheduler: str = "gpuyard", **spec: Any
) -> dict[str, Any]:
    """Of such a pod."""
    amounts = {"cpu": cpu, "memory": memory}
    limits = {GPU: str(gpus)} if gpus else {}
    resources = {"requests": amounts | limits, "limits": limits}
    return {
        "schedulerName": scheduler,
        "containers": [{"name": "main", "image": "x", "resources": resources}],
        "terminationGracePeriodSeconds": 1,
        **spec,
    }


def indexed_job(name: str, tasks: int, gpus: int = 1, **more: Any) -> dict[str, Any]:
    """A Job whose pods are a gang."""
    notes = {f"fake/{key}": str(value) for key, value in more.pop("notes", {}).items()}
    job = {"parallelism": tasks, "completions": tasks, "completionMode": "Indexed", **more.pop("job", {})}
    template = {"metadata": {"annotations": notes}, "spec": pod_spec(gpus, restartPolicy="Never", **more)}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {**job, "template": template}}


__all__ = ["ApiError", "FakeKubelets", "FakeNode", "indexed_job", "pod", "pod_spec"]
