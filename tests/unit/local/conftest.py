"""A yard on a small virtual fleet, in a folder of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.yards import TestYard


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[TestYard]:
    made = TestYard(tmp_path / "state")
    made.start()
    yield made
    made.stop()
