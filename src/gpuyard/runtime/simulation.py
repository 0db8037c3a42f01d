"""One simulated run: a trace, a fleet, a policy and a seed through the one loop, and the figures that come out.

Called by `yard sim`, `yard whatif` and the benchmarks. The loop, the brain and the controllers are those of any world.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.model.actions import Plan
from gpuyard.model.events import Event
from gpuyard.model.policy import Policy
from gpuyard.model.ports import Clock
from gpuyard.model.snapshot import Snapshot
from gpuyard.runtime.loop import Loop
from gpuyard.worlds.sim import faults, fleets, openb
from gpuyard.worlds.sim.chronicle import Chronicle, Everyone
from gpuyard.worlds.sim.measuring import Curves, Figures, Measure
from gpuyard.worlds.sim.reading import Source
from gpuyard.worlds.sim.trace import Trace
from gpuyard.worlds.sim.world import Listener, Rules, SimWorld

Progress = Callable[[int, int], None]
"""Told how many of how many arrivals have come."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What is simulated, but for policy and seed."""

    source: Source
    fleet: Snapshot
    rules: Rules = Rules()
    faults: faults.Rates | None = None
    placements: Path | None = None
    gantt: bool = False
    adapt: Callable[[Trace], Trace] | None = None
    """What-if: the arrivals, changed."""
    known_demand: bool | None = None
    """Whether the classes of demand are known beforehand; None: where the trace's own rules say so."""


@dataclass(frozen=True, slots=True)
class Run:
    """One policy, one seed, and what came out."""

    policy: str
    seed: int
    wall_s: float
    decide_s: float
    figures: Figures
    curves: Curves


def run(setting: Setting, named: tuple[str, Policy], seed: int, clock: Clock, progress: Progress | None = None) -> Run:
    """Simulate one policy with one seed to the end of the trace."""
    begun = clock.monotonic()
    trace = setting.source.trace(seed, fleets.capacity(setting.fleet))
    trace = trace if setting.adapt is None else setting.adapt(trace)
    policy = _by_the_rules(named[1], trace.tried_once, setting.rules)
    nodes = openb.in_drawn_order(setting.fleet.nodes, seed) if trace.tried_once else setting.fleet.nodes
    fleet = Fleet(replace(setting.fleet, policy=policy, nodes=nodes, queues=fleets.queues(setting.fleet, trace)))
    if setting.known_demand if setting.known_demand is not None else trace.tried_once:
        fleet.expect(trace.expected)
    with ExitStack() as stack:
        measure = Measure(trace, fleets.capacity(setting.fleet), _gauge(fleet), setting.gantt)
        listener: Listener = measure
        if setting.placements is not None:
            out = stack.enter_context(setting.placements.open("w", encoding="utf-8"))
            listener = Everyone((measure, Chronicle(out)))
        world = SimWorld(trace, _rules(setting.rules, policy), listener)
        if setting.faults is not None:
            faults.plan(world, setting.fleet, setting.faults, seed)
        loop = TimedLoop(world, fleet, clock, progress)
        loop.moves_left = world.moves_left if trace.tried_once and setting.rules.most_moves else None
        loop.run()
    return Run(named[0], seed, clock.monotonic() - begun, loop.decide_s, measure.figures(), measure.curves)


def _by_the_rules(policy: Policy, tried_once: bool, rules: Rules) -> Policy:
    """Where each task is tried once, nothing is taken, and nothing moved unless the rules allow some."""
    if not tried_once:
        return policy
    return replace(policy, preempt=False, consolidate=rules.most_moves > 0)


def _rules(rules: Rules, policy: Policy) -> Rules:
    order = policy.order
    tick = rules.tick or (order.time_slice if order.time_slicing else 0.0)
    return replace(rules, tick=tick)


def _gauge(fleet: Fleet) -> Callable[[], float]:
    def stranded() -> float:
        from gpuyard.brain.engine.placing.fragmentation import stranded_now

        return stranded_now(fleet)

    return stranded


class TimedLoop(Loop):
    """The loop, with a stopwatch on its decisions."""

    def __init__(self, world: SimWorld, fleet: Fleet, clock: Clock, progress: Progress | None) -> None:
        super().__init__(world, fleet, Memory())
        self.decide_s = 0.0
        self._sim = world
        self._clock = clock
        self._progress = progress
        self._turns = 0
        self.moves_left: Callable[[], int] | None = None
        """How many tasks may still be moved, where that is limited."""

    def decide(self, events: Sequence[Event], now: float) -> Plan:
        """As ever, timed."""
        begun = self._clock.monotonic()
        if self.moves_left is not None:
            may = self.moves_left() > 0
            if may != self.fleet.policy.consolidate:
                self.fleet.policy = replace(self.fleet.policy, consolidate=may)
        plan = super().decide(events, now)
        self.decide_s += self._clock.monotonic() - begun
        self._turns += 1
        if self._progress is not None and self._turns % 64 == 0:
            self._progress(self._sim.come, len(self._sim.trace.arrivals))
        return plan
