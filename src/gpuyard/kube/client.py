"""Requests to one API server: bounded in number, size and time, with bodies as bytes. The one door to it.

Used by `reflector`, `lease` and the world of Kubernetes, all in one event loop. Nothing here knows a pod: whoever calls
encodes and decodes. A reply is a value also when it is a "no"; only a server that cannot be reached raises.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from gpuyard.kube.credentials import KubeAccess, KubeIdentity
from gpuyard.kube.lanes import PostLanes
from gpuyard.kube.replies import ApiRefused, ApiReply, ApiUnreachable, Unidentified, seconds, unknown, unreached
from gpuyard.model.errors import Refused
from gpuyard.model.outside.ports import Clock

__all__ = [
    "JSON",
    "LANES",
    "MERGE",
    "STRATEGIC",
    "ApiRefused",
    "ApiReply",
    "ApiUnreachable",
    "KubeClient",
    "WatchLines",
]

CONNECTIONS = 64
"""At once. More bind no faster: the server's own turn is what takes time."""
LANES = 32
"""For what is POSTed, beside them: so many bindings are under way at once."""
BODY_MAX = 64 << 20
"""Of a reply that is read whole. Lists are asked for in pages."""
LINE_MAX = 16 << 20
"""Of one event of a watch; an object has at most 3 MiB, a Secret of the server's limits no more."""
CROWDED = 1000.0
"""Events of a watch a second, above which they are left to gather for a moment: each that is read by itself costs more
than what is in it. As many come back when pods are bound as fast as a server can."""
GATHER_S = 0.005
LARGE = 1 << 16
"""Bytes that come at once as they do of a list: those are read as they come."""
TIMEOUT_S = 30.0
CONNECT_S = 10.0
CLOSING_S = 0.1
"""TLS connections say goodbye in the turns of the loop that follow their close."""
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON = "application/json"


class KubeClient:
    """One session with one API server, `Refused` where its certificates cannot be used. `open` and everything after it
    belong to one event loop."""

    def __init__(self, access: KubeAccess, clock: Clock) -> None:
        self.access = access
        self.stranger = ""
        """Why we cannot say who we are, or are not believed, as of the last request; no waiting mends that."""
        self._identity = KubeIdentity(access, clock)
        self._tls = self._identity.tls()
        self._session: aiohttp.ClientSession | None = None
        self._lanes: PostLanes | None = None

    async def open(self) -> KubeClient:
        """Ready to ask; nothing is asked yet."""
        tls = self._tls
        self._busy = asyncio.Semaphore(CONNECTIONS)
        self._lanes = PostLanes(self.access.server, tls, self.access.server_name, LANES)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=True if tls is None else tls, ttl_dns_cache=60),
            auto_decompress=False,
            read_bufsize=1 << 18,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
            headers={"Accept": JSON, "Accept-Encoding": "identity", "User-Agent": "gpuyard"},
        )
        return self

    async def close(self) -> None:
        """Let go of every connection."""
        if self._lanes is not None:
            self._lanes.close()
            self._lanes = None
        if self._session is not None:
            await self._session.close()
            await asyncio.sleep(CLOSING_S)
            self._session = None

    # --- one question, one answer ----------------------------------------------------------------

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> ApiReply:
        """Read one object, or one page of a list."""
        return await self.send("GET", path, params=params)

    async def post(self, path: str, body: bytes, timeout: float = TIMEOUT_S) -> ApiReply:
        """Make something; `timeout` seconds later it is unknown whether it was made (`ApiUnreachable`)."""
        if self._lanes is None:
            raise ApiUnreachable("the client is closed")
        reply = await self._lanes.post(path, body, await self._bearer(), timeout)
        return self._heard(reply)

    async def patch(self, path: str, body: bytes, kind: str = MERGE) -> ApiReply:
        """Change part of something."""
        return await self.send("PATCH", path, body, kind)

    async def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        kind: str = JSON,
        params: Mapping[str, str] | None = None,
        timeout: float = TIMEOUT_S,
    ) -> ApiReply:
        """Any request that is answered once. Waiting for a free connection is not part of `timeout`."""
        async with self._busy:
            headers = await self._headers(kind if body is not None else "")
            try:
                async with asyncio.timeout(timeout), self._request(method, path, params, body, headers) as answer:
                    reply = ApiReply(answer.status, await _whole(answer), _retry_after(answer))
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                within = CONNECT_S if isinstance(error, aiohttp.ConnectionTimeoutError) else timeout
                raise unreached(self.access.server, f"{method} {path}", error, within) from error
        return self._heard(reply)

    def _heard(self, reply: ApiReply) -> ApiReply:
        self.stranger = unknown(self.access.server, reply)
        if self.stranger:
            self._identity.refused()
        return reply

    async def _bearer(self) -> str:
        try:
            return await self._identity.bearer()
        except Refused as refused:
            self.stranger = str(refused)
            raise Unidentified(self.stranger) from None

    # --- a watch ---------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def lines(self, path: str, params: Mapping[str, str], silence_s: float) -> AsyncIterator[WatchLines]:
        """A watch, as batches of whole lines; `ApiUnreachable` when it breaks or says nothing for so long.

        It is none of the connections that questions share, so that no flood of questions delays an event.
        """
        headers = await self._headers("")
        try:
            async with self._request("GET", path, params, None, headers) as answer:
                if answer.status != 200:
                    reply = ApiReply(answer.status, await _whole(answer), _retry_after(answer))
                    yield WatchLines(self._heard(reply), _nothing())
                else:
                    yield WatchLines(self._heard(ApiReply(200)), _batches(answer, silence_s))
        except TimeoutError:
            raise ApiUnreachable(f"the watch of {path} has been silent for {silence_s:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise unreached(self.access.server, f"the watch of {path} broke", error, silence_s) from error

    # --- how ---------------------------------------------------------------------------------------

    def _request(
        self, method: str, path: str, params: Mapping[str, str] | None, body: bytes | None, headers: dict[str, str]
    ) -> Any:
        if self._session is None:
            raise ApiUnreachable("the client is closed")
        url = self.access.server + path
        name = self.access.server_name or None
        return self._session.request(method, url, params=params, data=body, headers=headers, server_hostname=name)

    async def _headers(self, kind: str) -> dict[str, str]:
        token = await self._bearer()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if kind:
            headers["Content-Type"] = kind
        return headers


@dataclass(frozen=True, slots=True)
class WatchLines:
    """An open watch: how it was answered, and the lines as they come."""

    reply: ApiReply
    batches: AsyncIterator[list[bytes]]


async def _nothing() -> AsyncIterator[list[bytes]]:
    none: tuple[list[bytes], ...] = ()
    for batch in none:
        yield batch


async def _batches(answer: aiohttp.ClientResponse, silence_s: float) -> AsyncIterator[list[bytes]]:
    """Whole lines, as many as have come. The end of the stream is the end of the watch."""
    rest, loop = b"", asyncio.get_running_loop()
    heard_at = loop.time()
    with _Watchdog(answer.content, silence_s) as watchdog:
        while chunk := await watchdog.read():
            before, heard_at = heard_at, loop.time()
            *whole, rest = (rest + chunk).split(b"\n")
            if whole:
                yield whole
            if len(rest) > LINE_MAX:
                raise aiohttp.ClientPayloadError(f"one event of more than {LINE_MAX >> 20} MiB")
            if len(whole) > CROWDED * (heard_at - before) and len(chunk) < LARGE:
                await asyncio.sleep(GATHER_S)


class _Watchdog:
    """Breaks a stream off that has said nothing for so long while somebody listened. It looks up once in that time, not
    at every word; what has come and was not read yet is no silence."""

    def __init__(self, stream: aiohttp.StreamReader, silence_s: float) -> None:
        self._stream = stream
        self._silence_s = silence_s
        self._loop = asyncio.get_running_loop()
        self._listens_since: float | None = None
        self._had = 0
        """Bytes that had come when it began to listen."""

    def __enter__(self) -> _Watchdog:
        self._timer = self._loop.call_later(self._silence_s, self._look)
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    async def read(self) -> bytes:
        """What has come, or what comes next; nothing at the end."""
        self._listens_since, self._had = self._loop.time(), self._stream.total_bytes
        chunk = await self._stream.readany()
        self._listens_since = None
        return chunk

    def _look(self) -> None:
        since, left = self._listens_since, self._silence_s
        if since is not None and self._stream.total_bytes == self._had and not self._stream.is_eof():
            left += since - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._look)
        else:
            self._stream.set_exception(TimeoutError())


async def _whole(answer: aiohttp.ClientResponse) -> bytes:
    parts, size = [], 0
    async for part in answer.content.iter_any():
        parts.append(part)
        size += len(part)
        if size > BODY_MAX:
            raise aiohttp.ClientPayloadError(f"a reply of more than {BODY_MAX >> 20} MiB")
    return b"".join(parts)


def _retry_after(answer: aiohttp.ClientResponse) -> float:
    return seconds(answer.headers.get("Retry-After", ""))
