"""One machine, many people: `yard up --shared` as root, used by two real unprivileged users over its socket."""

from __future__ import annotations

import grp
import json
import os
import pwd
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpuyard.client import Client, Unreachable
from gpuyard.client.places import Address, socket_path
from gpuyard.model.errors import Denied, NotFound, Refused
from tests.e2e.conftest import PATIENCE_S, Shell

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.geteuid() != 0, reason="needs root: tasks run as their users")]

ALICE, BOB, GROUP = "nobody", "daemon", "nogroup"
FLEET = {
    "apiVersion": "gpuyard.dev/v1",
    "kind": "Snapshot",
    "nodes": [{"name": "n0", "gpus": 4, "model": "H100"}],
    "queues": [{"name": "open"}, {"name": "alices", "quota": 4, "users": [ALICE]}],
}


class Shared(Shell):
    """The yard, and callers who are really somebody else."""

    @contextmanager
    def as_user(self, name: str, *groups: str) -> Iterator[Client]:
        """A client whose connection the kernel knows as that user's; file rights are theirs too."""
        entry = pwd.getpwnam(name)
        before = os.getgroups()
        os.setgroups([grp.getgrnam(group).gr_gid for group in groups])
        os.setegid(entry.pw_gid)
        os.seteuid(entry.pw_uid)
        try:
            with Client(Address(socket=socket_path(self.state))) as client:
                yield client
        finally:
            os.seteuid(0)
            os.setegid(0)
            os.setgroups(before)


@pytest.fixture
def shared() -> Iterator[Shared]:
    folder = Path(tempfile.mkdtemp(prefix="gy"))  # pytest's own folders are closed to everybody else
    folder.chmod(0o711)
    shell = Shared(folder / "s")
    (folder / "fleet.json").write_text(json.dumps(FLEET))
    try:
        wish = ("--shared", "--group", GROUP, "--user-cap", "3", "--fleet", str(folder / "fleet.json"))
        shell.up("--state", str(shell.state), *wish)
        yield shell
    finally:
        shell("down", "--jobs", code=None)
        shutil.rmtree(folder)


def sh(name: str, script: str, **keys: object) -> dict[str, object]:
    return {"name": name, "queue": "open", **keys, "run": {"command": ["sh", "-c", script]}}


def until(client: Client, name: str, *phases: str) -> dict[str, object]:
    end = time.monotonic() + PATIENCE_S
    while (job := client.job(name))["phase"] not in phases:
        assert time.monotonic() < end, job
        time.sleep(0.02)
    return job


def test_each_task_runs_as_its_submitter(shared: Shared):
    for name in (ALICE, BOB):
        with shared.as_user(name, GROUP) as client:
            client.submit([sh(f"of-{name}", "id -un; id -gn; grep CapEff /proc/self/status")])
            until(client, f"of-{name}", "succeeded")
            lines = client.logs(f"of-{name}")[0].decode().split()
        entry = pwd.getpwnam(name)
        assert lines == [name, grp.getgrgid(entry.pw_gid).gr_name, "CapEff:", "0" * 16]


def test_nobody_sees_anothers_jobs_output_names_or_commands(shared: Shared):
    with shared.as_user(ALICE, GROUP) as alice:
        alice.submit([sh("alices-secret", "echo hush; sleep 600", gpus=4, preemptible=False, queue="alices")])
        until(alice, "alices-secret", "running")
    with shared.as_user(BOB, GROUP) as bob:
        assert bob.jobs(all_ended=True) == []
        for ask in (bob.job, bob.why, bob.logs, bob.cancel, bob.hold, bob.attach):
            with pytest.raises(NotFound, match="there is no job alices-secret"):
                ask("alices-secret")
        (answer,) = bob.submit([sh("bobs", "true", gpus=2)])
        until(bob, "bobs", "waiting")
        told = [answer, bob.why("bobs"), bob.jobs(), bob.job("bobs"), bob.nodes(), bob.queues(), bob.events(0)]
        told += [bob.snapshot(), bob.report("user"), bob.preview([sh("more", "true", gpus=2)])]
        assert "secret" not in json.dumps(told)
        assert "hush" not in json.dumps(told)
        assert bob.why("bobs")["in_the_way"][0]["job"] == "other-1"
        assert bob.nodes()[0]["jobs"] == ["other"]
    with shared.as_user("root") as root:
        assert {job["user"] for job in root.jobs()} == {ALICE, BOB}
    for path in (shared.state / "runs", shared.state / "yard.db", shared.state / "yard.log", shared.state / "token"):
        with shared.as_user(BOB, GROUP), pytest.raises(PermissionError):
            list(path.iterdir()) if path.name == "runs" else path.read_bytes()


def test_queues_are_for_those_they_name_and_caps_hold(shared: Shared):
    with shared.as_user(BOB, GROUP) as bob:
        with pytest.raises(Denied, match=f"{BOB} may not use queue alices; it is open to {ALICE}"):
            bob.submit([sh("b", "true", queue="alices")])
        with pytest.raises(Refused, match=f"{BOB} has 0 jobs that are not over, and 3 are allowed"):
            bob.submit([sh("many", "sleep 600", array="0-3")])
        bob.submit([sh("few", "sleep 600", array="0-2")])
        for act in (lambda: bob.set_queue({"name": "open", "quota": 1}), lambda: bob.drain("n0"), bob.shut_down):
            with pytest.raises(Denied):
                act()
    with shared.as_user(ALICE, GROUP) as alice:
        alice.submit([sh("a", "true", queue="alices")])
        until(alice, "a", "succeeded")


def test_whoever_is_not_of_the_group_cannot_even_knock(shared: Shared):
    with shared.as_user(BOB) as stranger, pytest.raises(Unreachable, match="is not open to you"):
        stranger.status()


def test_a_terminal_is_its_submitters_alone(shared: Shared):
    job = sh("shell", "echo me: $(id -un); exec sh") | {"class": "interactive"}
    job["run"] |= {"tty": True}  # type: ignore[operator]
    with shared.as_user(ALICE, GROUP) as alice:
        alice.submit([job])
        until(alice, "shell", "running")
        path = alice.attach("shell")
        with socket.socket(socket.AF_UNIX) as mine:
            mine.connect(path)
            mine.settimeout(PATIENCE_S)
            seen = b""
            while b"me: " + ALICE.encode() not in seen:
                seen += mine.recv(1000)
    with shared.as_user(BOB, GROUP), socket.socket(socket.AF_UNIX) as theirs, pytest.raises(PermissionError):
        theirs.connect(path)
