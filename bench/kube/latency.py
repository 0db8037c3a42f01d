"""One pod at a time on an idle cluster: from its first event of the watch to its binding, as a client sees both."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

from bench.kube import making, subjects, watching
from bench.kube.making import PODS
from gpuyard.kube.client import KubeClient
from tests.support.kube.cluster import Cluster

AIM_MS = 50.0
PATIENCE_S = 60.0
WARM = 5
"""Pods before those that count: the connections are made, the first pages of memory are there."""


@dataclass
class Life:
    """When each pod was first seen, and when it was seen bound."""

    made: dict[bytes, float] = field(default_factory=dict)
    bound: dict[bytes, float] = field(default_factory=dict)
    news: asyncio.Event = field(default_factory=asyncio.Event)


async def measure(cluster: Cluster, client: KubeClient, count: int) -> dict[str, Any]:
    """For GPUYard and, beside it, kube-scheduler."""
    result: dict[str, Any] = {"pods": count, "aim_p99_ms": AIM_MS}
    for name in ("gpuyard", "kube-scheduler"):
        with subjects.running(cluster, name) as process:
            took = sorted(await one_by_one(client, name, count))
            cpu = watching.cpu_of(process.pid)
        await making.clear(client)
        tail = {"p50_ms": took[len(took) // 2], "p99_ms": took[len(took) * 99 // 100], "max_ms": took[-1]}
        result[name] = {key: round(value, 1) for key, value in tail.items()} | {"cpu_s": round(cpu, 1)}
    return result


async def one_by_one(client: KubeClient, name: str, count: int) -> list[float]:
    """Milliseconds, pod by pod: the next comes when the last is bound."""
    scheduler = subjects.OURS if name == "gpuyard" else subjects.THEIRS
    life = Life()
    task = asyncio.create_task(_follow(client, life))
    try:
        for document in making.singles(count + WARM, scheduler, "alone"):
            pod = document["metadata"]["name"].encode()
            await making.must(client, "POST", PODS, document)
            async with asyncio.timeout(PATIENCE_S):
                while pod not in life.bound:
                    await life.news.wait()
                    life.news.clear()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return [(life.bound[pod] - life.made[pod]) * 1e3 for pod in life.made][WARM:]


async def _follow(client: KubeClient, life: Life) -> None:
    async with client.lines(PODS, {"watch": "1", "timeoutSeconds": "3600"}, 3600) as lines:
        async for batch in lines.batches:
            now = time.monotonic()
            for line in batch:
                pod = line.partition(b'"metadata":{"name":"')[2].partition(b'"')[0]
                (life.bound if b'"nodeName":"' in line else life.made).setdefault(pod, now)
            life.news.set()
