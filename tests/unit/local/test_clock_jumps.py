"""Somebody sets the machine's clock: nothing waits longer for it, nothing ends early, nothing is booked in vain."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard.runtime.clock import SystemClock
from gpuyard.worlds.local.state import book
from tests.support.yards import ADMIN, ME, TestYard, sh

pytestmark = pytest.mark.slow

HOUR_S = 3600.0


class SetClock(SystemClock):
    """The machine's, as somebody has set it."""

    ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def jumpy(tmp_path: Path, clock: SetClock) -> Iterator[TestYard]:
    made = TestYard(tmp_path / "state", clock=clock)
    made.start()
    yield made
    made.stop()


@pytest.mark.parametrize("jump", [-HOUR_S, HOUR_S, -400 * 24 * HOUR_S])
def test_jobs_start_and_end_whatever_the_clock_is_set_to(jumpy: TestYard, clock: SetClock, jump: float):
    jumpy.put(sh("true", name="before", gpus=1))
    jumpy.until("before", "succeeded")
    jumpy.put(sh("sleep 600", name="long", gpus=8, tasks=2))
    jumpy.until("long", "running")
    jumpy.put(sh("true", name="behind", gpus=1))
    clock.ahead = jump
    jumpy.act(ME, "long", "cancel")
    for name in ("behind", *jumpy.put(sh("true", name="after", gpus=8))):
        jumpy.until(name, "succeeded")


@pytest.mark.parametrize("jump", [-HOUR_S, HOUR_S])
def test_a_back_off_lasts_as_long_as_it_was_meant_to(tmp_path: Path, clock: SetClock, jump: float):
    yard = TestYard(tmp_path / "state", clock=clock, backoff=2.0)
    yard.start()
    script = f"date +%s.%N >> {tmp_path}/tries; [ $GPUYARD_ATTEMPT = 2 ]"
    yard.put(sh(script, name="t", run={"retries": 1}))
    while yard.job(ADMIN, "t").get("failures") != 1:
        yard.wait_events(yard.store.last_event, 0.2)
    clock.ahead = jump
    yard.until("t", "succeeded")
    first, second = map(float, (tmp_path / "tries").read_text().split())
    assert second - first > 1.5
    yard.stop()


def test_no_gpu_second_is_booked_that_was_not_used(jumpy: TestYard, clock: SetClock):
    jumpy.put(sh("sleep 600", name="t", gpus=8))
    jumpy.until("t", "running")
    clock.ahead = 6 * HOUR_S
    jumpy.act(ME, "t", "cancel")
    jumpy.until("t")
    (row,) = jumpy.report(ADMIN, "user", 0.0)
    assert 0 < row["gpu_seconds"] < 8 * 300


@pytest.mark.parametrize("jump", [-HOUR_S, HOUR_S])
def test_a_yard_that_comes_up_with_another_time_takes_everything_over(tmp_path: Path, clock: SetClock, jump: float):
    yard = TestYard(tmp_path / "state", clock=clock, backoff=1.0)
    yard.start()
    yard.put(sh(f"while [ ! -e {tmp_path}/end ]; do sleep 0.02; done", name="runs", gpus=8, tasks=2))
    yard.until("runs", "running")
    yard.put(sh("true", name="waits", gpus=1), sh("[ $GPUYARD_ATTEMPT = 2 ]", name="tried", run={"retries": 1}))
    while yard.job(ADMIN, "tried").get("failures") != 1:
        yard.wait_events(yard.store.last_event, 0.2)
    yard.close()
    clock.ahead = jump
    again = TestYard(tmp_path / "state", clock=clock)
    again.start()
    (tmp_path / "end").touch()
    for name in ("runs", "waits", "tried"):
        again.until(name, "succeeded")
    again.stop()


def test_the_newest_that_ended_are_the_last_to_end_whatever_the_clock_says(
    tmp_path: Path, clock: SetClock, monkeypatch: pytest.MonkeyPatch
):
    """After a start with the clock set back, those that ended before it was hid those that ended since."""
    monkeypatch.setattr(book, "KEEP_ENDED", 2)
    for number, ahead in enumerate((0.0, 24 * HOUR_S, 0.0)):
        clock.ahead = ahead
        yard = TestYard(tmp_path / "state", clock=clock)
        yard.start()
        for name in yard.put(sh("true", name=f"a{number}"), sh("true", name=f"b{number}")):
            yard.until(name, "succeeded")
        yard.close()
    yard = TestYard(tmp_path / "state", clock=clock)
    yard.start()
    assert sorted(job["name"] for job in yard.jobs(ADMIN)) == ["a2", "b2"]
    yard.stop()
