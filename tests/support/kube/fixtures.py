"""One real API server with its controllers and fake kubelets for a whole session, empty before and after each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.kube import components
from tests.support.kube.cluster import Cluster
from tests.support.kube.fake_kubelet import FakeKubelets


@pytest.fixture(scope="session")
def session_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    components.required()
    cluster = Cluster(tmp_path_factory.mktemp("kube"))
    try:
        yield cluster.start()
    finally:
        cluster.stop()


@pytest.fixture(scope="session")
def session_kubelets(session_cluster: Cluster) -> Iterator[FakeKubelets]:
    kubelets = FakeKubelets(session_cluster)
    yield kubelets
    kubelets.stop()


@pytest.fixture
def cluster(session_cluster: Cluster) -> Iterator[Cluster]:
    """Empty before and after."""
    session_cluster.clean()
    yield session_cluster
    session_cluster.clean()


@pytest.fixture
def kubelets(cluster: Cluster, session_kubelets: FakeKubelets) -> Iterator[FakeKubelets]:
    session_kubelets.forget_all()
    yield session_kubelets
    session_kubelets.forget_all()
