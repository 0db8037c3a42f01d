"""A cluster of its own with one real node: whatever is bound there really runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.kube import node_components
from tests.support.kube.cluster import Cluster, until
from tests.support.kube.real_node import RealNode

PATIENCE_S = 180.0


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    node_components.required()
    made = Cluster(tmp_path_factory.mktemp("kube"))
    try:
        yield made.start()
    finally:
        made.stop()


@pytest.fixture(scope="session")
def node(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealNode]:
    made = RealNode(cluster, tmp_path_factory.mktemp("node"))
    try:
        yield made.start()
    finally:
        made.stop()


@pytest.fixture(autouse=True)
def nothing_runs(cluster: Cluster) -> Iterator[None]:
    """No job and no pod is left for the next test; nodes stay."""
    yield
    cluster.delete("/apis/batch/v1/namespaces/default/jobs?propagationPolicy=Background")

    def empty() -> bool:
        cluster.delete("/api/v1/namespaces/default/pods", 1)
        return not cluster.pods()

    wait_for(empty, "every pod is gone")


def wait_for(holds: Callable[[], Any], what: str) -> Any:
    return until(holds, PATIENCE_S, what)


def phases(cluster: Cluster) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["status"]["phase"] for pod in cluster.pods()}
