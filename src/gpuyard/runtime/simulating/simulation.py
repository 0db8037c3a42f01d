"""One simulated run: a trace, a fleet, a policy and a seed through the one loop, and the figures that come out.

Called by `yard sim`, `yard whatif` and the benchmarks. The loop, the brain and the controllers are those of any world.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from pathlib import Path

from gpuyard.brain.engine.placing.fragmentation import stranded_now
from gpuyard.model.outside.collector import collector_seldom
from gpuyard.model.outside.ports import Clock
from gpuyard.model.policy import DefragRule, OrderPolicy, Policy
from gpuyard.model.snapshot import Snapshot
from gpuyard.runtime.driving.driver import Driver
from gpuyard.runtime.driving.loop import Loop
from gpuyard.runtime.simulating.alert_spans import AlertSpan, AlertSpans
from gpuyard.worlds.sim import faults, fleets
from gpuyard.worlds.sim.chronicle import Chronicle, Everyone
from gpuyard.worlds.sim.lives import Live, Observer
from gpuyard.worlds.sim.measuring import ClassFigures, Curves, Figures, Measure, Outages
from gpuyard.worlds.sim.traces import openb
from gpuyard.worlds.sim.traces.reading import Source
from gpuyard.worlds.sim.traces.trace import Trace
from gpuyard.worlds.sim.tried_once import TriedOnce
from gpuyard.worlds.sim.world import Rules, SimWorld

LOOKS = 48
"""Plans of a run in which each newcomer is tried once and they are tried in the order in which they come: a turn costs
more than what is decided in it. What is looked at once a plan, alerts and stranded GPUs, is seen as often."""
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
class SimulatedRun:
    """One policy, one seed, and what came out."""

    policy: str
    seed: int
    wall_s: float
    decide_s: float
    figures: Figures
    curves: Curves
    alerts: tuple[AlertSpan, ...] = ()
    classes: dict[str, ClassFigures] = field(default_factory=dict)
    """What failures did, and how slow jobs were, by class."""


def run(
    setting: Setting, named: tuple[str, Policy], seed: int, clock: Clock, progress: Progress | None = None
) -> SimulatedRun:
    """Simulate one policy with one seed to the end of the trace."""
    with collector_seldom():  # over when hardly anything is left of the run to look through
        return _run(setting, named, seed, clock, progress)


def _run(
    setting: Setting, named: tuple[str, Policy], seed: int, clock: Clock, progress: Progress | None
) -> SimulatedRun:
    begun = clock.monotonic()
    with ExitStack() as stack:
        trace = setting.source.trace(seed, fleets.capacity(setting.fleet))
        trace = trace if setting.adapt is None else setting.adapt(trace)
        policy = _by_the_rules(named[1], trace.tried_once, setting.rules)
        nodes = openb.in_drawn_order(setting.fleet.nodes, seed) if trace.tried_once else setting.fleet.nodes
        fleet = replace(setting.fleet, policy=policy, nodes=nodes, queues=fleets.queues(setting.fleet, trace))
        measure = Measure(trace, fleets.capacity(setting.fleet), setting.gantt)
        outages = Outages(measure)
        listener: Observer = outages
        if setting.placements is not None:
            out = stack.enter_context(setting.placements.open("w", encoding="utf-8"))
            listener = Everyone((outages, Chronicle(out)))
        if progress is not None:
            listener = Counting(listener, len(trace.arrivals), progress)
        known_demand = trace.tried_once if setting.known_demand is None else setting.known_demand
        world = _world(trace, setting.rules, listener, fleet, known_demand)
        if setting.faults is not None:
            faults.plan(world, setting.fleet, setting.faults, seed)
        loop = Loop(world, clock)
        spans = AlertSpans(world.now)
        loop.heard = spans.hear
        loop.open()
        # of the fleet and not of the loop, which knows who measures it: nothing of a run is to stay when it is over
        measure.stranded = partial(stranded_now, loop.fleet)
        if known_demand:
            loop.fleet.expect(trace.expected)
        Driver(loop, clock).run()
    took, told = clock.monotonic() - begun, (spans.told(), dict(outages.classes))
    return SimulatedRun(named[0], seed, took, loop.decide_s, measure.figures(), measure.curves, *told)


def _world(trace: Trace, rules: Rules, listener: Observer, fleet: Snapshot, known_demand: bool) -> SimWorld:
    if not trace.tried_once:
        return SimWorld(trace, rules, listener, fleet)
    in_order = known_demand and not fleet.policy.consolidate and _are_tried_as_they_come(trace, fleet.policy)
    return TriedOnce(trace, rules, listener, fleet, max(1, len(trace.arrivals) // LOOKS) if in_order else 1)


def _are_tried_as_they_come(trace: Trace, policy: Policy) -> bool:
    """Whether nobody is tried before somebody who came earlier, and nobody who does not fit holds anything back."""
    jobs = [arrival.job for arrival in trace.arrivals]
    ranks = {(job.queue, job.job_class, job.priority) for job in jobs}
    reserves = any(job.time_limit is not None for job in jobs)
    return policy.order == OrderPolicy() and len(ranks) == 1 and not reserves


def _by_the_rules(policy: Policy, tried_once: bool, rules: Rules) -> Policy:
    """Where each task is tried once nothing is taken, nothing kept for somebody who waits, and nothing moved unless the
    rules allow some. Nobody reads proposals here."""
    if policy.defragment is DefragRule.PROPOSE or (tried_once and not rules.most_moves):
        policy = replace(policy, defragment=DefragRule.OFF)
    if not tried_once:
        return policy
    return replace(policy, preempt=False, consolidate=rules.most_moves > 0, reserve_after=inf)


class Counting(Everyone):
    """Tells now and then how many have come."""

    EVERY = 64

    def __init__(self, listener: Observer, of: int, progress: Progress) -> None:
        super().__init__((listener,))
        self._come = 0
        self._of = of
        self._progress = progress

    def arrived(self, now: float, live: Live) -> None:
        """One more."""
        super().arrived(now, live)
        self._come += 1
        if self._come % self.EVERY == 0:
            self._progress(self._come, self._of)
