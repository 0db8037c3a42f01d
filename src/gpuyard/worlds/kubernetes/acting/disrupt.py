"""A gang taken back off its nodes: by the way that whoever made it does not count as a failure.

Called by `world` in its loop. A Job is suspended, bears our mark meanwhile, and is resumed when its pods are gone,
also by the next leader; where there is no such owner its pods are told that they are disrupted, and deleted. Each write
names the pod by its uid: whoever came in its place is left alone. Grace periods are the pods' own.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gpuyard.kube.client import MERGE, STRATEGIC, ApiUnreachable, KubeClient
from gpuyard.kube.objects import PodObject
from gpuyard.kube.owners import JobObject
from gpuyard.worlds.kubernetes.asking.marks import SUSPENDED
from gpuyard.worlds.kubernetes.gangs import Gathered
from gpuyard.worlds.kubernetes.gathering.controllers import JOB
from gpuyard.worlds.kubernetes.gathering.layouts import Way


class Disruptor:
    """Takes back, and lets begin again."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def take_back(self, found: Gathered, pods: Sequence[PodObject], why: str) -> str:
        """Told to go, all of them; why not, if that could not be done."""
        try:
            if found.way is Way.SUSPEND and found.owner_kind == JOB:
                return await self._suspend(found.owner, why)
            for pod in pods:
                if told := await self._delete(pod, why):
                    return told
        except ApiUnreachable as error:
            return str(error)
        return ""

    async def _suspend(self, job: str, why: str) -> str:
        body = {"metadata": {"annotations": {SUSPENDED: why}}, "spec": {"suspend": True}}
        reply = await self._client.patch(_job_path(job), msgspec.json.encode(body), MERGE)
        return "" if reply.ok else reply.why()

    async def resume(self, job: JobObject) -> None:
        """It may begin again; nothing happens if somebody else has suspended it meanwhile without our mark."""
        body = {"metadata": {"annotations": {SUSPENDED: None}}, "spec": {"suspend": False}}
        await self._client.patch(_job_path(job.metadata.key), msgspec.json.encode(body), MERGE)

    async def _delete(self, pod: PodObject, why: str) -> str:
        path = f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}"
        target = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": why}
        told = {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [target]}}
        await self._client.patch(f"{path}/status", msgspec.json.encode(told), STRATEGIC)
        body = msgspec.json.encode({"preconditions": {"uid": pod.metadata.uid}})
        reply = await self._client.send("DELETE", path, body)
        return "" if reply.ok or reply.status in (404, 409) else reply.why()


def is_taken_back(job: JobObject) -> bool:
    """Whether it is suspended by us, and nothing of it is left."""
    return bool(job.spec.suspend) and bool(job.metadata.annotation(SUSPENDED)) and not job.status.active


def _job_path(key: str) -> str:
    namespace, name = key.split("/")
    return f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}"
