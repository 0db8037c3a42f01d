"""Faults from a seed: GPUs, nodes and racks are lost and repaired, GPUs run slow, agents fall silent.

Called before a simulated run: it puts the faults on the world's agenda. Rates are those of the field (reliability
research, section 3): Meta's Llama 3 interruptions for kinds, a Poisson process per GPU with a few bad nodes, LANL's
repair times. What a fault does to the brain it does through events, as in any world.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial

from gpuyard.model.events import GpuHealthChanged, NodeSeen
from gpuyard.model.node import Closure, Health, Node
from gpuyard.model.snapshot import Snapshot
from gpuyard.worlds.sim.lives import Live
from gpuyard.worlds.sim.seed import SeededDice
from gpuyard.worlds.sim.world import Happening, SimWorld

DAY = 86_400.0
SILENT = Closure("its agent is silent")


@dataclass(frozen=True, slots=True)
class Rates:
    """How often what breaks, and how long it stays broken; seconds and shares."""

    per_gpu_day: float = 5e-4
    """Unplanned interruptions (Llama 3: 419 in 54 days on 16,384 GPUs = 4.7e-4)."""
    lemons: float = 0.02
    """Share of nodes that fail `lemon_factor` times as often."""
    lemon_factor: float = 10.0
    node_share: float = 0.25
    """Share of interruptions that take the whole node (host, network, maintenance)."""
    rack_share: float = 0.05
    """Share that is correlated and takes the rack."""
    slow_share: float = 0.01
    """Share that only makes a GPU suspect, by running slow."""
    silence_share: float = 0.05
    """Share in which only the node's agent falls silent for a while: nothing new goes there, nothing stops."""
    reset_s: float = 180.0
    reboot_s: float = 1500.0
    repair_median_s: float = 3240.0
    """A ticketed repair: lognormal, median 54 min, mean 355 min (LANL)."""
    repair_sigma: float = 1.94
    checkpoint_s: float = 1800.0
    """Work since the last checkpoint is lost; jobs without one of their own save this often."""


def plan(world: SimWorld, fleet: Snapshot, rates: Rates, seed: int) -> None:
    """Let faults happen to the world, from its beginning to its end."""
    Faults(world, fleet, rates, SeededDice(seed)).begin()


class Faults:
    """The fleet as it is under faults, and the next thing that breaks."""

    def __init__(self, world: SimWorld, fleet: Snapshot, rates: Rates, dice: SeededDice) -> None:
        self.world = world
        self.rates = rates
        self.dice = dice
        self.nodes = {node.name: node for node in fleet.nodes}
        self.down: set[str] = set()
        """Nodes that are away; what was planned for them when they were lost is void."""
        lemons = [dice.random() < rates.lemons for _ in fleet.nodes]
        self.weights = [
            len(node.gpus) * (rates.lemon_factor if lemon else 1.0)
            for node, lemon in zip(fleet.nodes, lemons, strict=True)
        ]
        self.names = [node.name for node in fleet.nodes]
        self.count = 0

    def begin(self) -> None:
        """Plan the first fault; each plans the next."""
        per_second = self.rates.per_gpu_day * sum(self.weights) / DAY
        if per_second > 0:
            self._later(1.0 / per_second)

    def _later(self, mean: float) -> None:
        self.world.at(self.world.now() + self.dice.exponential(mean), lambda: self._strike(mean))

    def _strike(self, mean: float) -> None:
        self._later(mean)
        node = self.nodes[self._drawn()]
        if node.name in self.down or not node.gpus:
            return
        self.count += 1
        rates, draw = self.rates, self.dice.random()
        if draw < rates.rack_share:
            self._lose([each for each in self.nodes.values() if _rack(each) == _rack(node)])
        elif draw < rates.rack_share + rates.node_share:
            self._lose([node])
        elif draw < rates.rack_share + rates.node_share + rates.silence_share:
            self._silence(node)
        elif draw < rates.rack_share + rates.node_share + rates.silence_share + rates.slow_share:
            self._mark(node, Health.SUSPECT)
        else:
            self._mark(node, Health.SICK)

    def _drawn(self) -> str:
        at = self.dice.random() * sum(self.weights)
        for name, weight in zip(self.names, self.weights, strict=True):
            at -= weight
            if at < 0:
                return name
        return self.names[-1]

    # --- what breaks ----------------------------------------------------------------------------------------------

    def _lose(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            if node.name in self.down:
                continue
            self.down.add(node.name)
            self.world.lose_node(node.name, self._undone)
            self._repair(partial(self._back, node))

    def _back(self, node: Node) -> None:
        self.down.discard(node.name)
        self.world.tell(NodeSeen(self.nodes[node.name]))

    def _silence(self, node: Node) -> None:
        self._change(replace(node, closed=SILENT))
        self.world.at(
            self.world.now() + self.rates.reset_s, lambda: self._change(replace(self.nodes[node.name], closed=None))
        )

    def _mark(self, node: Node, health: Health) -> None:
        index = self.dice.integer(len(node.gpus))
        self._set_health(node.name, index, health)
        if health is Health.SICK:
            self._kill(node.name, index)
        self._repair(lambda: self._set_health(node.name, index, Health.HEALTHY))

    def _set_health(self, name: str, index: int, health: Health) -> None:
        node = self.nodes[name]
        gpus = tuple(replace(gpu, health=health) if gpu.index == index else gpu for gpu in node.gpus)
        self.nodes[name] = replace(node, gpus=gpus)
        if name not in self.down:
            self.world.tell(GpuHealthChanged(name, index, health))

    def _change(self, node: Node) -> None:
        self.nodes[node.name] = node
        if node.name not in self.down:
            self.world.tell(NodeSeen(node))

    def _repair(self, done: Happening) -> None:
        """65 % come back with a reset, 25 % with a reboot, 10 % need hands."""
        draw, rates = self.dice.random(), self.rates
        if draw < 0.65:
            takes = rates.reset_s
        elif draw < 0.90:
            takes = rates.reboot_s
        else:
            takes = self.dice.lognormal(rates.repair_median_s, rates.repair_sigma)
        self.world.at(self.world.now() + takes, done)

    # --- who is hit -----------------------------------------------------------------------------------------------

    def _kill(self, node: str, index: int) -> None:
        """Tasks die with their device."""
        for live in self.world.tenants(node):
            hit = [place for place in live.placements if place.node == node and index in place.gpus]
            if hit:
                self.world.fail_tasks(live, hit, self._undone(live))

    def _undone(self, live: Live) -> float:
        """What a gang that stops has done since its last checkpoint is lost."""
        saved = live.arrival.job.checkpoint
        interval = (saved.interval if saved is not None else None) or self.rates.checkpoint_s
        return min(interval / 2, max(0.0, self.world.now() - live.checked))


def _rack(node: Node) -> str:
    return dict(node.domains).get("rack", node.name)
