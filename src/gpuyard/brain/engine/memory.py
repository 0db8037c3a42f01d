"""What the brain remembers between cycles: one frozen value, saved and restored by worlds, carried by snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Memory:
    """Evictions that happened, times per job (rule 21); how long jobs took, seconds per queue and class."""

    evictions: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    durations: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    sliced_at: float = float("-inf")
    """When running jobs were last weighed against waiting ones (time-slicing)."""

    @staticmethod
    def from_document(document: Mapping[str, Any]) -> Memory:
        """As a snapshot carries it; what it does not know is forgotten."""
        return Memory(_times(document.get("evictions", {})), _times(document.get("durations", {})))

    def to_document(self) -> dict[str, Any]:
        """For a snapshot."""
        return {
            "evictions": {name: list(times) for name, times in sorted(self.evictions.items())},
            "durations": {name: list(times) for name, times in sorted(self.durations.items())},
        }


def _times(document: Mapping[str, Any]) -> dict[str, tuple[float, ...]]:
    return {name: tuple(float(t) for t in times) for name, times in document.items()}
