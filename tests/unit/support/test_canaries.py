"""The canaries sing: whatever is done to them is seen, and nothing else is."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.canaries import Canaries


@pytest.mark.parametrize(
    "touch",
    [
        lambda folder: (folder / "plain").read_bytes(),
        lambda folder: os.listdir(folder / "deep"),
        lambda folder: (folder / "deep" / "keys").open("ab").close(),
    ],
)
def test_a_touch_is_seen(tmp_path: Path, touch: Callable[[Path], object]):
    canaries = Canaries(tmp_path / "c", os.getuid())
    (tmp_path / "beside").write_text("x")
    os.stat(tmp_path / "c" / "plain")
    assert canaries.untouched()
    touch(tmp_path / "c")
    assert not canaries.untouched()
    canaries.close()
