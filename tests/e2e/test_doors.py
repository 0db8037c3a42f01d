"""Attacks on a shared yard that once made a user root, each kept as it was done, by a real unprivileged user."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuyard.client.places import socket_path
from gpuyard.model.errors import Refused
from tests.e2e.conftest import PATIENCE_S, wait_for
from tests.e2e.test_shared import ALICE, GROUP, Shared, sh, shared, until

__all__ = ["shared"]

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.geteuid() != 0, reason="needs root: tasks run as their users")]

PODMAN = Path(__file__).resolve().parents[1] / "support" / "fake_podman.py"


class Raw(http.client.HTTPConnection):
    """A request as no client of ours would write it."""

    def __init__(self, state: Path) -> None:
        super().__init__("localhost", timeout=PATIENCE_S)
        self._state = state

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(socket_path(self._state)))

    def submit(self, job: dict[str, Any]) -> tuple[int, str]:
        self.request("POST", "/api/v1/jobs", json.dumps({"jobs": [job]}), {"Content-Type": "application/json"})
        answer = self.getresponse()
        told = answer.read().decode()
        self.close()
        return answer.status, told


NAMES = ("A\0uid\x000", "A\0arg\0/bin/sh", "A=B\0", "\ud800", "A\n", "")


def test_the_name_of_a_variable_makes_nobody_root_and_stops_no_loop(shared: Shared):
    with shared.as_user(ALICE, GROUP) as alice:
        for name in NAMES:
            job = sh("evil", "id -u")
            job["run"] |= {"env": {name: "0"}}  # type: ignore[operator]
            status, told = Raw(shared.state).submit(job)
            assert status == 400, told
            assert "run.env" in told
        alice.submit([sh("good", "id -un")])
        until(alice, "good", "succeeded")
        assert alice.status()["healthy"]
    shared("down")
    shared.up("--state", str(shared.state), "--shared", "--group", GROUP)
    with shared.as_user(ALICE, GROUP) as alice:
        assert alice.logs("good")[0].decode().strip() == ALICE


def test_what_a_job_names_is_looked_at_with_its_submitters_eyes(shared: Shared):
    """Whether root has such a folder or program is not told to somebody who could not find out alone."""
    secret = shared.state / "runs"  # there, and closed to everybody but root
    told = []
    for name, script in (("there", str(secret)), ("missing", str(shared.state / "runs/none"))):
        job = sh(name, "true", tasks=2, gpus=0)
        job["run"] |= {"workdir": script}  # type: ignore[operator]
        with shared.as_user(ALICE, GROUP) as alice:
            alice.submit([job])
            told.append(str(until(alice, name, "failed")["message"]).replace(script, "FOLDER"))
    assert "FOLDER" in told[1]
    job = sh("home", "pwd")
    job["run"] |= {"env": {"HOME": "/root"}}  # type: ignore[operator]
    with shared.as_user(ALICE, GROUP) as alice:
        alice.submit([job])
        until(alice, "home", "succeeded")
        assert alice.logs("home")[0].decode().strip() == "/"  # the machine says where a home is, not the job


@pytest.fixture
def caught(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The yard again, with a podman of its own; and a folder that a user may write to."""
    shared("down")
    folder = shared.state.parent
    for name, mode in (("bin", 0o755), ("spy", 0o777), ("own", 0o777)):
        (folder / name).mkdir()
        (folder / name).chmod(mode)
    program = folder / "bin" / "podman"
    python = shutil.which("python3", path="/usr/bin:/bin") or sys.executable  # one that every user may run
    program.write_text(f"#!{python}\n{PODMAN.read_text()}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}/bin:{os.environ['PATH']}")
    shared.up("--state", str(shared.state), "--shared", "--group", GROUP, "--fleet", str(folder / "fleet.json"))
    return folder


def test_root_never_runs_an_engine_that_the_job_has_brought(shared: Shared, caught: Path):
    for name in ("podman", "docker", "python", "python3", "sh"):
        trap = caught / "own" / name
        trap.write_text(f"#!/bin/bash\n/usr/bin/id -u >> {caught}/own/caught\nexec /usr/bin/sleep 600\n")
        trap.chmod(0o755)
    job = sh("boxed", "id -u; exec sleep 600") | {"gpus": 0}
    env = {"PATH": f"{caught}/own:/usr/bin:/bin", "PYTHONPATH": f"{caught}/own", "LD_LIBRARY_PATH": f"{caught}/own"}
    job["run"] |= {"image": "python:3.12", "env": env}  # type: ignore[operator]
    with shared.as_user(ALICE, GROUP) as alice:
        alice.submit([job])
        until(alice, "boxed", "running")
        spied, trapped = caught / "spy", caught / "own" / "caught"
        wait_for(lambda: list(spied.glob("gpuyard-*")) or trapped.exists(), "an engine was called")
        alice.cancel("boxed")
        until(alice, "boxed", "cancelled")
    lines = [json.loads(line) for line in (caught / "spy" / "words").read_text().splitlines()]
    uids = (caught / "own" / "caught").read_text().split() if (caught / "own" / "caught").exists() else []
    assert "0" not in uids
    assert [line["words"][0] for line in lines] == ["run", "rm"]
    assert lines[1]["uid"] == lines[0]["uid"] != 0
    assert not {"PYTHONPATH", "LD_LIBRARY_PATH", "GPUYARD_MARK"} & lines[1]["env"].keys()
    assert str(caught / "own") not in lines[1]["env"]["PATH"]


@pytest.mark.skipif(not shutil.which("podman"), reason="needs podman")
def test_the_real_engine_is_called_as_the_submitter_too(shared: Shared):
    """There is no image here; but whoever says so must be the user's own podman, not root's."""
    job = sh("boxed", "true") | {"gpus": 0}
    job["run"] |= {"image": "localhost/no-such-image"}  # type: ignore[operator]
    with shared.as_user(ALICE, GROUP) as alice:
        try:
            alice.submit([job])
        except Refused as refused:
            pytest.fail(str(refused))
        until(alice, "boxed", "failed")
        assert "no-such-image" in alice.logs("boxed")[0].decode() or alice.job("boxed")["exit_code"] in (1, 125, 126)
