"""Real GPUs on a machine made by hand: two yards never offer one twice, and users reach what they hold alone."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuyard.agent.keeper import Machine
from gpuyard.model.snapshot import Snapshot
from gpuyard.runtime.clock import SystemClock
from gpuyard.runtime.embedded.yard import EmbeddedYard, Settings
from gpuyard.runtime.service import Caller
from tests.support.yards import ADMIN, TestYard, fleet, sh

pytestmark = pytest.mark.slow

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: two real users take turns")
UUIDS = ("GPU-0000", "GPU-1111")


def two_gpus() -> Snapshot:
    """One node whose GPUs have UUIDs, as NVML would tell them."""
    made = fleet("nodes: [{name: n0, gpus: 2, model: H100}]")
    (node,) = made.nodes
    gpus = tuple(replace(gpu, uuid=uuid) for gpu, uuid in zip(node.gpus, UUIDS, strict=True))
    return replace(made, nodes=(replace(node, gpus=gpus),))


@pytest.fixture
def machine() -> Iterator[Machine]:
    with tempfile.TemporaryDirectory(prefix="gy") as name:  # pytest's own folders are closed to everybody else
        Path(name).chmod(0o755)
        yield built(Path(name))


def built(folder: Path) -> Machine:
    """A machine with two GPUs, in a folder."""
    made = Machine(folder / "lock", folder / "dev", folder / "proc")
    assert made.claims is not None
    made.claims.mkdir()
    made.claims.chmod(0o1777)
    made.dev.mkdir()
    for minor, uuid in enumerate(UUIDS):
        info = made.driver / "gpus" / f"0000:0{minor}:00.0" / "information"
        info.parent.mkdir(parents=True)
        info.write_text(f"Model: \t\t H100\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n")
        (made.dev / f"nvidia{minor}").touch()
        (made.dev / f"nvidia{minor}").chmod(0o666)
    (made.driver / "params").write_text("ModifyDeviceFiles: 0\n")
    return made


class Real(TestYard):
    """A yard on that machine."""

    def __init__(self, folder: Path, machine: Machine, **settings: Any) -> None:
        made = Settings(folder, two_gpus(), machine=machine, term_grace=0.5, backoff=0.05, **settings)
        EmbeddedYard.__init__(self, made, SystemClock())


def closed(yard: Real) -> list[bool]:
    (node,) = yard.nodes(ADMIN)
    return [device.get("phase") == "cordoned" for device in node["devices"]]


def test_two_yards_on_one_machine_do_not_offer_one_gpu_twice(tmp_path: Path, machine: Machine):
    first, second = Real(tmp_path / "a", machine), Real(tmp_path / "b", machine)
    first.start()
    second.start()
    assert closed(first) == [False, False]
    assert closed(second) == [True, True]
    told = second.status()["checks"]["devices"]
    assert f"GPU-0000 is not offered here: the yard in {tmp_path}/a (process {os.getpid()} of uid" in told
    first.put(sh("sleep 600", name="t", gpus=1))
    first.until("t", "running")
    first.close()
    again = Real(tmp_path / "c", machine)
    again.start()
    assert sorted(closed(again)) == [False, True]  # the task outlives its yard, and so does its claim
    again.put(sh("true", name="one", gpus=1))
    again.until("one", "succeeded")
    for yard in (again, second):
        yard.stop()
    first.start()
    assert closed(first) == [False, False]
    first.stop()


def test_what_another_yard_has_stays_closed_whoever_opens_it(tmp_path: Path, machine: Machine):
    first, second = Real(tmp_path / "a", machine), Real(tmp_path / "b", machine)
    first.start()
    second.start()
    second.undrain(ADMIN, {"node": "n0", "gpu": 0})
    assert closed(second) == [True, True]
    first.stop()
    second._plane.devices._looked_at = -1e9  # type: ignore[union-attr]
    second._plane.devices.look_after()  # type: ignore[union-attr]
    assert closed(second) == [False, False]
    second.put(sh("true", name="t", gpus=1))
    second.until("t", "succeeded")
    second.stop()


@pytest.fixture
def shared(tmp_path: Path, machine: Machine) -> Iterator[Real]:
    yard = Real(tmp_path / "state", machine, shared=True)
    yard.start()
    yield yard
    yard.stop()


def can_open(path: Path, user: str) -> bool:
    """Whether that user may, asked of the kernel by a process of theirs."""
    entry = pwd.getpwnam(user)
    try_it = ["sh", "-c", 'exec 3<>"$1"', "sh", str(path)]
    done = subprocess.run(
        try_it, user=entry.pw_uid, group=entry.pw_gid, extra_groups=[], capture_output=True, check=False
    )
    return done.returncode == 0


def caller(name: str) -> Caller:
    return Caller(name, pwd.getpwnam(name).pw_uid)


def who_can(machine: Machine) -> list[list[str]]:
    return [[u for u in ("nobody", "daemon") if can_open(machine.dev / f"nvidia{n}", u)] for n in range(2)]


@needs_root
def test_a_users_gpu_is_open_to_that_user_alone_and_while_they_hold_it(shared: Real, machine: Machine):
    assert who_can(machine) == [[], []]
    shared.put(sh("sleep 600", name="a", gpus=1), caller=caller("nobody"))
    shared.until("nobody/a", "running")
    shared.put(sh("sleep 600", name="b", gpus=1), caller=caller("daemon"))
    shared.until("daemon/b", "running")
    assert sorted(who_can(machine)) == [["daemon"], ["nobody"]]
    shared.act(ADMIN, "nobody/a", "cancel")
    shared.until("nobody/a")
    assert sorted(who_can(machine)) == [[], ["daemon"]]


@needs_root
def test_two_who_share_a_gpu_both_reach_it(shared: Real, machine: Machine):
    shared.put(sh("sleep 600", name="a", fraction=0.5), caller=caller("nobody"))
    shared.put(sh("sleep 600", name="a2", fraction=0.25), caller=caller("nobody"))
    shared.put(sh("sleep 600", name="b", fraction=0.25), caller=caller("daemon"))
    for name in ("nobody/a", "nobody/a2", "daemon/b"):
        shared.until(name, "running")
    assert ["nobody", "daemon"] in who_can(machine)
    shared.act(ADMIN, "nobody/a2", "cancel")
    shared.until("nobody/a2")
    assert ["nobody", "daemon"] in who_can(machine)


@needs_root
def test_nodes_are_put_back_when_the_yard_lets_go_and_looked_after_a_crash(tmp_path: Path, machine: Machine):
    yard = Real(tmp_path / "state", machine, shared=True)
    yard.start()
    yard.put(sh(f"while [ ! -e {machine.dev}/end ]; do sleep 0.02; done", name="a", gpus=1), caller=caller("nobody"))
    yard.until("nobody/a", "running")
    yard.close()
    assert sorted(who_can(machine)) == [["nobody"], ["nobody", "daemon"]]  # the one in use stays its user's
    (machine.dev / "nvidia0").chmod(0o666)  # as after a crash, or by somebody's hand
    (machine.dev / "nvidia1").chmod(0o666)
    again = Real(tmp_path / "state", machine, shared=True)
    again.start()
    assert sorted(who_can(machine)) == [[], ["nobody"]]
    (machine.dev / "end").touch()
    again.until("nobody/a", "succeeded")
    assert who_can(machine) == [[], []]
    again.stop()
    assert [stat.S_IMODE((machine.dev / f"nvidia{n}").stat().st_mode) for n in range(2)] == [0o666, 0o666]
    assert not (tmp_path / "state" / "device-nodes").exists()


@needs_root
def test_a_node_that_somebody_opens_is_closed_again_and_told(shared: Real, machine: Machine):
    (machine.dev / "nvidia1").chmod(0o666)
    shared._plane.devices._looked_at = -1e9  # type: ignore[union-attr]
    shared._plane.devices.look_after()  # type: ignore[union-attr]
    assert who_can(machine) == [[], []]
    assert any(event["kind"] == "reopened" for event in shared.events(ADMIN, 0, 100))


@needs_root
def test_what_cannot_be_kept_apart_is_told_at_the_start(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
):
    (machine.driver / "params").write_text("ModifyDeviceFiles: 1\n")
    (machine.dev / "nvidia1").unlink()
    monkeypatch.setattr(shutil, "which", lambda name, **_: "/x" if "nvidia" in name else None)
    yard = Real(tmp_path / "state", machine, shared=True)
    yard.start()
    told = yard.status()["checks"]["devices"]
    assert "NVreg_ModifyDeviceFiles=0" in told
    assert "kept apart between users by variables only: the device node of GPU-1111 is not known" in told
    yard.stop()


@needs_root
def test_a_link_in_the_place_of_a_node_is_left_alone(tmp_path: Path, machine: Machine):
    (tmp_path / "precious").touch()
    (tmp_path / "precious").chmod(0o640)
    (machine.dev / "nvidia1").unlink()
    (machine.dev / "nvidia1").symlink_to(tmp_path / "precious")
    yard = Real(tmp_path / "state", machine, shared=True)
    yard.start()
    assert "it is a link" in yard.status()["checks"]["devices"]
    assert stat.S_IMODE((tmp_path / "precious").stat().st_mode) == 0o640
    yard.stop()
