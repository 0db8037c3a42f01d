"""Clusters whose nodes are real, for a whole session; after each test nothing runs there and every node is as it was.

A machine is started when somebody first asks for it, and is closed to everybody who does not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.kube import node_components, real_machine
from tests.support.kube.cluster import REAL_NODES, Cluster, until
from tests.support.kube.real_machine import PATIENCE_S, RealMachine

SILENCE_S = 40
"""A real kubelet says something every two seconds."""
MEMORY = "/api/v1/namespaces/gpuyard-system/configmaps/gpuyard-memory"


class RealCluster:
    """One control plane and up to two machines."""

    def __init__(self, folder: Path, gpus: int) -> None:
        self.folder, self.gpus = folder, gpus
        self.cluster = Cluster(folder / "kube", silence_s=SILENCE_S)
        self.machines: dict[str, RealMachine] = {}
        self._lives = 0

    def start(self) -> RealCluster:
        self.cluster.start()
        real_machine.prepare(self.cluster)
        return self

    def stop(self) -> None:
        """All of it, the last one first, whatever goes wrong with one."""
        with contextlib.ExitStack() as last_first:
            last_first.callback(self.cluster.stop)
            for machine in self.machines.values():
                last_first.callback(machine.stop)

    def open(self, *names: str) -> list[RealMachine]:
        """These are there, empty and open; nobody goes to the others."""
        for name in (*names, *self.machines):
            if name not in self.machines:
                self.machines[name] = self._machine(name)
            self.machines[name].close(name not in names)
        return [self.machines[name] for name in names]

    def _machine(self, name: str) -> RealMachine:
        self._lives += 1
        made = RealMachine(self.cluster, self.folder / f"{name}-{self._lives}", name, self.gpus)
        try:
            return made.start()
        except BaseException:
            made.die()
            raise

    def lose(self, name: str) -> None:
        """Without a word, with all that runs there; whoever asks for it next gets a new one of that name."""
        self.machines.pop(name).die()

    def clear(self) -> None:
        """No job and no pod is left for the next test, nor does any hold a GPU."""
        for name in REAL_NODES:
            if name not in self.machines:
                self.cluster.delete(f"/api/v1/nodes/{name}")
                self.cluster.delete(f"/api/v1/pods?fieldSelector=spec.nodeName={name}", 0)
        self.cluster.delete("/apis/batch/v1/namespaces/default/jobs?propagationPolicy=Background")
        self.cluster.delete("/apis/policy/v1/namespaces/default/poddisruptionbudgets")

        def empty() -> bool:
            self.cluster.delete("/api/v1/namespaces/default/pods", 1)
            return not self.cluster.pods() and not any(each.held() for each in self.machines.values())

        until(empty, PATIENCE_S, "every pod is gone")
        self.cluster.delete(MEMORY)
        self.cluster.delete("/api/v1/namespaces/default/events")


@contextlib.contextmanager
def real_cluster(folder: Path, gpus: int) -> Iterator[RealCluster]:
    node_components.required()
    made = RealCluster(folder, gpus)
    try:
        yield made.start()
    finally:
        made.stop()


Open = Callable[..., list[RealMachine]]


@pytest.fixture(scope="session")
def cluster_of_eights(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """Its machines have eight GPUs each."""
    with real_cluster(tmp_path_factory.mktemp("eights"), gpus=8) as made:
        yield made


@pytest.fixture(scope="session")
def cluster_of_fours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """Its machines have four GPUs each, as those of the contract suite."""
    with real_cluster(tmp_path_factory.mktemp("fours"), gpus=4) as made:
        yield made
