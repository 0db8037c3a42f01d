"""GPU-hours as `yard report` prints them."""

from __future__ import annotations

import pytest

from gpuyard.cli.looking.accounts import _report_listing


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0, "0.0"), (0.001, "0.0001"), (5, "0.0014"), (87, "0.024"), (1800, "0.5"), (5400, "1.5"), (9e6, "2,500.0")],
)
def test_a_short_job_is_not_told_as_no_time_at_all(seconds: float, told: str):
    hours = next(cell for cell in _report_listing("user").cells if cell.column.title == "GPU-HOURS")
    assert hours.of({"gpu_seconds": seconds}) == told
