"""Objects made, changed and taken away on an API server, one at a time, each with what became of it.

Used where GPUYard is installed. Server-side apply under one name of ours: what others have settled stays theirs and is
told, what is already so is left alone, and whoever was interrupted begins again and finishes.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from enum import Enum
from typing import Any

from gpuyard.kube.client import ApiRefused, ApiReply, KubeClient

MANAGER = "gpuyard-install"
MADE_BY = "app.kubernetes.io/managed-by"
"""The label by which what was made here is known when it is to go."""
APPLY = "application/apply-patch+yaml"
ESTABLISHED_S = 60.0
LOOK_S = 0.2
PLURALS = {
    "Namespace": "namespaces", "ServiceAccount": "serviceaccounts", "Service": "services",
    "ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings", "Role": "roles",
    "RoleBinding": "rolebindings", "Deployment": "deployments", "DaemonSet": "daemonsets",
    "FlowSchema": "flowschemas", "CustomResourceDefinition": "customresourcedefinitions",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
}  # fmt: skip
DEFAULTING = "MutatingAdmissionPolicy"
"""Kinds that only add defaults: older clusters do without them, and people write those themselves."""
REVISION = "deployment.kubernetes.io/revision"
"""An annotation by which the cluster counts for itself, a moment after something was made."""
VOLATILE = ("resourceVersion", "managedFields", "generation", "creationTimestamp", "uid")


class InstallOutcome(Enum):
    """What became of one object."""

    MADE = "made"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    REFUSED = "refused"
    LEFT_OUT = "left out"
    LEFT = "left alone"
    GONE = "gone"
    ABSENT = "not there"


@dataclass(frozen=True, slots=True)
class InstallStep:
    """One object, and what became of it; `why` where the server said no."""

    what: str
    outcome: InstallOutcome
    why: str = ""

    def __str__(self) -> str:
        return f"{self.what}: {self.outcome.value}{f' ({self.why})' if self.why else ''}"


def name_of(document: dict[str, Any]) -> str:
    """For people: kind and name, with the namespace where it has one."""
    metadata = document["metadata"]
    where = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
    return f"{document['kind']} {where}{metadata['name']}"


def path_of(document: dict[str, Any]) -> str:
    """Where it is on the server."""
    version, metadata = document["apiVersion"], document["metadata"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    inside = f"/namespaces/{metadata['namespace']}" if metadata.get("namespace") else ""
    return f"{root}{inside}/{PLURALS[document['kind']]}/{metadata['name']}"


async def apply(client: KubeClient, document: dict[str, Any], force: bool = False) -> InstallStep:
    """It is so from now on; nothing is written that is so already."""
    what, path = name_of(document), path_of(document)
    before = await client.get(path)
    if before.status not in (200, 404):
        return InstallStep(what, InstallOutcome.REFUSED, before.why())
    params = {"fieldManager": MANAGER, "force": "true" if force else "false"}
    reply = await client.send("PATCH", path, json.dumps(document).encode(), APPLY, params)
    if reply.status == 404 and document["kind"].startswith(DEFAULTING):
        return InstallStep(what, InstallOutcome.LEFT_OUT, "this cluster has no such kind; Kubernetes 1.36 has")
    if not reply.ok:
        return InstallStep(what, InstallOutcome.REFUSED, _why(reply))
    if document["kind"] == "CustomResourceDefinition" and not await _served(client, document):
        return InstallStep(
            what, InstallOutcome.REFUSED, f"it is there and was not served within {ESTABLISHED_S:g} s; run this again"
        )
    if before.status == 404:
        return InstallStep(what, InstallOutcome.MADE)
    return InstallStep(what, InstallOutcome.UNCHANGED if settled(before) == settled(reply) else InstallOutcome.CHANGED)


async def remove(client: KubeClient, document: dict[str, Any]) -> InstallStep:
    """It is gone, or going. What bears the name and not our label somebody else made, and it stays."""
    what, path = name_of(document), path_of(document)
    found = await client.get(path)
    if found.status == 404:
        return InstallStep(what, InstallOutcome.ABSENT)
    if not found.ok:
        return InstallStep(what, InstallOutcome.REFUSED, found.why())
    metadata = json.loads(found.body)["metadata"]
    if metadata.get("deletionTimestamp"):
        return InstallStep(what, InstallOutcome.GONE)
    if document["metadata"]["labels"][MADE_BY] != metadata.get("labels", {}).get(MADE_BY):
        return InstallStep(what, InstallOutcome.LEFT, f"it does not bear our label {MADE_BY}: somebody else made it")
    body = {"propagationPolicy": "Background", "preconditions": {"uid": metadata["uid"]}}
    reply = await client.send("DELETE", path, json.dumps(body).encode())
    if reply.status == 404:
        return InstallStep(what, InstallOutcome.ABSENT)
    return (
        InstallStep(what, InstallOutcome.GONE) if reply.ok else InstallStep(what, InstallOutcome.REFUSED, reply.why())
    )


async def listed(client: KubeClient, path: str, selector: str = "") -> list[dict[str, Any]]:
    """All objects there, or those whose fields are such; none where their kind is not served."""
    found: list[dict[str, Any]] = []
    params = {"limit": "500"} | ({"fieldSelector": selector} if selector else {})
    while True:
        reply = await client.get(path, params)
        if reply.status == 404:
            return []
        if not reply.ok:
            raise ApiRefused(f"listing {path}", reply)
        page = json.loads(reply.body)
        found += page["items"]
        following = page["metadata"].get("continue")
        if not following:
            return found
        params["continue"] = following


def _why(reply: ApiReply) -> str:
    """Where another has settled a field otherwise, who it is, and what to do."""
    if reply.status != 409:
        return reply.why()
    return f"others have settled it otherwise: {' '.join(reply.why().split())}; --force takes it over"


def settled(reply: ApiReply) -> dict[str, Any]:
    """The object as people settle it: without what differs from one making to the next."""
    document = json.loads(reply.body)
    kept = {key: value for key, value in document.items() if key != "status"}
    metadata = {key: value for key, value in document["metadata"].items() if key not in VOLATILE}
    notes = {key: value for key, value in metadata.get("annotations", {}).items() if key != REVISION}
    kept["metadata"] = {**metadata, "annotations": notes}
    return kept


async def _served(client: KubeClient, definition: dict[str, Any]) -> bool:
    """Whether objects of the kind can be had: a server calls it established a moment before it answers for it."""
    spec = definition["spec"]
    version = next(each["name"] for each in spec["versions"] if each["served"])
    kind = f"/apis/{spec['group']}/{version}/{spec['names']['plural']}"
    for _ in range(int(ESTABLISHED_S / LOOK_S)):
        if await _established(client, path_of(definition)) and (await client.get(kind, {"limit": "1"})).status != 404:
            return True
        await asyncio.sleep(LOOK_S)
    return False


async def _established(client: KubeClient, path: str) -> bool:
    reply = await client.get(path)
    told = (json.loads(reply.body).get("status", {}).get("conditions") if reply.ok else None) or ()
    return any(each["type"] == "Established" and each["status"] == "True" for each in told)
