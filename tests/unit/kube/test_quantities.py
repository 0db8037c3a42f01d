"""Amounts as an API server writes them are read exactly, and none raises."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.kube.quantities import LARGEST, milli, whole

UNITS = {"n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1)}
UNITS |= {unit: Fraction(1000) ** n for n, unit in enumerate("kMGTPE", 1)}
UNITS |= {unit: Fraction(1024) ** n for n, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)}


@pytest.mark.parametrize(
    ("text", "as_whole", "as_milli"),
    [
        ("1", 1, 1000),
        ("500m", 1, 500),
        ("1500m", 2, 1500),
        ("0.1", 1, 100),
        (".5", 1, 500),
        ("5.", 5, 5000),
        ("+2", 2, 2000),
        ("-1", -1, -1000),
        ("100u", 1, 1),
        ("1n", 1, 1),
        ("1.5Gi", 3 << 29, (3 << 29) * 1000),
        ("1e3", 1000, 1_000_000),
        ("1E3", 1000, 1_000_000),
        ("12e-1", 2, 1200),
        ("1E", 10**18, LARGEST),
        ("8Ei", LARGEST, LARGEST),
        ("0e999999999999", 0, 0),
        ("1e999999999999", LARGEST, LARGEST),
        ("1e-999999999999", 1, 1),
        ("9223372036854775807", LARGEST, LARGEST),
        ("9" * 5000, LARGEST, LARGEST),
        ("0." + "0" * 5000 + "1", 1, 1),
        (2, 2, 2000),
        (0.5, 1, 500),
        (1e-7, 1, 1),
        (None, 0, 0),
        ("", 0, 0),
        (".", 0, 0),
        ("many", 0, 0),
        ("1Zi", 0, 0),
    ],
)
def test_an_amount_is_read_as_the_api_server_means_it(text, as_whole: int, as_milli: int):
    assert (whole(text), milli(text)) == (as_whole, as_milli)


@given(
    st.integers(0, 10**9),
    st.integers(0, 10**6 - 1),
    st.sampled_from(sorted(UNITS)),
)
def test_every_suffix_is_exact_and_rounds_up(before: int, after: int, unit: str):
    text = f"{before}.{after:06d}{unit}"
    value = (Fraction(before) + Fraction(after, 10**6)) * UNITS[unit]
    assert whole(text) == min(LARGEST, -(-value.numerator // value.denominator))
    assert milli(text) == min(LARGEST, -(-value.numerator * 1000 // value.denominator))


@given(st.text(max_size=30))
def test_no_text_raises(text: str):
    assert isinstance(whole(text), int)
    assert isinstance(milli(text), int)
