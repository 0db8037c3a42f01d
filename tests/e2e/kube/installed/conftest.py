"""A cluster on which `yard install --exclusive` was run, and two teams with the rights that are shipped for teams."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpuyard.kube import applying
from gpuyard.runtime.clustered import installing
from tests.support.kube import components
from tests.support.kube.cluster import UP_S, ApiError, Cluster, folder_of, until
from tests.support.kube.commands import yard
from tests.support.kube.fake_kubelet import pod

TEAMS = {"team-a": "ann", "team-b": "bob"}


@dataclass(frozen=True)
class Person:
    """Somebody with a token of their own, and a namespace."""

    cluster: Cluster
    namespace: str
    name: str
    token: str

    def call(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        return self.cluster.call(method, path, body, kind, self.token)

    def create(self, document: dict[str, Any]) -> Any:
        """In their own namespace."""
        document = {**document, "metadata": {"namespace": self.namespace, **document["metadata"]}}
        return self.call("POST", folder_of(document), document)

    def refused(self, document: dict[str, Any]) -> str:
        """What is said when it is."""
        with pytest.raises(ApiError) as told:
            self.create(document)
        assert told.value.code in (403, 422), told.value
        return str(told.value)

    @property
    def kubeconfig(self) -> str:
        return self.cluster.kubeconfig(self.token, self.name)


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    components.required()
    cluster = Cluster(tmp_path_factory.mktemp("installed"))
    try:
        cluster.start()
        yard(cluster.kubeconfig(), "install", "--exclusive")
        for namespace, user in TEAMS.items():
            make_team(cluster, namespace, user)
        until(lambda: guarded(cluster), UP_S, "the policies are in force")
        yield cluster
    finally:
        cluster.stop()


def make_team(cluster: Cluster, namespace: str, user: str) -> None:
    """A namespace, and somebody who may do there what `gpuyard-tenant` says."""
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    for name in (user, "default"):
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}
        with contextlib.suppress(ApiError):  # the controllers make one of them too
            cluster.create(account)
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "gpuyard-tenant"}
    subject = {"kind": "ServiceAccount", "name": user, "namespace": namespace}
    cluster.create(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": user, "namespace": namespace},
            "roleRef": role,
            "subjects": [subject],
        }
    )


def guarded(cluster: Cluster) -> bool:
    """Whether the last policy that was made says no already."""
    try:
        cluster.call(
            "POST", "/api/v1/namespaces/default/pods?dryRun=All", pod("probe", 1, scheduler="default-scheduler")
        )
    except ApiError as error:
        return "given by GPUYard" in str(error)
    return False


@pytest.fixture
def ann(installed: Cluster) -> Person:
    return Person(installed, "team-a", "ann", installed.token_of("team-a", "ann"))


@pytest.fixture
def bob(installed: Cluster) -> Person:
    return Person(installed, "team-b", "bob", installed.token_of("team-b", "bob"))


@pytest.fixture
def admin(installed: Cluster) -> Path:
    return Path(installed.kubeconfig())


@pytest.fixture
def bare(session_bare: Cluster) -> Cluster:
    """A cluster without us, or with what the test before left of us."""
    session_bare.clean()
    until(lambda: is_settled(session_bare), UP_S, "nothing is on its way out")
    return session_bare


@pytest.fixture(scope="session")
def session_bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster without us."""
    components.required()
    cluster = Cluster(tmp_path_factory.mktemp("bare"))
    try:
        yield cluster.start()
    finally:
        cluster.stop()


def there(cluster: Cluster) -> set[str]:
    """Which of all that we could make is there."""
    found = set()
    for document in installing.everything("gpuyard-system"):
        with contextlib.suppress(ApiError):
            seen = cluster.get(applying.path_of(document))
            if "deletionTimestamp" not in seen["metadata"]:
                found.add(applying.name_of(document))
    return found


def is_settled(cluster: Cluster) -> bool:
    """Whether the namespace is there or not, and not in between: then nothing could be made in it."""
    try:
        return "deletionTimestamp" not in cluster.get("/api/v1/namespaces/gpuyard-system")["metadata"]
    except ApiError as error:
        return error.code == 404
