"""A yard that is up for months stays as small as one that was just started."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gpuyard.model.errors import NotFound
from gpuyard.runtime.service import Caller
from gpuyard.worlds.local.attempts import housekeeping
from gpuyard.worlds.local.attempts.housekeeping import Housekeeper
from gpuyard.worlds.local.seam import past
from tests.support.yards import ADMIN, TestYard, sh

pytestmark = pytest.mark.slow


def test_events_keys_and_output_are_cut_while_the_yard_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name, value in (("EVENTS_KEPT", 10), ("BITE", 3), ("PAUSE_S", 0.0)):
        monkeypatch.setattr(housekeeping, name, value)
    yard = TestYard(tmp_path)
    yard.start()
    yard.put(sh("echo old", name="old"), sh("echo young", name="young"), sh("sleep 600", name="lives"), key="k")
    yard.until("old")
    yard.until("young")
    yard.until("lives", "running")
    with yard.store.batch() as batch:
        batch.add("UPDATE jobs SET ended = 1.0 WHERE name = 'old'", ())
        batch.add("UPDATE keys SET at = 1.0", ())
        for _ in range(100):
            batch.event(1.0, "noise", ("", 0, ""), "{}")
    keeper = Housekeeper(yard.world.desk, every=0.01)
    keeper.start()
    end = time.monotonic() + 300
    while yard.output("old") or yard.store.rows("SELECT count(*) FROM events")[0][0] > 10:
        assert time.monotonic() < end
        time.sleep(0.01)
    keeper.stop()
    assert yard.store.rows("SELECT count(*) FROM keys") == [(0,)]
    assert yard.output("young") == "young\n"
    assert yard.job(ADMIN, "lives")["phase"] == "running"
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["2", "3"]
    yard.stop()


def test_output_is_bounded_in_bytes_and_nobody_loses_theirs_to_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The attack: one user's jobs write until the disk is full, or until everybody else's output is cut."""
    monkeypatch.setattr(housekeeping, "PAUSE_S", 0.0)
    yard = TestYard(tmp_path)
    yard.start()
    yard.put(sh("echo mine", name="first"), caller=Caller("ann"))
    yard.until("first")
    for number in range(4):
        yard.put(sh("head -c 100000 /dev/zero", name=f"loud{number}"), caller=Caller("bob"))
        yard.until(f"loud{number}")
    yard.put(sh("echo I live; sleep 600", name="lives"), caller=Caller("bob"))
    yard.until("lives", "running")
    Housekeeper(yard.world.desk, 600.0, output_bytes=250_000).go_round()
    kept = [bool(yard.output(name)) for name in ("first", "loud0", "loud1", "loud2", "loud3", "lives")]
    assert kept == [True, False, False, True, True, True]
    yard.stop()


def test_records_of_ended_jobs_are_cut_and_what_was_counted_of_them_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name, value in (("RECORDS_KEPT", 2), ("BITE", 3), ("PAUSE_S", 0.0)):
        monkeypatch.setattr(housekeeping, name, value)
    yard = TestYard(tmp_path)
    yard.start()
    yard.put(sh("sleep 600", name="lives"), sh("true", name="array", array="0-3", gpus=1), sh("exit 3", name="bad"))
    for name in ("array-0", "array-1", "array-2", "array-3", "bad"):
        yard.until(name)
    yard.until("lives", "running")
    yard.put(*(sh("true", name=f"young-{number}") for number in range(2)))
    for number in range(2):
        yard.until(f"young-{number}")
    report, counts = yard.report(ADMIN, "user", 0.0), past.counts(yard.store)
    yard.world.desk.book.ended.clear()  # the newest hundred are in memory, and stay
    Housekeeper(yard.world.desk, every=60.0).go_round()
    assert [row[0] for row in yard.store.rows("SELECT name FROM jobs ORDER BY id")] == ["lives", "young-0", "young-1"]
    assert yard.store.rows("SELECT count(*) FROM templates") == [(3,)]
    assert yard.store.rows("SELECT count(*) FROM tasks WHERE job NOT IN (SELECT id FROM jobs)") == [(0,)]
    assert not (tmp_path / "runs" / "2").exists()
    assert past.counts(yard.store) == counts
    assert counts["ended"] == {"succeeded": 6, "failed": 1}
    assert yard.report(ADMIN, "user", 0.0) == report
    with pytest.raises(NotFound):
        yard.job(ADMIN, "bad")
    yard.stop()
