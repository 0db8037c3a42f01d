"""Who comes to lead has listed the cluster since: once where the Lease was free from the start, else once more."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from aiohttp import web

from gpuyard.runtime.clock import SystemClock, SystemDice
from gpuyard.worlds.kubernetes.world import KubernetesWorld, WorldSettings
from tests.support import yards
from tests.support.kube.fake_server import FakeServer, bookmark, status, stream

PATIENCE_S = 60


class Api:
    """An empty cluster and a Lease; remembers in which order it was listed and the Lease was taken."""

    def __init__(self, holder: str | None) -> None:
        self.lease: dict[str, Any] | None = None if holder is None else lease_of(holder)
        self.told: list[str] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if "/leases" in request.path:
            return await self._lease(request)
        if request.query.get("sendInitialEvents") == "true":
            self.told.append(f"{request.path} {request.query.get('fieldSelector', '')}")
            return await stream(bookmark(9, ends=True), then=60)(request)
        return web.json_response({"groups": []}) if request.path == "/apis" else await status(404)(request)

    async def _lease(self, request: web.Request) -> web.StreamResponse:
        if request.method != "GET":
            self.lease = await request.json()
            self.told.append("the Lease")
            self.lease["metadata"]["resourceVersion"] = "2"
        return web.json_response(self.lease) if self.lease is not None else await status(404)(request)

    @property
    def lists(self) -> Counter[str]:
        return Counter(each for each in self.told if each != "the Lease")


def lease_of(holder: str) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": "1"}, "spec": {"holderIdentity": holder, "leaseDurationSeconds": 600}}


def lived(api: Api, acts: Callable[[KubernetesWorld], None]) -> None:
    """A world over that API, opened and observed once, then `acts` in a thread of its own."""

    def live(server: FakeServer) -> None:
        settings = WorldSettings(server.access, yards.fleet("policy: {}\n"), identity="us")
        world = KubernetesWorld(settings, SystemClock(), SystemDice())
        world.start()
        try:
            world.open()
            world.observe()
            acts(world)
        finally:
            world.close()

    async def play() -> None:
        async with asyncio.timeout(PATIENCE_S), FakeServer(api.answer) as server:
            await asyncio.to_thread(live, server)

    asyncio.run(play())


def wait_until(met: Callable[[], bool]) -> None:
    end = SystemClock().monotonic() + PATIENCE_S
    while not met():
        assert SystemClock().monotonic() < end
        asyncio.run(asyncio.sleep(0.01))


def leads_once_it_has_observed(world: KubernetesWorld) -> None:
    """The Lease alone lets nobody act."""
    wait_until(world.election.held)
    assert not world.held()
    world.observe()
    assert world.held()


def test_who_finds_the_lease_free_has_it_before_it_lists_the_cluster_and_lists_it_once():
    api = Api(None)

    def acts(world: KubernetesWorld) -> None:
        assert world.held()

    lived(api, acts)
    assert api.told[0] == "the Lease"
    assert set(api.lists.values()) == {1}
    assert {"/api/v1/pods spec.schedulerName=gpuyard", "/api/v1/nodes "} <= api.lists.keys()


def test_who_takes_over_lists_the_cluster_anew_before_it_acts():
    api = Api("another")

    def acts(world: KubernetesWorld) -> None:
        assert not world.held()
        assert set(api.lists.values()) == {1}
        assert api.lease is not None
        api.lease["spec"]["holderIdentity"] = ""
        leads_once_it_has_observed(world)

    lived(api, acts)
    assert set(api.lists.values()) == {2}
    after = api.told[api.told.index("the Lease") :]
    assert set(api.lists) <= set(after)


def test_who_led_with_a_gap_acts_again_only_on_what_was_listed_since():
    api = Api(None)

    def acts(world: KubernetesWorld) -> None:
        assert world.held()
        world.election._until = 0.0  # nobody answered for too long
        assert not world.held()
        leads_once_it_has_observed(world)

    lived(api, acts)
    assert set(api.lists.values()) == {2}
