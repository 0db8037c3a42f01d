"""What we have left on things of others, taken off them: our marks on Nodes, and Jobs that nobody else would resume.

Called by `installing` once programs, rights and policies are gone. Each write is for the object as it was read: whoever
was faster is looked at again, and whoever came in its place is not touched for what another was.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from gpuyard.kube import applying
from gpuyard.kube.applying import InstallOutcome, InstallStep
from gpuyard.kube.client import MERGE, STRATEGIC, ApiReply, KubeClient
from gpuyard.kube.definitions import gpu_nodes
from gpuyard.kube.owners import JobObject
from gpuyard.runtime.clustered import node_marks
from gpuyard.worlds.kubernetes import kinds, queues
from gpuyard.worlds.kubernetes.asking.marks import FULL_SIZE, SUSPENDED
from gpuyard.worlds.kubernetes.gathering import controllers

FORGETTING = 30
"""So often, a second apart, it is tried what a policy forbade that is gone: API servers hear of it a little later."""
AGAIN_S = 0.1
JOBS = "/apis/batch/v1/jobs"


@dataclass(frozen=True, slots=True)
class Suspended:
    """Whoever makes pods, and bears our mark."""

    kind: str
    key: str
    path: str


async def suspended(client: KubeClient) -> list[Suspended]:
    """Of all kinds that we can suspend and that are served there."""
    found = []
    for kind in await kinds.served(client, frozenset()):
        if kind.name in (queues.KIND, gpu_nodes.KIND):
            continue
        root, _, plural = kind.objects.path.rpartition("/")
        for owner in await applying.listed(client, kind.objects.path):
            metadata = owner["metadata"]
            if SUSPENDED in metadata.get("annotations", {}):
                path = f"{root}/namespaces/{metadata['namespace']}/{plural}/{metadata['name']}"
                found.append(Suspended(kind.name, f"{metadata['namespace']}/{metadata['name']}", path))
    return found


async def let_go(client: KubeClient) -> AsyncIterator[InstallStep]:
    """One thing after another."""
    for owner in await suspended(client):
        yield await resumed(client, owner)
    for job in await applying.listed(client, JOBS):
        metadata = job["metadata"]
        if FULL_SIZE in metadata.get("annotations", {}):
            what = f"Job {metadata['namespace']}/{metadata['name']}, made smaller by us and large again"
            path = f"/apis/batch/v1/namespaces/{metadata['namespace']}/jobs/{metadata['name']}"
            yield await _changed(client, what, path, _full_again)
    for node in await applying.listed(client, "/api/v1/nodes"):
        name = node["metadata"]["name"]
        if node_marks.bears_condition(node):
            yield _done(f"Condition {node_marks.CONDITION} of Node {name}", await _without_condition(client, name))
        if node_marks.is_labelled(node):
            yield _done(f"Labels that we wrote on Node {name}", await _without_labels(client, name))
        if node_marks.NOTE in node["metadata"].get("annotations", {}):
            yield _done(f"Taint that we set on Node {name}", await _without_taint(client, name))


async def resumed(client: KubeClient, owner: Suspended) -> InstallStep:
    """It makes its pods again and bears no mark; one that somebody else has resumed meanwhile only loses the mark."""
    what = f"{owner.kind.partition('.')[0]} {owner.key}, suspended by us and resumed"
    return await _changed(client, what, owner.path, lambda found: _resumption(owner.kind, found))


async def _changed(
    client: KubeClient, what: str, path: str, change: Callable[[ApiReply], dict[str, Any] | None]
) -> InstallStep:
    """Read, changed, written; again where somebody was faster, or a policy is not forgotten yet."""
    for _ in range(FORGETTING):
        reply = await client.get(path)
        if reply.status == 404:
            return InstallStep(what, InstallOutcome.ABSENT)
        if reply.ok:
            body = change(reply)
            if body is None:
                return InstallStep(what, InstallOutcome.ABSENT, "it bears no mark of ours any more")
            reply = await client.patch(path, json.dumps(body).encode(), MERGE)
        if reply.status not in (403, 409):
            break
        await asyncio.sleep(AGAIN_S if reply.status == 409 else 1.0)
    return _done(what, reply)


def _resumption(kind: str, found: ApiReply) -> dict[str, Any] | None:
    """Of the very object that was read, as it was read."""
    owner: Any = msgspec.json.decode(found.body, type=kinds.SHAPES[kind])
    if not owner.metadata.annotation(SUSPENDED):
        return None
    read = {"uid": owner.metadata.uid, "resourceVersion": owner.metadata.resource_version}
    body: dict[str, Any] = {"metadata": {**read, "annotations": {SUSPENDED: None}}}
    return body | ({"spec": controllers.suspension(kind, False)} if controllers.is_suspended(owner) else {})


def _full_again(found: ApiReply) -> dict[str, Any] | None:
    """As large as it was before it gave back extras, where it may still be resized; without our mark in any case."""
    job = msgspec.json.decode(found.body, type=JobObject)
    if not job.metadata.annotation(FULL_SIZE):
        return None
    read = {"uid": job.metadata.uid, "resourceVersion": job.metadata.resource_version}
    body: dict[str, Any] = {"metadata": {**read, "annotations": {FULL_SIZE: None}}}
    full = controllers.full_size(job)
    larger = full > (job.spec.parallelism or 0)
    return body | ({"spec": {"parallelism": full, "completions": full}} if larger else {})


async def _without_condition(client: KubeClient, name: str) -> ApiReply:
    gone = {"status": {"conditions": [{"type": node_marks.CONDITION, "$patch": "delete"}]}}
    return await client.patch(f"/api/v1/nodes/{name}/status", json.dumps(gone).encode(), STRATEGIC)


async def _without_labels(client: KubeClient, name: str) -> ApiReply:
    """Applied empty: what others hold, too, stays."""
    empty = json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}).encode()
    params = {"fieldManager": node_marks.NODES_MANAGER}
    return await client.send("PATCH", f"/api/v1/nodes/{name}", empty, applying.APPLY, params)


async def _without_taint(client: KubeClient, name: str) -> ApiReply:
    """The node is read anew: its kubelet writes to it all the time."""
    path = f"/api/v1/nodes/{name}"
    for _ in range(FORGETTING):
        reply = await client.get(path)
        patch = node_marks.taint_patch(json.loads(reply.body), None) if reply.ok else []
        if not patch:
            return reply
        reply = await client.patch(path, json.dumps(patch).encode(), node_marks.JSON_PATCH)
        if reply.status not in (409, 422):  # a test that fails is answered by 422
            return reply
        await asyncio.sleep(AGAIN_S)
    return reply


def _done(what: str, reply: ApiReply) -> InstallStep:
    if reply.status == 404:
        return InstallStep(what, InstallOutcome.ABSENT)
    return (
        InstallStep(what, InstallOutcome.GONE) if reply.ok else InstallStep(what, InstallOutcome.REFUSED, reply.why())
    )
