"""The demand that placement is measured by: classes of tasks, as tables that answer for any node how much can use it.

Seen (what runs and waits, kept by `Fleet`) or known beforehand (`Fleet.expect`). Asked by `stranding.Gauge`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpuyard.brain.engine.nodes import remainders
from gpuyard.brain.engine.nodes.columns import Bools, Ints
from gpuyard.brain.engine.nodes.eligibility import Eligibility
from gpuyard.brain.engine.nodes.requests import TaskRequest, has_labels, has_model
from gpuyard.model.policy import DemandView, Weigh
from gpuyard.model.resources import UNLIMITED, WHOLE

Floats = npt.NDArray[np.float64]


class DemandClass(NamedTuple):
    """Tasks alike in GPUs, CPU and eligible nodes, their weight in the demand and their number (any unit)."""

    gpus: int
    share: int
    cpu: int
    eligible: Bools
    weight: float
    tasks: float

    @property
    def asked(self) -> float:
        """GPUs that all its tasks ask for."""
        return self.tasks * (self.gpus or self.share / WHOLE)


class Demand:
    """The classes of demand as tables that answer, for any free part of a device, how much of the demand can use it.

    F = idle - sum of r * part[r] over devices - whole * gang[whole]: a fraction needs one device that is large enough,
    a task of k GPUs needs k whole ones, and both need the CPU. So a node is looked up, not compared with each class.
    Classes without GPUs use no device: they only make the others count for less, as FGD has it.
    """

    def __init__(self, classes: Sequence[DemandClass], width: int) -> None:
        self.count = len(classes)
        self.fractional = any(c.share for c in classes)
        self.needs = np.array(sorted({c.share for c in classes if c.share}), dtype=np.int64)
        self.cpus = np.array(sorted({c.cpu for c in classes}), dtype=np.int64)
        self.remainders = remainders.values(_fractions(classes))
        """What the free rest of a device is worth, by its size."""
        eligible = np.array([c.eligible for c in classes], dtype=bool).T if classes else np.zeros((1, 0), bool)
        kinds: dict[bytes, int] = {}  # np.unique would do, but loads modules worth a hundred decisions
        self.group: Ints = np.array([kinds.setdefault(line.tobytes(), len(kinds)) for line in eligible], dtype=np.int64)
        """Which classes a node could serve at all: nodes of one group are alike in that."""
        patterns = np.array([np.frombuffer(kind, dtype=bool) for kind in kinds], dtype=bool).reshape(
            len(kinds), len(classes)
        )
        self.first_row: Ints = self.group * (len(self.cpus) + 1)
        """Where the flat tables begin to speak of each node's group."""
        self._lay_tables(classes, patterns, width)
        self.part_of_grain = np.ravel(self.part / WHOLE)
        self.part_by_row = self.part_of_grain.reshape(-1, len(self.needs) + 1)
        self.whole_of_row = self.part_by_row[:, -1] * WHOLE
        self.gang_worth = np.ravel(self.gang * np.arange(width + 1))
        """The tables laid flat, a row per group and CPU thresholds met: one look-up is the cheapest there is."""

    def rows(self, nodes: Ints, cpu: Ints) -> Ints:
        """Which row of the flat tables each of `nodes` has with this much CPU free; as many answers as there are rows
        of `cpu`."""
        row: Ints = self.first_row[nodes] + self.cpus.searchsorted(cpu, side="right")
        return row

    def useful(self, rows: Ints, shares: Ints) -> Floats:
        """What fractions could use, weighted, of devices with this much free (less than nothing: nothing). `shares` has
        a row per device, as `Columns.shares_of` tells them; so has the answer, for each row of `rows`."""
        if not self.fractional:
            return np.zeros((len(shares), *rows.shape))
        if rows.ndim > 1:
            shares = shares[:, None]
        at = self.needs.searchsorted(shares, side="right") + rows * (len(self.needs) + 1)
        useful: Floats = shares * self.part_of_grain.take(at)
        return useful

    def useful_by_cpu(self, first_row: int, shares: Ints) -> Floats:
        """What fractions could use of one node's devices together, for every number of CPU thresholds that are met."""
        table = self.part_by_row[first_row : first_row + len(self.cpus) + 1].T
        parts = table.take(self.needs.searchsorted(shares, side="right"), 0)
        useful: Floats = np.add.reduce(shares[:, None] * parts, axis=0)
        return useful

    def useful_whole(self, rows: Ints) -> Floats:
        """What fractions could use of one device that is wholly free, weighted."""
        return self.whole_of_row[rows]

    def gangs(self, rows: Ints, whole: Ints) -> Floats:
        """Per node with so many whole devices free, what whole-GPU tasks could use of it, weighted."""
        useful: Floats = self.gang_worth[rows * self.gang.shape[2] + whole]
        return useful

    def _lay_tables(self, classes: Sequence[DemandClass], patterns: Bools, width: int) -> None:
        total = fsum(c.weight for c in classes) or 1.0
        self.part = np.zeros((len(patterns), len(self.cpus) + 1, len(self.needs) + 1))
        """Popularity of fractions served, by group, CPU thresholds met, sizes met."""
        self.gang = np.zeros((len(patterns), len(self.cpus) + 1, width + 1))
        """Popularity of whole-GPU tasks served, by group, CPU thresholds met, free devices."""
        for m, each in enumerate(classes):
            enough = 1 + int(np.searchsorted(self.cpus, each.cpu))
            groups = patterns[:, m]
            if each.share:
                self.part[groups, enough:, 1 + int(np.searchsorted(self.needs, each.share)) :] += each.weight / total
            elif each.gpus:
                self.gang[groups, enough:, each.gpus :] += each.weight / total

    def scarcity(self, classes: Sequence[DemandClass], gpus: Ints) -> Floats:
        """How much of each node's GPUs demand that cannot go everywhere would take, were the fleet full of demand."""
        everything, total = float(gpus.sum()), fsum(c.asked for c in classes) or 1.0
        found = np.zeros(len(gpus))
        for each in classes:
            reach = float(gpus[each.eligible].sum())
            if 0 < reach < everything:
                found[each.eligible] += each.asked / total * everything / reach
        return found


def _fractions(classes: Sequence[DemandClass]) -> tuple[tuple[int, float], ...]:
    """Tasks per size of a share, in parts of a device as `remainders` counts them."""
    tasks: dict[int, float] = {}
    for each in classes:
        if each.share:
            size = min(-(-each.share // GRAINS_PER_STEP), remainders.STEPS)
            tasks[size] = tasks.get(size, 0.0) + each.tasks
    return tuple(sorted(tasks.items(), reverse=True))


GRAINS_PER_STEP = WHOLE // remainders.STEPS


class Proportion(NamedTuple):
    """How much CPU belongs to a GPU, and how badly a node is out of proportion."""

    lean: float
    """CPU that tasks with GPUs ask for per GPU."""
    full: float
    """CPU that all tasks ask for per GPU."""
    mix: float
    """How much of the fleet's spare CPU the tasks without GPUs would take: 0 none of it, 1 all."""
    varies: float
    """How much CPU per GPU differs among tasks, as a share of its mean."""

    @property
    def matters(self) -> bool:
        """Whether anybody asks for CPU beside GPUs."""
        return self.lean > 0

    def strain(self, cpu: Ints, idle: Floats, spread: float) -> Floats:
        """GPUs, or their worth in CPU, that nobody could use for want of the other.

        With no spread it is the plain distance |GPUs that the CPU would serve - GPUs|. Tasks differ in the CPU they
        ask for, the more so the more of them there is room for: spread rounds the corner by that much.
        """
        corner = (spread * self.varies) ** 2 * np.abs(idle)
        if not self.mix:
            return _distance(idle - cpu / self.lean, corner)
        full = _distance(idle - cpu / self.full, corner)
        if self.mix == 1.0:
            return full
        lean = _distance(idle - cpu / self.lean, corner)
        lean *= 1.0 - self.mix
        full *= self.mix
        lean += full
        return lean


def _distance(lack: Floats, corner: Floats) -> Floats:
    """How far from none is lacking, with the corner rounded; in place, for it is asked of every candidate."""
    lack *= lack
    lack += corner
    return np.sqrt(lack, out=lack)


def proportion(classes: Sequence[DemandClass], cpu: Ints, gpus: Ints) -> Proportion:
    """What the demand asks of CPU beside each GPU, on nodes with this much of both."""
    asked = fsum(c.asked for c in classes)
    with_gpus = [c for c in classes if c.asked]
    beside = fsum(c.tasks * c.cpu for c in with_gpus)
    without = fsum(c.tasks * c.cpu for c in classes if not c.asked)
    if not asked or not beside:
        alone = without / asked if asked else 0.0
        return Proportion(alone, alone, mix=0.0, varies=0.0)
    lean = beside / asked
    variance = fsum(c.tasks * c.cpu**2 / (c.asked / c.tasks) for c in with_gpus) / asked - lean**2
    known = cpu < UNLIMITED
    spare = fsum(np.maximum(cpu[known] - lean * gpus[known], 0.0).tolist())
    taken = without / asked * float(gpus.sum())
    mix = min(1.0, (taken / spare) ** KEENNESS) if spare else float(taken > 0)
    return Proportion(lean, (beside + without) / asked, mix, max(variance, 0.0) ** 0.5 / lean)


KEENNESS = 3
"""Spare CPU counts as needed only when tasks without GPUs would take most of it."""


COARSE = 32
"""Popularity is rounded to this many parts, so that one job more or less does not make every score stale."""


Kind = tuple[object, ...]
"""What makes tasks one class of demand seen: their GPUs and the models they accept."""


class Outline(NamedTuple):
    """The demand seen, coarse: per kind an example, its weight in parts of COARSE, its tasks and their mean CPU."""

    kind: Kind
    request: TaskRequest
    weight: int
    cpu: int


class _Tally:
    """Tasks of one kind that run or wait, and the CPU they ask for together."""

    __slots__ = ("cpu", "kind", "request", "tasks")

    def __init__(self, kind: Kind, request: TaskRequest) -> None:
        self.kind = kind
        self.request = request
        self.tasks = self.cpu = 0

    def outline(self, weight: int) -> Outline:
        cores = round(self.cpu / self.tasks / 1000)
        return Outline(self.kind, self.request, weight, cores * 1000)


class Seen:
    """The demand seen: tasks with GPUs that run or wait, counted as jobs come and go."""

    def __init__(self) -> None:
        self._kinds: dict[Kind, _Tally] = {}
        self._of: dict[int, _Tally] = {}
        self.changed = True
        """Whether anything was counted since the last outline."""

    def count(self, request: TaskRequest, tasks: int) -> None:
        """So many tasks more (or fewer) are asked for."""
        if tasks and (request.gpus or request.shared):
            tally = self._of.get(request.id) or self._tally(request)
            tally.tasks += tasks
            tally.cpu += tasks * request.resources.cpu
            self.changed = True

    def _tally(self, request: TaskRequest) -> _Tally:
        share, memory = request.resources.share, request.resources.gpu_memory
        kind = (request.gpus, share, memory, request.models, request.min_gpu_memory, request.architectures,
                request.node_selector, request.terms)  # fmt: skip
        tally = self._of[request.id] = self._kinds.setdefault(kind, _Tally(kind, request))
        return tally

    def counts(self) -> dict[Kind, tuple[int, int]]:
        """Tasks and their CPU together, per kind that anybody asks for."""
        return {kind: (tally.tasks, tally.cpu) for kind, tally in self._kinds.items() if tally.tasks}

    def outline(self, nodes: Eligibility) -> tuple[Outline, ...]:
        """The demand as kinds weighted by the GPUs they ask for; rare kinds fall out."""
        self.changed = False
        weights = [
            (tally, gpus_of(nodes, tally.request) * tally.tasks) for tally in self._kinds.values() if tally.tasks
        ]
        total = sum(weight for _, weight in weights)
        parts = [(tally, round(COARSE * weight / total)) for tally, weight in weights]
        return tuple(tally.outline(part) for tally, part in parts if part > 0)


def gpus_of(nodes: Eligibility, request: TaskRequest) -> int:
    """What one task asks for, in grains; at least, where cards differ."""
    return request.gpus * WHOLE or _least_part(nodes, request)


def _least_part(nodes: Eligibility, request: TaskRequest) -> int:
    """Of a device, on the card of which it takes least; a whole one while there are no nodes."""
    return int(nodes.need(request).min(initial=WHOLE))


def as_class(nodes: Eligibility, seen: Outline) -> DemandClass:
    """A kind seen, as a class of demand."""
    return _class(
        nodes, seen.request, seen.cpu, seen.weight, seen.weight / max(gpus_of(nodes, seen.request) / WHOLE, 1e-9)
    )


def _class(nodes: Eligibility, request: TaskRequest, cpu: int, weight: float, tasks: float) -> DemandClass:
    share = _least_part(nodes, request) if request.shared else 0
    return DemandClass(request.gpus, share, cpu, nodes.static(request, (has_model, has_labels)), weight, tasks)


def demand_known(
    nodes: Eligibility, kinds: Sequence[tuple[TaskRequest, float]], view: DemandView
) -> tuple[DemandClass, ...]:
    """The demand somebody knows beforehand, as numbers of tasks per kind: the commonest kinds, CPU-only ones too."""
    total, seen, classes = fsum(count for _, count in kinds), 0.0, []
    for request, count in sorted(kinds, key=lambda kind: -kind[1]):
        if seen >= view.cover * total:
            break
        seen += count
        by_gpus = view.weigh is Weigh.GPUS and not request.resources.cpu_only
        weight = count * gpus_of(nodes, request) / WHOLE if by_gpus else count
        classes.append(_class(nodes, request, request.resources.cpu, weight, count))
    return tuple(classes)
