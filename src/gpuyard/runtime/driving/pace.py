"""How much of a core deciding may take. Used by the driver of a live world; virtual time needs no rest."""

from __future__ import annotations

CROWDED_JOBS = 2000
"""With so many jobs the loop rests twice as long as it works: people who submit must not wait for it."""
BURST_S = 0.3
"""So much deciding may come at once: whoever submits to a yard at rest does not wait."""
REST_MAX_S = 2.0


class Pace:
    """A burst, then a share of the time."""

    def __init__(self) -> None:
        self._credit = BURST_S
        self._at = 0.0

    def rest(self, now: float, took: float, jobs: int) -> float:
        """How long to rest after a turn that took so long, with so many jobs about."""
        share = 0.33 if jobs > CROWDED_JOBS else 0.7
        self._credit = min(BURST_S, self._credit + (now - self._at) * share) - took
        self._at = now
        return min(max(0.0, -self._credit) / share, REST_MAX_S)
