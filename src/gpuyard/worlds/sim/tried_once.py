"""A simulated world in which tasks only arrive: each is tried once, at its own moment, and dropped if it does not fit.

These are the rules of the FGD experiment, whose traces say so (`Trace.tried_once`). Nothing else happens here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpuyard.model.actions import Move, Plan, Start
from gpuyard.model.events import Event, PolicyChanged
from gpuyard.model.snapshot import Snapshot
from gpuyard.worlds.sim.lives import Live, Observer
from gpuyard.worlds.sim.traces.trace import Trace
from gpuyard.worlds.sim.world import Rules, SimWorld


class TriedOnce(SimWorld):
    """So many newcomers are told `together`, and answered by one plan: more than one only where nobody moves, and where
    nothing that one of them finds depends on who comes after it. Then each fares as if it had been told of alone."""

    def __init__(self, trace: Trace, rules: Rules, listener: Observer, fleet: Snapshot, together: int = 1) -> None:
        super().__init__(trace, rules, listener, fleet)
        self._together = together
        self._may_move = fleet.policy.consolidate

    def wait(self, not_before: float = 0.0) -> bool:
        """Go to the next newcomers; False when no more come."""
        coming = self.trace.arrivals[self._coming : self._coming + self._together]
        for arrival in coming:
            self._coming += 1
            self._now = arrival.at
            self._come(arrival)
        self._allow_moves()
        return bool(coming)

    def apply(self, plan: Plan, turn: int) -> Sequence[Event]:
        """Moves first; then each newcomer at its own moment starts where the plan says, or is dropped."""
        if not self._few_enough(plan):
            plan = Plan()  # it would move more than the rules leave
        starts = {action.job: action for action in plan.actions if isinstance(action, Start)}
        moves = [action for action in plan.actions if isinstance(action, Move)]
        for live in list(self.waiting.values()):
            self._now = live.arrival.at
            self.listener.arrived(self._now, live)
            self._move_all(moves)
            moves = []
            self._try(live, starts.get(live.arrival.job.name))
            self.listener.settled(self._now, 0)
        return self.observe()

    def _try(self, live: Live, start: Start | None) -> None:
        if start is not None:
            self._start(live, start.placements)
        else:
            self.listener.dropped(self._now, live)
            self._gone(live)

    # --- moves ----------------------------------------------------------------------------------------------------

    def _allow_moves(self) -> None:
        """Moving is only allowed while the rules leave some moves."""
        if self.rules.most_moves and (self.moves_left() > 0) != self._may_move:
            self._may_move = not self._may_move
            self.tell(PolicyChanged(replace(self.fleet.policy, consolidate=self._may_move)))

    def moves_left(self) -> int:
        """How many more tasks may be moved: a share of those placed so far."""
        return int(self.rules.most_moves * self.placed) - self.moved

    def _few_enough(self, plan: Plan) -> bool:
        moves = sum(len(action.source) for action in plan.actions if isinstance(action, Move))
        return not moves or moves <= self.moves_left()
