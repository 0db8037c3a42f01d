"""What is kept like the server's, also when watches break, fall silent or forget."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from aiohttp import web

from gpuyard.kube.client import KubeClient
from gpuyard.kube.objects import AnyObject
from gpuyard.kube.reflector import ObjectKind, Reflector
from gpuyard.runtime.clock import SystemClock
from tests.support.kube.fake_server import (
    FakeServer,
    added,
    bookmark,
    deleted,
    document,
    expired,
    status,
    stream,
    thing,
)

PATIENCE_S = 60


class Half:
    """Dice that always show the middle."""

    def random(self) -> float:
        return 0.5

    def integer(self, below: int) -> int:
        return below // 2


class Kept:
    """A sink that also remembers what it was told."""

    def __init__(self) -> None:
        self.objects: dict[str, AnyObject] = {}
        self.told: list[str] = []

    def put(self, seen: AnyObject) -> None:
        self.objects[seen.metadata.key] = seen
        self.told.append(f"+{seen.metadata.name}")

    def drop(self, key: str) -> None:
        self.objects.pop(key, None)
        self.told.append(f"-{key.split('/')[1]}")

    def keys(self) -> Iterable[str]:
        return self.objects

    @property
    def names(self) -> set[str]:
        return {each.metadata.name for each in self.objects.values()}


class Counted(AnyObject, frozen=True):
    """An object with something in it that may be other than we think."""

    count: int = 0


async def following(server: FakeServer, kept: Kept, until: Any, silent_s: float = 90.0) -> Reflector[Counted]:
    client = await KubeClient(server.access, SystemClock()).open()
    kind = ObjectKind("/api/v1/pods", Counted, (("fieldSelector", "x=y"),))
    reflector = Reflector(client, kind, kept, SystemClock(), Half())
    reflector.silent_s = silent_s
    task = asyncio.create_task(reflector.run())
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not until(reflector):
                assert not task.done(), task.result()
                await asyncio.sleep(0.005)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await client.close()
    return reflector


def played(*script: Any, until: Any, silent_s: float = 90.0) -> tuple[Kept, FakeServer, Any]:
    kept = Kept()
    server = FakeServer(*script)

    async def play() -> Any:
        async with server:
            return await following(server, kept, lambda reflector: until(kept, server, reflector), silent_s)

    return kept, server, asyncio.run(play())


FOREVER = stream(then=30)


def test_all_there_is_comes_with_the_watch_and_changes_follow():
    first = stream(added("a", 3), added("b", 4), bookmark(9, ends=True), added("c", 10), deleted("a", 11), then=30)
    _kept, server, reflector = played(first, until=lambda kept, *_: kept.names == {"b", "c"})
    assert server.asked[0]["sendInitialEvents"] == "true"
    assert server.asked[0]["fieldSelector"] == "x=y"
    assert reflector.synced.is_set()


def test_nothing_is_synced_before_all_there_was_has_been_told():
    _kept, _, reflector = played(stream(added("a", 3), then=30), until=lambda kept, *_: kept.names == {"a"})
    assert not reflector.synced.is_set()


def test_a_watch_that_ended_goes_on_from_the_last_bookmark():
    first = stream(added("a", 3), bookmark(9, ends=True), added("b", 12), bookmark(40))
    kept, server, _ = played(first, stream(added("c", 41), then=30), until=lambda kept, *_: "c" in kept.names)
    assert server.asked[1]["resourceVersion"] == "40"
    assert "sendInitialEvents" not in server.asked[1]
    assert kept.told == ["+a", "+b", "+c"]


def test_after_a_gap_all_is_listed_anew_and_whoever_is_missing_is_dropped():
    first = stream(added("a", 3), added("b", 4), bookmark(9, ends=True), expired())
    second = stream(added("b", 4), bookmark(90, ends=True), then=30)
    kept, server, _reflector = played(
        first, second, until=lambda _k, _s, reflector: reflector.relists == 2 and kept_b(_k)
    )
    assert server.asked[1]["sendInitialEvents"] == "true"
    assert kept.told == ["+a", "+b", "+b", "-a"]


def kept_b(kept: Kept) -> bool:
    return kept.names == {"b"}


def test_a_gap_told_as_a_plain_refusal_is_the_same():
    first = stream(added("a", 3), bookmark(9, ends=True))
    kept, *_ = played(
        first, status(410, "gone"), stream(bookmark(90, ends=True), then=30), until=lambda k, *_: "-a" in k.told
    )
    assert kept.names == set()


def test_a_list_that_breaks_off_drops_nobody():
    first = stream(added("a", 3), bookmark(9, ends=True), expired())
    kept, *_ = played(first, stream(), FOREVER, until=lambda _k, server, _r: len(server.asked) >= 3)
    assert kept.names == {"a"}


def test_a_silent_watch_is_left_and_taken_up_again():
    first = stream(added("a", 3), bookmark(9, ends=True), then=30)
    _kept, server, _ = played(first, stream(added("b", 10), then=30), until=lambda k, *_: "b" in k.names, silent_s=0.2)
    assert server.asked[1]["resourceVersion"] == "9"


def test_a_server_without_watch_lists_is_asked_in_pages():
    pages = [
        document({"metadata": {"resourceVersion": "7", "continue": "more"}, "items": [thing("a", 1)]}),
        document({"metadata": {"resourceVersion": "7"}, "items": [thing("b", 2)]}),
    ]
    refused = status(422, "sendInitialEvents is forbidden")
    kept, server, _ = played(refused, *pages, stream(added("c", 8), then=30), until=lambda k, *_: "c" in k.names)
    assert (server.asked[2]["continue"], server.asked[3]["resourceVersion"]) == ("more", "7")
    assert kept.names == {"a", "b", "c"}


def test_a_busy_server_is_asked_again_when_it_says():
    busy = status(429, "too many", **{"Retry-After": "1"})
    _kept, server, reflector = played(
        busy, stream(added("a", 1), bookmark(2, ends=True), then=30), until=lambda _k, _s, r: r.synced.is_set()
    )
    assert len(server.asked) == 2
    assert reflector.trouble == ""


def test_an_event_of_a_megabyte_is_read():
    big = added("a", 1)
    big["object"]["metadata"]["annotations"] = {"x": "y" * (3 << 20)}
    kept, *_ = played(stream(big, bookmark(2, ends=True), then=30), until=lambda _k, _s, r: r.synced.is_set())
    assert kept.names == {"a"}


def test_an_object_deeper_than_can_be_read_is_trouble_that_is_told_and_tried_again():
    async def deep(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(b'{"type":"ADDED","object":{"spec":' + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"}}\n")
        return answer

    good = stream(added("a", 1), bookmark(2, ends=True), then=30)
    kept, server, _ = played(deep, good, until=lambda _k, _s, r: r.synced.is_set())
    assert (kept.names, len(server.asked)) == ({"a"}, 2)


def test_it_is_known_when_the_list_was_asked_for_that_came_and_not_when_it_came():
    gate = asyncio.Event()

    async def late(request: web.Request) -> web.StreamResponse:
        await gate.wait()
        return await stream(bookmark(9, ends=True), then=30)(request)

    async def play() -> tuple[float, float]:
        async with FakeServer(late) as server:
            client = await KubeClient(server.access, SystemClock()).open()
            reflector = Reflector(client, ObjectKind("/api/v1/pods", AnyObject), Kept(), SystemClock(), Half())
            task = asyncio.create_task(reflector.run())
            async with asyncio.timeout(PATIENCE_S):
                while not server.asked:
                    await asyncio.sleep(0.005)
                assert reflector.listed_from == float("-inf")
                asked = SystemClock().monotonic()
                gate.set()
                await reflector.synced.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await client.close()
            return reflector.listed_from, asked

    listed_from, asked = asyncio.run(play())
    assert listed_from <= asked


def odd(name: str, version: int) -> dict[str, Any]:
    """An object that cannot be read."""
    return thing(name, version) | {"count": "many"}


def test_an_object_that_cannot_be_read_is_passed_over_and_what_was_known_of_it_stays():
    first = stream(
        added("a", 1), {"type": "ADDED", "object": odd("b", 2)}, added("c", 3), bookmark(9, ends=True), then=1
    )
    second = stream({"type": "MODIFIED", "object": odd("a", 10)}, added("d", 11), then=30)
    kept, server, reflector = played(first, second, until=lambda k, *_: "d" in k.names)
    assert kept.told == ["+a", "+c", "+d"]
    assert reflector.unread.keys() == {"d/a", "d/b"}
    assert "str" in reflector.unread["d/a"]
    assert len(server.asked) == 2


def test_one_that_cannot_be_read_and_goes_is_gone_and_one_that_can_be_again_is_known():
    told = [{"type": kind, "object": odd("a", version)} for version, kind in enumerate(("ADDED", "DELETED"), 1)]
    events = (added("a", 1), *told, {"type": "ADDED", "object": odd("b", 3)}, bookmark(9, ends=True), added("b", 10))
    kept, _, reflector = played(stream(*events, then=30), until=lambda k, *_: "b" in k.names)
    assert kept.told == ["+a", "-a", "+b"]
    assert reflector.unread == {}


def test_of_a_page_only_those_are_passed_over_that_cannot_be_read():
    page = document({"metadata": {"resourceVersion": "7"}, "items": [odd("a", 1), thing("b", 2)]})
    kept, _, reflector = played(status(422), page, stream(then=30), until=lambda _k, _s, r: r.synced.is_set())
    assert (kept.names, reflector.unread.keys()) == ({"b"}, {"d/a"})


def test_one_over_which_whoever_keeps_it_stumbles_keeps_none_of_the_others_from_being_known(
    monkeypatch: pytest.MonkeyPatch,
):
    put = Kept.put

    def stumbles(self: Kept, seen: AnyObject) -> None:
        if seen.metadata.name == "a":
            raise KeyError("a")
        put(self, seen)

    monkeypatch.setattr(Kept, "put", stumbles)
    events = (added("a", 1), added("b", 2), bookmark(9, ends=True))
    kept, server, reflector = played(stream(*events, then=30), until=lambda _k, _s, r: r.synced.is_set())
    assert (kept.names, reflector.unread) == ({"b"}, {"d/a": "KeyError: 'a'"})
    assert len(server.asked) == 1
