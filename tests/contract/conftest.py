"""The worlds that keep the contract, each as a fixture that speaks one small language."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.support.yards import ADMIN, ME, TestYard, sh


class Place(Protocol):
    """A running world: jobs take as many seconds of its time as they say."""

    def submit(self, name: str, seconds: float, **keys: Any) -> None:
        """A job that works so long and then succeeds."""

    def until(self, name: str, *phases: str) -> dict[str, Any]:
        """Wait until the job is in one of the phases (default: ended) and tell how it stands."""

    def lose_node(self, name: str) -> None:
        """The node is gone with all that ran on it."""

    def cordon(self, name: str) -> None:
        """Nothing new goes on the node."""

    def why(self, name: str) -> str:
        """Why it waits, in one sentence."""


class Local:
    """The embedded yard."""

    def __init__(self, folder: Path, fleet: str) -> None:
        self.yard = TestYard(folder, fleet)
        self.yard.start()

    def submit(self, name: str, seconds: float, **keys: Any) -> None:
        self.yard.submit(ME, [sh(f"sleep {seconds}", name=name, **keys)])

    def until(self, name: str, *phases: str) -> dict[str, Any]:
        return self.yard.until(name, *phases)

    def lose_node(self, name: str) -> None:
        self.yard.world.lose_node(name)

    def cordon(self, name: str) -> None:
        self.yard.world.cordon(name, True)

    def why(self, name: str) -> str:
        return str(self.yard.why(ADMIN, name)["message"])

    def stop(self) -> None:
        self.yard.stop()


WORLDS = {"local": Local}


@pytest.fixture(params=sorted(WORLDS))
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], Place]]:
    """Makes a world of the kind from a fleet file's text."""
    made: list[Local] = []

    def make(fleet: str) -> Place:
        made.append(WORLDS[request.param](tmp_path / str(len(made)), fleet))
        return made[-1]

    yield make
    for place in made:
        place.stop()
