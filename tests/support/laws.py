"""How often a law is tried, and how a broken one is told: as a snapshot file that `yard plan` can read.

What `make proof` finds is random, so it is kept: the smallest moment becomes a scenario under tests/scenarios/found,
which every later run holds to the invariants; whoever mends it gives it a sentence and a file of its own.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import yaml
from hypothesis import HealthCheck, given, note, settings
from hypothesis.strategies import SearchStrategy

from gpuyard.files import snapshot_document
from gpuyard.model.snapshot import Snapshot
from tests.support.scenario import FOLDER

FOUND = FOLDER / "found"
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "dev")
TRIES = {"mutants": 4, "quick": 3, "proof": 10_000}.get(PROFILE, 200)
"""Random clusters per law: a few in `make quick`, 200 in `make test`, ten thousand in `make proof`."""


def law(*strategies: SearchStrategy[Any], share: float = 1.0) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A test tried on random values, `share` times as often as others."""
    tries = settings(
        max_examples=max(int(TRIES * share), 1),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    return lambda test: tries(given(*strategies)(_kept(test)))


def tell(snapshot: Snapshot, title: str = "snapshot") -> None:
    """Show the snapshot if this example turns out to break the law; costs nothing otherwise."""
    _last[:] = [snapshot]
    note(_Told(snapshot, title))


_last: list[Snapshot] = []
"""The moment that the example at hand is about."""


def _kept(test: Callable[..., None]) -> Callable[..., None]:
    """The test; in `make proof` the moment that it fails on is written down, and the smallest one comes last."""

    @functools.wraps(test)
    def trying(*args: Any, **kwargs: Any) -> None:
        _last.clear()
        try:
            test(*args, **kwargs)
        except (AssertionError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError):
            if PROFILE == "proof" and _last:
                keep(test.__name__, _last[0])
            raise

    return trying


def keep(name: str, snapshot: Snapshot) -> None:
    """A scenario that expects nothing but what every plan is held to."""
    sentence = f"Found by {name.removeprefix('test_').replace('_', ' ')}"
    scenario = {"name": sentence, "rule": 26, "snapshot": snapshot_document(snapshot), "expect": {}}
    FOUND.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump({"scenarios": [scenario]}, sort_keys=False, default_flow_style=None, width=140)
    (FOUND / f"{name.removeprefix('test_')}.yaml").write_text(text, encoding="utf-8")


class _Told:
    """Written out only when hypothesis shows it."""

    def __init__(self, snapshot: Snapshot, title: str) -> None:
        self.snapshot = snapshot
        self.title = title

    def __repr__(self) -> str:
        document = snapshot_document(self.snapshot)
        return f"--- {self.title}\n{yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=140)}"
