"""One bad job, row, folder or document never stops a yard: it is set aside and told, and the rest goes on."""

from __future__ import annotations

import json
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from gpuyard.model.errors import Refused
from gpuyard.worlds.local.launching import orders
from gpuyard.worlds.local.ports import Report, TaskKey
from gpuyard.worlds.local.state.records import Entry
from gpuyard.worlds.local.state.store import FILE
from tests.support.yards import ADMIN, ME, TestYard, sh

pytestmark = pytest.mark.slow


def spoiled(folder: Path, *statements: str) -> None:
    """Somebody has written to the file of a yard that is down."""
    connection = sqlite3.connect(folder / FILE)
    connection.execute("PRAGMA foreign_keys=OFF")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def prepared(folder: Path) -> None:
    yard = TestYard(folder)
    yard.start()
    yard.put(sh("sleep 600", name="bad", gpus=1), sh("sleep 600", name="good", gpus=1))
    yard.until("bad", "running")
    yard.until("good", "running")
    yard.close()


def until_held(yard: TestYard, devices: int) -> None:
    """What is set aside holds its devices until it is proven gone, and no longer."""
    end = time.monotonic() + 300
    while yard.world.desk.holdings.devices() != devices:
        assert time.monotonic() < end
        yard.wait_events(yard.store.last_event, 0.02)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE templates SET text = '{' WHERE name = 'bad'",
        "UPDATE templates SET text = '[]' WHERE name = 'bad'",
        "UPDATE templates SET text = 'null' WHERE name = 'bad'",
        'UPDATE templates SET text = \'{"name": "bad", "tasks": "many"}\' WHERE name = \'bad\'',
        'UPDATE templates SET text = replace(text, \'"run":{\', \'"run":{"env":{"A\\ud800":"x"},\') '
        "WHERE name = 'bad'",
        "DELETE FROM templates WHERE name = 'bad'",
        "UPDATE jobs SET phase = 'dreaming' WHERE name = 'bad'",
        "UPDATE tasks SET place = '{' WHERE job = (SELECT id FROM jobs WHERE name = 'bad')",
        "UPDATE tasks SET place = '[1]' WHERE job = (SELECT id FROM jobs WHERE name = 'bad')",
        "UPDATE tasks SET place = '[\"n0\", 5, \"main\", 0, []]' WHERE job = (SELECT id FROM jobs WHERE name = 'bad')",
        "UPDATE tasks SET place = '[\"n0\",[0],\"nobody\",0,[],[]]' WHERE job = (SELECT id FROM jobs WHERE name='bad')",
        "UPDATE tasks SET state = 'ready' WHERE job = (SELECT id FROM jobs WHERE name = 'bad') AND 0",
    ],
)
def test_a_row_that_cannot_be_read_stops_one_job_and_no_yard(tmp_path: Path, statement: str):
    prepared(tmp_path)
    spoiled(tmp_path, statement)
    yard = TestYard(tmp_path)
    yard.start()
    try:
        yard.until("good", "running")
        job = yard.job(ADMIN, "bad")
        if statement.endswith("AND 0"):  # nothing was spoiled: so this test can fail
            assert job["phase"] == "running"
            return
        assert job["phase"] == "failed"
        assert "set aside" in job["message"]
        assert yard.why(ADMIN, "bad")["phase"] == "failed"
        assert {each["name"] for each in yard.jobs(ADMIN)} >= {"bad", "good"}
        told = yard.status()["checks"]["set aside"]
        assert told.startswith("1 job in ")
        (kept,) = (tmp_path / "set-aside").iterdir()
        assert kept.stat().st_mode & 0o777 == 0o600
        assert json.loads(kept.read_text())["name"] == "bad@1"
        until_held(yard, 1)
        yard.put(sh("true", name="bad"))  # the name is free again
        yard.until("bad", "succeeded")
    finally:
        yard.stop()
    again = TestYard(tmp_path)
    again.start()
    assert again.job(ADMIN, "bad")["phase"] == "succeeded"
    again.stop()


def test_its_owner_is_told_and_nobody_else(tmp_path: Path):
    prepared(tmp_path)
    spoiled(tmp_path, "UPDATE templates SET text = '{' WHERE name = 'bad'")
    yard = TestYard(tmp_path)
    yard.start()
    assert yard.job(ME, "bad")["user"] == ME.user
    yard.stop()


def test_a_job_that_cannot_be_told_to_a_supervisor_stops_no_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The attack: half a character in the name of a variable, from before there was a gate."""
    real = orders.environment
    monkeypatch.setattr(
        orders, "environment", lambda entry, *rest: real(entry, *rest) | ({"\ud800": ""} if entry.name == "bad" else {})
    )
    yard = TestYard(tmp_path)
    yard.start()
    yard.put(sh("true", name="bad", gpus=1), sh("true", name="good", gpus=1))
    assert "set aside" in yard.until("bad", "failed")["message"]
    yard.until("good", "succeeded")
    assert yard.status()["checks"]["loop"] == "ok"
    until_held(yard, 0)
    yard.stop()


def test_a_report_that_cannot_be_dealt_with_keeps_nobody_elses_from_being_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    yard = TestYard(tmp_path / "s")
    yard.start()
    yard.put(sh("sleep 600", name="bad", gpus=1), sh("sleep 600", name="good", gpus=1))
    yard.until("bad", "running")
    yard.until("good", "running")
    launcher, close = yard.world.desk.launcher, yard.world.life.close

    def fails(entry: Entry, *more: Any) -> None:
        if entry.name == "bad":
            raise ZeroDivisionError("oh")
        close(entry, *more)

    monkeypatch.setattr(yard.world.life, "close", fails)
    ended = [Report(TaskKey(number, 1, 0), "ended", time.time(), 0, "failed", 3, "") for number in (1, 2)]
    with yard.world.desk.lock:
        launcher.kill(*(report.key for report in ended))
        launcher._reports += ended  # type: ignore[attr-defined]
    launcher.wake()
    assert yard.until("good")["exit_code"] == 3
    assert "it was set aside" in yard.until("bad")["message"]
    assert "1 job in" in str(yard.status()["checks"])
    until_held(yard, 0)
    yard.stop()


PARTS = ['{"evictions": {"x": ["yesterday"]}}', '{"alerts": {"looked_at": "x"}}', '{"defragmentation": "yesterday"}']


@pytest.mark.parametrize("document", [*PARTS, "{", "[]", '"x"', "null", '{"node": 7}', '{"node": "n0", "gpu": "x"}'])
def test_closures_queues_and_memory_that_cannot_be_read_are_as_if_they_were_not(tmp_path: Path, document: str):
    yard = TestYard(tmp_path / "other")
    yard.start()
    yard.close()
    for name in ("cordon/n0#", "queues", "memory"):
        spoiled(tmp_path / "other", f"INSERT OR REPLACE INTO facts VALUES ('{name}', '{document}')")
    again = TestYard(tmp_path / "other")
    again.start()
    again.put(sh("true", name="a", gpus=1))
    again.until("a", "succeeded")
    again.set_queue(ADMIN, {"name": "new", "quota": 1}, dry_run=False)
    told = again.status()["checks"]["set aside"]
    assert told != "ok" or document == '{"node": 7}'  # a node that is not there closes nothing either
    again.stop()


def test_a_queue_that_no_longer_fits_the_fleet_file_keeps_no_yard_down(tmp_path: Path):
    yard = TestYard(tmp_path, "nodes: [{name: n0, gpus: 1}]\nqueues: [{name: top}, {name: default}]")
    yard.start()
    yard.set_queue(ADMIN, {"name": "below", "parent": "top", "quota": 1}, dry_run=False)
    yard.close()
    again = TestYard(tmp_path, "nodes: [{name: n0, gpus: 1}]\nqueues: [{name: default}]")
    again.start()
    assert [queue["name"] for queue in again.queues()] == ["default"]
    assert "1 queue setting" in again.status()["checks"]["set aside"]
    again.stop()


def test_strays_among_the_runs_are_put_elsewhere(tmp_path: Path):
    prepared(tmp_path)
    runs = tmp_path / "runs"
    (runs / "stray").write_text("x")
    (runs / "007").mkdir()
    (runs / ("9" * 40)).mkdir()
    (runs / "²").mkdir()
    (runs / "link").symlink_to("/etc")
    (runs / "1" / "notes").write_text("x")
    (runs / "1" / "99").write_text("no folder")
    yard = TestYard(tmp_path)
    yard.start()
    yard.until("good", "running")
    assert sorted(path.name for path in runs.iterdir() if len(path.name) < 9) == ["1", "2"]
    assert "stray entr" in yard.status()["checks"]["set aside"]
    assert Path("/etc/passwd").exists()
    yard.stop()


def test_a_fleet_with_fewer_gpus_loses_what_stood_on_the_others(tmp_path: Path):
    yard = TestYard(tmp_path, "nodes: [{name: n0, gpus: 8}]")
    yard.start()
    yard.put(sh("sleep 600", name="a", gpus=8), sh("sleep 600", name="b"))
    yard.until("a", "running")
    yard.close()
    again = TestYard(tmp_path, "nodes: [{name: n0, gpus: 2}]")
    again.start()
    assert "no longer part of the fleet" in again.until("a", "waiting")["message"]
    assert again.status()["checks"]["loop"] == "ok"
    again.stop()


@pytest.mark.parametrize("name", ["runs", "tty", "notify", "yard.db", "lock"])
def test_something_else_in_the_place_of_a_file_of_ours_is_named(tmp_path: Path, name: str):
    state = tmp_path / "state"
    state.mkdir()
    if name in ("runs", "tty", "notify"):
        (state / name).write_text("x")
    else:
        (state / name).mkdir()
    with pytest.raises(Refused, match=name):
        TestYard(state).start()
    (state / name).rename(tmp_path / "away")
    yard = TestYard(state)
    yard.start()
    yard.stop()


def test_an_event_or_key_that_cannot_be_read_is_told_as_such(tmp_path: Path):
    yard = TestYard(tmp_path)
    yard.start()
    yard.put(sh("true", name="a"), key="k")
    yard.until("a")
    with yard.store.batch() as batch:
        batch.add("UPDATE events SET document = '{'", ())
        batch.add("UPDATE keys SET names = '{'", ())
    assert "cannot be read any more" in yard.events(ADMIN, 0, 10)[0]["message"]
    with pytest.raises(Refused, match="cannot be read any more"):
        yard.put(sh("true", name="a"), key="k")
    yard.stop()


# --- numbers -------------------------------------------------------------------------------------


def test_numbers_of_jobs_never_repeat_after_a_restore_or_a_crash(tmp_path: Path):
    """The attack: after a restore the next job got a number that had been another user's, and its log."""
    from gpuyard.worlds.local.state import store as stores

    yard = TestYard(tmp_path)
    yard.start()
    yard.backup(ADMIN, str(tmp_path / "copy.db"))
    yard.put(sh("echo secret", name="a"))
    yard.until("a")
    assert yard.job(ADMIN, "a")["id"] == 1
    yard.close()
    stores.restore(tmp_path / "copy.db", tmp_path / FILE, 0.0)
    again = TestYard(tmp_path)
    again.start()
    again.put(sh("true", name="b"))
    again.until("b")
    assert again.job(ADMIN, "b")["id"] == 2
    assert again.output("b") == ""
    again.close()
    (tmp_path / FILE).rename(tmp_path / "away")
    (tmp_path / "numbers").write_bytes(b"damaged")
    third = TestYard(tmp_path)
    third.start()
    third.put(sh("true", name="c"))
    third.until("c")
    assert third.job(ADMIN, "c")["id"] == 3  # the folders of output remember
    third.stop()
