"""A GPU is given on when every process of its last holder is gone: whatever leaves its session, group or environment,
whoever is killed, with control groups and without."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuyard.runtime.clock import SystemClock
from gpuyard.runtime.embedded import control_plane
from gpuyard.worlds.local.launching.launch import BOOT, Supervisors
from gpuyard.worlds.local.ports import Report, TaskKey, TaskOrder
from gpuyard.worlds.local.supervising.confine import own_cgroup
from gpuyard.worlds.local.supervising.notes import read_pairs
from tests.support.yards import ADMIN, ME, TestYard, sh
from tests.unit.local.test_supervisor import order

pytestmark = pytest.mark.slow

ONE_GPU = "nodes: [{name: n0, gpus: 1, model: H100}]"
ESCAPE = """
[ $GPUYARD_ATTEMPT = 1 ] || exit 0
setsid env -i /bin/sh -c 'setsid sleep 600 & echo $! > {folder}/orphan; exec sleep 600' </dev/null >/dev/null 2>&1 &
while [ ! -s {folder}/orphan ]; do sleep 0.01; done
"""
"""Leaves the session, the process group and the mark in its environment, twice."""
SHED = ESCAPE.replace("env -i", "prlimit --rttime=1099511627776 env -i")
"""The brand too, which takes some will."""


@pytest.fixture(params=["cgroup", "no cgroup"])
def confined(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "cgroup" and not own_cgroup():
        pytest.skip("needs root, and control groups of version 2")
    if request.param == "no cgroup":
        monkeypatch.setattr(control_plane, "own_cgroup", lambda: "")
    return str(request.param)


@pytest.fixture
def one(tmp_path: Path, confined: str) -> Iterator[TestYard]:
    """A yard with a single GPU."""
    made = TestYard(tmp_path / "state", ONE_GPU)
    made.start()
    yield made
    made.stop()


without_cgroup = pytest.mark.parametrize("confined", ["no cgroup"], indirect=True)


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


def wait_for(condition: Callable[[], object], what: str, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"in vain waited for {what}"
        time.sleep(0.02)


def pid_of(path: Path) -> int:
    wait_for(lambda: path.exists() and path.read_text().strip(), str(path))
    return int(path.read_text())


def supervisors(tmp_path: Path, job: int = 1) -> list[int]:
    """The guard, if there is one, and the one that runs the task."""
    folder = tmp_path / "state" / "runs" / str(job) / "1" / "0"
    wait_for((folder / "running").exists, "the task to run")
    found = [folder / "claim", folder / "second"]
    return [int(dict(read_pairs(str(path)))["pid"]) for path in found if path.exists()]


def kill_both(tmp_path: Path) -> None:
    """Neither notices the other's end."""
    both = supervisors(tmp_path)
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in both:
            os.kill(pid, number)


def next_holder(orphan: Path, tmp_path: Path) -> dict[str, object]:
    """A job that looks, as soon as it has the GPU, whether the last holder's orphan still lives."""
    dead = "grep -q 'State:.[ZX]' /proc/$p/status"  # one that nobody has buried yet holds nothing
    lives = f"p=$(cat {orphan}); [ -e /proc/$p ] && ! {dead}"
    script = f"if {lives}; then echo held twice; else echo free; fi > {tmp_path}/seen"
    return sh(script, name="next", gpus=1)


def test_nothing_a_task_leaves_behind_outlives_it(one: TestYard, tmp_path: Path):
    one.put(sh(ESCAPE.format(folder=tmp_path), name="t", gpus=1))
    one.put(next_holder(tmp_path / "orphan", tmp_path))
    assert one.until("t")["phase"] == "succeeded"
    assert not lives(pid_of(tmp_path / "orphan"))
    one.until("next", "succeeded")
    assert (tmp_path / "seen").read_text() == "free\n"


def test_a_killed_supervisor_takes_what_its_task_left_with_it(one: TestYard, tmp_path: Path):
    one.put(sh(ESCAPE.format(folder=tmp_path) + "sleep 600", name="t", gpus=1, preemptible=False))
    orphan = pid_of(tmp_path / "orphan")
    one.put(next_holder(tmp_path / "orphan", tmp_path))
    supervisor = supervisors(tmp_path)[-1]
    task = int(dict(read_pairs(str(tmp_path / "state/runs/1/1/0/running")))["pid"])
    os.kill(supervisor, signal.SIGKILL)
    one.until("next", "succeeded")
    assert (tmp_path / "seen").read_text() == "free\n"
    assert not lives(orphan)
    assert not lives(task)


@without_cgroup
def test_a_task_goes_on_without_its_guard(one: TestYard, tmp_path: Path):
    one.put(sh(f"while [ ! -e {tmp_path}/end ]; do sleep 0.02; done; echo all", name="t", gpus=1))
    guard, second = supervisors(tmp_path)
    os.kill(guard, signal.SIGKILL)
    wait_for(lambda: not lives(guard), "the guard to go")
    assert lives(second)
    (tmp_path / "end").touch()
    assert one.until("t")["phase"] == "succeeded"
    assert one.job(ADMIN, "t")["attempts"] == 1


@without_cgroup
def test_with_supervisor_and_guard_killed_what_bears_the_tasks_brand_is_ended(one: TestYard, tmp_path: Path):
    """The attack: both are killed, and what the task left is like anything else that runs in the background."""
    one.put(sh(ESCAPE.format(folder=tmp_path) + "sleep 600", name="t", gpus=1, preemptible=False))
    orphan = pid_of(tmp_path / "orphan")
    one.put(next_holder(tmp_path / "orphan", tmp_path))
    bystander = subprocess.Popen(["setsid", "sh", "-c", "sleep 600 & echo $!"], stdout=subprocess.PIPE, text=True)
    assert bystander.stdout is not None
    innocent = int(bystander.stdout.readline())
    kill_both(tmp_path)
    one.until("next", "succeeded")
    assert (tmp_path / "seen").read_text() == "free\n"
    assert not lives(orphan)
    assert lives(innocent), "somebody else's background work is nobody's task"
    os.kill(innocent, signal.SIGKILL)
    bystander.communicate(timeout=300)


@without_cgroup
def test_with_supervisor_and_guard_killed_the_gpu_is_withheld_until_the_last_suspect_is_gone(
    one: TestYard, tmp_path: Path
):
    one.put(sh(SHED.format(folder=tmp_path) + "sleep 600", name="t", gpus=1, preemptible=False))
    orphan = pid_of(tmp_path / "orphan")
    kill_both(tmp_path)
    one.put(next_holder(tmp_path / "orphan", tmp_path))
    wait_for(lambda: "GPU 0 of n0 stays withheld" in one.status()["checks"]["processes"], "the yard to say so")
    assert "`yard vouch t`" in one.status()["checks"]["processes"]
    assert one.job(ADMIN, "next")["phase"] in ("waiting", "starting")
    assert any(event["kind"] == "withheld" for event in one.events(ADMIN, 0, 1000))
    with pytest.raises(Exception, match="may not vouch"):
        one.act(ME, "t", "vouch")
    parent = int(Path(f"/proc/{orphan}/stat").read_text().rpartition(")")[2].split()[1])
    others = named(one.status()["checks"]["processes"]) - {orphan, parent}
    for pid in {orphan, parent} - {1}:
        os.kill(pid, signal.SIGKILL)
    if others:  # somebody else's background work on this machine looks alike; an operator can tell
        one.act(ADMIN, "t", "vouch")
    one.until("next", "succeeded")
    assert (tmp_path / "seen").read_text() == "free\n"


def named(told: str) -> set[int]:
    """The processes a sentence names: each is followed by its program."""
    return {int(pid) for pid in re.findall(r"(\d+) \(", told)}


@without_cgroup
def test_a_vouched_gpu_is_given_on(one: TestYard, tmp_path: Path):
    one.put(sh(SHED.format(folder=tmp_path) + "sleep 600", name="t", gpus=1, preemptible=False))
    orphan = pid_of(tmp_path / "orphan")
    kill_both(tmp_path)
    one.put(sh("true", name="next", gpus=1))
    wait_for(lambda: one.status()["checks"]["processes"] != "ok", "the yard to say so")
    one.act(ADMIN, "t", "vouch")
    one.until("next", "succeeded")
    parent = int(Path(f"/proc/{orphan}/stat").read_text().rpartition(")")[2].split()[1])
    for pid in {orphan, parent} - {1}:
        os.kill(pid, signal.SIGKILL)


def test_a_supervisor_killed_between_fork_and_exec_leaves_nothing(tmp_path: Path):
    folder = order(tmp_path / "t", "touch", str(tmp_path / "ran"))
    program = BOOT.replace(
        "sys.exit(",
        """
import os
real = supervisor.write_pairs
def die(path, pairs):
    if path == "running":
        os.kill(os.getpid(), 9)
    real(path, pairs)
supervisor.write_pairs = die
sys.exit(""",
    )
    subprocess.run([sys.executable, "-I", "-S", "-c", program, str(folder)], check=True, timeout=300)
    assert dict(read_pairs(str(folder / "exit")))["outcome"] == "lost"
    assert not [pid for pid in os.listdir("/proc") if pid.isdigit() and str(folder) in _command(pid)]
    assert not (tmp_path / "ran").exists()


def _command(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def test_a_yard_that_comes_up_again_ends_what_a_killed_supervisor_left(one: TestYard, tmp_path: Path):
    one.put(sh(ESCAPE.format(folder=tmp_path) + "sleep 600", name="t", gpus=1, preemptible=False))
    orphan = pid_of(tmp_path / "orphan")
    last = supervisors(tmp_path)[-1]
    one.close()
    os.kill(last, signal.SIGKILL)
    again = TestYard(tmp_path / "state", ONE_GPU)
    again.start()
    again.put(next_holder(tmp_path / "orphan", tmp_path))
    again.until("next", "succeeded")
    assert (tmp_path / "seen").read_text() == "free\n"
    assert not lives(orphan)
    again.close(jobs=True)
    one.start()


def test_a_supervisor_that_cannot_be_watched_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    launcher = Supervisors(tmp_path, SystemClock())
    key = TaskKey(1, 1, 0)

    def none_left(_pid: int) -> int:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pidfd_open", none_left)
        path = (("PATH", os.environ["PATH"]),)
        launcher.prepare([TaskOrder(key, 0, 0, ("sh", "-c", f"sleep 1; touch {tmp_path}/ran"), path, "", False)])
    ended: list[Report] = []
    while not ended:
        launcher.wait(5.0)
        ended = launcher.reports()
    assert [(report.kind, report.outcome) for report in ended] == [("ended", "lost")]
    assert not [pid for pid in os.listdir("/proc") if pid.isdigit() and str(tmp_path / "runs") in _command(pid)]
    launcher.close()


@pytest.mark.skipif(not own_cgroup(), reason="needs root, and control groups")
def test_every_task_is_in_a_control_group_of_its_own_also_a_rank_of_a_gang(yard: TestYard):
    yard.put(sh("cat /proc/self/cgroup", name="one"), sh("cat /proc/self/cgroup", name="gang", tasks=2))
    for name, ranks in (("one", 1), ("gang", 2)):
        yard.until(name, "succeeded")
        inside = [[line for line in yard.output(name, rank).split() if line[:3] == "0::"] for rank in range(ranks)]
        assert all("/gpuyard-" in line for lines in inside for line in lines), inside
        assert len({line for lines in inside for line in lines}) == ranks
