"""What the claims of one cycle leave to each other: what one found out, the next need not find out again.

Owned by `Draft`; filled in by those who make room, who alone know what it means.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gpuyard.brain.engine.picture.job_rows import JobRow


class Profile(NamedTuple):
    """What is true of a running job for the whole of a cycle, worked out once."""

    gang_may_go: bool
    extras_may_go: bool
    evictions: int
    lost: float
    """Seconds of work since the last checkpoint."""
    warm_up: float
    """Seconds that a restart spends before it works again."""
    youth: tuple[object, ...]


class ClaimLog:
    """Nothing of it outlives the cycle, but for who was refused when."""

    def __init__(self, refused_before: Mapping[str, float]) -> None:
        self.refused_before = refused_before
        """Claims that found no room in earlier plans, and when they were last asked."""
        self.refused: dict[str, float] = {}
        """The same of this one."""
        self.profiles: dict[JobRow, Profile] = {}
        """What is true of running jobs; see `victims`."""
        self.clearings: dict[object, object] = {}
        """What equal claims left behind for the next one; `room_making` knows what it is."""
        self.last: object = None
        """What the last claim leaves to the next that is equal to it; `equal_claims` knows what it is."""

    def rest(self) -> None:
        """Let go of what knows the draft."""
        self.clearings.clear()
        self.last = None
