"""After a control plane is gone: what runs is taken over, what died is cleaned up, and decisions can be replayed."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from gpuyard import files
from gpuyard.brain.foresee import outlook
from gpuyard.model.actions import Start
from gpuyard.model.errors import Refused
from gpuyard.runtime.driving import journal
from gpuyard.runtime.service import Caller
from gpuyard.worlds.local.attempts import housekeeping
from gpuyard.worlds.local.launching import adopt
from gpuyard.worlds.local.seam.archive import StoreArchive
from gpuyard.worlds.local.state import store as stores
from gpuyard.worlds.local.state.store import FILE, Store
from tests.support.yards import ADMIN, ME, TestYard, gated, once_gated, sh

pytestmark = pytest.mark.slow


def again(folder: Path) -> TestYard:
    yard = TestYard(folder)
    yard.start()
    return yard


def test_running_jobs_are_taken_over_and_waiting_ones_wait_on(tmp_path: Path):
    yard = again(tmp_path)
    script = gated(tmp_path / "go", "echo done")
    yard.put(sh(script, name="long", tasks=2, gpus=8), sh("true", name="next", gpus=8))
    before = yard.until("long", "running")["placements"]
    yard.close()
    yard = again(tmp_path)
    document = yard.until("long", "running")
    assert (document["placements"], document["attempts"]) == (before, 1)
    (tmp_path / "go").touch()
    assert yard.until("long")["phase"] == "succeeded"
    assert yard.until("next")["phase"] == "succeeded"
    assert yard.output("long") == "done\n"
    yard.stop()


def test_what_ended_meanwhile_is_known(tmp_path: Path):
    yard = again(tmp_path)
    yard.put(sh(gated(tmp_path / "go", "exit 4"), name="a"))
    yard.until("a", "running")
    yard.close()
    (tmp_path / "go").touch()
    while not list((tmp_path / "runs").glob("1/1/0/exit")):
        time.sleep(0.02)
    yard = again(tmp_path)
    assert yard.until("a")["exit_code"] == 4
    yard.stop()


def test_what_died_meanwhile_is_tried_again(tmp_path: Path):
    yard = again(tmp_path)
    yard.put(sh(once_gated(tmp_path / "go"), name="a"))
    yard.until("a", "running")
    (tmp_path / "go").touch()
    task = yard.job(ME, "a")["history"][0]["tasks"][0]["pid"]
    supervisor = int(Path(f"/proc/{task}/stat").read_text().rpartition(")")[2].split()[1])
    yard.close()
    os.kill(supervisor, signal.SIGKILL)
    os.killpg(task, signal.SIGKILL)
    yard = again(tmp_path)
    document = yard.until("a")
    assert (document["phase"], document["attempts"], document["losses"]) == ("succeeded", 2, 1)
    yard.stop()


def test_after_a_reboot_nothing_is_taken_for_alive(tmp_path: Path):
    yard = again(tmp_path)
    yard.put(sh(once_gated(tmp_path / "go"), name="a", tasks=2, gpus=1))
    yard.until("a", "running")
    (tmp_path / "go").touch()
    pids = [task["pid"] for task in yard.job(ME, "a")["history"][0]["tasks"]]
    yard.close()
    for pid in pids:  # a machine that goes down takes them along
        os.killpg(pid, signal.SIGKILL)
    store = Store(tmp_path / FILE)
    with store.batch() as batch:
        batch.add("UPDATE attempts SET boot = 'another'", ())
    store.close()
    yard = again(tmp_path)
    first = yard.until("a")
    assert (first["phase"], first["attempts"]) == ("succeeded", 2)
    told = yard.job(ME, "a")["history"][0]["tasks"][0]["message"]
    assert told == "the machine was started anew while it ran"
    yard.stop()


def test_a_second_yard_is_told_who_holds_the_folder(tmp_path: Path):
    yard = again(tmp_path)
    with pytest.raises(Refused, match=rf"is held by process {os.getpid()}, up since 20"):
        again(tmp_path)
    yard.stop()
    assert (tmp_path.stat().st_mode & 0o777) == 0o700


def test_after_a_restore_nothing_runs_that_the_state_does_not_know(tmp_path: Path):
    yard = again(tmp_path)
    yard.put(sh(f"echo x >> {tmp_path}/begun; sleep 0.7", name="a", gpus=8))
    yard.until("a", "running")
    yard.backup(ADMIN, str(tmp_path / "backup.db"))
    yard.put(sh("sleep 60", name="later", gpus=8))
    yard.until("later", "running")
    pids = [yard.job(ME, name)["history"][0]["tasks"][0]["pid"] for name in ("a", "later")]
    yard.close()
    stores.restore(tmp_path / "backup.db", tmp_path / FILE, 0.0)
    yard = again(tmp_path)
    assert not [pid for pid in pids if alive(pid)]
    document = yard.until("a")
    assert (document["phase"], document["attempts"]) == ("succeeded", 2)
    assert [job["name"] for job in yard.jobs(ME)] == ["a"]
    yard.stop()


def test_what_cannot_be_ended_at_once_keeps_its_gpus_and_no_yard_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    yard = again(tmp_path)
    yard.backup(ADMIN, str(tmp_path / "backup.db"))
    yard.put(sh("sleep 600", name="later", gpus=8))
    yard.until("later", "running")
    yard.close()
    supervisor = int(adopt.read(tmp_path / "runs/1/1/0/claim")["pid"])
    os.kill(supervisor, signal.SIGSTOP)
    try:
        stores.restore(tmp_path / "backup.db", tmp_path / FILE, 0.0)
        monkeypatch.setattr(housekeeping, "SEE_OFF_S", 0.2)
        yard = again(tmp_path)
        yard.put(sh("true", name="other", gpus=8))
        yard.until("other", "succeeded")  # the loop turns, and plans where nobody is
        yard.put(sh("true", name="a", tasks=2, gpus=8))
        yard.put(sh("true", name="last"))
        yard.until("last", "succeeded")
        job = yard.job(ME, "a")
        assert (job["phase"], job["held_gpus"], yard.world.desk.holdings.devices()) == ("waiting", 0, 8)
        told = "withheld: process 0 of attempt 1 at job number 1 is not gone, and no job knows of it"
        assert [told in str(gpu) for node in yard.nodes(ADMIN) for gpu in node["devices"]] == [True] * 8 + [False] * 8
        assert told in str(yard.why(ME, "a"))
    finally:
        os.kill(supervisor, signal.SIGCONT)
    assert yard.until("a")["phase"] == "succeeded"
    yard.stop()


def alive(pid: int) -> bool:
    path = Path(f"/proc/{pid}/stat")
    return path.exists() and path.read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_cordon_outlives_the_yard(tmp_path: Path):
    yard = again(tmp_path)
    yard.world.cordon("n0", True)
    yard.close()
    yard = again(tmp_path)
    assert [node["phase"] for node in yard.nodes(ADMIN)] == ["cordoned", "ready"]
    yard.stop()


def test_a_cancel_is_remembered_across_a_crash(tmp_path: Path):
    yard = again(tmp_path)
    yard.put(sh("trap '' TERM; while :; do sleep 0.05; done", name="a"))
    yard.until("a", "running")
    yard.act(ME, "a", "cancel")
    yard.close()
    yard = again(tmp_path)
    assert yard.until("a")["phase"] == "cancelled"
    yard.stop()


def test_the_brain_replayed_on_the_journal_decides_the_same(tmp_path: Path):
    yard = again(tmp_path)
    for number in range(12):
        tells = f'echo \'{{"done": {number + 1}, "saved": true}}\' > $GPUYARD_PROGRESS; sleep 0.1'
        yard.put(sh(tells, name=f"j{number}", tasks=1 + number % 3, gpus=1 + number % 4, priority=number * 7))
    yard.put(sh("sleep 0.2", name="gang", tasks=2, gpus=8, priority=99))
    yard.world.cordon("n1", True)
    yard.set_queue(ADMIN, {"name": "default", "quota": 12, "limit": 16}, dry_run=False)
    yard.world.cordon("n1", False)
    for name in ("gang", *(f"j{number}" for number in range(12))):
        yard.until(name)
    yard.store.flush()
    fleet, turns = journal.read(StoreArchive(yard.store))
    assert sum(bool(turn.actions) for turn in turns) >= 3
    for turn, decided in journal.replay(fleet, turns):
        assert decided == turn.actions
    yard.stop()


def test_a_plan_on_the_snapshot_of_a_live_yard_is_its_next_plan(tmp_path: Path):
    yard = TestYard(tmp_path, "nodes: [{name: n0, gpus: 8, model: H100}]")
    yard.start()
    yard.put(sh(gated(tmp_path / "go"), name="a", gpus=8))
    yard.until("a", "running")
    yard.put(sh("sleep 600", name="b", gpus=8, priority=10), sh("sleep 600", name="c", gpus=8, priority=20))
    yard.until("b", "waiting")
    document = yard.snapshot(ADMIN)
    del next(job for job in document["jobs"] if job["name"] == "a")["placements"]
    document["jobs"] = [job for job in document["jobs"] if job["name"] != "a"]
    text = json.dumps(document)
    plan = outlook(files.parse_snapshot(text, "snapshot", time.time()), cycles=1)
    assert [action.job for action in plan.actions if isinstance(action, Start)] == ["c"]
    (tmp_path / "go").touch()
    yard.until("a")
    assert yard.until("c", "running")["placements"][0]["node"] == "n0"
    assert yard.job(ME, "b")["phase"] == "waiting"
    yard.stop()


def test_queues_set_by_command_outlive_the_yard(tmp_path: Path):
    yard = again(tmp_path)
    answer = yard.set_queue(ADMIN, {"name": "research", "quota": 8}, dry_run=True)
    assert (answer["applied"], answer["message"]) == (False, "nobody loses a GPU")
    yard.set_queue(ADMIN, {"name": "research", "quota": 8}, dry_run=False)
    with pytest.raises(Refused, match="bob may not change queues"):
        yard.set_queue(Caller("bob"), {"name": "research", "quota": 9}, dry_run=False)
    yard.close()
    yard = again(tmp_path)
    assert [queue["name"] for queue in yard.queues()] == ["default", "research"]
    yard.put(sh("sleep 0.3", name="a", gpus=2, queue="research"))
    yard.until("a")
    (line,) = yard.report(ADMIN, "queue", 0.0)
    assert (line["queue"], line["tasks"]) == ("research", 1)
    assert 0.5 < line["gpu_seconds"] < 2000
    yard.stop()


def test_what_grows_is_cut_while_a_yard_is_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(housekeeping, "EVERY_S", 0.0)
    monkeypatch.setattr(housekeeping, "EVENTS_KEPT", 5)
    monkeypatch.setattr(housekeeping, "OUTPUT_S", 0.0)
    yard = again(tmp_path)
    for number in range(5):
        yard.put(sh("echo words", name=f"j{number}"))
        yard.until(f"j{number}", "succeeded")
    end = time.monotonic() + 300
    while len(yard.events(ADMIN, 0, 100)) > 12 or (tmp_path / "runs" / "1").exists():
        assert time.monotonic() < end, "nothing was cut"
        yard.world.desk.launcher.wake()
        yard.put(sh("true"))
        time.sleep(0.1)
    yard.stop()
