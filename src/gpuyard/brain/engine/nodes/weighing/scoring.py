"""How good a node is for the next task: terms in 0..1, weighted by the policy.

Called by `feasibility.Shape` for nodes that changed. Looks at nodes only: what a job's other tasks do is `placing`'s.
"""

from __future__ import annotations

import numpy as np

from gpuyard.brain.engine.nodes.columns import Bools, Columns, Ints
from gpuyard.brain.engine.nodes.demand import GRAINS_PER_STEP, Floats, Proportion
from gpuyard.brain.engine.nodes.requests import TaskRequest
from gpuyard.brain.engine.nodes.stranding import Candidates, Gauge, look_at
from gpuyard.model.policy import Curve, DeviceChoice, Scoring, Weights
from gpuyard.model.resources import UNLIMITED, WHOLE


class Subject:
    """One kind of task on one tier of models, as far as its score depends on it; filled in by `feasibility.Shape`."""

    __slots__ = (
        "careful", "columns", "device", "dislike", "eligible", "gauge", "has_choice", "is_choosy", "need", "request",
        "scoring", "spares", "weights",
    )  # fmt: skip

    request: TaskRequest
    columns: Columns
    gauge: Gauge
    weights: Weights
    scoring: Scoring
    careful: bool
    """Whether suspect GPUs are left out (rule 13)."""
    eligible: Bools
    need: Ints
    """The share of a device that the task takes on each node."""
    dislike: Bools | Floats
    """How little each node is to its taste."""
    is_choosy: bool
    """Whether any node is more or less to its taste at all."""
    has_choice: bool
    """Whether it may go on any model, so that it can leave scarce ones to others."""
    spares: Floats | None
    """What it is worth, weighted, that each node's model is one that others can do without."""
    device: Ints
    """Where on each node a part of a device strands least, if the policy's scoring asks for that."""


def pack(shape: Subject, nodes: Ints) -> Floats:
    """The packing score of each of `nodes` for one more task of the shape."""
    weights, columns, resources = shape.weights, shape.columns, shape.request.resources
    seen = look_at(columns, nodes, resources.cpu, _asked(shape, nodes))
    score = weights.tightness * tightness(shape, seen) if weights.tightness else np.zeros(len(nodes))
    if resources.shared:
        score += best_part(shape, seen)
    elif weights.fragmentation and not resources.mig and shape.gauge.demand.count:
        score += weights.fragmentation * kept_usable(shape, seen)
    if weights.island and shape.request.gpus > 1:
        score += weights.island * one_island(shape, nodes)
    if weights.snug and shape.request.gpus and columns.several_islands:
        score += weights.snug * snugness(shape, nodes)
    if not shape.careful and columns.any_suspect:
        score += weights.health * trust(shape, nodes)
    if shape.is_choosy:
        score -= weights.taste * shape.dislike[nodes]
    if weights.cpu_tightness:
        score += weights.cpu_tightness * cpu_tightness(shape, seen)
    if weights.balance and shape.gauge.proportion.matters:
        score += weights.balance * balance(shape, seen)
    if shape.has_choice and shape.spares is not None:
        score += shape.spares[nodes]
    return rounded(score, shape.scoring)


def rounded(score: Floats, scoring: Scoring) -> Floats:
    """The score in coarse steps, if the policy wants near equals to tie."""
    return np.floor(score * scoring.steps) / scoring.steps if scoring.steps else score


def tightness(shape: Subject, seen: Candidates) -> Floats:
    """1 where the task fills the node, less the more stays free: full nodes first, whole ones last."""
    score: Floats = 1.0 - seen.gpus[1] / shape.columns.breadth
    if shape.request.resources.cpu_only and not shape.weights.cpu_tightness:
        score = 0.5 * score + 0.5 * cpu_tightness(shape, seen)
    return score


def _asked(shape: Subject, nodes: Ints | slice) -> Floats | float:
    """GPUs that the task takes from those idle on each node; memory is another part of a larger card (rule 5)."""
    resources = shape.request.resources
    return shape.need[nodes] / WHOLE if resources.gpu_memory else resources.gpus or resources.share / WHOLE


def cpu_tightness(shape: Subject, seen: Candidates) -> Floats:
    """1 where the task uses up the node's CPU, less the more stays free."""
    score: Floats = 1.0 - np.minimum(np.maximum(seen.cpu[1] / shape.columns.cpu_width, 0.0), 1.0)
    return score


def kept_usable(shape: Subject, seen: Candidates) -> Floats:
    """0.5 where the task strands nothing, less the more it does, more where it uses up what was stranded."""
    return _curved(shape, shape.gauge.saved_by_whole(seen, shape.request.gpus))


def best_part(shape: Subject, seen: Candidates) -> Floats:
    """For a task that takes a part of a device: how usable the rest stays, what it is worth, and whether the device is
    shared already, weighted, on the device of each node that the policy would take; if the best, the shape notes it."""
    weights, nodes, need = shape.weights, seen.nodes, shape.need[seen.nodes]
    shares = shape.columns.shares_of(nodes)
    rest = shares - need
    small = rest < 0  # devices that do not hold it, whose gains mean nothing
    gains = np.where(shares < WHOLE, weights.sharing, 0.0)  # it joins one already shared
    if weights.fragmentation and shape.gauge.demand.count:
        saved = shape.gauge.saved_by_share(seen, shares, rest, need)
        gains += weights.fragmentation * np.maximum(_curved(shape, saved), 0.0)
    if weights.remainders and shape.gauge.demand.count:
        gains += weights.remainders * remainder_gains(shape, shares, rest)
    if shape.scoring.device is DeviceChoice.BEST:
        gains[small] = -1.0
        shape.device[nodes] = rounded(gains, shape.scoring).argmax(axis=0)
        return np.asarray(np.maximum.reduce(gains, axis=0, initial=0.0))
    return np.asarray(gains[tightest_device(shares, small), np.arange(len(nodes))])


def remainder_gains(shape: Subject, shares: Ints, rest: Ints) -> Floats:
    """0.5 where the rest of a device loses no worth to the demand, less the more it does."""
    worth = shape.gauge.demand.remainders
    lost = worth.take(shares // GRAINS_PER_STEP) - worth.take(np.maximum(rest, 0) // GRAINS_PER_STEP)
    found: Floats = 0.5 - lost / (2 * shape.columns.breadth)
    return found


def _curved(shape: Subject, gain: Floats) -> Floats:
    """GPUs saved from being stranded, as a score around 0.5."""
    if shape.scoring.curve is Curve.SIGMOID:
        curved: Floats = 1.0 / (1.0 + np.exp(-gain))
        return curved
    return 0.5 + gain / (2 * shape.columns.breadth)


def tightest_device(shares: Ints, small: Bools) -> Ints:
    """The fullest device of each node that holds the task's share."""
    fitting = np.where(small, 2 * WHOLE, shares)
    return np.asarray(fitting.argmin(axis=0))


def balance(shape: Subject, seen: Candidates) -> Floats:
    """0.5 where the task leaves free CPU and free GPUs as well or badly in proportion as they were; more is better."""
    columns = shape.columns
    before, after = proportion_of(shape.gauge, shape.scoring).strain(seen.cpu, seen.gpus, shape.scoring.spread)
    worse = after - before
    if not columns.every_cpu_known:
        worse = np.where(seen.cpu[0] < UNLIMITED // 2, worse, 0.0)
    score: Floats = 0.5 - worse / (2 * columns.breadth)
    return score


def proportion_of(gauge: Gauge, scoring: Scoring) -> Proportion:
    """How much CPU belongs to a GPU: as the demand has it, unless the policy says."""
    if not scoring.cores_per_gpu:
        return gauge.proportion
    fixed = 1000 * scoring.cores_per_gpu
    return gauge.proportion._replace(lean=fixed, full=fixed)


def spares_scarce(shape: Subject) -> Floats | None:
    """0.5 on models that everybody can do without, less the more others depend on the node's model, weighted; None
    where nothing is scarce. It follows from the demand and not from what is free, so it is told once for all nodes."""
    weight, gauge = shape.weights.scarcity, shape.gauge
    if not weight or not gauge.any_scarce:
        return None
    taken = gauge.scarcity * _asked(shape, slice(None))
    score: Floats = weight * (0.5 - taken / (2 * shape.columns.breadth))
    return score


def one_island(shape: Subject, nodes: Ints) -> Floats:
    """1 where the task's GPUs lie in one NVLink island, else the share of them that does."""
    columns = shape.columns
    best = columns.island_healthy if shape.careful else columns.island
    score: Floats = np.minimum(best[nodes] / shape.request.gpus, 1.0)
    return score


def snugness(shape: Subject, nodes: Ints) -> Floats:
    """1 where the task fills its NVLink island, less the more stays free in it: large islands stay whole."""
    columns, gpus = shape.columns, shape.request.gpus
    left = columns.tightest[nodes, min(gpus, columns.width)] - gpus
    score: Floats = 1.0 - left / columns.breadth
    return score


def trust(shape: Subject, nodes: Ints) -> Floats:
    """1 where no suspect GPU must be used."""
    columns, gpus = shape.columns, max(shape.request.gpus, 1)
    if shape.request.resources.cpu_only:
        return np.ones(len(nodes))
    score: Floats = np.minimum(columns.healthy[nodes] / gpus, 1.0)
    return score
