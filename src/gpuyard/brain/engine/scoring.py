"""How good a node is for the next task: terms in 0..1, weighted by the policy.

Called by `feasibility.Shape` for nodes that changed. Looks at nodes only: what a job's other tasks do is `locality`'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpuyard.brain.engine.columns import Columns, Ints
from gpuyard.brain.engine.fragmentation import Floats
from gpuyard.model.resources import WHOLE

if TYPE_CHECKING:
    from gpuyard.brain.engine.feasibility import Shape


def pack(shape: Shape, nodes: Ints) -> Floats:
    """The packing score of each of `nodes` for one more task of the shape."""
    weights, columns = shape.weights, shape.columns
    score = weights.tightness * tightness(shape, nodes)
    if weights.fragmentation and not shape.ask.request.mig:
        score += weights.fragmentation * kept_usable(shape, nodes)
    if shape.ask.gpus > 1:
        score += weights.island * one_island(shape, nodes)
    if shape.ask.gpus and columns.several_islands:
        score += weights.snug * snugness(shape, nodes)
    if shape.ask.request.shared:
        score += weights.sharing * joins(shape, nodes)
    if not shape.careful and columns.any_suspect:
        score += weights.health * trust(shape, nodes)
    if shape.dislike.any():
        score -= weights.taste * shape.dislike[nodes]
    return score


def tightness(shape: Shape, nodes: Ints) -> Floats:
    """1 where the task fills the node, less the more stays free: full nodes first, whole ones last."""
    columns = shape.columns
    width = max(columns.width, 1)
    left = columns.idle[nodes] / WHOLE - _asked(shape)
    score: Floats = 1.0 - left / width
    if shape.ask.request.cpu_only:
        score = 0.5 * score + 0.5 * _cpu_tightness(columns, shape, nodes)
    return score


def _asked(shape: Shape) -> float:
    request = shape.ask.request
    return request.gpus or (request.share / WHOLE)


def _cpu_tightness(columns: Columns, shape: Shape, nodes: Ints) -> Floats:
    free = columns.cpu[nodes] - shape.ask.request.cpu
    score: Floats = 1.0 - np.clip(free / max(columns.cpu_width, 1), 0.0, 1.0)
    return score


def kept_usable(shape: Shape, nodes: Ints) -> Floats:
    """0.5 where the task strands nothing, less the more it does, more where it uses up what was stranded."""
    columns, gauge = shape.columns, shape.gauge
    if not gauge.demand.count:
        return np.zeros(len(nodes))
    if shape.ask.request.shared or gauge.demand.fractional or columns.partial[nodes].any():
        shares = columns.shares[nodes]
        before = gauge.stranded(nodes, columns.whole[nodes], columns.cpu[nodes], shares)
        after = gauge.stranded(
            nodes, columns.whole[nodes], _cpu_after(shape, nodes), shares_after(shape, nodes, shares)
        )
    else:
        whole = columns.whole[nodes]
        before = gauge.stranded(nodes, whole, columns.cpu[nodes], None)
        after = gauge.stranded(nodes, whole - shape.ask.gpus, _cpu_after(shape, nodes), None)
    score: Floats = 0.5 + (before - after) / (2 * max(columns.width, 1))
    return score


def _cpu_after(shape: Shape, nodes: Ints) -> Ints:
    return shape.columns.cpu[nodes] - shape.ask.request.cpu


def shares_after(shape: Shape, nodes: Ints, shares: Ints) -> Ints:
    """Free parts per device once one more task stands there: whole tasks on free devices, shares on the tightest."""
    after = shares.copy()
    if shape.ask.request.shared:
        need = shape.need[nodes]
        fitting = np.where(shares >= need[:, None], shares, 2 * WHOLE)
        device = fitting.argmin(axis=1)
        after[np.arange(len(nodes)), device] -= need
        return after
    free = shares == WHOLE
    taken = free & (np.cumsum(free, axis=1) <= shape.ask.gpus)
    after[taken] = 0
    return after


def one_island(shape: Shape, nodes: Ints) -> Floats:
    """1 where the task's GPUs lie in one NVLink island, else the share of them that does."""
    columns = shape.columns
    best = columns.island_healthy if shape.careful else columns.island
    score: Floats = np.minimum(best[nodes] / shape.ask.gpus, 1.0)
    return score


def snugness(shape: Shape, nodes: Ints) -> Floats:
    """1 where the task fills its NVLink island, less the more stays free in it: large islands stay whole."""
    columns, gpus = shape.columns, shape.ask.gpus
    left = columns.tightest[nodes, min(gpus, columns.width)] - gpus
    score: Floats = 1.0 - left / max(columns.width, 1)
    return score


def joins(shape: Shape, nodes: Ints) -> Floats:
    """1 where the task joins a device already shared, 0 where it must open a new one."""
    shares = shape.columns.shares[nodes]
    joined: Floats = ((shares < WHOLE) & (shares >= shape.need[nodes, None])).any(axis=1).astype(float)
    return joined


def trust(shape: Shape, nodes: Ints) -> Floats:
    """1 where no suspect GPU must be used."""
    columns, gpus = shape.columns, max(shape.ask.gpus, 1)
    if shape.ask.request.cpu_only:
        return np.ones(len(nodes))
    score: Floats = np.minimum(columns.healthy[nodes] / gpus, 1.0)
    return score
