"""The machine's clock."""

from __future__ import annotations

import asyncio
import time

from gpuyard.model.outside.ports import Clock
from gpuyard.runtime.clock import SteadyClock, SystemClock
from tests.support.pretend import StillClock


def test_it_tells_the_machine_s_time():
    clock: Clock = SystemClock()
    assert abs(clock.now() - time.time()) < 5


def test_measured_time_never_goes_back_and_waiting_really_waits():
    clock = SystemClock()
    begun = clock.monotonic()
    asyncio.run(clock.sleep(0.01))
    assert clock.monotonic() - begun >= 0.01


class SetClock(StillClock):
    """A machine whose time somebody sets."""

    ahead = 0.0

    def now(self) -> float:
        return self.at + self.ahead


def test_a_steady_clock_neither_jumps_nor_goes_back_and_meets_the_machine_again():
    for jump in (-3600.0, 3600.0):
        machine = SetClock()
        clock = SteadyClock(machine)
        before = clock.now()
        machine.ahead = jump
        assert clock.now() == before
        machine.at += 10.0
        assert 0.0 < clock.now() - before <= 20.0
        machine.at += 4 * 3600.0
        assert clock.now() == machine.now()


def test_a_clock_that_was_plainly_wrong_is_believed_at_once():
    machine = SetClock(at=100.0)
    clock = SteadyClock(machine)
    machine.ahead = 1_767_225_600.0
    machine.at += 1.0
    assert clock.now() == machine.now()
