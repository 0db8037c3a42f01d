"""In which order a world tells what became of its deeds and what it sees, without a server."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from gpuyard.kube.credentials import KubeAccess
from gpuyard.kube.objects import NodeObject
from gpuyard.model.events import ActionFailed
from gpuyard.model.reasons import Code, Reason
from gpuyard.model.snapshot import Snapshot
from gpuyard.runtime.clock import SystemDice
from gpuyard.worlds.kubernetes.world import KubernetesWorld, WorldSettings
from tests.support.kube.fake_kubelet import FakeNode, condition


class Hurried:
    """A clock by which everything takes a second."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        return self.monotonic()

    def monotonic(self) -> float:
        self.at += 1.0
        return self.at

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody sleeps here")


def test_what_failed_while_others_were_told_is_told_before_what_is_found_out_after_it():
    world = KubernetesWorld(WorldSettings(KubeAccess("https://nowhere"), Snapshot()), Hurried(), SystemDice())
    for name in ("n0", "n1", "n2"):
        amounts = FakeNode(name).amounts
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [condition()]}
        world.cache.nodes.put(msgspec.convert({"metadata": {"name": name}, "status": status}, NodeObject))
    failure = ActionFailed("default/ours", (), Reason(Code.WORLD_CHANGED))

    async def told() -> list[Any]:
        asyncio.get_running_loop().call_soon(world.starter.failures.append, failure)
        return [type(event).__name__ async for event in world._events()]

    assert asyncio.run(told()) == ["NodeSeen", "ActionFailed", "NodeSeen", "NodeSeen"]
    assert world.starter.failures == []
