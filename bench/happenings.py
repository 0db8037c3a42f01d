"""Benchmarks of what comes over a large fleet besides jobs: GPUs that fall sick, storms of node events; and of asking
about a large fleet: `yard plan` with every explanation, and one replay of openb."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from bench import workloads
from bench.measuring import Case, Sample, worked
from bench.settling import told
from gpuyard.brain.decide import decide
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.model.events import Event, GpuHealthChanged, NodeLost, NodeSeen
from gpuyard.model.node import CORDONED, Health
from gpuyard.model.outside.collector import collector_resting

NODES, PODS = 4_000, 4
STORM = 1_000


class Live:
    """A fleet of 4,000 nodes and 16,000 jobs in memory, planned once."""

    @cached_property
    def fleet(self) -> Fleet:
        """The fleet; what is measured changes it, run after run."""
        fleet = Fleet(workloads.full_fleet(NODES, waiting=0, pods=PODS))
        decide(fleet, Memory(), workloads.NOW)
        return fleet

    def turn(self, events: list[Event]) -> Sample:
        """Taking the events in, in ms; `decide_ms` is the plan that follows."""
        fleet = self.fleet
        with collector_resting():
            seconds, _ = worked(lambda: fleet.apply(events))
            after, _ = worked(lambda: decide(fleet, Memory(), workloads.NOW))
        return Sample(seconds, seconds * 1e3, {"decide_ms": after * 1e3, "jobs": len(fleet.jobs)})


class OneSick(Live):
    """One GPU falls sick in every run."""

    sick = 0

    def __call__(self) -> Sample:
        self.sick += 1
        return self.turn([GpuHealthChanged(f"n{self.sick * 37 % NODES:05d}", self.sick % 8, Health.SICK)])


class Storm(Live):
    """A thousand nodes at once: some are cordoned, some change labels, some lose a GPU, some are lost and come back."""

    gusts = 0

    def __call__(self) -> Sample:
        self.gusts += 1
        nodes = self.fleet.columns.nodes
        chosen = [nodes[(i * 3 + self.gusts) % len(nodes)] for i in range(STORM)]
        events: list[Event] = []
        for i, node in enumerate(chosen):
            match i % 5:
                case 0:
                    events.append(NodeSeen(replace(node, closed=None if node.closed else CORDONED)))
                case 1:
                    events.append(NodeSeen(replace(node, labels=(*node.labels, ("gust", str(self.gusts))))))
                case 2:
                    events.append(GpuHealthChanged(node.name, i % 8, Health.SICK))
                case 3:
                    events.append(NodeLost(node.name))
                case _:
                    events.append(NodeSeen(replace(node, name=f"{node.name}x{self.gusts}")))
        return self.turn(events)


def large_plan() -> Sample:
    """`yard plan` on 2,000 nodes with 20,000 jobs, explanations included, in seconds."""
    snapshot = workloads.small_jobs(2_000, 20_000)
    seconds, outlook = worked(lambda: told(snapshot))
    return Sample(seconds, seconds, {"started": len(outlook.actions), "explained": len(outlook.waiting)})


def one_replay() -> Sample:
    """One run of openb's main workload, from the trace in memory to the end, in seconds."""
    from bench.replays import NODES as OPENB_NODES
    from bench.replays import task_file
    from gpuyard.cli.deciding.replaying import run_all, setting_of

    setting = setting_of(str(task_file("default")), str(OPENB_NODES), "", {})
    seconds, runs = worked(lambda: run_all(setting, ("default",), (42,)))
    return Sample(seconds, seconds, {"decide_s": runs[0].decide_s})


CASES = (
    Case("health", "one GPU falls sick; 4,000 × 8, 16,000 jobs", "ms", OneSick(), aim=1, runs=50),
    Case("storm", "1,000 node events in one turn; 4,000 × 8, 16,000 jobs", "ms", Storm(), aim=300, runs=5),
    Case("plan", "yard plan, every wait explained; 2,000 × 8, 20,000 jobs", "s", large_plan, aim=10, runs=1),
    Case("openb-run", "one openb run, 1,213 nodes", "s", one_replay, aim=1.2, runs=3),
)
