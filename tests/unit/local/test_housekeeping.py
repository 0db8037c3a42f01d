"""A yard that is up for months stays as small as one that was just started."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gpuyard.runtime.service import Caller
from gpuyard.worlds.local.attempts import housekeeping
from gpuyard.worlds.local.attempts.housekeeping import Housekeeper
from tests.support.yards import ADMIN, TestYard, sh


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
    end = time.monotonic() + 30
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
