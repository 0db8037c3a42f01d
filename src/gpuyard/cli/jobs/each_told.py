"""One word to each of several jobs: whoever refuses keeps nobody else from hearing it.

Used by the verbs, of a yard and of a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gpuyard.cli.console import terminal
from gpuyard.model.errors import Refused


class EachTold:
    """Every refusal is said; the command ends with the last of them."""

    def __init__(self) -> None:
        self._refused: Refused | None = None

    @contextmanager
    def one(self) -> Iterator[None]:
        """One of them is told."""
        try:
            yield
        except Refused as error:
            if self._refused is not None:
                terminal.say(f"error: {self._refused}")
            self._refused = error

    def end(self) -> None:
        """All were told."""
        if self._refused is not None:
            raise self._refused
