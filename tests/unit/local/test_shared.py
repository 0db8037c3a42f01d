"""One box, many people: tasks run as their submitter, and nobody sees what is not theirs."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard.model.errors import NotFound, Refused
from gpuyard.runtime.service import Caller
from tests.support.yards import ADMIN, TestYard, sh


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[TestYard]:
    for folder in (tmp_path, *list(tmp_path.parents)[:3]):
        folder.chmod(0o755)  # pytest's own folders are closed to everybody else
    yard = TestYard(tmp_path / "state", shared=True)
    if os.geteuid() != 0:
        with pytest.raises(Refused, match="start it as root"):
            yard.start()
        pytest.xfail("only root can run tasks as somebody else")
    yard.start()
    yield yard
    yard.stop()


def test_a_task_runs_as_its_submitter(shared: TestYard, tmp_path: Path):
    nobody = pwd.getpwnam("nobody")
    caller = Caller("nobody", nobody.pw_uid)
    shared.put(
        sh("id -u; id -g; echo $HOME; cat /proc/self/status | grep CapEff", name="a"),
        caller=caller,
    )
    assert shared.until("a")["phase"] == "succeeded"
    lines = shared.output("a").splitlines()
    assert lines[:3] == [str(nobody.pw_uid), str(nobody.pw_gid), nobody.pw_dir]
    assert lines[3].split() == ["CapEff:", "0000000000000000"]


def test_jobs_and_their_output_are_private(shared: TestYard):
    nobody = Caller("nobody", pwd.getpwnam("nobody").pw_uid)
    daemon = Caller("daemon", pwd.getpwnam("daemon").pw_uid)
    shared.put(sh("echo secret", name="a"), caller=nobody)
    shared.until("a")
    assert [job["name"] for job in shared.jobs(nobody)] == ["a"]
    assert shared.jobs(daemon) == []
    for ask in (shared.job, shared.why, lambda c, n: shared.logs(c, n, 0, 0), lambda c, n: shared.act(c, n, "cancel")):
        with pytest.raises(NotFound, match="there is no job a"):
            ask(daemon, "a")
    assert shared.logs(ADMIN, "a", 0, 0)[0] == b"secret\n"
    output = shared._engine.launcher.output(1, 0)
    assert (output.stat().st_mode & 0o777, next(output.iterdir()).stat().st_mode & 0o777) == (0o700, 0o600)
