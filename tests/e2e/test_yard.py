"""The embedded yard end to end, by the commands a user types: real processes on virtual GPUs."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.e2e.conftest import Shell, wait_for
from tests.support.yards import gated

pytestmark = pytest.mark.slow


def is_gone(pid: int) -> bool:
    """Whether nothing of a process runs any more; nobody may have asked yet how it ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_job_is_run_and_its_output_and_exit_code_are_ours(shell: Shell):
    told = shell.up()
    assert "GPUs are " in told
    assert f"State:     {shell.state}" in told
    done = shell(
        "run", "--name", "hello", "--gpus", "2", "--", "sh", "-c", "echo $WORLD_SIZE $GPUYARD_JOB; exit 7", code=7
    )
    assert done.stdout == "1 hello\n"
    assert "hello starts now" in done.stderr
    assert "exit code 7" in done.stderr
    job = json.loads(shell("jobs", "--all", "-o", "json").stdout)[0]
    assert (job["phase"], job["exit_code"], job["asked_gpus"]) == ("failed", 7, 2)
    assert shell("logs", "hello").stdout == "1 hello\n"


def test_submit_wait_why_cancel_hold_release(shell: Shell, tmp_path: Path):
    shell.up()
    path = tmp_path / "job.yaml"
    path.write_text("name: long\ngpus: 8\nrun: {command: [sleep, '600']}\n")
    assert shell("submit", str(path)).stdout == "long\n"
    shell("wait", "long", "--for", "running", "--timeout", "120s")
    shell("run", "--detach", "--name", "next", "--gpus", "4", "--", "true")
    assert "next (1×4) waits" in shell("why", "next").stdout
    assert shell("submit", str(path), "--dry-run", code=2).returncode == 2  # the name is taken
    shell("wait", "next", "--for", "running", "--timeout", "200ms", code=5)
    shell("hold", "next")
    shell("cancel", "long")
    shell("wait", "long")
    assert json.loads(shell("jobs", "--all", "-o", "json", "--sort-by", "name").stdout)[0]["phase"] == "cancelled"
    shell("release", "next")
    shell("wait", "next", "--for", "succeeded", "--timeout", "120s")
    for args in (("nodes",), ("queues",), ("free",), ("top",), ("health",), ("report",), ("frag",), ("status",)):
        shell(*args)


def test_gangs_arrays_and_dependencies(shell: Shell):
    shell.up()
    done = shell(
        "run", "--name", "gang", "--gpus", "2", "--tasks", "3", "--", "sh", "-c", "echo rank $RANK of $WORLD_SIZE"
    )
    assert sorted(done.stdout.splitlines()) == [f"{n}: rank {n} of 3" for n in range(3)]
    shell("run", "--detach", "--name", "sweep", "--array", "0-5%2", "--", "sh", "-c", "echo $GPUYARD_ARRAY_INDEX")
    shell("run", "--detach", "--name", "last", "--after", "sweep-5:ok", "--", "true")
    shell("wait", "last", "--for", "succeeded", "--timeout", "120s")
    assert shell("logs", "sweep-4").stdout == "4\n"


def test_jobs_outlive_the_yard_and_are_found_again(shell: Shell, tmp_path: Path):
    shell.up()
    script = f"echo begun; {gated(tmp_path / 'go', 'echo done')}"
    shell("run", "--detach", "--name", "t", "--gpus", "1", "--", "sh", "-c", script)
    shell("wait", "t", "--for", "running", "--timeout", "120s")
    assert "1 job left running" in shell("down").stdout
    shell.up()
    (tmp_path / "go").touch()
    shell("wait", "t", "--for", "succeeded", "--timeout", "120s")
    assert shell("logs", "t").stdout == "begun\ndone\n"


def test_a_killed_control_plane_comes_back_with_everything(shell: Shell, tmp_path: Path):
    shell.up()
    shell("run", "--detach", "--name", "t", "--gpus", "8", "--", "sh", "-c", gated(tmp_path / "go"))
    shell("run", "--detach", "--name", "u", "--gpus", "8", "--", "true")
    shell("wait", "t", "--for", "running", "--timeout", "120s")
    pid = json.loads(shell("status", "-o", "json").stdout)["pid"]
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: is_gone(pid), "it is dead")
    assert "`yard up`" in shell("jobs", code=1).stderr
    shell.up()
    (tmp_path / "go").touch()
    shell("wait", "t", "u", "--for", "succeeded", "--timeout", "120s")


def test_a_second_yard_on_the_same_folder_is_told_who_holds_it(shell: Shell):
    shell.up()
    assert "held by process" in shell("up", "--detach", "--port", "0", code=2).stderr


def test_backup_and_restore(shell: Shell, tmp_path: Path):
    shell.up()
    shell("run", "--name", "kept", "--", "true")
    copy = tmp_path / "copy.db"
    shell("backup", str(copy))
    assert "held by process" in shell("restore", str(copy), code=2).stderr
    shell("run", "--name", "lost", "--", "true")
    shell("down")
    shell("restore", str(copy))
    shell.up()
    assert shell("jobs", "-o", "name", "--all").stdout == "kept\n"


def test_a_restore_over_a_live_yard_that_does_not_answer_is_refused(shell: Shell, tmp_path: Path):
    """The attack: its socket was gone, so it was taken for down; a job and three running ones were lost."""
    shell.up()
    shell("run", "--detach", "--name", "a", "--", "sleep", "600")
    shell("wait", "a", "--for", "running", "--timeout", "120s")
    with shell.client() as client:
        client.backup(str(tmp_path / "copy.db"))
        pid = int(client.status()["pid"])
    (shell.state / "yard.sock").rename(shell.state / "moved.sock")
    assert "held by process" in shell("restore", str(tmp_path / "copy.db"), code=2).stderr
    assert not list(shell.state.glob("*.before-restore*"))
    (shell.state / "moved.sock").rename(shell.state / "yard.sock")
    with shell.client() as client:
        assert client.status()["pid"] == pid
        assert client.job("a")["phase"] == "running"


def test_a_live_snapshot_can_be_planned(shell: Shell, tmp_path: Path):
    shell.up()
    shell("run", "--detach", "--name", "a", "--gpus", "8", "--", "sleep", "600")
    shell("run", "--detach", "--name", "b", "--gpus", "8", "--", "true")
    shell("wait", "a", "--for", "running", "--timeout", "120s")
    path = tmp_path / "moment.yaml"
    path.write_text(shell("snapshot").stdout)
    plan = json.loads(shell("plan", str(path), "--cycles", "1", "-o", "json").stdout)
    assert plan["actions"] == []
    assert [waiting["job"] for waiting in plan["waiting"]] == ["b"]


def test_the_api_tells_events_over_tcp_with_the_token(shell: Shell):
    from gpuyard.client import Client
    from gpuyard.client.places import Address

    shell.up()
    url = json.loads(shell("status", "-o", "json").stdout)["addresses"][1]
    token = (shell.state / "token").read_text().strip()
    with Client(Address(url=url, token=token)) as client:
        client.submit([{"name": "t", "run": {"command": ["true"]}}])
        seen = []
        for event in client.follow(0):
            seen.append(event["kind"])
            if event["kind"] == "ended":
                break
    assert {"submitted", "started"} <= set(seen)
