"""Nodes and pods on the API server, and their end. Nodes differ by kilobytes of memory, as real ones do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

from gpuyard.kube.client import STRATEGIC, KubeClient
from tests.support.kube.fake_kubelet import condition, indexed_job, pod_spec

GPUS = 8
GANG = 64
PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
AT_ONCE = 24


async def make_nodes(client: KubeClient, count: int) -> None:
    """Ready, of eight GPUs each."""

    async def make(index: int) -> None:
        name = f"n{index}"
        labels = {"kubernetes.io/hostname": name, "nvidia.com/gpu.product": "H100-SXM5-80GB"}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
        await must(client, "POST", "/api/v1/nodes", body)
        memory = f"{1056 * 1024 * 1024 - 4 * index}Ki"
        amounts = {"cpu": "128", "memory": memory, "pods": "250", "nvidia.com/gpu": str(GPUS)}
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [condition()]}
        await must(client, "PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, STRATEGIC)
        await must(client, "PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}}, "application/merge-patch+json")

    await all_of(make(index) for index in range(count))


async def make_pods(client: KubeClient, workload: str, count: int, scheduler: str) -> int:
    """So many pods, or gangs of them, that wait."""
    jobs = await make_jobs(client, count) if workload == "gangs" else {}
    documents = list(gang_pods(jobs, scheduler) if workload == "gangs" else singles(count, scheduler))
    await all_of(must(client, "POST", PODS, document) for document in documents)
    return len(documents)


def singles(count: int, scheduler: str, name: str = "p") -> Iterator[dict[str, Any]]:
    """Of one GPU each."""
    for index in range(count):
        spec = pod_spec(1, cpu="4", memory="16Gi", scheduler=scheduler)
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"{name}{index}"}, "spec": spec}


async def make_jobs(client: KubeClient, gangs: int) -> dict[str, str]:
    """Indexed Jobs whose pods are made here: there is no controller that would."""
    uids = {}
    for index in range(gangs):
        made = await must(client, "POST", JOBS, indexed_job(f"gang{index}", GANG))
        uids[f"gang{index}"] = made["metadata"]["uid"]
    return uids


def gang_pods(jobs: dict[str, str], scheduler: str) -> Iterator[dict[str, Any]]:
    """As the Job controller makes them."""
    for job, uid in jobs.items():
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": uid, "controller": True}
        for index in range(GANG):
            notes = {"batch.kubernetes.io/job-completion-index": str(index)}
            metadata = {"name": f"{job}-{index}", "annotations": notes, "ownerReferences": [owner]}
            spec = pod_spec(1, cpu="4", memory="16Gi", scheduler=scheduler, restartPolicy="Never")
            yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


async def clear(client: KubeClient) -> None:
    """No pods and no Jobs."""
    for path in (PODS, JOBS):
        while json.loads((await client.get(path, {"limit": "1"})).body)["items"]:
            wish = {"gracePeriodSeconds": "0", "propagationPolicy": "Background"}
            await client.send("DELETE", path, b"", params=wish, timeout=120)


async def all_of(works: Iterator[Any]) -> None:
    """Many at once, and no more of them than help."""

    async def drive() -> None:
        for work in works:
            await work

    await asyncio.gather(*(drive() for _ in range(AT_ONCE)))


async def must(client: KubeClient, method: str, path: str, body: Any, kind: str = "application/json") -> Any:
    """Done, or the run is over."""
    content = json.dumps(body).encode()
    sent = client.post(path, content, 120) if method == "POST" else client.send(method, path, content, kind)
    reply = await sent
    if not reply.ok:
        raise SystemExit(f"{method} {path}: {reply.why()}")
    return json.loads(reply.body)
