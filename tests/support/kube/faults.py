"""A proxy between a scheduler and its API server that loses, refuses, holds back and cuts what it is told to.

It speaks plain HTTP to the scheduler and passes its token on. `judge` is asked about every request before anything is
sent; what it answers decides what becomes of it.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import aiohttp
from aiohttp import web

from tests.support.kube.cluster import Cluster


class Verdict(Enum):
    """What becomes of a request."""

    PASS = "pass"
    LOSE_REPLY = "lose reply"
    """It happens, and nobody hears of it."""
    LOSE = "lose"
    """It does not happen, and nobody hears of that either."""


@dataclass(frozen=True)
class Refusal:
    """It does not happen, and the answer is this."""

    status: int
    retry_after: str = ""


Judge = Callable[[web.Request], Verdict | Refusal]


def is_bind(request: web.Request) -> bool:
    return request.method == "POST" and request.path.endswith("/binding")


def is_watch(request: web.Request) -> bool:
    return request.query.get("watch") == "1"


class FaultProxy:
    """One proxy, in a thread of its own. `done` is called after a request has happened, before its answer is sent."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.judge: Judge = lambda _request: Verdict.PASS
        self.done: Callable[[web.Request, int], None] = lambda _request, _status: None
        self.silent = False
        """Whether watches stay open and tell nothing."""
        self._watches: set[asyncio.Task[None]] = set()
        self._muted: set[asyncio.Task[None]] = set()
        self._up = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live()), daemon=True)
        self._thread.start()
        self._up.wait()

    @property
    def server(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(60)

    def cut_watches(self) -> None:
        """Every open watch breaks."""
        self._loop.call_soon_threadsafe(lambda: [task.cancel() for task in list(self._watches)])

    def mute_open_watches(self) -> None:
        """Every watch that is open stays so and says nothing any more; those that are opened later speak."""
        self._loop.call_soon_threadsafe(lambda: self._muted.update(self._watches))

    # --- the loop ----------------------------------------------------------------------------------------

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._one_by_one = asyncio.Lock()
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.port = runner.addresses[0][1]
        tls = ssl.create_default_context(cafile=str(self.cluster.ca))
        connector = aiohttp.TCPConnector(ssl=tls, limit=0)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as self._session:
            self._up.set()
            await self._stopping.wait()
            for task in list(self._watches):
                task.cancel()
            for each in list(runner.server.connections) if runner.server is not None else ():
                if each.transport is not None:
                    each.transport.abort()
            await runner.cleanup()
        await asyncio.sleep(0.2)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if is_watch(request):
            return await self._watch(request)
        body = await request.read()
        if is_bind(request):  # so that "the twentieth" has a meaning
            async with self._one_by_one:
                return await self._ask(request, body)
        return await self._ask(request, body)

    async def _ask(self, request: web.Request, body: bytes) -> web.StreamResponse:
        verdict = self.judge(request)
        if isinstance(verdict, Refusal):
            headers = {"Retry-After": verdict.retry_after} if verdict.retry_after else {}
            return web.json_response({"message": "a storm"}, status=verdict.status, headers=headers)
        if verdict is Verdict.LOSE:
            return _hang_up(request)
        async with self._sent(request, body) as answer:
            content = await answer.read()
            self.done(request, answer.status)
            if verdict is Verdict.LOSE_REPLY:
                return _hang_up(request)
            return web.Response(status=answer.status, body=content, headers=_kept(answer.headers))

    def _sent(self, request: web.Request, body: bytes) -> aiohttp.client._RequestContextManager:
        headers = {key: value for key, value in request.headers.items() if key not in {"Host", "Content-Length"}}
        return self._session.request(
            request.method, self.cluster.server + str(request.rel_url), data=body or None, headers=headers
        )

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        verdict = self.judge(request)
        if isinstance(verdict, Refusal):
            return web.json_response({"message": "a storm"}, status=verdict.status)
        answer = web.StreamResponse()
        task = asyncio.create_task(self._pass_on(request, answer))
        self._watches.add(task)
        task.add_done_callback(self._watches.discard)
        try:
            await task
        except (asyncio.CancelledError, aiohttp.ClientError):
            _hang_up(request)
        return answer

    async def _pass_on(self, request: web.Request, answer: web.StreamResponse) -> None:
        async with self._sent(request, b"") as source:
            answer.set_status(source.status)
            await answer.prepare(request)
            async for chunk in source.content.iter_any():
                while self.silent or asyncio.current_task() in self._muted:
                    await asyncio.sleep(0.05)
                await answer.write(chunk)


def _kept(headers: object) -> dict[str, str]:
    assert hasattr(headers, "get")
    return {key: str(headers.get(key)) for key in ("Content-Type", "Retry-After") if headers.get(key)}


def _hang_up(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)
