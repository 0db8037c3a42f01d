"""What goes wrong on real machines: a full disk, a disk that cannot be written, a second yard. Each is one sentence."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Shell

pytestmark = pytest.mark.slow


def mounted(*words: str) -> bool:
    return os.geteuid() == 0 and subprocess.run(["mount", *words], capture_output=True, check=False).returncode == 0


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Shell]:
    """A yard's folder on a disk of a few megabytes."""
    disk = tmp_path / "d"
    disk.mkdir()
    if not mounted("-t", "tmpfs", "-o", "size=6m", "tmpfs", str(disk)):
        pytest.skip("needs root, and leave to mount a small disk")
    shell = Shell(disk / "s")
    yield shell
    mounted("-o", "remount,rw", str(disk))
    (disk / "fill").unlink(missing_ok=True)
    shell("down", "--jobs", code=None)
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill(shell: Shell) -> Path:
    path = shell.state.parent / "fill"
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096):
                pass
        except OSError:
            return path
    return path


def test_a_full_disk_refuses_new_work_and_keeps_what_was_accepted(tiny: Shell):
    tiny.up()
    tiny("run", "--detach", "--name", "accepted", "--", "sh", "-c", "sleep 1; echo done")
    tiny("wait", "accepted", "--for", "running", "--timeout", "30s")
    full = fill(tiny)
    refused = tiny("run", "--detach", "--name", "refused", "--", "true", code=2)
    assert "is full: nothing new can be accepted" in refused.stderr
    assert "disk: only 0 MiB are left" in tiny("status").stdout
    with tiny.client() as client:
        gone = int(client.job("accepted")["history"][0]["tasks"][0]["pid"])
    while Path(f"/proc/{gone}").exists():  # it ends while there is no room for its last word
        time.sleep(0.05)
    full.unlink()
    tiny("wait", "accepted", "--for", "succeeded", "--timeout", "60s")
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
    assert shell("jobs", "-o", "name").stdout == "kept\n"


def test_an_array_is_waited_for_as_a_whole(shell: Shell):
    shell.up()
    shell("run", "--detach", "--array", "0-3%2", "--name", "sweep", "--", "sh", "-c", "sleep 0.2")
    shell("wait", "sweep", "--for", "succeeded")
    assert "sweep is an array" in shell("logs", "sweep", code=3).stderr
    assert "there is no job swept" in shell("wait", "swept", code=3).stderr


def test_what_can_never_run_is_refused_once(shell: Shell):
    shell.up()
    told = shell("run", "--gpus", "99", "--name", "huge", "--", "true", code=4).stderr
    assert told.startswith("error: huge could never run on this fleet: it asks for 99 GPUs on one node; the largest")
    assert told.endswith(". `--queue-anyway` keeps it until the fleet can run it.\n")
    kept = shell("run", "--gpus", "99", "--name", "huge", "--queue-anyway", "--detach", "--", "true")
    assert kept.stderr.startswith("huge can never run here: asks for 99 GPUs")
