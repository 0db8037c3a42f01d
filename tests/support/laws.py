"""How often a law is tried, and how a broken one is told: as a snapshot file that `yard plan` can read."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import yaml
from hypothesis import HealthCheck, given, note, settings
from hypothesis.strategies import SearchStrategy

from gpuyard.files import snapshot_document
from gpuyard.model.snapshot import Snapshot

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "dev")
TRIES = {"mutants": 4, "quick": 20, "proof": 10_000}.get(PROFILE, 200)
"""Random clusters per law: a few in `make quick`, 200 in `make test`, ten thousand in `make proof`."""


def law(*strategies: SearchStrategy[Any], share: float = 1.0) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A test tried on random values, `share` times as often as others."""
    tries = settings(
        max_examples=max(int(TRIES * share), 1),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    return lambda test: tries(given(*strategies)(test))


def tell(snapshot: Snapshot, title: str = "snapshot") -> None:
    """Show the snapshot if this example turns out to break the law; costs nothing otherwise."""
    note(_Told(snapshot, title))


class _Told:
    """Written out only when hypothesis shows it."""

    def __init__(self, snapshot: Snapshot, title: str) -> None:
        self.snapshot = snapshot
        self.title = title

    def __repr__(self) -> str:
        document = snapshot_document(self.snapshot)
        return f"--- {self.title}\n{yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=140)}"
