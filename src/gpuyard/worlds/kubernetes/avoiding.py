"""Nodes and gangs that are left alone for a while, and why. Owned by `world`'s loop, read by `observe`.

Kept in memory only: whoever leads next finds out for itself.
"""

from __future__ import annotations

from collections.abc import Callable

from gpuyard.model.outside.ports import Clock

AVOID_S = 30.0
AVOID_MAX_S = 600.0
"""So long nothing new goes on a node whose kubelet refused a pod of ours, twice as long each time."""
CALM_S = 3600.0
"""After so long without a refusal the next one counts as the first."""
MISFIT = "TopologyAffinityError"
"""Says that these containers do not fit into that machine's NUMA nodes: nothing about what others would find there."""
REST_S = 60.0
"""So long a gang rests that could not be started, for a reason that would be the same at once."""
SHUN_S = 300.0
"""So long a gang keeps off a node on which it, and not everybody, could not be started."""


class Avoidance:
    """What is kept off, each with its words and its end."""

    def __init__(self, clock: Clock, look_at_node: Callable[[str], None], look_at: Callable[[str], None]) -> None:
        """`look_at_node` and `look_at` hear of a node, and of a gang, of which something else is said now."""
        self.nodes: dict[str, str] = {}
        """Why nothing new goes there."""
        self.gangs: dict[str, str] = {}
        """Why they are not started now."""
        self._look_at_node, self._look_at = look_at_node, look_at
        self._clock = clock
        self._refusals: dict[str, tuple[int, float]] = {}
        """How often each node has refused lately, and when it last did."""
        self._nodes_until: dict[str, float] = {}
        self._gangs_until: dict[str, float] = {}
        self._shunned: dict[str, dict[str, float]] = {}

    def refused_by(self, node: str, why: str, gang: str = "") -> None:
        """A kubelet would not have a pod of ours: we know less of the node than it does. Longer each time.

        Where it is the pod that does not fit, its gang alone keeps off: nobody closes a node to others by asking oddly.
        """
        if why == MISFIT and gang:
            self.shun(gang, node)
            return
        now = self._clock.monotonic()
        before, at = self._refusals.get(node, (0, now))
        times = before + 1 if now - at < CALM_S else 1
        self._refusals[node] = times, now
        rest = min(AVOID_S * 2.0 ** (times - 1), AVOID_MAX_S)
        self._nodes_until[node] = now + rest
        self.nodes[node] = f"its kubelet refused a pod ({why}); tried again after {rest:g} s"
        self._look_at_node(node)

    def rest(self, gang: str, why: str) -> None:
        """It is tried again by and by."""
        self._gangs_until[gang] = self._clock.monotonic() + REST_S
        self.gangs[gang] = f"{why}; tried again after {REST_S:g} s"
        self._look_at(gang)

    def shun(self, gang: str, node: str) -> None:
        """Not there again for a while; others may."""
        self._shunned.setdefault(gang, {})[node] = self._clock.monotonic() + SHUN_S
        self._look_at(gang)

    def shunned_by(self, gang: str) -> tuple[str, ...]:
        """Nodes that this gang keeps off, by their names."""
        return tuple(sorted(self._shunned.get(gang, ())))

    def concerns(self, gang: str) -> bool:
        """Whether it is held, or kept off nodes."""
        return gang in self.gangs or gang in self._shunned

    def lapse(self) -> None:
        """What has been avoided for long enough is avoided no more."""
        now = self._clock.monotonic()
        for node in _over(self._nodes_until, now):
            del self._nodes_until[node], self.nodes[node]
            self._look_at_node(node)
        for gang in _over(self._gangs_until, now):
            del self._gangs_until[gang], self.gangs[gang]
            self._look_at(gang)
        for gang, nodes in list(self._shunned.items()):
            for node in _over(nodes, now):
                del nodes[node]
                self._look_at(gang)
            if not nodes:
                del self._shunned[gang]


def _over(until: dict[str, float], now: float) -> list[str]:
    return [name for name, end in until.items() if end <= now]
