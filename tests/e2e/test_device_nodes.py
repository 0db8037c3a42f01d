"""A shared yard with a real GPU: the device node is its holder's alone, and as it was when the yard is gone."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard.agent.device_nodes import minors
from tests.e2e.conftest import wait_for
from tests.e2e.test_shared import ALICE, BOB, GROUP, Shared, sh, until

KNOWN = minors(Path("/proc/driver/nvidia"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: tasks run as their users"),
    pytest.mark.skipif(not KNOWN, reason="needs a real GPU, whose device node is the driver's"),
]
NODE = Path(f"/dev/nvidia{min(KNOWN.values(), default=0)}")


@pytest.fixture
def real() -> Iterator[Shared]:
    folder = Path(tempfile.mkdtemp(prefix="gy"))
    folder.chmod(0o711)
    shell = Shared(folder / "s")
    try:
        shell.up("--state", str(shell.state), "--shared", "--group", GROUP)
        yield shell
    finally:
        shell("down", "--jobs", code=None)
        shutil.rmtree(folder)


def reaches(shell: Shared, user: str) -> bool:
    with shell.as_user(user, GROUP):
        try:
            os.close(os.open(NODE, os.O_RDWR))
        except PermissionError:
            return False
    return True


def test_a_real_gpu_is_open_to_whoever_has_it_and_to_nobody_else(real: Shared):
    assert not reaches(real, ALICE)
    every = len(KNOWN)
    with real.as_user(ALICE, GROUP) as alice:
        alice.submit([{**sh("mine", f"exec 3<>{NODE} && echo open; sleep 600", gpus=every), "queue": "default"}])
        until(alice, "mine", "running")
    assert reaches(real, ALICE)
    assert not reaches(real, BOB)
    with real.as_user(ALICE, GROUP) as alice:
        assert wait_for(lambda: alice.logs("mine")[0], "it has said so") == b"open\n"
        alice.cancel("mine")
        until(alice, "mine", "cancelled")
    assert not reaches(real, ALICE)


def test_programs_find_the_gpu_that_is_open_to_them(real: Shared):
    with real.as_user(ALICE, GROUP) as alice:
        alice.submit([{**sh("look", "nvidia-smi -L", gpus=1), "queue": "default"}])
        until(alice, "look", "succeeded")
        assert b"UUID: GPU-" in alice.logs("look")[0]
    if "NVreg_ModifyDeviceFiles" not in real("status").stdout:  # else the yard has said that it cannot promise this
        assert not reaches(real, BOB)


def test_a_second_yard_on_the_machine_says_who_has_the_gpu(real: Shared, tmp_path: Path):
    second = Shared(tmp_path / "s")
    try:
        assert f"is not offered here: the yard in {real.state}" in second.up("--state", str(second.state))
    finally:
        second("down", "--jobs", code=None)


def test_the_node_is_as_it_was_when_the_yard_is_down():
    before = stat.S_IMODE(NODE.stat().st_mode)
    folder = Path(tempfile.mkdtemp(prefix="gy"))
    folder.chmod(0o711)
    shell = Shared(folder / "s")
    try:
        shell.up("--state", str(shell.state), "--shared", "--group", GROUP)
        assert stat.S_IMODE(NODE.stat().st_mode) == 0o600
    finally:
        shell("down", "--jobs", code=None)
        shutil.rmtree(folder)
    assert stat.S_IMODE(NODE.stat().st_mode) == before
