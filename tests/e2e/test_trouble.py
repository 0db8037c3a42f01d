"""What goes wrong on real machines: a full disk, a disk that cannot be written, a second yard. Each is one sentence."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Shell, wait_for
from tests.support.yards import gated

pytestmark = pytest.mark.slow


def mounted(*words: str) -> bool:
    return os.geteuid() == 0 and subprocess.run(["mount", *words], capture_output=True, check=False).returncode == 0


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Shell]:
    """A yard's folder on a disk of a few megabytes."""
    disk = tmp_path / "d"
    disk.mkdir()
    if not mounted("-t", "tmpfs", "-o", "size=8m,nr_inodes=300", "tmpfs", str(disk)):
        pytest.skip("needs root, and leave to mount a small disk")
    shell = Shell(disk / "s")
    yield shell
    mounted("-o", "remount,rw", str(disk))
    for filler in disk.glob("fill*"):
        filler.unlink()
    shell("down", "--jobs", code=None)
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill(shell: Shell) -> Path:
    path = shell.state.parent / "fill"
    with path.open("ab", buffering=0) as file:
        try:
            while file.write(b"x" * 4096):
                pass
        except OSError:
            return path
    return path


def use_up_inodes(shell: Shell) -> None:
    for number in range(1000):
        try:
            (shell.state.parent / f"fill{number}").touch()
        except OSError:
            return
    raise AssertionError("there are inodes without end")


@pytest.mark.parametrize("short_of", ["room", "inodes"])
def test_a_stop_that_was_accepted_happens_on_a_disk_without(tiny: Shell, short_of: str):
    tiny.up()
    chatty = "while :; do echo more; sleep 0.05; done"
    tiny("run", "--detach", "--name", "t", "--gpus", "8", "--", "sh", "-c", chatty)
    tiny("run", "--detach", "--name", "next", "--gpus", "8", "--", "true")
    tiny("wait", "t", "--for", "running", "--timeout", "120s")
    with tiny.client() as client:
        pid = int(client.job("t")["history"][0]["tasks"][0]["pid"])
    fill(tiny) if short_of == "room" else use_up_inodes(tiny)
    tiny("cancel", "t")
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), "the task that was told to stop has ended")
    tiny("wait", "t", "--for", "cancelled", "--timeout", "120s")
    for filler in tiny.state.parent.glob("fill*"):
        filler.unlink()
    tiny("wait", "next", "--for", "succeeded", "--timeout", "120s")


def test_a_task_that_began_without_inodes_is_never_left_alone(tiny: Shell, tmp_path: Path):
    """Neither its note nor its output can be written: it does not run, and its GPU is not given on while it does."""
    tiny.up()
    use_up_inodes(tiny)
    for number in range(6):  # as many as it takes to come up, and not one more
        (tiny.state.parent / f"fill{number}").unlink()
    lock = tmp_path / "lock"
    script = f"mkdir {lock} || echo held twice >> {lock}.bad; sleep 1; rmdir {lock}"
    for name in ("a", "b"):
        tiny("run", "--detach", "--name", name, "--gpus", "8", "--", "sh", "-c", script, code=None)
    time.sleep(3)
    for filler in tiny.state.parent.glob("fill*"):
        filler.unlink()
    with tiny.client() as client:
        names = [str(job["name"]) for job in client.jobs()]
    for name in names:
        tiny("wait", name, "--for", "succeeded", "--timeout", "120s")
    assert not Path(f"{lock}.bad").exists()


def test_a_full_disk_refuses_new_work_and_keeps_what_was_accepted(tiny: Shell, tmp_path: Path):
    tiny.up()
    tiny("run", "--detach", "--name", "accepted", "--", "sh", "-c", gated(tmp_path / "go", "echo done"))
    tiny("wait", "accepted", "--for", "running", "--timeout", "120s")
    full = fill(tiny)
    asked = (tiny("run", "--detach", "--name", f"r{n}", "--", "true", code=None) for n in range(100))
    refused = next(done for done in asked if done.returncode)  # a few may find room in what the log has already
    assert refused.returncode == 2
    assert "is full: nothing new can be accepted" in refused.stderr
    assert "disk: only 0 MiB are left" in tiny("status").stdout
    with tiny.client() as client:
        pid = int(client.job("accepted")["history"][0]["tasks"][0]["pid"])
    (tmp_path / "go").touch()
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), "it has ended while there is no room for its last word")
    full.unlink()
    tiny("wait", "accepted", "--for", "succeeded", "--timeout", "120s")
    with tiny.client() as client:
        assert client.job("accepted")["attempts"] == 1
    tiny("run", "--name", "later", "--", "true")


def test_a_yard_cannot_begin_on_a_full_disk_and_says_so(tiny: Shell):
    fill(tiny)
    assert "is full" in tiny("up", "--detach", "--port", "0", code=2).stderr


def test_a_disk_that_cannot_be_written_is_named(tiny: Shell):
    tiny.up()
    tiny("down")
    assert mounted("-o", "remount,ro", str(tiny.state.parent))
    assert "cannot be written: Read-only file system" in tiny("up", "--detach", "--port", "0", code=2).stderr
    assert "cannot be written: Read-only file system" in tiny("up", "--port", "0", code=2).stderr


def test_a_second_yard_says_who_holds_the_folder_and_leaves_the_log_alone(shell: Shell):
    shell.up()
    before = (shell.state / "yard.log").read_text()
    with shell.client() as client:
        pid = client.status()["pid"]
    for words in (("--detach",), ()):
        assert f"is held by process {pid}" in shell("up", "--port", "0", *words, code=2).stderr
    assert (shell.state / "yard.log").read_text().startswith(before)
    assert (shell.state / "yard.log").stat().st_mode & 0o777 == 0o600


def test_a_damaged_database_is_told_and_a_backup_takes_its_place(shell: Shell, tmp_path: Path):
    shell.up()
    shell("run", "--name", "kept", "--", "true")
    shell("backup", str(tmp_path / "copy.db"))
    shell("down")
    (shell.state / "yard.db").write_bytes(b"x" * 20000)
    assert "is damaged" in shell("up", "--detach", "--port", "0", code=2).stderr
    shell("restore", str(tmp_path / "copy.db"))
    shell.up()
    assert shell("jobs", "--all", "-o", "name").stdout == "kept\n"


def test_an_array_is_waited_for_as_a_whole(shell: Shell):
    shell.up()
    shell("run", "--detach", "--array", "0-3%2", "--name", "sweep", "--", "sh", "-c", "sleep 0.2")
    shell("wait", "sweep", "--for", "succeeded")
    assert shell("logs", "sweep").stdout == ""
    assert "there is no job swept" in shell("wait", "swept", code=3).stderr


def test_what_can_never_run_is_refused_once(shell: Shell):
    shell.up()
    told = shell("run", "--gpus", "99", "--name", "huge", "--", "true", code=4).stderr
    assert told.startswith("error: huge could never run on this fleet: it asks for 99 GPUs on one node; the largest")
    assert told.endswith(". `--queue-anyway` keeps it until the fleet can run it.\n")
    kept = shell("run", "--gpus", "99", "--name", "huge", "--queue-anyway", "--detach", "--", "true")
    assert kept.stderr.startswith("huge can never run here: asks for 99 GPUs")


def test_what_cannot_be_written_down_is_not_told_as_done(tiny: Shell):
    """A crash would forget it; who asks again once there is room is told that it is done."""
    tiny.up()
    tiny("run", "--detach", "--name", "runs", "--gpus", "8", "--", "sleep", "600")
    names = [f"w{number}" for number in range(40)]
    for name in names:
        tiny("run", "--detach", "--name", name, "--gpus", "8", "--", "true")
    full, unwritten, done = fill(tiny), "", None
    for unwritten in names:
        done = tiny("cancel", unwritten, code=None)
        if done.returncode:
            break
        fill(tiny)  # also the room that was put by
    assert done is not None
    assert done.returncode == 1
    heard = "was heard, but cannot be written down yet"
    assert f"to cancel {unwritten} {heard}" in done.stderr
    assert f"to cancel {unwritten} {heard}" in tiny("cancel", unwritten, code=1).stderr, "as often as it is asked"
    node = tiny("nodes", "-o", "name").stdout.split()[0]
    assert f"to drain {node} {heard}" in tiny("drain", node, "--yes", code=1).stderr
    assert f"to open {node} {heard}" in tiny("undrain", node, code=1).stderr
    assert f"to open {node} {heard}" in tiny("undrain", node, code=1).stderr, "that it is open already is not on disk"
    assert (
        f"to change queue default {heard}" in tiny("queues", "set", "default", "--limit", "64", "--yes", code=1).stderr
    )
    full.unlink()
    wait_for(lambda: tiny("cancel", unwritten, code=None).returncode != 1, "it is told yes, or that it was so before")
    with tiny.client() as client:
        assert client.job(unwritten)["phase"] == "cancelled"
    assert "is open already" in tiny("undrain", node, code=2).stderr
