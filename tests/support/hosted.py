"""A yard made by hand behind the real server, on a socket and a port of its own, for the time of a test."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuyard.client import Client
from gpuyard.client.places import Address, socket_path, token_path
from gpuyard.runtime.clock import SystemClock
from gpuyard.server.context import HandlerContext
from gpuyard.server.doors.listening import Tcp
from gpuyard.server.hosting import Doors, Hosting
from tests.support.fake_yard import FakeYard


@dataclass
class Answer:
    """What came back over TCP."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Hosted:
    """The yard, its doors, and ways to knock."""

    yard: FakeYard
    hosting: Hosting
    context: HandlerContext
    state: Path

    @property
    def port(self) -> int:
        return int(self.context.urls[0].rpartition(":")[2])

    @property
    def token(self) -> str:
        return token_path(self.state).read_text().strip()

    @property
    def place(self) -> Address:
        return Address(socket=socket_path(self.state))

    def client(self) -> Client:
        return Client(self.place)

    def tcp(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """One request over TCP, with exactly these headers; underscores stand for dashes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if isinstance(body, dict):
            given.setdefault("Content-Type", "application/json")
        content = json.dumps(body).encode() if body is not None and not isinstance(body, bytes) else body
        try:
            connection.request(method, path, content, given)
            answer = connection.getresponse()
            return Answer(answer.status, answer.read(), {k.lower(): v for k, v in answer.getheaders()})
        finally:
            connection.close()


@contextmanager
def hosted(state: Path, yard: FakeYard | None = None) -> Iterator[Hosted]:
    yard = yard or FakeYard()
    hosting = Hosting(yard, Doors(state, tcp=Tcp(port=0)), SystemClock())
    state.mkdir(parents=True, exist_ok=True)
    context = hosting.start()
    try:
        yield Hosted(yard, hosting, context, state)
    finally:
        hosting.close()
