"""The machine's clock."""

from __future__ import annotations

import asyncio
import time

from gpuyard.model.ports import Clock
from gpuyard.runtime.clock import SystemClock


def test_it_tells_the_machine_s_time():
    clock: Clock = SystemClock()
    assert abs(clock.now() - time.time()) < 5


def test_measured_time_never_goes_back_and_waiting_really_waits():
    clock = SystemClock()
    begun = clock.monotonic()
    asyncio.run(clock.sleep(0.01))
    assert clock.monotonic() - begun >= 0.01
