"""Which kinds of owners a cluster has, and of our own: looked for again and again, for they may be installed later.

Called by `world` in its loop. A kind that is not served is not waited for; one that is served is watched as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from gpuyard.kube.client import ApiRefused, KubeClient
from gpuyard.kube.definitions import gpu_nodes
from gpuyard.kube.owners import (
    JobObject,
    JobSetObject,
    KubeflowObject,
    LeaderWorkerSetObject,
    PodGroupObject,
    RayClusterObject,
    ReplicasObject,
)
from gpuyard.kube.reflector import ObjectKind
from gpuyard.worlds.kubernetes import queues
from gpuyard.worlds.kubernetes.gathering.controllers import KUBEFLOW

EVERY_S = 30.0
"""How often it is looked whether a kind was installed."""
SHAPES: dict[str, Any] = {
    queues.KIND: queues.QueueObject,
    gpu_nodes.KIND: gpu_nodes.GpuNodeObject,
    "Job.batch": JobObject,
    "StatefulSet.apps": ReplicasObject,
    "JobSet.jobset.x-k8s.io": JobSetObject,
    "LeaderWorkerSet.leaderworkerset.x-k8s.io": LeaderWorkerSetObject,
    "RayCluster.ray.io": RayClusterObject,
    "PodGroup.scheduling.k8s.io": PodGroupObject,
    "PodGroup.scheduling.x-k8s.io": PodGroupObject,
    "PodGroup.scheduling.volcano.sh": PodGroupObject,
    "PodGroup.scheduling.run.ai": PodGroupObject,
    **dict.fromkeys(KUBEFLOW, KubeflowObject),
}


class _Version(msgspec.Struct, rename="camel"):
    group_version: str


class _Group(msgspec.Struct, rename="camel"):
    name: str
    preferred_version: _Version


class _Groups(msgspec.Struct):
    groups: list[_Group]


class _Resource(msgspec.Struct):
    name: str
    kind: str


class _Resources(msgspec.Struct):
    resources: list[_Resource]


@dataclass(frozen=True, slots=True)
class ServedKind:
    """One kind that this cluster serves."""

    name: str
    objects: ObjectKind[Any]


async def served(client: KubeClient, known: frozenset[str]) -> list[ServedKind]:
    """Those that are served by now and were not known.

    Not to be told is not to be absent: pods of an owner whose kind is thought to be missing would be taken for pods
    that stand alone. So `ApiRefused` is raised, and asked again.
    """
    groups = {name.split(".", 1)[1] for name in SHAPES.keys() - known}
    listed = await client.get("/apis")
    if not listed.ok:
        raise ApiRefused("asking which kinds there are", listed)
    found = []
    for group in msgspec.json.decode(listed.body, type=_Groups).groups:
        if group.name in groups:
            found += [kind for kind in await _of_group(client, group) if kind.name not in known]
    return found


async def path_of(client: KubeClient, name: str) -> str:
    """Where objects of a kind lie, by `Kind.group`; "" where the server has none."""
    kind, _, group = name.partition(".")
    listed = await client.get("/apis")
    if not listed.ok:
        raise ApiRefused("asking which kinds there are", listed)
    for each in msgspec.json.decode(listed.body, type=_Groups).groups:
        if each.name == group:
            path, named = await _named(client, each)
            return f"{path}/{named[kind]}" if kind in named else ""
    return ""


async def _named(client: KubeClient, group: _Group) -> tuple[str, dict[str, str]]:
    """The path of a group in the version that the server prefers, and its kinds by what they are called there."""
    path = f"/apis/{group.preferred_version.group_version}"
    reply = await client.get(path)
    if reply.status == 404:
        return path, {}
    if not reply.ok:
        raise ApiRefused(f"asking for the kinds of {group.name}", reply)
    resources = msgspec.json.decode(reply.body, type=_Resources).resources
    return path, {each.kind: each.name for each in resources if "/" not in each.name}


async def _of_group(client: KubeClient, group: _Group) -> list[ServedKind]:
    path, named = await _named(client, group)
    found = {f"{kind}.{group.name}": plural for kind, plural in named.items()}
    return [ServedKind(name, ObjectKind(f"{path}/{found[name]}", SHAPES[name])) for name in found if name in SHAPES]
