"""Turns: nobody's questions keep the others waiting."""

from __future__ import annotations

import asyncio

import pytest

from gpuyard.model.errors import Busy
from gpuyard.server import turns
from gpuyard.server.doors import gate
from gpuyard.server.turns import CallerTurns
from tests.support.hosted import Hosted


class Watch:
    """Counts who is at work at once."""

    def __init__(self, turns: CallerTurns) -> None:
        self.turns = turns
        self.now: dict[str, int] = {}
        self.most: dict[str, int] = {}
        self.go = asyncio.Event()

    async def ask(self, user: str, slow: bool = False) -> None:
        async with self.turns.take(user, slow):
            for who in (user, "all"):
                self.now[who] = self.now.get(who, 0) + 1
                self.most[who] = max(self.most.get(who, 0), self.now[who])
            await self.go.wait()
            for who in (user, "all"):
                self.now[who] -= 1


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_forty_five_previews_of_one_caller_are_thought_about_one_by_one():
    async def crowd() -> None:
        watch = Watch(CallerTurns())
        asked = [asyncio.create_task(watch.ask("eve", slow=True)) for _ in range(45)]
        await settle()
        quick = asyncio.create_task(watch.ask("bob"))
        thought = asyncio.create_task(watch.ask("bob", slow=True))
        await settle()
        assert watch.now == {"eve": 1, "bob": 2, "all": 3}
        watch.go.set()
        await asyncio.gather(*asked, quick, thought)
        assert watch.most["eve"] == 1

    asyncio.run(crowd())


def test_threads_are_shared_and_whoever_asks_too_much_is_told():
    async def crowd() -> None:
        watch = Watch(CallerTurns())
        asked = [asyncio.create_task(watch.ask("eve")) for _ in range(turns.WAITING_MAX)]
        await settle()
        assert watch.most["eve"] == turns.AT_ONCE
        with pytest.raises(Busy, match="questions of yours are not answered yet"):
            await watch.ask("eve")
        bob = asyncio.create_task(watch.ask("bob"))
        await settle()
        assert watch.now["bob"] == 1
        watch.go.set()
        await asyncio.gather(*asked, bob)

    asyncio.run(crowd())


def test_what_one_caller_sends_at_once_is_bounded(served: Hosted, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gate, "BODY_MAX", 1000)
    answer = served.tcp("POST", "/api/v1/jobs", b"x" * 5000, Authorization=f"Bearer {served.token}")
    assert answer.status == 413
    unknown = served.tcp("POST", "/session", b"x" * 5000)
    assert unknown.status == 413
    assert "4 KiB" in unknown.json["error"]
