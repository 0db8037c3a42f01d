"""Which owners a cluster has is asked until it is told: not to know is not to have none."""

from __future__ import annotations

import asyncio

import pytest

from gpuyard.kube.client import ApiRefused, KubeClient
from gpuyard.runtime.clock import SystemClock
from gpuyard.worlds.kubernetes import kinds
from tests.support.kube.fake_server import FakeServer, Handler, document, status

GROUPS = document(
    {
        "groups": [
            {"name": "batch", "preferredVersion": {"groupVersion": "batch/v1"}},
            {"name": "metrics.k8s.io", "preferredVersion": {"groupVersion": "metrics.k8s.io/v1"}},
        ]
    }
)
BATCH = document({"resources": [{"name": "jobs", "kind": "Job"}, {"name": "jobs/status", "kind": "Job"}]})


def asked(*script: Handler) -> list[str]:
    async def ask() -> list[str]:
        async with FakeServer(*script) as server:
            client = await KubeClient(server.access, SystemClock()).open()
            try:
                return [f"{kind.name} {kind.objects.path}" for kind in await kinds.served(client, frozenset())]
            finally:
                await client.close()

    return asyncio.run(ask())


def test_kinds_that_are_served_are_found_with_their_paths():
    assert asked(GROUPS, BATCH) == ["Job.batch /apis/batch/v1/jobs"]


@pytest.mark.parametrize("code", [403, 415, 500, 503])
def test_a_group_that_cannot_be_asked_is_not_taken_for_one_that_is_not_there(code: int):
    with pytest.raises(ApiRefused, match="kinds of batch"):
        asked(GROUPS, status(code))


def test_a_group_that_is_gone_by_now_is_not_there():
    assert asked(GROUPS, status(404)) == []
