"""What the next leader is to know: written seldom, read whole, and never in the way."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec
import pytest

from gpuyard.kube.client import ApiReply, ApiUnreachable
from gpuyard.model.job import Placement
from gpuyard.model.snapshot import Reservation
from gpuyard.worlds.kubernetes.acting.remember import EVERY_S, Keepsake, MemoryKeeper, pack, unpack
from tests.support.pretend import StillClock

KEPT = Keepsake(
    {"evictions": {"d/old": [1.0, 2.5]}, "unheard": {"of": [None, "x"]}},
    (Reservation("d/big", (Placement("n0", (0, 1), task=1),), 7.0), Reservation("d/none")),
)


class ConfigMaps:
    """The one that is kept, and how often it was written."""

    def __init__(self) -> None:
        self.document: dict[str, Any] | None = None
        self.written: list[str] = []
        self.clock = StillClock(0.0)
        self.away = False
        self.keeper = MemoryKeeper(self, "ns/kept", self.clock)  # type: ignore[arg-type]

    async def send(self, method: str, path: str, body: bytes, timeout: float) -> ApiReply:
        if self.away:
            raise ApiUnreachable("nobody is there")
        if self.document is None:
            return ApiReply(404)
        self.written.append(path)
        self.document = msgspec.json.decode(body)
        return ApiReply(200)

    async def post(self, path: str, body: bytes, timeout: float) -> ApiReply:
        self.written.append(path)
        self.document = msgspec.json.decode(body)
        return ApiReply(201)

    async def get(self, path: str) -> ApiReply:
        if self.away:
            raise ApiUnreachable("nobody is there")
        return ApiReply(404) if self.document is None else ApiReply(200, msgspec.json.encode(self.document))


@pytest.fixture
def maps() -> ConfigMaps:
    return ConfigMaps()


def test_what_is_kept_is_what_the_next_one_recalls(maps: ConfigMaps):
    assert asyncio.run(maps.keeper.recall()) == Keepsake()
    asyncio.run(maps.keeper.keep(lambda: KEPT))
    again = MemoryKeeper(maps, "ns/kept", maps.clock)  # type: ignore[arg-type]
    assert asyncio.run(again.recall()) == KEPT
    assert unpack(pack(KEPT)) == KEPT


def test_it_is_written_at_most_once_in_ten_seconds_and_only_by_who_leads_and_if_it_changed(maps: ConfigMaps):
    class Over(Exception):
        pass

    asked = 0

    def leads() -> bool:
        nonlocal asked
        asked += 1
        if asked > 6:
            raise Over
        return asked > 2

    def give() -> Keepsake:
        return Keepsake({"turn": asked // 3})

    with pytest.raises(Over):
        asyncio.run(maps.keeper.run(leads, give))
    assert maps.clock.at == 7 * EVERY_S
    assert len(maps.written) == 2


def test_what_is_too_large_is_not_written_and_that_is_told(maps: ConfigMaps):
    dice = random.Random(1)
    noise = Keepsake({"noise": [dice.random() for _ in range(100_000)]})
    asyncio.run(maps.keeper.keep(lambda: noise))
    assert maps.written == []
    assert "too large" in maps.keeper.trouble


@pytest.mark.parametrize("content", ["", "no base64!", "AAAA", pack(Keepsake())[:-8].decode(), 7])
def test_what_cannot_be_read_is_as_if_nothing_were_remembered(maps: ConfigMaps, content: object):
    maps.document = {"binaryData": {"memory": content}}
    assert asyncio.run(maps.keeper.recall()) == Keepsake()
    maps.document = None


def test_an_api_server_that_is_away_is_told_and_written_to_the_next_time(maps: ConfigMaps):
    maps.away = True
    asyncio.run(maps.keeper.keep(lambda: KEPT))
    assert maps.keeper.trouble == "nobody is there"
    assert asyncio.run(maps.keeper.recall()) == Keepsake()
    maps.away = False
    asyncio.run(maps.keeper.keep(lambda: KEPT))
    assert (maps.keeper.trouble, len(maps.written)) == ("", 1)
