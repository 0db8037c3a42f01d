"""Requests that nobody should send: whatever comes, the API answers with less than 500 and the yard stays up."""

from __future__ import annotations

import http.client
import json
import random
import socket
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from gpuyard.client.places import socket_path
from tests.e2e.conftest import PATIENCE_S, Shell

pytestmark = pytest.mark.slow

SEED, REQUESTS = 3, 600
NAMES = [quote(name, safe="%/") for name in ("a", "%00", "..", "a b", "x" * 5000, "%ff", "a/b", "-1", "@1", "💥")]
JOB = "/api/v1/jobs/{}"
PATHS = (
    "/api/v1/jobs", "/api/v1/jobs?fields=,,name,x.y", JOB, f"{JOB}/why", f"{JOB}/logs?task=-5&offset=5",
    f"{JOB}/logs?offset=99999999999999999999999", f"{JOB}/logs?wait=nan", f"{JOB}/attach", f"{JOB}/cancel",
    f"{JOB}/explode", "/api/v1/previews", "/api/v1/nodes", "/api/v1/nodes/{}/drain", "/api/v1/nodes/{}/undrain",
    "/api/v1/queues", "/api/v1/queues/{}", "/api/v1/snapshot", "/api/v1/report?since=nan", "/api/v1/report?since=1e400",
    "/api/v1/report?by=x", "/api/v1/status", "/api/v1/events?after=99999999999999999999", "/api/v1/events?limit=-1",
    "/api/v1/events?after=0&wait=-inf", "/api/v1/backup", "/livez", "/readyz", "/metrics", "/version", "/openapi.json",
    "/", "/nope",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, -1, 10**40, 1.5, "", "x", [], {}, [[]], True, "\0", "x" * 3000, {"a": 1}, 1e308,
    "\ud800", {"\udcff": "x"}, {"A\0uid\x000": "x"}, "\x1b[2J",
)  # fmt: skip
KEYS = ("jobs", "name", "quota", "limit", "gpu", "reason", "force", "key", "queue_anyway", "weight", "users", "parent")
JOB_KEYS = ("name", "gpus", "tasks", "queue", "array", "after", "time_limit", "class", "mig", "groups", "held", "user")
RUN_KEYS = ("env", "workdir", "retries", "image", "tty")
TEXTS = (b"", b"{", b"\xff\xfe", b"[]", b"null", b'"x"', b"1" * 2000)


class Connection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=PATIENCE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self._path))


def body(dice: random.Random) -> bytes:
    if dice.random() < 0.2:
        return dice.choice(TEXTS)
    document = {dice.choice(KEYS): dice.choice(VALUES) for _ in range(3)}
    if dice.random() < 0.5:
        job = {dice.choice(JOB_KEYS): dice.choice(VALUES) for _ in range(3)}
        document["jobs"] = [job | {"run": {"command": ["true"], dice.choice(RUN_KEYS): dice.choice(VALUES)}}]
    return json.dumps(document).encode()


def test_no_request_is_answered_with_a_fault(shell: Shell):
    shell.up()
    dice = random.Random(SEED)
    for _ in range(REQUESTS):
        method = dice.choice(("GET", "GET", "POST", "PUT", "DELETE"))
        path = dice.choice(PATHS).replace("{}", dice.choice(NAMES))
        content = body(dice) if method in ("POST", "PUT") else None
        connection = Connection(socket_path(shell.state))
        connection.request(method, path, content, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        told = answer.read()
        connection.close()
        assert answer.status < 500, (method, path[:100], content, told[:300])
    with shell.client() as client:
        assert client.status()["healthy"]
