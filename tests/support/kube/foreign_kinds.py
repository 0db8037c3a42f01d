"""Kinds of other projects on a test's API server, under schemas that say nothing; tests play their controllers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from functools import partial
from typing import Any

from tests.support.kube.cluster import ApiError, Cluster, until

Kind = tuple[str, str, str]
JOBSET: Kind = ("jobset.x-k8s.io", "v1alpha2", "JobSet")
VOLCANO_GROUP: Kind = ("scheduling.volcano.sh", "v1beta1", "PodGroup")
VOLCANO_JOB: Kind = ("batch.volcano.sh", "v1alpha1", "Job")
KAI_GROUP: Kind = ("scheduling.run.ai", "v2alpha2", "PodGroup")
LEADER_WORKER_SET: Kind = ("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet")
RAY_CLUSTER: Kind = ("ray.io", "v1", "RayCluster")
PYTORCH_JOB: Kind = ("kubeflow.org", "v1", "PyTorchJob")

ANYTHING = {"x-kubernetes-preserve-unknown-fields": True}
FREE: dict[str, Any] = {"type": "object", **ANYTHING}
MANY = {"type": "array", "items": FREE}
SUSPEND = {"suspend": {"type": "boolean"}}
SPECS: dict[Kind, dict[str, Any]] = {
    JOBSET: {**SUSPEND, "replicatedJobs": MANY},
    RAY_CLUSTER: {**SUSPEND, "headGroupSpec": FREE, "workerGroupSpecs": MANY},
    PYTORCH_JOB: {"runPolicy": {"type": "object", "properties": SUSPEND}, "pytorchReplicaSpecs": FREE},
}
"""Where a spec is checked: what is not named the API server drops, so a field that is written elsewhere is lost."""


def serve(cluster: Cluster, kinds: Iterable[Kind]) -> None:
    """They are served, and there is nothing of them in the namespace `default`."""
    for group, version, kind in kinds:
        with contextlib.suppress(ApiError):  # they are there from the test before
            cluster.create(definition(group, version, kind))
        path = f"/apis/{group}/{version}/namespaces/default/{kind.lower()}s"
        until(partial(is_served, cluster, path), 60, f"{kind} of {group} is served")
        cluster.delete(path)


def serve_no_more(cluster: Cluster, kind: Kind) -> None:
    """As if it had never been installed."""
    group, version, name = kind
    cluster.delete(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name.lower()}s.{group}")
    path = f"/apis/{group}/{version}/namespaces/default/{name.lower()}s"
    until(lambda: not is_served(cluster, path), 60, f"{name} of {group} is not served")


def definition(group: str, version: str, kind: str) -> dict[str, Any]:
    name = kind.lower()
    spec = {"type": "object", "properties": SPECS[group, version, kind]} if (group, version, kind) in SPECS else FREE
    anything = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": FREE}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{name}s.{group}",
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/pull/1111"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": f"{name}s", "singular": name},
            "versions": [{"name": version, "served": True, "storage": True, "schema": anything}],
        },
    }


def is_served(cluster: Cluster, path: str) -> bool:
    try:
        return "items" in cluster.get(path)
    except ApiError:
        return False
