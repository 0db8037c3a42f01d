"""A few shapes of the API as a script: what no real server can be made to do on demand, such as falling silent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from gpuyard.kube.credentials import KubeAccess

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class FakeServer:
    """Answers every request with the next handler of the script, and the last one for ever."""

    def __init__(self, *script: Handler) -> None:
        self.script = list(script)
        self.asked: list[dict[str, str]] = []
        self.requests: list[web.Request] = []

    async def __aenter__(self) -> FakeServer:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    @property
    def access(self) -> KubeAccess:
        return KubeAccess(f"http://127.0.0.1:{self.port}")

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(dict(request.query))
        self.requests.append(request)
        handler = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        return await handler(request)


def stream(*events: dict[str, Any], then: float = 0.0) -> Handler:
    """A watch that tells these events, stays open for so long, and ends."""

    async def handler(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        for event in events:
            await answer.write(json.dumps(event, separators=(",", ":")).encode() + b"\n")
        await asyncio.sleep(then)
        return answer

    return handler


def status(code: int, message: str = "", **headers: str) -> Handler:
    """A no."""

    async def handler(request: web.Request) -> web.StreamResponse:
        body = {"kind": "Status", "status": "Failure", "code": code, "message": message}
        return web.json_response(body, status=code, headers=headers)

    return handler


def document(content: Any) -> Handler:
    """A plain answer."""

    async def handler(request: web.Request) -> web.StreamResponse:
        return web.json_response(content)

    return handler


def thing(name: str, version: int, uid: str = "") -> dict[str, Any]:
    """An object."""
    return {"metadata": {"name": name, "namespace": "d", "uid": uid or f"uid-{name}", "resourceVersion": str(version)}}


def added(name: str, version: int, uid: str = "") -> dict[str, Any]:
    """An event."""
    return {"type": "ADDED", "object": thing(name, version, uid)}


def deleted(name: str, version: int) -> dict[str, Any]:
    """An event."""
    return {"type": "DELETED", "object": thing(name, version)}


def bookmark(version: int, ends: bool = False) -> dict[str, Any]:
    """Up to where all is told; `ends`: all there was when the watch began."""
    annotations = {"annotations": {"k8s.io/initial-events-end": "true"}} if ends else {}
    # As a server writes it: parts that a pod always has are null here.
    return {
        "type": "BOOKMARK",
        "object": {
            "kind": "Pod",
            "metadata": {"resourceVersion": str(version), **annotations},
            "spec": {"containers": None},
        },
    }


def expired() -> dict[str, Any]:
    """Too old to go on from."""
    return {"type": "ERROR", "object": {"kind": "Status", "status": "Failure", "code": 410, "message": "too old"}}
