"""What a hole in a shared device is worth: checked against programmes small enough to be solved by hand."""

from __future__ import annotations

from itertools import pairwise

import pytest

from gpuyard.brain.engine.nodes.remainders import STEPS, values

CASES = [
    # One half beside another.
    ({500: 1}, {0: 0, 499: 0, 500: 0.5, 999: 0.5, 1000: 1}),
    # 0.81 leaves a rest that nobody asks for, and nothing less than 0.81 is of use.
    ({810: 3}, {190: 0, 809: 0, 810: 1, 1000: 1}),
    # 0.6 + 0.4 and 0.4 + 0.4 are the patterns; the many 0.4 fix both prices at a half.
    ({600: 1, 400: 3}, {399: 0, 400: 0.5, 600: 0.5, 799: 0.5, 800: 1, 1000: 1}),
    # 0.4 rides free beside the many 0.6.
    ({600: 3, 400: 1}, {400: 0, 599: 0, 600: 1, 1000: 1}),
    # Three 0.3 to a device, or one beside a 0.7.
    ({300: 6, 700: 1}, {299: 0, 300: 1 / 3, 600: 2 / 3, 700: 2 / 3, 899: 2 / 3, 900: 1, 1000: 1}),
    # Of 0.5, 0.3 and 0.2 two patterns are tight: 0.5 + 0.3 + 0.2 and 0.5 + 0.5.
    ({500: 4, 300: 1, 200: 1}, {500: 0.5, 1000: 1}),
    # Beside 0.55 there is room for all the small ones: they come for nothing.
    ({100: 6, 250: 7, 550: 8}, {100: 0, 250: 0, 549: 0, 550: 1, 1000: 1}),
    # 0.6 + 0.35 leaves a rest of no use.
    ({350: 3, 600: 1}, {349: 0, 350: 0.5, 600: 0.5, 699: 0.5, 700: 1, 1000: 1}),
    # A size that no number of others fills up.
    ({350: 1}, {349: 0, 350: 0.5, 699: 0.5, 700: 1, 1000: 1}),
]


@pytest.mark.parametrize(("demand", "worth"), CASES)
def test_a_hole_is_worth_the_dearest_fractions_it_holds(demand: dict[int, float], worth: dict[int, float]):
    found = values(tuple(sorted(demand.items())))
    assert len(found) == STEPS + 1
    assert {size: round(float(found[size]), 6) for size in worth} == {s: round(w, 6) for s, w in worth.items()}
    assert all(a <= b + 1e-9 for a, b in pairwise(found)), "a larger hole is never worth less"


@pytest.mark.parametrize(
    ("demand", "devices"),
    [({500: 2, 250: 4}, 2.0), ({300: 6, 700: 1}, 8 / 3), ({600: 1, 400: 3}, 2.0), ({600: 3, 400: 1}, 3.0)],
)
def test_prices_pay_for_the_fewest_devices(demand: dict[int, float], devices: float):
    found = values(tuple(sorted(demand.items())))
    assert sum(float(found[size]) * tasks for size, tasks in demand.items()) == pytest.approx(devices)


def test_without_demand_only_a_whole_device_is_worth_anything():
    found = values(())
    assert len(found) == STEPS + 1
    assert (float(found[STEPS]), float(found[:STEPS].max())) == (1.0, 0.0)


def test_what_is_remembered_cannot_be_written_over():
    assert not values(((500, 1.0),)).flags.writeable
    assert not values(()).flags.writeable
