"""How many places sizes near the one asked for have: for those whose size does not divide a node.

Asked by previews, never a reason to refuse. Three GPUs of every node that runs a job of five are of use only to small
jobs; whoever asks for five should know what four and eight would find.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.model.answers.sizing import Places, Sizing
from gpuyard.model.job import Bundle, TaskGroup


def advise(draft: Draft, row: JobRow) -> Sizing | None:
    """The places of the size asked for and of its neighbours, the job itself aside; None if its size divides a node."""
    group = row.group
    gpus, width = group.request.gpus, _width(draft, row)
    if not row.single or not gpus or gpus >= width or not width % gpus:
        return None
    with draft.trial():
        draft.tx.lift_all(row, list(row.held))
        return Sizing(width, tuple(_places(draft, row, size) for size in _sizes(gpus, width)))


def _width(draft: Draft, row: JobRow) -> int:
    """GPUs of the largest node that could run it."""
    examples = draft.fleet.shapes.examples(row.request)
    return max((len(node.gpus) for node in examples), default=0)


def _sizes(gpus: int, width: int) -> Iterator[int]:
    """The largest smaller size that divides a node, the size itself, the smallest larger one that does."""
    yield max(size for size in range(1, gpus) if not width % size)
    yield gpus
    yield min(size for size in range(gpus + 1, width + 1) if not width % size)


def _places(draft: Draft, row: JobRow, gpus: int) -> Places:
    """How many such tasks fit now, and how many would if nothing ran."""
    group = replace(row.group, request=replace(row.group.request, gpus=gpus))
    probe = draft.fleet.probe(row, replace(row.job, gang=_resized(row.job.gang, group), placements=()))
    shapes, request = draft.fleet.shapes, probe.request
    found = [shapes.get(request, tier) for tier in shapes.tiers(request, True)]
    return Places(gpus, sum(int(s.room.sum()) for s in found), sum(int(np.sum(s.empty_room)) for s in found))


def _resized(bundle: Bundle, group: TaskGroup) -> Bundle:
    inner = bundle.groups[0]
    return replace(bundle, groups=(_resized(inner, group) if isinstance(inner, Bundle) else group,))
