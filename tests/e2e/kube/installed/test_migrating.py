"""Manifests for kube-scheduler, unmodified, in a namespace that is managed: their pods are ours."""

from __future__ import annotations

import pytest

from tests.e2e.kube.installed.conftest import Person
from tests.support.kube.cluster import UP_S, ApiError, Cluster, until
from tests.support.kube.components import NEEDS_DEFAULTS
from tests.support.kube.fake_kubelet import pod
from tests.support.kube.migrating import manifests

pytestmark = pytest.mark.slow


def is_managed(cluster: Cluster) -> bool:
    """Whether a pod for another scheduler is taken there: the API server hears of labels a moment later."""
    try:
        document = pod("probe", 1, scheduler="default-scheduler")
        cluster.call("POST", "/api/v1/namespaces/team-b/pods?dryRun=All", document)
    except ApiError:
        return False
    return True


@NEEDS_DEFAULTS
def test_unmodified_manifests_are_ours_in_a_namespace_that_is_managed(installed: Cluster, bob: Person):
    installed.merge("/api/v1/namespaces/team-b", {"metadata": {"labels": {"gpuyard.dev/managed": "true"}}})
    try:
        until(lambda: is_managed(installed), UP_S, "the label is known")
        for document in manifests("kube-scheduler/before"):
            installed.create({**document, "metadata": {**document["metadata"], "namespace": "team-b"}})

        def ours() -> bool:
            return [pod["spec"]["schedulerName"] for pod in installed.pods("team-b")] == ["gpuyard"] * 4

        until(ours, UP_S, "all of their pods ask for our scheduler")
    finally:
        installed.merge("/api/v1/namespaces/team-b", {"metadata": {"labels": {"gpuyard.dev/managed": None}}})
        installed.empty("team-b")
