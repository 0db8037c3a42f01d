"""A scheduler killed after each of its writes while one Job gives way to another and comes back: the next one finishes.

Every lane has a node and a scheduler of its own and is killed one write later than the lane before it; which writes
there are is seen, not listed. Several lanes go at once, for most of what they do is wait; all of them at once would
keep each other from being answered in time where the machine is busy.
"""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from gpuyard.kube.credentials import KubeAccess
from gpuyard.runtime.clock import SystemClock, SystemDice
from gpuyard.runtime.clustered.scheduler import ClusterScheduler, WorldSettings
from gpuyard.worlds.kubernetes import world
from tests.support import yards
from tests.support.kube.cluster import Cluster
from tests.support.kube.cuts import NEVER, CutClient, Knife
from tests.support.kube.fake_kubelet import FakeKubelets, FakeNode, indexed_job

pytestmark = pytest.mark.slow

MARK = "gpuyard.dev/suspended"
PATIENCE_S = 600.0
LOOK_S = 0.3
"""Many look at once."""
AT_ONCE = 6
SPARE = 4
"""Lanes beyond what was written when nobody was killed."""
SITE = "policy: {eviction_grace: 0s, protect_after: 100}\n"


@dataclass
class Lane:
    """One node, two Jobs, and schedulers for them alone."""

    cluster: Cluster
    kubelets: FakeKubelets
    knife: Knife
    name: str
    schedulers: list[ClusterScheduler] = field(default_factory=list)

    def start(self) -> None:
        access = replace(self.cluster.access(), namespace=self.name)
        settings = WorldSettings(
            access, yards.fleet(SITE), scheduler=self.name, identity=self.name, elects=False,
            memory=f"gpuyard-system/{self.name}",
        )  # fmt: skip
        self.schedulers.append(ClusterScheduler(settings, SystemClock(), SystemDice()))
        self.schedulers[-1].start()

    def create(self, name: str, **more: Any) -> None:
        where = {"kubernetes.io/hostname": self.name}
        self.cluster.create(indexed_job(f"{self.name}-{name}", 2, scheduler=self.name, nodeSelector=where, **more))

    def job(self, name: str) -> dict[str, Any]:
        return dict(self.cluster.get(f"/apis/batch/v1/namespaces/default/jobs/{self.name}-{name}"))

    def runs(self, name: str) -> bool:
        found = self.cluster.pods(**{"batch.kubernetes.io/job-name": f"{self.name}-{name}"})
        well = (each for each in found if "deletionTimestamp" not in each["metadata"])
        return [each["status"]["phase"] for each in well] == ["Running"] * 2

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Meanwhile whoever was killed is followed by the next."""
        end = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < end, f"{self.name}: not so that {what}; written: {self.knife.writes}"
            if self.knife.is_dead and len(self.schedulers) == 1:
                self.start()
            time.sleep(LOOK_S)

    def go(self) -> Lane:
        """All of it, in a thread of its own."""
        try:
            self._give_way()
            return self
        finally:
            self.cluster.hang_up()
            for each in self.schedulers:
                each.close()

    def _give_way(self) -> None:
        """One runs, gives way, comes back and ends."""
        self.start()
        self.create("low")
        self.until(lambda: self.runs("low"), "the first gang runs")
        self.create("high", priorityClassName="urgent")
        self.until(lambda: self.runs("high"), "the urgent gang runs")
        self.kubelets.finish(f"{self.name}-high-")
        self.until(lambda: self.runs("low"), "the one that gave way runs again")
        self.kubelets.finish(f"{self.name}-low-")
        for name in ("low", "high"):
            self.until(lambda name=name: is_complete(self.job(name)), "it completes")  # type: ignore[misc]
            seen = self.job(name)
            assert (seen["status"].get("failed", 0), seen["status"]["succeeded"]) == (0, 2), self.knife.writes
            assert MARK not in seen["metadata"].get("annotations", {}), self.knife.writes

        assert not any(each.loop.set_apart for each in self.schedulers)


def is_complete(job: dict[str, Any]) -> bool:
    return any(each["type"] == "Complete" for each in job["status"].get("conditions", ()))


@pytest.fixture
def lanes(cluster: Cluster, kubelets: FakeKubelets, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Lane]]:
    """A lane that is cut there. The first client of each is the one with the knife."""
    made: dict[str, Lane] = {}
    cluster.prioritise(urgent=1000)

    def client_of(access: KubeAccess, clock: Any) -> CutClient:
        lane = made[access.namespace]
        client = CutClient(access, clock)
        client.knife = lane.knife if len(lane.schedulers) <= 1 else Knife()
        return client

    monkeypatch.setattr(world, "KubeClient", client_of)

    def make(after: int, lives: bool = False) -> Lane:
        name = f"cut-{after if after != NEVER else 'never'}"
        kubelets.add(FakeNode(name, gpus=2))
        made[name] = Lane(cluster, kubelets, Knife(after, lives), name)
        return made[name]

    yield make
    for lane in made.values():
        cluster.delete(f"/api/v1/namespaces/gpuyard-system/configmaps/{lane.name}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.mark.parametrize("lives", [False, True], ids=["killed", "only-the-answer-is-lost"])
def test_cut_off_after_any_write_the_job_that_gave_way_comes_back_and_nothing_fails(
    lanes: Callable[..., Lane], lives: bool
):
    uninterrupted = lanes(NEVER).go().knife.writes
    assert "PATCH /apis/batch/v1/namespaces/default/jobs/cut-never-low" in uninterrupted
    first, last = 1, len(uninterrupted) + SPARE
    with ThreadPoolExecutor(AT_ONCE) as pool:
        # Until one ends before it would be cut: how often pods are told why they wait depends on time.
        while [lane.knife.has_cut for lane in pool.map(Lane.go, [lanes(k, lives) for k in range(first, last)])][-1]:
            first, last = last, last + SPARE
