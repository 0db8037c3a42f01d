"""What the brain remembers between cycles: one frozen value, saved and restored by worlds, carried by snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Memory:
    """Evictions that happened, times per job (rule 21); how long jobs took, seconds per queue and class; claims that
    found no room, when last."""

    evictions: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    durations: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    refused: Mapping[str, float] = field(default_factory=dict)
    sliced_at: float = float("-inf")
    """When running jobs were last weighed against waiting ones (time-slicing)."""

    @staticmethod
    def from_document(document: Mapping[str, Any]) -> Memory:
        """As a snapshot carries it; what it does not know is forgotten."""
        refused = {name: float(at) for name, at in document.get("refused", {}).items()}
        return Memory(_times(document.get("evictions", {})), _times(document.get("durations", {})), refused)

    def to_document(self) -> dict[str, Any]:
        """For a snapshot."""
        return {
            "evictions": {name: list(times) for name, times in sorted(self.evictions.items())},
            "durations": {name: list(times) for name, times in sorted(self.durations.items())},
            "refused": dict(sorted(self.refused.items())),
        }


def _times(document: Mapping[str, Any]) -> dict[str, tuple[float, ...]]:
    return {name: tuple(float(t) for t in times) for name, times in document.items()}
