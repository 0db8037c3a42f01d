"""The lines of a watch, and whom a slow reader may not take for silent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from gpuyard.kube.client import KubeClient
from gpuyard.kube.replies import ApiUnreachable
from gpuyard.runtime.clock import SystemClock
from tests.support.kube.fake_server import FakeServer, Handler, added, stream

SILENCE_S = 1.0
THINGS = tuple(added(f"t{number}", number) for number in range(3))


async def sleeps() -> None:
    """Reads nothing meanwhile; others of its loop do what they do."""
    await asyncio.sleep(1.5 * SILENCE_S)


async def blocks() -> None:
    """Nobody of its loop does anything meanwhile."""
    time.sleep(1.5 * SILENCE_S)


async def read(handler: Handler, once: Callable[[], Awaitable[None]] | None = None) -> int:
    """How many lines of a watch are read to its end by somebody who does so after the first."""
    count = 0
    async with FakeServer(handler) as server:
        client = await KubeClient(server.access, SystemClock()).open()
        try:
            async with client.lines("/api/v1/pods", {}, SILENCE_S) as lines:
                async for batch in lines.batches:
                    count += len(batch)
                    if once is not None:
                        await once()
                        once = None
        finally:
            await client.close()
    return count


@pytest.mark.slow
@pytest.mark.parametrize("reader", [sleeps, blocks])
def test_who_reads_late_loses_nothing_and_takes_nobody_for_silent(reader: Callable[[], Awaitable[None]]):
    assert asyncio.run(read(stream(*THINGS), reader)) == len(THINGS)
    assert asyncio.run(read(stream(*THINGS, then=SILENCE_S / 2), reader)) == len(THINGS)


def test_who_says_nothing_for_so_long_is_broken_off():
    begun = time.monotonic()
    with pytest.raises(ApiUnreachable):
        asyncio.run(read(stream(*THINGS, then=60)))
    assert time.monotonic() - begun >= SILENCE_S
