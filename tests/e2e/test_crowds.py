"""A crowd at the doors: half-open connections by the thousand, and the yard goes on for everybody else."""

from __future__ import annotations

import contextlib
import os
import pwd
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard.client.peers import queue_up
from gpuyard.client.places import socket_path
from tests.e2e.conftest import PATIENCE_S, Shell
from tests.e2e.test_shared import ALICE, BOB, GROUP, Shared, sh, shared, until

__all__ = ["shared"]
pytestmark = pytest.mark.slow

CROWD = 1100
FEW = 512
"""Descriptors that the attacked yard may have."""


def up_with_few_descriptors(shell: Shell) -> None:
    """A yard that can have few, whatever it does."""
    command = [sys.executable, "-m", "gpuyard", "up", "--detach", "--port", "0", "--state", str(shell.state)]
    subprocess.run(["sh", "-c", f'ulimit -n {FEW}; exec "$@"', "sh", *command], check=True, timeout=PATIENCE_S)


@contextlib.contextmanager
def as_uid(uid: int) -> Iterator[None]:
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


def half_open(family: int, address: tuple[str, int] | str, count: int = CROWD) -> list[socket.socket]:
    """That many who began a request and do not go on; whoever is turned away stays counted."""
    crowd = []
    for _ in range(count):
        one = socket.socket(family)
        one.settimeout(PATIENCE_S)
        with contextlib.suppress(ConnectionError):
            if isinstance(address, str):
                queue_up(one, Path(address), PATIENCE_S)
            else:
                one.connect(address)
            one.send(b"GET /api/v1/status HTTP/1.1\r\nHost: lo")
        crowd.append(one)
    return crowd


def refused(one: socket.socket) -> bool:
    """Whether it was turned away; one that is hung up on because it does not go on was let in before."""
    one.setblocking(False)
    try:
        return b"429" in one.recv(1000)
    except BlockingIOError:
        return False
    except ConnectionError:
        return True  # the words were lost on the way


def wait_for_refusals(crowd: list[socket.socket], many: int) -> None:
    """Until more than so many of them were turned away: a yard that has much to do takes its time even for that."""
    left, end = crowd, time.monotonic() + PATIENCE_S
    while len(left := [one for one in left if not refused(one)]) >= len(crowd) - many:
        assert time.monotonic() < end, f"{len(left)} of {len(crowd)} were not turned away"
        time.sleep(0.05)


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def port_of(shell: Shell) -> int:
    with shell.client() as client:
        (url,) = [each for each in client.status()["addresses"] if each.startswith("http")]
    return int(url.rpartition(":")[2])


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a stranger's uid")
def test_a_stranger_s_thousand_half_open_connections_stop_nobody(shell: Shell):
    up_with_few_descriptors(shell)
    port = port_of(shell)
    with as_uid(pwd.getpwnam(ALICE).pw_uid):
        crowd = half_open(socket.AF_INET, ("127.0.0.1", port))
    try:
        with shell.client() as client:
            assert client.status()["healthy"]
            client.submit([{"name": "a", "run": {"command": ["true"]}}])
            until(client, "a", "succeeded")
        wait_for_refusals(crowd, CROWD // 2)
        assert (shell.state / "yard.log").stat().st_size < 100_000
    finally:
        for one in crowd:
            one.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: two users")
def test_a_member_s_thousand_connections_leave_the_socket_open_to_others(shared: Shared):
    address = str(socket_path(shared.state))
    with shared.as_user(BOB, GROUP):
        crowd = half_open(socket.AF_UNIX, address, 3000)
    try:
        wait_for_refusals(crowd, 500)
        with shared.as_user(ALICE, GROUP) as alice:
            alice.submit([sh("a", "true")])
            until(alice, "a", "succeeded")
        with shared.as_user("root") as root:
            assert root.status()["healthy"]
    finally:
        for one in crowd:
            one.close()


def test_whoever_does_not_finish_a_request_is_hung_up_on(shell: Shell):
    shell.up()
    (one,) = half_open(socket.AF_INET, ("127.0.0.1", port_of(shell)), 1)
    with one:
        one.settimeout(PATIENCE_S)
        assert one.recv(1000) == b""


def test_a_yard_out_of_descriptors_still_answers_once_some_are_free(shell: Shell):
    shell.up()
    with shell.client() as client:
        pid = int(client.status()["pid"])
    before = descriptors(pid)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (before + 20, before + 20))
    crowd = half_open(socket.AF_INET, ("127.0.0.1", port_of(shell)), 300)
    for one in crowd:
        one.close()
    end = time.monotonic() + PATIENCE_S
    while descriptors(pid) > before + 5:
        assert time.monotonic() < end
        time.sleep(0.05)
    with shell.client() as client:
        assert client.status()["healthy"]
    assert (shell.state / "yard.log").stat().st_size < 100_000
