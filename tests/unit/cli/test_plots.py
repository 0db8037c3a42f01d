"""Plots say what they draw: a tick lies where its value lies, and time is told as people say it."""

from __future__ import annotations

import re

import pytest

from gpuyard.cli.rendering.simulated import plots


@pytest.mark.parametrize("power", [1.0, 0.5])
def test_a_dot_at_a_ticks_value_lies_on_its_line(power: float):
    across, up = plots.sizes(16.0, " GPUs", power), plots.times(86_400.0, power)
    drawn = plots.frame(across, up, plots.dots(across, up, [(4.0, 43_200.0)]), "waits")
    dot = re.search(r'cx="([\d.]+)" cy="([\d.]+)"', drawn)
    assert dot is not None
    assert f'x="{dot[1]}" y="{plots.HEIGHT - 6}" text-anchor="middle">4 GPUs<' in drawn
    assert f'y1="{dot[2]}" y2="{dot[2]}"/><text' in drawn
    assert ">12h<" in drawn


@pytest.mark.parametrize(
    ("most", "labels"),
    [(3600, ["0s", "15m", "30m", "45m", "1h"]), (200 * 86_400, ["0s", "30d", "60d", "90d", "120d", "150d", "180d"])],
)
def test_time_is_marked_at_round_spans(most: float, labels: list[str]):
    axis = plots.times(most)
    assert [axis.label(tick) for tick in axis.ticks] == labels


def test_nothing_to_measure_still_gives_an_axis():
    assert plots.numbers(0.0).ticks
    assert plots.sizes(0.0, "", 1.0).ticks == [0.0]
