"""`yard install` and `yard uninstall` killed after each of their writes: the next run finishes, and work goes on."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gpuyard.kube import applying
from gpuyard.kube.applying import InstallOutcome, InstallStep
from gpuyard.kube.client import STRATEGIC, ApiUnreachable
from gpuyard.runtime.clock import SystemClock
from gpuyard.runtime.clustered import installing, node_marks
from gpuyard.runtime.clustered.node_marks import CONDITION, NODES_MANAGER
from tests.e2e.kube.installed.conftest import is_settled, there
from tests.support.kube.cluster import UP_S, ApiError, Cluster, until
from tests.support.kube.components import HAS_DEFAULTS, NEEDS_DEFAULTS
from tests.support.kube.cuts import NEVER, CutClient, Knife
from tests.support.kube.fake_kubelet import indexed_job, pod

pytestmark = pytest.mark.slow

WISH = installing.InstallWish(image="registry.example/gpuyard:1", exclusive=True)
JOB = "/apis/batch/v1/namespaces/default/jobs/stopped"
Document = dict[str, Any]


class Bench:
    """Runs commands that may be killed, and looks at what they leave."""

    def __init__(self, cluster: Cluster, client: CutClient) -> None:
        self.cluster = cluster
        self.client = client

    async def run(self, steps: AsyncIterator[InstallStep], after: int = NEVER) -> tuple[Knife, list[InstallOutcome]]:
        """To its end, or to its death after so many writes; what it said until then."""
        self.client.knife = knife = Knife(after)
        said: list[InstallOutcome] = []
        with contextlib.suppress(ApiUnreachable):
            async for step in steps:
                assert step.outcome is not InstallOutcome.REFUSED, step
                said.append(step.outcome)
        self.client.knife = Knife()
        return knife, said

    def install(self) -> AsyncIterator[InstallStep]:
        return installing.install(self.client, WISH)

    def uninstall(self) -> AsyncIterator[InstallStep]:
        return installing.uninstall(self.client, WISH.namespace)

    async def picture(self) -> dict[str, Any]:
        """Everything of ours as it is, without what differs from one creation to the next."""
        wanted = installing.everything(WISH.namespace)
        replies = await asyncio.gather(*(self.client.get(applying.path_of(each)) for each in wanted))
        return {
            applying.name_of(each): applying.settled(reply)
            for each, reply in zip(wanted, replies, strict=True)
            if reply.ok
        }

    def work(self) -> dict[str, Any]:
        """The pods of others, and the spec of their Job."""
        return {each["metadata"]["uid"]: each["spec"] for each in self.cluster.pods()}

    def lets_work_be_made(self) -> None:
        """By this scheduler or by another; only who asks the other one for GPUs may be told to come to us."""
        for document in (pod("probe", 1), pod("probe", 0, scheduler="default-scheduler")):
            self.cluster.call("POST", "/api/v1/namespaces/default/pods?dryRun=All", document)


def on(cluster: Cluster, work: Any) -> None:
    async def live() -> None:
        client = CutClient(cluster.access(cluster.token), SystemClock())
        client.knife = Knife()
        await client.open()
        try:
            await work(Bench(cluster, client))
        finally:
            await client.close()

    asyncio.run(live())


@NEEDS_DEFAULTS
def test_an_installation_that_is_killed_after_any_of_its_writes_is_finished_by_the_next(bare: Cluster):
    bare.create(pod("runs"))

    async def work(bench: Bench) -> None:
        before = bench.work()
        # What the set-up and tests before have left would be changed, not made: it is taken over, and taken away.
        await bench.run(bench.install())
        await bench.run(bench.uninstall())
        until(lambda: not there(bare) and is_settled(bare), UP_S, "nothing of us is there")
        uninterrupted, _ = await bench.run(bench.install())
        whole = await bench.picture()
        assert set(whole) == there(bare)
        await bench.run(bench.uninstall())
        until(lambda: not there(bare) and is_settled(bare), UP_S, "it is gone")
        for after in range(1, len(uninterrupted.writes) + 1):
            # Each begins where the one before was killed: what is there it leaves as it is, and gets further by one.
            knife, said = await bench.run(bench.install(), after)
            assert knife.has_cut
            assert said == [InstallOutcome.UNCHANGED] * (after - 1), knife.writes
            bench.lets_work_be_made()
        assert set((await bench.run(bench.install()))[1]) == {InstallOutcome.UNCHANGED}
        assert await bench.picture() == whole
        assert bench.work() == before

    on(bare, work)


def leave_marks(cluster: Cluster) -> None:
    """A Job that the scheduler has suspended, a queue, and a node that bears marks of ours and of others."""
    cluster.create({"apiVersion": "gpuyard.dev/v1", "kind": "Queue", "metadata": {"name": "a"}, "spec": {}})
    cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n0", "labels": {"of": "others"}}})
    labels = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n0", "labels": {"nvidia.com/gpu.count": "8"}}}
    cluster.call("PATCH", f"/api/v1/nodes/n0?fieldManager={NODES_MANAGER}", labels, applying.APPLY)
    until(lambda: is_tainted(cluster), UP_S, "it bears a taint of ours")
    theirs = [{"op": "add", "path": "/spec/taints/-", "value": {"key": "theirs", "effect": "NoSchedule"}}]
    cluster.call("PATCH", "/api/v1/nodes/n0", theirs, node_marks.JSON_PATCH)
    told = {"status": {"conditions": [{"type": CONDITION, "status": "True"}, {"type": "Ready", "status": "True"}]}}
    cluster.call("PATCH", "/api/v1/nodes/n0/status", told, STRATEGIC)
    cluster.create(indexed_job("stopped", 1))
    mark = {"metadata": {"annotations": {"gpuyard.dev/suspended": "reclaimed"}}, "spec": {"suspend": True}}
    token = cluster.token_of("gpuyard-system", "gpuyard-scheduler")
    cluster.call("PATCH", JOB, mark, "application/merge-patch+json", token)


def is_tainted(cluster: Cluster) -> bool:
    """By us; the controllers write to it meanwhile."""
    patch = node_marks.taint_patch(cluster.get("/api/v1/nodes/n0"), ("nvidia.com/gpu", "present", "NoSchedule"))
    with contextlib.suppress(ApiError):
        return not patch or bool(cluster.call("PATCH", "/api/v1/nodes/n0", patch, node_marks.JSON_PATCH))
    return False


def kinds_had() -> list[str]:
    """Of every document that this version of Kubernetes has a kind for."""
    kinds = [document["kind"] for document in installing.documents(WISH)]
    return [kind for kind in kinds if HAS_DEFAULTS or not kind.startswith(applying.DEFAULTING)]


def test_an_uninstallation_that_is_killed_after_any_of_its_writes_is_finished_by_the_next(bare: Cluster):

    async def work(bench: Bench) -> None:
        await bench.run(bench.install())
        before = bench.work()
        leave_marks(bare)
        written: list[str] = []
        # Each run is killed after its first write, so each begins where one was killed: after one, after two, …
        while (knife := (await bench.run(bench.uninstall(), 1))[0]).has_cut:
            written += knife.writes
            bench.lets_work_be_made()
        assert len(written) == len(kinds_had()) + 4  # the Job; condition, labels and taint of the node
        until(lambda: not there(bare), UP_S, "nothing of ours is left")
        job, node = bare.get(JOB), bare.get("/api/v1/nodes/n0")
        assert not job["spec"]["suspend"]
        assert "gpuyard.dev/suspended" not in job["metadata"].get("annotations", {})
        assert node["metadata"]["labels"] == {"of": "others"}
        assert "theirs" in {each["key"] for each in node["spec"]["taints"]}
        assert "nvidia.com/gpu" not in {each["key"] for each in node["spec"]["taints"]}
        told = {each["type"] for each in node["status"]["conditions"]}
        assert (CONDITION in told, "Ready" in told) == (False, True)  # its controller adds some where no kubelet is
        assert "gpuyard" not in json.dumps({**node, "metadata": {**node["metadata"], "managedFields": []}})
        assert before.items() <= bench.work().items()
        assert not (await bench.run(bench.uninstall()))[0].writes

    on(bare, work)
