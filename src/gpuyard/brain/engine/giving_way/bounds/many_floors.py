"""The floors of `floors.least_key` for hundreds of nodes at once: the same numbers, worked out in columns.

A claim in a large fleet looks at as many nodes as its search allows before it weighs a single one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import fsum
from typing import NamedTuple

import numpy as np

from gpuyard.brain.engine.giving_way.bounds import floors
from gpuyard.brain.engine.giving_way.bounds.floors import A_HAIR_LESS, HALF_A_PART
from gpuyard.brain.engine.giving_way.clearing import Key
from gpuyard.brain.engine.nodes.columns import Bools, Floats, Ints
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.job_rows import NO_QUEUE, Footing, JobRow
from gpuyard.brain.engine.picture.known.holders import (
    COST,
    DEVICE,
    FOOTING,
    PARTS,
    RIGID,
    UNSAVED_SINCE,
    WARM_UP,
    NodeHolders,
    side_by_side,
)
from gpuyard.brain.engine.sharing.amounts import GPUS

FEW = 24
"""Up to so many nodes are cheaper one by one."""


def least_keys(
    draft: Draft, claimant: JobRow, footings: frozenset[Footing] | None, nodes: Sequence[int], shorts: Sequence[int]
) -> list[Key | None]:
    """What `floors.least_key` says of each of the nodes, of those there who stand on these footings (None: on any)."""
    if len(nodes) <= FEW:
        tenants = draft.fleet.tenants
        concerned = [[row for row in tenants[n] if footings is None or row.footing in footings] for n in nodes]
        asked = zip(concerned, nodes, shorts, strict=True)
        return [floors.least_key(draft, claimant, rows, n, short) for rows, n, short in asked]
    found: list[Key | None] = [() if short <= 0 else None for short in shorts]
    lacking = np.flatnonzero(np.array(shorts) > 0)
    crowd = _crowd(draft, footings, np.array(nodes)[lacking]) if len(lacking) else None
    if crowd is not None:
        short = np.array(shorts)[lacking][crowd.nodes]
        wanted = short * DEVICE
        enough = np.add.reduceat(crowd.parts, crowd.starts) >= wanted
        keys = _keys(draft, claimant, crowd, wanted)
        for i, is_enough, key in zip(lacking[crowd.nodes].tolist(), enough.tolist(), keys, strict=True):
            found[i] = key if is_enough else None
    return found


class _Crowd(NamedTuple):
    """Those who could go, node after node, the younger of each first."""

    nodes: Ints
    """Where somebody could, as an index of the nodes asked for."""
    starts: Ints
    """Where the first of each node stands below."""
    at: Ints
    """On which of these nodes each stands."""
    youngest: list[JobRow]
    """Of each of these nodes."""
    parts: Ints
    costs: Floats
    queues: Ints
    priorities: Ints
    lost: Floats
    """For each of its GPUs, in seconds."""
    rigid: Bools


def _crowd(draft: Draft, footings: frozenset[Footing] | None, nodes: Ints) -> _Crowd | None:
    """Those on the nodes who stand on these footings; None where there is nobody."""
    there = draft.fleet.holders.of(nodes)
    known = draft.fleet.holders.footings
    numbers = side_by_side(there)
    allowed = np.array([footings is None or each in footings for each in known], dtype=bool)
    chosen = np.flatnonzero(allowed[numbers[FOOTING].astype(np.int64)])
    if not len(chosen):
        return None
    numbers = numbers[:, chosen]
    footing = numbers[FOOTING].astype(np.int64)
    counts = np.array([len(each.rows) for each in there])
    of_node = np.repeat(np.arange(len(nodes)), counts)[chosen]
    starts = np.flatnonzero(np.diff(of_node, prepend=-1))
    # which of its node's each is
    among = chosen - (np.cumsum(counts) - counts)[of_node]
    return _Crowd(
        nodes=of_node[starts],
        starts=starts,
        at=np.repeat(np.arange(len(starts)), np.diff(starts, append=len(chosen))),
        youngest=_rows(there, of_node[starts], among[starts]),
        parts=numbers[PARTS].astype(np.int64),
        costs=numbers[COST],
        queues=np.array([each.queue for each in known])[footing],
        priorities=np.array([each.priority for each in known])[footing],
        lost=_lost(draft, numbers, lambda: _rows(there, of_node, among)),
        rigid=numbers[RIGID] > 0,
    )


def _rows(there: list[NodeHolders], nodes: Ints, among: Ints) -> list[JobRow]:
    """Each by its node and which of its holders it is."""
    return [there[node].rows[i] for node, i in zip(nodes.tolist(), among.tolist(), strict=True)]


def _lost(draft: Draft, numbers: Floats, rows: Callable[[], list[JobRow]]) -> Floats:
    """What `floors.lost` says of each; where jobs have told of themselves they are asked one by one."""
    if draft.saved or draft.warm_ups:
        return np.array([floors.lost(draft, row) for row in rows()])
    lost: Floats = np.maximum(0.0, draft.now - numbers[UNSAVED_SINCE]) + numbers[WARM_UP]
    return lost


def _keys(draft: Draft, claimant: JobRow, crowd: _Crowd, wanted: Ints) -> list[Key]:
    """The floor of each node where somebody could go, or () where they must be weighed."""
    starts = crowd.starts
    least = np.minimum.reduceat(crowd.costs / crowd.parts, starts)
    weigh = (least == 0) | ~np.logical_and.reduceat(crowd.rigid, starts)
    own = np.logical_and.reduceat(crowd.queues == claimant.queue, starts)
    gangs = -(-wanted // np.maximum.reduceat(crowd.parts, starts))
    below_quota, below_share = (
        (~own & (wanted - _given(draft, claimant, crowd, least, allowances) > HALF_A_PART)).tolist()
        for allowances in (draft.fleet.tree.quota, draft.shares)
    )
    found = zip(
        weigh.tolist(), own.tolist(), below_quota, below_share, np.minimum.reduceat(crowd.priorities, starts).tolist(),
        _least_lost(crowd, wanted), gangs.tolist(), crowd.youngest, strict=True,
    )  # fmt: skip
    return [
        () if must else (is_own, True, quota, share, priority, 0, lost, count, count, youngest.youth)
        for must, is_own, quota, share, priority, lost, count, youngest in found
    ]


def _given(
    draft: Draft, claimant: JobRow, crowd: _Crowd, least: Floats, allowances: Sequence[Sequence[float]]
) -> Floats:
    """How many parts of devices each node could give before any queue but the claimant's falls below what it is
    allowed."""
    used = draft.fleet.tree.used
    queues = np.flatnonzero(np.bincount(crowd.queues - NO_QUEUE)) + NO_QUEUE
    cells = crowd.at * len(queues) + np.searchsorted(queues, crowd.queues)
    there = np.bincount(cells, weights=crowd.parts, minlength=len(least) * len(queues)).reshape(len(least), -1)
    above = np.array([max(0, used[q][GPUS] - allowances[q][GPUS]) for q in queues.tolist()], dtype=np.float64)
    spare = above / np.where(least > 0, least, 1.0)[:, np.newaxis]
    given: Floats = np.where(queues == claimant.queue, there, np.minimum(there, spare)).sum(axis=1)
    return given


def _least_lost(crowd: _Crowd, wanted: Ints) -> list[float]:
    """What `floors` says is lost at least if so many parts of each node fall free."""
    losses = crowd.lost * crowd.costs
    order = np.lexsort((losses, losses / crowd.parts, crowd.at))  # nodes keep their places
    parts = crowd.parts[order]
    fewest, most = np.minimum.reduceat(parts, crowd.starts), np.maximum.reduceat(parts, crowd.starts)
    hairs = np.where((fewest == most) & (wanted % most == 0), 1, A_HAIR_LESS).tolist()
    before = np.cumsum(parts) - parts
    before -= before[crowd.starts][crowd.at]
    left = wanted[crowd.at] - before
    share = np.where(parts <= left, 1.0, left / parts)
    terms = (losses[order] * share)[left > 0].tolist()
    ends = np.cumsum(np.bincount(crowd.at[left > 0], minlength=len(wanted)))
    spans = pairwise([0, *ends.tolist()])
    return [fsum(terms[start:end]) * hair for (start, end), hair in zip(spans, hairs, strict=True)]
