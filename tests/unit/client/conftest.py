"""A server in front of a yard made by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard.client import Client
from tests.support.hosted import Hosted, hosted


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Hosted]:
    with hosted(tmp_path / "state") as served:
        yield served


@pytest.fixture
def client(served: Hosted) -> Iterator[Client]:
    with served.client() as client:
        yield client
