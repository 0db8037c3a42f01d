"""Everything that an unprivileged user of a shared yard can send: documents, keys, headers, paths, terminals.

After each the loop turns, no answer is 5xx, and nothing of root's or of another user's was opened. `make proof` sends
20,000, the test command 500; each has a number, and `GPUYARD_FUZZ=FIRST:COUNT` sends those again.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import random
import shutil
import socket
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from gpuyard.client.places import socket_path
from gpuyard.model.errors import GpuYardError
from tests.e2e.test_shared import ALICE, BOB, FLEET, GROUP, Shared, sh, until
from tests.support.canaries import SECRET, Canaries

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.geteuid() != 0, reason="needs root: tasks run as their users")]

PROOF = os.environ.get("HYPOTHESIS_PROFILE") == "proof"
FIRST, COUNT = map(int, os.environ.get("GPUYARD_FUZZ", f"0:{20_000 if PROOF else 500}").split(":"))
EVERY = 100
"""So often another user's job goes all the way through the yard."""
ANSWER_S = 120

NAMES = (
    "a", "tty", "theirs", f"{BOB}/theirs", "root/x", "..", "../../token", "a b", "a/b/c", "-1", "@1", "💥", "x" * 300,
    "%00", "%ff", "%", "%zz", "%ed%a0%80", "%2e%2e%2f", "other-1", "*", "a;b", "a'b\"c", "%0d%0aX: y", "\u202egpj",
)  # fmt: skip
TARGETS = (
    "/api/v1/jobs", "/api/v1/jobs?fields={}&all={}", "/api/v1/jobs/{}", "/api/v1/jobs/{}/why", "/api/v1/jobs/{}/logs",
    "/api/v1/jobs/{}/logs?task={}&offset={}&wait=0", "/api/v1/jobs/{}/attach?task={}", "/api/v1/jobs/{}/cancel",
    "/api/v1/jobs/{}/hold", "/api/v1/jobs/{}/release", "/api/v1/jobs/{}/requeue", "/api/v1/jobs/{}/{}",
    "/api/v1/previews", "/api/v1/nodes", "/api/v1/nodes/{}/drain?dry_run={}", "/api/v1/nodes/{}/undrain",
    "/api/v1/queues", "/api/v1/queues/{}", "/api/v1/snapshot", "/api/v1/report?by={}&since={}", "/api/v1/status",
    "/api/v1/events?after={}&limit={}&wait={}", "/api/v1/backup", "/api/v1/logins", "/api/v1/shutdown", "/session",
    "/livez?verbose", "/readyz", "/metrics", "/version", "/openapi.json", "/", "/{}", "//{}", "http://evil/{}", "*",
)  # fmt: skip
WORDS: tuple[Any, ...] = (
    None, True, -1, 0, 1, 3, 10**40, 1.5, -0.0, 1e308, "", "x", "0-3", "0-99999%8", "1000d", "\0", "\ud800", "\x1b[2J",
    "\u202e", "x" * 300, "a=b", "a\nb", [], {}, [[]], [None], {"a": 1}, {"A\0uid\x000": "x"}, {"\udcff": "x"},
    {"LD_PRELOAD": "/x.so", "PATH": "/x"}, "8", "80Gi", "inf", "nan", "NaN", "1e999", "०", "default", "open", "alices",
    ["theirs"], [f"{BOB}/theirs:any"], ["a"], {"gpu": 1}, "H100", "nvlink",
)  # fmt: skip
JOB_KEYS = (
    "name", "gpus", "tasks", "min", "queue", "array", "after", "time_limit", "class", "mig", "groups", "held", "user",
    "priority", "preemptible", "fraction", "gpu_memory", "cpu", "memory", "models", "affinity", "avoid", "topology",
    "checkpoint", "min_runtime", "warm_up", "duration", "attained", "placements", "foreign", "submitted", "x",
    "apiVersion", "kind", "node_selector", "tolerations", "evictions", "stale_grace", "budgets",
)  # fmt: skip
RUN_KEYS = ("command", "env", "workdir", "retries", "image", "tty", "mounts", "x")
HEADERS = (
    b"Host: localhost", b"Host: ", b"Host: evil", b"Host: \xff", b"Authorization: Bearer x", b"Authorization: \xff\xfe",
    b"Cookie: a=b; \xff", b"Content-Length: -1", b"Content-Length: 1, 2", b"Content-Length: 99999999999999999999",
    b"Content-Length: x", b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip, chunked", b"Expect: 100-continue",
    b"Upgrade: websocket\r\nConnection: Upgrade", b"Content-Type: \xff", b"Content-Type: text/plain", b"X" * 70000,
    b"Last-Event-ID: 9999999999999999999999", b"Accept: \xff", b"X-Forwarded-For: 127.0.0.1", b"Range: bytes=0-",
    b"Accept: application/openmetrics-text; version=" + b"9" * 400, b"Content-Encoding: gzip", b": x", b"a b: c",
)  # fmt: skip
FIRST_LINES = (b"GET", b"\0\1\2", b"GET / HTTP/9.9", b"\x16\x03\x01", b"GET /\xff HTTP/1.1")
WISH_KEYS = ("key", "queue_anyway", "gpu", "reason", "force", "path", "code", "jobs", "x")
METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "X")
ACTS = ("cancel", "hold", "release", "requeue", "drain", "backup", "logins", "shutdown", "session")
FEW = (0, 0, 0, 1, 1, 2)
"""How much of a document is not as it should be: mostly little, so that it gets far."""
BODIES = (b"", b"{", b"\xff\xfe", b"[]", b"null", b'"x"', b"1" * 2000, b"[" * 3000, b'{"jobs":' * 500, b"0\r\n\r\n")


class Fuzz:
    """One user's requests, made from their number alone."""

    def __init__(self, number: int, paths: list[str]) -> None:
        self.dice = random.Random(number)
        self.paths = paths

    def word(self) -> Any:
        return self.dice.choice(self.paths) if self.dice.random() < 0.15 else self.dice.choice(WORDS)

    def job(self) -> Any:
        if self.dice.random() < 0.05:
            return self.word()
        run = {self.dice.choice(RUN_KEYS): self.word() for _ in range(self.dice.choice(FEW))}
        path = self.dice.choice(self.paths)
        scripts = (f"echo x >>{path}", f"cat {path}", f"touch {path}/new", f"ls {path}", "true", "sleep 1")
        commands = (["true"], [path], ["cat", path], ["sh", "-c", self.dice.choice(scripts)])
        job = {self.dice.choice(JOB_KEYS): self.word() for _ in range(self.dice.choice(FEW))}
        job.setdefault("queue", "open")
        return job | {"run": {"command": self.dice.choice(commands)} | run}

    def body(self) -> bytes:
        if self.dice.random() < 0.1:
            return self.dice.choice(BODIES)
        wish = {self.dice.choice(WISH_KEYS): self.word() for _ in range(self.dice.choice(FEW))}
        if self.dice.random() < 0.95:
            wish["jobs"] = [self.job() for _ in range(self.dice.randrange(1, 3))]
        return json.dumps(wish).encode()

    def target(self) -> str:
        target = self.dice.choice(TARGETS)
        while "{}" in target:
            name = self.dice.choice((*NAMES, *self.paths, str(self.word())))
            shown = name.encode(errors="replace").decode() if self.dice.random() < 0.9 else "\ufffd"
            target = target.replace("{}", quote(shown, safe="%/" if self.dice.random() < 0.5 else ""), 1)
        return target

    def request(self) -> tuple[bytes, bool]:
        """The bytes, and whether they are a whole request that has to be answered."""
        method, target = "POST", self.dice.choice(("/api/v1/jobs", "/api/v1/jobs", "/api/v1/previews"))
        if self.dice.random() < 0.5:
            target = self.target()
            acts = any(word in target for word in ACTS)
            method = ("POST" if acts else "GET") if self.dice.random() < 0.8 else self.dice.choice(METHODS)
        body = self.body() if method in ("POST", "PUT") else b""
        lines = [f"{method} {target} HTTP/1.1".encode(), b"Connection: close"]
        whole = self.dice.random() > 0.15
        if whole:
            lines += [b"Host: localhost", b"Content-Type: application/json", b"Content-Length: %d" % len(body)]
        else:
            lines += self.dice.sample(HEADERS, 2)
            if self.dice.random() < 0.2:
                lines[0] = self.dice.choice(FIRST_LINES)
        return b"\r\n".join(lines) + b"\r\n\r\n" + body, whole

    def frames(self) -> bytes:
        """What may be typed at a terminal: frames, whole and broken."""
        made = b""
        for _ in range(self.dice.randrange(1, 6)):
            content = self.dice.randbytes(self.dice.choice((0, 1, 4, 100, 5000)))
            length = len(content) if self.dice.random() < 0.8 else self.dice.choice((0, 1, 1 << 31, (1 << 32) - 1))
            made += struct.pack(">BI", self.dice.choice((0, 1, 2, 255)), length) + content
        return made


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="gy"))
    made.chmod(0o711)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def fuzzed(folder: Path) -> Iterator[Shared]:
    shell = Shared(folder / "s")
    (folder / "fleet.json").write_text(json.dumps(FLEET))
    try:
        wish = ("--shared", "--group", GROUP, "--user-cap", "20", "--fleet", str(folder / "fleet.json"))
        shell.up("--state", str(shell.state), *wish)
        yield shell
    finally:
        shell("down", "--jobs", code=None)


@pytest.fixture
def canaries(folder: Path) -> Iterator[list[Canaries]]:
    made = [Canaries(folder / name, pwd.getpwnam(name).pw_uid) for name in ("root", BOB)]
    yield made
    for each in made:
        each.close()


def exchange(path: Path, content: bytes, whole: bool) -> bytes:
    """What comes back until they hang up; nothing where they hang up at once."""
    told = b""
    with socket.socket(socket.AF_UNIX) as line, contextlib.suppress(ConnectionError):
        line.settimeout(ANSWER_S)
        line.connect(str(path))
        line.sendall(content)
        if not whole:
            line.shutdown(socket.SHUT_WR)
        while part := line.recv(1 << 16):
            told += part
    return told


def type_at_terminal(shared: Shared, fuzz: Fuzz) -> None:
    """Frames at a terminal of one's own, made anew where it has ended."""
    with shared.as_user(ALICE, GROUP) as alice, contextlib.suppress(GpuYardError, OSError):
        job = sh("tty", "stty raw 2>/dev/null; cat >/dev/null") | {"class": "interactive"}
        job["run"] |= {"tty": True}  # type: ignore[operator]
        with contextlib.suppress(GpuYardError):
            alice.submit([job])
        until(alice, "tty", "running", "succeeded", "failed", "cancelled", "held")
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(1)
            line.connect(alice.attach("tty"))
            line.sendall(fuzz.frames())


def status_of(answer: bytes) -> int:
    word = answer.partition(b"\r\n")[0].split(b" ")
    return int(word[1]) if len(word) > 1 and word[0].startswith(b"HTTP/") else 0


def goes_through(shared: Shared, number: int) -> None:
    """Another user's job is accepted, run and ended."""
    with shared.as_user(BOB, GROUP) as bob:
        bob.submit([sh(f"probe-{number}", "true")])
        assert until(bob, f"probe-{number}", "succeeded", "failed", "cancelled")["phase"] == "succeeded"


@pytest.mark.timeout(7200 if PROOF else 600)
def test_whatever_a_user_sends_the_yard_goes_on_and_nothing_of_others_is_touched(
    fuzzed: Shared, canaries: list[Canaries]
):
    path = socket_path(fuzzed.state)
    named = [path for each in canaries for path in each.paths()] + [str(fuzzed.state / "token"), "/etc/shadow"]
    with fuzzed.as_user(BOB, GROUP) as bob:
        bob.submit([sh("theirs", f"echo {SECRET}; sleep 86400")])
        until(bob, "theirs", "running")
    for number in range(FIRST, FIRST + COUNT):
        fuzz = Fuzz(number, named)
        content, whole = fuzz.request()
        with fuzzed.as_user(ALICE, GROUP):
            answer = exchange(path, content, whole)
            alive = exchange(path, b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", True)
        status = status_of(answer)
        again = f"GPUYARD_FUZZ={number}:1"
        assert status < 500, (again, content[:2000], answer[:1000])
        assert status or not whole, (again, content[:2000], "was not answered")
        assert SECRET.encode() not in answer, (again, content[:2000], answer[:1000])
        assert status_of(alive) == 200, (again, content[:2000], alive)
        assert all(each.untouched() for each in canaries), (again, content[:2000])
        if number % EVERY == EVERY // 2:
            type_at_terminal(fuzzed, fuzz)
            goes_through(fuzzed, number)
            assert all(each.untouched() for each in canaries), again
    with fuzzed.as_user(BOB, GROUP) as bob:
        assert bob.job("theirs")["phase"] == "running"
    assert not (fuzzed.state / "set-aside").exists() or not list((fuzzed.state / "set-aside").iterdir())
