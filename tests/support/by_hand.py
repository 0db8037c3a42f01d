"""Nodes, room and scores worked out by hand: plain Python over what the documents say, node by node, device by device.

It shares no code with the engine beyond the values of the model; tests hold the engine's columns against it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, sqrt

from gpuyard.brain.engine.nodes.columns import Held
from gpuyard.brain.engine.nodes.demand import DemandClass, Proportion
from gpuyard.model.node import Health, Node
from gpuyard.model.policy import Curve, DeviceChoice, Policy
from gpuyard.model.resources import UNLIMITED, WHOLE, Request

LARGE = 1 << 31


@dataclass(frozen=True)
class Machine:
    """A node and what lies on it."""

    node: Node
    held: tuple[Held, ...] = ()

    def used(self, g: int) -> int:
        """Grains taken of a whole device."""
        return sum(h.share or WHOLE for h in self.held if g in h.gpus and not h.mig)

    def free(self, g: int) -> int:
        """Grains of a device that may be given out; none of one that is sick, closed or cut."""
        gpu = self.node.gpus[g]
        return WHOLE - self.used(g) if gpu.usable and gpu.slices is None else 0

    def shares(self) -> list[int]:
        return [self.free(g) for g in range(len(self.node.gpus))]

    def whole(self, healthy: bool = False, island: int | None = None) -> int:
        """Devices wholly free; those beyond doubt, those of one island."""
        return sum(
            self.free(gpu.index) == WHOLE
            for gpu in self.node.gpus
            if (island is None or gpu.island == island) and not (healthy and gpu.health is Health.SUSPECT)
        )

    def islands(self) -> list[int]:
        return sorted({gpu.island for gpu in self.node.gpus})

    def cpu(self) -> int:
        return self.node.cpu - self.node.taken.cpu - sum(h.cpu for h in self.held)

    def memory(self) -> int:
        return self.node.memory - self.node.taken.memory - sum(h.memory for h in self.held)

    def slices(self, profile: str) -> int:
        """Slices of a profile that are free on usable devices."""
        there = sum((gpu.slices or ()).count(profile) for gpu in self.node.gpus if gpu.usable)
        sound = {gpu.index for gpu in self.node.gpus if gpu.usable}
        gone = sum(m == profile and g in sound for h in self.held for g, m in zip(h.gpus, h.mig, strict=False))
        return there - gone


def idle(shares: Sequence[int]) -> float:
    return sum(shares) / WHOLE


def need(request: Request, node: Node) -> int:
    """Grains of one device."""
    return request.gpu_memory * WHOLE // node.gpu_memory if request.gpu_memory else request.share


def room(request: Request, machine: Machine, careful: bool) -> int:
    """How many such tasks fit."""
    found = LARGE
    if request.gpus:
        found = machine.whole(healthy=careful) // request.gpus
    elif request.mig:
        found = min(machine.slices(profile) // count for profile, count in request.mig)
    elif request.shared:
        gpus = machine.node.gpus
        trusted = [g.index for g in gpus if not (careful and g.health is Health.SUSPECT)]
        found = sum(machine.free(g) // need(request, machine.node) for g in trusted)
    if request.cpu:
        found = min(found, machine.cpu() // request.cpu)
    if request.memory:
        found = min(found, machine.memory() // request.memory)
    return max(found, 0)


def stranded(classes: Sequence[DemandClass], n: int, shares: Sequence[int], cpu: int) -> float:
    """GPUs that a class of the demand could not use there, on average over the demand."""
    total = sum(c.weight for c in classes)
    lost = 0.0
    for each in classes:
        useful = 0.0
        if each.eligible[n] and cpu >= each.cpu:
            if each.share:
                useful = sum(s for s in shares if s >= each.share) / WHOLE
            elif each.gpus:
                count = sum(s == WHOLE for s in shares)
                useful = count if count >= each.gpus else 0
        lost += each.weight * (idle(shares) - useful)
    return lost / total


@dataclass(frozen=True)
class Judge:
    """Scores one request on machines, by the policy and the demand."""

    policy: Policy
    classes: Sequence[DemandClass]
    machines: Sequence[Machine]
    request: Request
    careful: bool = False
    choice: bool = True
    disliked: frozenset[int] = frozenset()
    proportion: Proportion = Proportion(0.0, 0.0, 0.0, 0.0)
    remainders: Sequence[float] = ()

    @property
    def width(self) -> int:
        return max(len(m.node.gpus) for m in self.machines)

    def asked(self, machine: Machine) -> float:
        """GPUs that the task takes there; memory is another part of a larger card."""
        return self.request.gpus or need(self.request, machine.node) / WHOLE

    def score(self, n: int) -> float:
        """The sum of all terms; -1 where nothing fits."""
        machine, weights, request = self.machines[n], self.policy.weights, self.request
        if not room(request, machine, self.careful):
            return -1.0
        terms = [weights.tightness * self.tightness(machine)]
        if request.shared:
            terms.append(self.on_the_best_device(n))
        elif not request.mig and self.classes:
            terms.append(weights.fragmentation * self.kept_usable(n))
        if request.gpus > 1:
            terms.append(weights.island * self.one_island(machine))
        if request.gpus and any(len(m.islands()) > 1 for m in self.machines):
            terms.append(weights.snug * self.snug(machine))
        if not self.careful and any(g.health is Health.SUSPECT for m in self.machines for g in m.node.gpus):
            terms.append(weights.health * self.trust(machine))
        terms.append(-weights.taste * (n in self.disliked))
        terms.append(weights.cpu_tightness * self.cpu_tightness(machine))
        if self.proportion.lean > 0:
            terms.append(weights.balance * self.balance(machine))
        if self.choice and self.classes and any(self.scarcity(i) for i in range(len(self.machines))):
            terms.append(weights.scarcity * (0.5 - self.scarcity(n) * self.asked(machine) / (2 * self.width)))
        return self.stepped(sum(terms))

    def stepped(self, score: float) -> float:
        steps = self.policy.scoring.steps
        return score * steps // 1 / steps if steps else score

    def tightness(self, machine: Machine) -> float:
        plain = 1 - (idle(machine.shares()) - self.asked(machine)) / self.width
        if self.request.cpu_only and not self.policy.weights.cpu_tightness:
            return (plain + self.cpu_tightness(machine)) / 2
        return plain

    def cpu_tightness(self, machine: Machine) -> float:
        widest = max([m.node.cpu for m in self.machines if m.node.cpu < UNLIMITED], default=1)
        return 1 - min(max((machine.cpu() - self.request.cpu) / widest, 0), 1)

    def curved(self, gain: float) -> float:
        if self.policy.scoring.curve is Curve.SIGMOID:
            return 1 / (1 + exp(-gain))
        return 0.5 + gain / (2 * self.width)

    def gain(self, n: int, after: list[int]) -> float:
        """GPUs saved from being stranded if the devices are left so."""
        machine = self.machines[n]
        before = stranded(self.classes, n, machine.shares(), machine.cpu())
        return before - stranded(self.classes, n, after, machine.cpu() - self.request.cpu)

    def kept_usable(self, n: int) -> float:
        shares = self.machines[n].shares()
        for _ in range(self.request.gpus):
            shares[shares.index(WHOLE)] = 0
        return self.curved(self.gain(n, shares))

    def part(self, n: int, g: int) -> float:
        """The terms of a task that takes a part of this device."""
        weights, machine = self.policy.weights, self.machines[n]
        shares, wanted = machine.shares(), need(self.request, machine.node)
        after = [s - wanted if i == g else s for i, s in enumerate(shares)]
        score = weights.sharing * (shares[g] < WHOLE)
        if self.classes:
            score += weights.fragmentation * max(self.curved(self.gain(n, after)), 0)
            lost = self.worth(shares[g]) - self.worth(after[g])
            score += weights.remainders * (0.5 - lost / (2 * self.width))
        return score

    def worth(self, grains: int) -> float:
        return self.remainders[grains * 1000 // WHOLE]

    def on_the_best_device(self, n: int) -> float:
        machine = self.machines[n]
        wanted = need(self.request, machine.node)
        fitting = [g for g, share in enumerate(machine.shares()) if share >= wanted]
        if self.policy.scoring.device is DeviceChoice.BEST:
            return max(self.part(n, g) for g in fitting)
        return self.part(n, min(fitting, key=lambda g: (machine.shares()[g], g)))

    def one_island(self, machine: Machine) -> float:
        best = max(machine.whole(self.careful, island) for island in machine.islands())
        return min(best / self.request.gpus, 1)

    def snug(self, machine: Machine) -> float:
        counts = [machine.whole(island=island) for island in machine.islands()]
        holding = [count for count in counts if count >= self.request.gpus]
        return 1 - (min(holding, default=machine.whole()) - self.request.gpus) / self.width

    def trust(self, machine: Machine) -> float:
        return 1 if self.request.cpu_only else min(machine.whole(healthy=True) / max(self.request.gpus, 1), 1)

    def balance(self, machine: Machine) -> float:
        if machine.node.cpu >= UNLIMITED:
            return 0.5
        free = idle(machine.shares())
        before = self.strain(machine.cpu(), free)
        after = self.strain(machine.cpu() - self.request.cpu, free - self.asked(machine))
        return 0.5 - (after - before) / (2 * self.width)

    def strain(self, cpu: float, free: float) -> float:
        scoring, p = self.policy.scoring, self.proportion
        lean, full = (1000 * scoring.cores_per_gpu,) * 2 if scoring.cores_per_gpu else (p.lean, p.full)
        corner = (scoring.spread * p.varies) ** 2 * abs(free)
        parts = ((1 - p.mix, lean), (p.mix, full))
        return sum(part * sqrt((free - cpu / per_gpu) ** 2 + corner) for part, per_gpu in parts)

    def scarcity(self, n: int) -> float:
        """Of the node's GPUs, what demand that cannot go everywhere would take of a fleet full of demand."""
        gpus = [len(m.node.gpus) for m in self.machines]
        asked = {i: c.tasks * (c.gpus or c.share / WHOLE) for i, c in enumerate(self.classes)}
        found = 0.0
        for i, each in enumerate(self.classes):
            reach = sum(count for m, count in enumerate(gpus) if each.eligible[m])
            if each.eligible[n] and 0 < reach < sum(gpus):
                found += asked[i] / sum(asked.values()) * sum(gpus) / reach
        return found
