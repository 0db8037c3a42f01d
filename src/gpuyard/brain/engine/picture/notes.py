"""What steps of a cycle note in the draft for the steps after them: plain values, kept while the plan is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from gpuyard.brain.engine.nodes.columns import Held
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


@dataclass(slots=True)
class Kept:
    """One reservation in force: for whom, the places wanted, and the stand-in that holds those free now."""

    row: JobRow
    places: tuple[Held, ...]
    until: float | None
    borrower: bool
    stand_in: JobRow
    known: bool = False
    """Whether it stood already when the plan began."""
