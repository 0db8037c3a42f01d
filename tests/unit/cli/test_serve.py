"""`yard serve`: whoever starts it is told what it waits for, and is obeyed while it does."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuyard.cli import main
from gpuyard.cli.keeping import serve
from tests.support.kube.fake_server import FakeServer, Handler, status
from tests.unit.cli.conftest import Yard

PATIENCE_S = 60
CODE = """
import sys
from gpuyard.cli.keeping import serve
from gpuyard.cli.main import main
serve.PATIENCE_S = 0.2
sys.argv = ["yard", "serve", "--role", "scheduler", "--no-lease", "--kubeconfig", sys.argv[1]]
main()
"""


@contextmanager
def answered(*script: Handler) -> Iterator[str]:
    """The address of a server that answers by this script, in a thread of its own."""
    ready, loop, over = threading.Event(), asyncio.new_event_loop(), asyncio.Event()
    found: list[str] = []

    async def live() -> None:
        async with FakeServer(*script) as fake:
            found.append(fake.access.server)
            ready.set()
            await over.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(live()))
    thread.start()
    try:
        assert ready.wait(PATIENCE_S)
        yield found[0]
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


def kubeconfig(folder: Path, server: str, **user: Any) -> Path:
    path = folder / "config"
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(document))
    return path


def begun(path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", CODE, str(path)], stderr=subprocess.PIPE, text=True)


def hanging(folder: Path) -> Path:
    program = folder / "plugin"
    program.write_text("#!/bin/sh\nsleep 600\n")
    program.chmod(0o755)
    said = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(program)}
    return kubeconfig(folder, "https://127.0.0.1:1", exec=said)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_it_waits_for_is_said_and_it_stops_when_it_is_told_to(tmp_path: Path, number: signal.Signals):
    path = kubeconfig(tmp_path, "https://127.0.0.1:1")
    with begun(path) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == (
            "Waiting to read the cluster of https://127.0.0.1:1: the API server https://127.0.0.1:1 cannot be reached, "
            "the connection is refused: does it run, is it the one you mean? kubectl cluster-info asks it the same.\n"
        )
        process.send_signal(number)
        assert process.wait(PATIENCE_S) == 0
        assert process.stderr.read() == ""


@pytest.mark.slow
def test_a_plugin_that_hangs_keeps_nobody_from_stopping_it(tmp_path: Path):
    with begun(hanging(tmp_path)) as process:
        assert process.stderr is not None
        assert "it has not answered yet" in process.stderr.readline()
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
        assert process.stderr.read() == ""


def serving(path: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(path)], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    return done.returncode, done.stderr


@pytest.mark.slow
def test_whom_the_server_does_not_know_is_told_so_at_once(tmp_path: Path):
    with answered(status(401, "Unauthorized")) as server:
        code, told = serving(kubeconfig(tmp_path, server, token="wrong"))
    assert code == main.USAGE
    assert f"error: the cluster could not be read: the API server {server} does not know who you are" in told


@pytest.mark.slow
@pytest.mark.parametrize(
    ("user", "told"),
    [
        ({"tokenFile": "/nowhere"}, "the cluster could not be read: /nowhere cannot be read: No such file"),
        ({"client-certificate-data": "eA==", "client-key-data": "eA=="}, "are no such pair in PEM form"),
    ],
)
def test_credentials_that_cannot_be_had_end_it_at_once(tmp_path: Path, user: dict[str, str], told: str):
    code, said = serving(kubeconfig(tmp_path, "https://127.0.0.1:1", **user))
    assert code == main.USAGE
    assert told in said
    assert len(said.splitlines()) == 1


def test_it_is_said_seldom_what_is_waited_for(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    now = 0.0

    class Still:
        def monotonic(self) -> float:
            return now

    monkeypatch.setattr("gpuyard.runtime.clock.SystemClock", Still)
    told = threading.Event()
    awaiting = serve.Awaiting(told, "https://x")
    for now in range(41):
        assert awaiting.goes_on("nodes is forbidden" if now > 20 else "")
    assert capsys.readouterr().err.splitlines() == [
        "Waiting to read the cluster of https://x: it has not answered yet.",
        "Waiting to read the cluster of https://x: nodes is forbidden.",
    ]
    told.set()
    assert not awaiting.goes_on("")


@pytest.mark.parametrize("option", ["--probes", "--listen"])
@pytest.mark.parametrize("port", ["99999", "9" * 9999, "-1", "x", ""])
def test_a_port_that_is_none_is_told_before_anything_begins(tmp_path: Path, yard: Yard, option: str, port: str):
    path = kubeconfig(tmp_path, "https://127.0.0.1:1")
    answer = yard("serve", "--role", "scheduler", "--kubeconfig", str(path), option, f"127.0.0.1:{port}")
    assert answer.code == main.USAGE
    assert f"{option} is HOST:PORT with a port of at most 65535" in answer.err
