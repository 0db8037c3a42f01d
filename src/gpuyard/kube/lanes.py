"""Small writes over a few connections that are kept: one request at a time on each, and little work for each of them.

Used by `client` for everything that is POSTed. The one write a pod is most of what a scheduler spends, and a general
HTTP client takes four times the processor time that this takes (`make bench-kube` measures both). It knows as much of
HTTP/1.1 as an API server and a proxy before it need: bodies by length, in chunks, or until the connection ends.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

from gpuyard.kube.replies import ApiReply, seconds, unreached

BODY_MAX = 8 << 20
"""Of a reply to a write."""
HEAD_MAX = 64 << 10
CONNECT_S = 10.0
_END = b"\r\n\r\n"


class BrokenReply(Exception):
    """What came is no answer, and never will be."""


@dataclass(frozen=True, slots=True)
class WholeReply:
    """An answer, and whether its connection can be used again."""

    reply: ApiReply
    keeps: bool


def read(came: bytes, ended: bool = False) -> WholeReply | None:
    """The answer that these bytes are; None as long as some are missing. `ended`: no more will come."""
    end = came.find(_END)
    if end < 0:
        if len(came) > HEAD_MAX:
            raise BrokenReply("a reply whose head does not end")
        return None
    first, _, rest = came[:end].partition(b"\r\n")
    version, _, told = first.partition(b" ")
    if not version.startswith(b"HTTP/1.") or not told[:3].isdigit():
        raise BrokenReply("a reply that is not HTTP/1.1")
    status, after = int(told[:3]), came[end + len(_END) :]
    if status < 200:  # the answer is still to come
        return read(after, ended)
    headers = _headers(rest)
    body = _body(headers, after, ended)
    if body is None:
        if len(after) > BODY_MAX:
            raise BrokenReply(f"a reply of more than {BODY_MAX >> 20} MiB")
        return None
    keeps = version == b"HTTP/1.1" and headers.get(b"connection") != b"close" and not ended
    return WholeReply(ApiReply(status, body, seconds(headers.get(b"retry-after", b"").decode("latin-1"))), keeps)


def _headers(lines: bytes) -> dict[bytes, bytes]:
    found = {}
    for line in lines.split(b"\r\n"):
        name, _, value = line.partition(b":")
        found[name.lower()] = value.strip()
    return found


def _body(headers: dict[bytes, bytes], after: bytes, ended: bool) -> bytes | None:
    if headers.get(b"transfer-encoding", b"").lower() == b"chunked":
        return _chunks(after)
    length = headers.get(b"content-length")
    if length is None:
        return after if ended else None
    if not length.isdigit():
        raise BrokenReply("a reply of no length")
    return after[: int(length)] if len(after) >= int(length) else None


def _chunks(after: bytes) -> bytes | None:
    parts: list[bytes] = []
    at = 0
    while (line := after.find(b"\r\n", at)) >= 0:
        try:
            size = int(after[at:line].partition(b";")[0], 16)
        except ValueError:
            raise BrokenReply("a chunk of no length") from None
        if size == 0:
            return b"".join(parts) if after.find(b"\r\n", line + 2) >= 0 else None
        parts.append(after[line + 2 : line + 2 + size])
        at = line + 2 + size + 2
    return None


class _Lane(asyncio.Protocol):
    """One connection and the request that is on it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._came = b""
        self._asked: asyncio.Future[ApiReply] | None = None
        self._transport: asyncio.Transport | None = None
        self._due = 0.0
        """When the answer must have come."""
        self._timer: asyncio.TimerHandle | None = None
        """Looks whether it has; answers that come in time leave it be, so that few are ever set."""
        self.usable = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport, self.usable = transport, True

    def ask(self, request: bytes, within: float) -> asyncio.Future[ApiReply]:
        """Its answer to come; the lane is nobody else's until then."""
        assert self._transport is not None
        self._came, self._asked = b"", self._loop.create_future()
        self._due = self._loop.time() + within
        if self._timer is None or self._timer.when() > self._due:
            self._look_up_later()
        self._transport.write(request)
        return self._asked

    def _look_up_later(self) -> None:
        self._stop_waiting()
        self._timer = self._loop.call_at(self._due, self._look_up)

    def _look_up(self) -> None:
        self._timer = None
        if self._asked is None or self._asked.done():
            return
        if self._loop.time() < self._due:
            self._look_up_later()
        else:
            self._fail(TimeoutError())

    def data_received(self, data: bytes) -> None:
        self._came += data
        self._look(ended=False)

    def connection_lost(self, error: Exception | None) -> None:
        self.usable = False
        self._look(ended=True)
        self._fail(error or ConnectionResetError("the connection was closed"))

    def _look(self, ended: bool) -> None:
        if self._asked is None or self._asked.done():
            self.close()  # nobody asked for this
            return
        try:
            found = read(self._came, ended)
        except BrokenReply as broken:
            self._fail(broken)
            return
        if found is not None:
            self.usable = self.usable and found.keeps
            self._asked.set_result(found.reply)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fail(self, error: Exception) -> None:
        self.close()
        if self._asked is not None and not self._asked.done():
            self._asked.set_exception(error)

    def close(self) -> None:
        """Whatever may still come on it is not heard."""
        self.usable = False
        self._stop_waiting()
        if self._transport is not None:
            self._transport.abort()


class PostLanes:
    """POSTs to one server, so many at once. Belongs to one event loop."""

    def __init__(self, server: str, tls: ssl.SSLContext | None, server_name: str, count: int) -> None:
        self._server = server
        parts = urlsplit(server)
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if tls is not None else 80)
        self._prefix = parts.path.rstrip("/")
        self._tls = tls
        self._server_name = server_name or self._host
        self._free = asyncio.Semaphore(count)
        self._idle: list[_Lane] = []
        self._lines = f"Host: {parts.netloc}\r\nAccept: application/json\r\nUser-Agent: gpuyard\r\n"

    async def post(self, path: str, body: bytes, token: str, within: float) -> ApiReply:
        """The answer; `ApiUnreachable` if none came. Waiting for a free lane is not part of `within`."""
        async with self._free:
            try:
                lane = await self._lane()
                return await self._asked(lane, self._request(path, body, token), within)
            except (OSError, BrokenReply) as error:  # no answer in time is an OSError, too
                raise unreached(self._server, f"POST {path}", error, within) from error

    async def _asked(self, lane: _Lane, request: bytes, within: float) -> ApiReply:
        try:
            return await lane.ask(request, within)
        except asyncio.CancelledError:
            lane.close()
            raise
        finally:
            if lane.usable:
                self._idle.append(lane)
            else:
                lane.close()

    def close(self) -> None:
        """Let go of every connection that nobody uses."""
        while self._idle:
            self._idle.pop().close()

    async def _lane(self) -> _Lane:
        """The one that was used last: the others may be let go by the server."""
        while self._idle:
            lane = self._idle.pop()
            if lane.usable:
                return lane
        loop = asyncio.get_running_loop()
        name = self._server_name if self._tls is not None else None
        async with asyncio.timeout(CONNECT_S):
            _, lane = await loop.create_connection(
                lambda: _Lane(loop), self._host, self._port, ssl=self._tls, server_hostname=name
            )
        return lane

    def _request(self, path: str, body: bytes, token: str) -> bytes:
        known = f"Authorization: Bearer {token}\r\n" if token else ""
        head = (
            f"POST {self._prefix}{path} HTTP/1.1\r\n{self._lines}{known}"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body
