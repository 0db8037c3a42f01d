"""What `yard install` makes on a cluster, in which order, and how it is taken away again.

Called by the command line. Every step can be done again, and each leaves a state that is right by itself: rights before
programs, programs before policies, so that nobody's pod is ever bound by a rule whose program is not there; away in the
opposite order. What runs on the cluster goes on through both.
"""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpuyard.kube import applying, manifests
from gpuyard.kube.applying import InstallOutcome, InstallStep
from gpuyard.kube.client import ApiRefused, KubeClient
from gpuyard.kube.definitions import gpu_nodes
from gpuyard.runtime.clustered import letting_go
from gpuyard.worlds.kubernetes import queues

EXCEPTED = ("kube-system", "gpu-operator")
"""Namespaces whose pods may name their node and have their GPUs from others: the vendor's validator does both."""
MANAGED_BY = {applying.MADE_BY: "yard-install", "app.kubernetes.io/part-of": "gpuyard"}
API_PORT, TLS = 8443, "/etc/gpuyard/tls"
KUBELET = "/etc/gpuyard/kubelet.yaml"
Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class InstallWish:
    """What is to be there."""

    namespace: str = manifests.NAMESPACE
    image: str = ""
    """Of the programs; "" where they are run by somebody else."""
    exclusive: bool = False
    """Whether pods that ask another scheduler for GPUs are refused."""
    excepted: tuple[str, ...] = ()
    policies: bool = True
    tls_secret: str = ""
    """Of the namespace: the certificate under which the yard's API is served to teams; "": it is not served."""
    kubelet_config: str = ""
    """Where nodes keep their kubelet's configuration, which agents read its topology policy from; "": they do not."""


def documents(wish: InstallWish) -> list[Document]:
    """Everything, in the order in which it is made."""
    made = _rights(wish, "scheduler.yaml")
    namespace, rights = made[:1], made[1:]
    rights += [each for name in ("agent.yaml", "nodes.yaml", "tenants.yaml") for each in _rights(wish, name)]
    programs = manifests.documents("programs.yaml", wish.namespace, wish.image) if wish.image else []
    if wish.image and wish.tls_secret:
        programs = [_served(each, wish.tls_secret) for each in programs]
        programs += manifests.documents("service.yaml", wish.namespace)
    if wish.kubelet_config:
        programs = [_reading_kubelet(each, wish.kubelet_config) for each in programs]
    rules = [*_policies(wish, "policies.yaml")] if wish.policies else []
    rules += [*_policies(wish, "exclusive.yaml")] if wish.exclusive else []
    kinds = [queues.definition(), gpu_nodes.definition()]
    return [_marked(each) for each in (*namespace, *kinds, *rights, *programs, *rules)]


def everything(namespace: str) -> list[Document]:
    """Whatever any wish could have made: this is what is taken away."""
    return documents(InstallWish(namespace, manifests.IMAGE, exclusive=True, tls_secret="any"))


def _served(document: Document, secret: str) -> Document:
    """The scheduler with its door for teams open. A kubelet brings the Secret: no account of ours may read it."""
    if (document["kind"], document["metadata"]["name"]) != ("Deployment", "gpuyard-scheduler"):
        return document
    opened: Document = copy.deepcopy(document)
    pod = opened["spec"]["template"]["spec"]
    container = pod["containers"][0]
    container["args"] += [
        "--listen",
        f"0.0.0.0:{API_PORT}",
        "--certificate",
        f"{TLS}/tls.crt",
        "--key",
        f"{TLS}/tls.key",
    ]
    container["ports"] = [{"name": "api", "containerPort": API_PORT, "protocol": "TCP"}]
    container["volumeMounts"].append({"name": "tls", "mountPath": TLS, "readOnly": True})
    pod["securityContext"]["fsGroup"] = pod["securityContext"]["runAsUser"]
    pod["volumes"].append({"name": "tls", "secret": {"secretName": secret, "defaultMode": 0o440}})
    return opened


def _reading_kubelet(document: Document, path: str) -> Document:
    """The agent with that one file of its node. Where there is none it does not start and its events say so: without
    `File` the runtime would make a folder of that name, on which the kubelet would fail."""
    if document["kind"] != "DaemonSet":
        return document
    reading: Document = copy.deepcopy(document)
    pod = reading["spec"]["template"]["spec"]
    container = pod["containers"][0]
    container["args"] += ["--kubelet-config", KUBELET]
    container["volumeMounts"].append({"name": "kubelet", "mountPath": KUBELET, "readOnly": True})
    pod["volumes"].append({"name": "kubelet", "hostPath": {"path": path, "type": "File"}})
    return reading


def _rights(wish: InstallWish, name: str) -> list[Document]:
    return manifests.documents(name, wish.namespace)


def _policies(wish: InstallWish, name: str) -> list[Document]:
    found = manifests.documents(name, wish.namespace)
    for document in found:
        for each in _expressions(document):
            if each["values"] == ["excepted-namespaces"]:
                each["values"] = sorted({*EXCEPTED, wish.namespace, *wish.excepted})
    return found


def _expressions(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    selector = document["spec"].get("matchResources", {}).get("namespaceSelector", {})
    return list(selector.get("matchExpressions", ()))


def _marked(document: Document) -> Document:
    metadata = document["metadata"]
    return {**document, "metadata": {**metadata, "labels": {**metadata.get("labels", {}), **MANAGED_BY}}}


# --- there -----------------------------------------------------------------------------------------


async def install(client: KubeClient, wish: InstallWish, force: bool = False) -> AsyncIterator[InstallStep]:
    """One step after another, each as it is done. What is wished for no more is taken away."""
    wanted = documents(wish)
    refused = False
    if wish.tls_secret and (lacking := await _lacking_secret(client, wish)) is not None:
        yield lacking
        return
    for document in wanted:
        step = await applying.apply(client, document, force)
        refused = refused or step.outcome is InstallOutcome.REFUSED
        yield step
    if refused:
        return
    names = {applying.name_of(document) for document in wanted}
    for document in reversed(everything(wish.namespace)):
        if applying.name_of(document) not in names:
            step = await applying.remove(client, document)
            if step.outcome is not InstallOutcome.ABSENT:
                yield step


async def _lacking_secret(client: KubeClient, wish: InstallWish) -> InstallStep | None:
    """Without it no scheduler would start, so nothing is touched; who may not look is trusted."""
    reply = await client.get(f"/api/v1/namespaces/{wish.namespace}/secrets/{wish.tls_secret}")
    there = set(json.loads(reply.body).get("data") or {}) if reply.ok else set()
    if reply.status != 404 and (not reply.ok or {"tls.crt", "tls.key"} <= there):
        return None
    told = "it has not both tls.crt and tls.key" if reply.ok else "it is not there"
    how = f"kubectl create secret tls {wish.tls_secret} -n {wish.namespace} --cert FILE --key FILE"
    what = f"Secret {wish.namespace}/{wish.tls_secret}"
    return InstallStep(what, InstallOutcome.REFUSED, f"{told}, and no scheduler starts without it: `{how}`")


# --- and away --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Leaving:
    """What goes when it is taken away, and what that means for work."""

    queues: int = 0
    gpu_nodes: int = 0
    running: int = 0
    waiting: int = 0
    """Pods for our scheduler without a node: nobody will place them."""
    suspended: tuple[str, ...] = ()
    """Jobs that we have suspended, and that are resumed."""


async def leaving(client: KubeClient, scheduler: str = "gpuyard") -> Leaving:
    """Looked at before anything is done."""
    ours = await applying.listed(client, "/api/v1/pods", f"spec.schedulerName={scheduler}")
    pods = [pod for pod in ours if pod["status"].get("phase") in ("Pending", "Running")]
    placed = sum(bool(pod["spec"].get("nodeName")) for pod in pods)
    return Leaving(
        len(await applying.listed(client, queues.QUEUES.path)),
        len(await applying.listed(client, gpu_nodes.GPU_NODES.path)),
        placed,
        len(pods) - placed,
        tuple([owner.key for owner in await letting_go.suspended(client)]),
    )


async def uninstall(client: KubeClient, namespace: str, keep_queues: bool = False) -> AsyncIterator[InstallStep]:
    """Away, in the opposite order. Jobs that we had suspended go on: nobody else would ever resume them."""
    for document in reversed(everything(namespace)):
        if document["kind"] == "Namespace":
            continue
        if document["kind"] == "CustomResourceDefinition":
            if document["spec"]["names"]["kind"] == "GpuNode":  # the first of both: programs and rights are gone
                async for step in letting_go.let_go(client):
                    yield step
            elif keep_queues:
                continue
        yield await applying.remove(client, document)
    yield await _remove_namespace(client, namespace)


async def _remove_namespace(client: KubeClient, namespace: str) -> InstallStep:
    """Only where we made it: what somebody else made may hold more than ours."""
    return await applying.remove(
        client, _marked({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    )


__all__ = [
    "ApiRefused",
    "InstallOutcome",
    "InstallStep",
    "InstallWish",
    "Leaving",
    "documents",
    "install",
    "leaving",
    "uninstall",
]
