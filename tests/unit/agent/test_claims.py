"""One GPU of a machine is offered by one yard; what somebody puts in its way is seen through."""

from __future__ import annotations

import fcntl
import json
import os
import pathlib
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard.agent import claims
from gpuyard.agent.claims import Claims

ONE, OTHER = "GPU-11111111-aaaa", "GPU-22222222-bbbb"


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="gy") as name:  # pytest's own folders are closed to everybody else
        Path(name).chmod(0o1777)
        yield Path(name)


def test_the_second_yard_is_told_who_has_a_gpu_and_gets_the_rest(folder: Path):
    first, second = Claims(folder, "/first", "f"), Claims(folder, "/second", "s")
    assert first.claim([ONE]) == {}
    refused = second.claim([ONE, OTHER])
    assert list(refused) == [ONE]
    assert str(refused[ONE]) == f"the yard in /first (process {os.getpid()} of uid {os.getuid()})"
    assert list(first.claim([ONE, OTHER])) == [OTHER]
    first.drop("yard", [ONE])
    assert second.claim([ONE]) == {}


def test_a_yard_that_comes_up_again_has_its_own_claims(folder: Path):
    assert Claims(folder, "/first", "f").claim([ONE]) == {}
    assert Claims(folder, "/first", "f").claim([ONE]) == {}


def test_a_claim_ends_with_its_process_and_a_task_keeps_it_beyond_its_yard(folder: Path):
    first, second = Claims(folder, "/first", "f"), Claims(folder, "/second", "s")
    task = subprocess.Popen(["sleep", "600"])
    first.claim([ONE])
    first.hold("1.1.0", [ONE], task.pid)
    first.drop("yard", [ONE])
    assert second.claim([ONE])[ONE].pid == task.pid
    task.kill()
    task.wait()
    assert second.claim([ONE]) == {}


def test_claims_of_nobody_do_not_count(folder: Path):
    """Of a boot long ago, of a process that began at another time, without sense, in somebody else's name, a link."""
    prefix = f"gpuyard-{ONE.replace('-', '')}"
    said = {"pid": os.getppid(), "ticks": claims._ticks(os.getppid()), "boot": claims._boot(), "state": "/x"}
    uid = os.getuid()
    wrong: list[dict[str, object]] = [{"boot": "old"}, {"ticks": "1"}, {"pid": "x"}, {"pid": 1 << 40}, {"ticks": ""}]
    for number, change in enumerate(wrong):
        (folder / f"{prefix}-{uid}-m{number}-yard").write_text(json.dumps(said | change))
    (folder / f"{prefix}-{uid}-m7-yard").write_text("{")
    (folder / f"{prefix}-{uid + 1}-m8-yard").write_text(json.dumps(said))
    (folder / "elsewhere").write_text(json.dumps(said))
    (folder / f"{prefix}-{uid}-m9-yard").symlink_to(folder / "elsewhere")
    os.mkfifo(folder / f"{prefix}-{uid}-m10-yard")
    assert Claims(folder, "/second", "s").claim([ONE]) == {}
    (folder / f"{prefix}-{uid}-m11-yard").write_text(json.dumps(said))
    assert ONE in Claims(folder, "/third", "t").claim([ONE])


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: another user tries it")
def test_nobody_can_claim_in_the_name_of_another_users_process(folder: Path):
    said = {"pid": os.getpid(), "ticks": claims._ticks(os.getpid()), "boot": claims._boot(), "state": "/x"}
    name = f"gpuyard-{ONE.replace('-', '')}-65534-m-yard"
    write = ["sh", "-c", 'printf %s "$2" > "$1"', "sh", str(folder / name), json.dumps(said)]
    subprocess.run(write, user=65534, group=65534, extra_groups=[], check=True)
    assert (folder / name).stat().st_uid == 65534
    assert Claims(folder, "/second", "s").claim([ONE]) == {}


def test_whoever_sits_on_the_mutex_stops_nobody(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(claims, "MUTEX_TRIES", 5)
    with (folder / "gpuyard-claims").open("w") as mutex:
        fcntl.flock(mutex, fcntl.LOCK_EX)
        assert Claims(folder, "/first", "f").claim([ONE]) == {}


def test_the_common_folder_is_roots_and_sticky(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    loose = tmp_path / "loose"
    loose.mkdir(mode=0o777)
    loose.chmod(0o777)
    monkeypatch.setattr(claims, "FOLDERS", (str(loose), str(tmp_path / "none")))
    assert claims.common_folder() is None
    monkeypatch.undo()
    found = claims.common_folder()
    assert found is None or pathlib.Path(found).stat().st_uid == 0
