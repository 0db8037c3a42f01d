"""What the live page draws of the last hours: kept over a restart, readable whatever is in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuyard.model.errors import Denied
from tests.support.yards import ADMIN, ME, TestYard, sh


def test_samples_tell_what_was_held_and_who_waited_and_outlive_a_restart(tmp_path: Path):
    yard = TestYard(tmp_path, "nodes: [{name: n0, gpus: 4}]")
    yard.start()
    yard.put(sh("sleep 600", name="a", gpus=4), sh("true", name="b", gpus=4))
    yard.until("a", "running")
    yard.until("b", "waiting")
    yard._plane.history.take()
    yard.close()
    again = TestYard(tmp_path, "nodes: [{name: n0, gpus: 4}]")
    again.start()
    told = again.overview(ADMIN)
    assert [sample[1:] for sample in told["history"]][-3:] == [(4, 1, 1)] * 3
    assert again.why(ADMIN, "b")["message"] == told["prospects"]["b"]["message"]
    assert told["fragmentation"]["free_gpus"] == 0
    with pytest.raises(Denied):
        again.overview(ME)
    again.stop()


def test_a_burst_shorter_than_a_minute_is_seen(tmp_path: Path):
    yard = TestYard(tmp_path, "nodes: [{name: n0, gpus: 4}]")
    yard.start()
    yard.put(sh("sleep 600", name="a", gpus=4))
    yard.until("a", "running")
    yard._plane.history.glance()
    yard.act(ME, "a", "cancel")
    yard.until("a", "cancelled")
    assert max(held for _, held, _, _ in yard.overview(ADMIN)["history"]) == 4
    times = [at for at, *_ in yard.overview(ADMIN)["history"]]
    assert times == sorted(times)
    yard.stop()


def test_a_yard_in_which_nothing_happens_piles_nothing_up(tmp_path: Path):
    """The attack: every sample waited for the next commit with all those before it, for days."""
    yard = TestYard(tmp_path, "nodes: [{name: n0, gpus: 4}]")
    yard.start()
    yard.store.flush()
    for _ in range(20):
        yard._plane.history.take()
    yard._plane.history._keep()
    assert not yard.store.has_deferred
    desk = yard._plane.history._desk
    desk.trouble = "no room"
    yard._plane.history._keep()
    assert not yard.store.has_deferred
    desk.trouble = ""
    yard.stop()


def test_a_history_that_cannot_be_read_is_begun_anew(tmp_path: Path):
    yard = TestYard(tmp_path)
    yard.start()
    yard._plane.history._samples.extend([["x"], 7])  # type: ignore[list-item]
    yard.close()
    again = TestYard(tmp_path)
    again.start()
    assert len(again.overview(ADMIN)["history"]) == 2
    again.stop()
