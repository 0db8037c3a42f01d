"""A scheduler killed in the middle of binding a gang: whoever comes next completes it, and no GPU is given twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp import web

from tests.e2e.kube.conftest import Schedulers, bound, wait_for
from tests.support.kube.cluster import Cluster
from tests.support.kube.fake_kubelet import FakeKubelets, FakeNode, indexed_job, pod
from tests.support.kube.faults import FaultProxy, Verdict, is_bind

pytestmark = pytest.mark.slow

GANG = 64


@pytest.fixture
def proxy(cluster: Cluster) -> Iterator[FaultProxy]:
    proxy = FaultProxy(cluster)
    yield proxy
    proxy.stop()


def notes(pod: dict[str, Any]) -> dict[str, str]:
    return {
        key: value for key, value in pod["metadata"].get("annotations", {}).items() if key.startswith("gpuyard.dev/")
    }


@pytest.mark.parametrize("after", [1, 20, 63])
def test_killed_after_so_many_binds_with_the_reply_lost_the_next_one_completes_the_gang(
    cluster: Cluster, kubelets: FakeKubelets, schedulers: Schedulers, proxy: FaultProxy, after: int
):
    kubelets.add(*(FakeNode(f"n{index}", gpus=8) for index in range(GANG // 8)))
    asked = 0

    def judge(request: web.Request) -> Verdict:
        nonlocal asked
        if not is_bind(request):
            return Verdict.PASS
        asked += 1
        return Verdict.PASS if asked < after else Verdict.LOSE_REPLY if asked == after else Verdict.LOSE

    def done(request: web.Request, status: int) -> None:
        if is_bind(request) and asked == after:
            first.process.kill()

    proxy.judge, proxy.done = judge, done
    first = schedulers("--no-lease", server=proxy.server)
    cluster.create(indexed_job("gang", GANG))
    assert first.process.wait(120) == -9
    assert len(bound(cluster)) == after
    # It would fit where the rest of the gang is to go.
    cluster.create(pod("alone", 1))

    schedulers("--no-lease")
    wait_for(lambda: len(bound(cluster)) == GANG, "the gang is bound whole")
    assert "alone" not in bound(cluster)
    assert set(Counter(bound(cluster).values()).values()) == {8}
    assert {notes(each)["gpuyard.dev/job"] for each in cluster.pods() if notes(each)} == {"default/gang"}
    wait_for(lambda: len(kubelets.nodes["n0"].admitted) == 8, "the kubelets have admitted them")
    assert {how for key, _, how in kubelets.admissions if key.startswith("default/gang")} == {"admitted"}
