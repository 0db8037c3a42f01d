"""How much of a core deciding may take."""

from __future__ import annotations

import pytest

from gpuyard.runtime.driving.pace import BURST_S, CROWDED_JOBS, REST_MAX_S, Pace


def test_turns_after_a_quiet_time_need_no_rest():
    pace = Pace()
    assert pace.rest(100.0, BURST_S / 2, jobs=CROWDED_JOBS + 1) == 0
    assert pace.rest(100.1, BURST_S / 2, jobs=CROWDED_JOBS + 1) == 0


@pytest.mark.parametrize(("crowded", "share"), [(True, 0.33), (False, 0.7)])
def test_in_the_long_run_deciding_takes_its_share_of_the_time_and_no_more(crowded: bool, share: float):
    pace, now, worked = Pace(), 0.0, 0.0
    while now < 100.0:
        now += 0.1
        worked += 0.1
        now += pace.rest(now, 0.1, CROWDED_JOBS + crowded)
    assert worked / now == pytest.approx(share, abs=0.02)


def test_no_rest_is_so_long_that_people_notice_it():
    assert Pace().rest(0.0, 3600.0, jobs=CROWDED_JOBS + 1) == REST_MAX_S
