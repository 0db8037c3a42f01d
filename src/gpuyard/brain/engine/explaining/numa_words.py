"""The rung of kubelets that insist on NUMA nodes: GPUs are free, and not where they would be given together.

Asked by `rungs`. Fleets without such kubelets have no such rung.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gpuyard.brain.engine.explaining.views import Failed, NodesView, task_words
from gpuyard.brain.engine.nodes import requests
from gpuyard.brain.engine.nodes.columns import Columns
from gpuyard.brain.engine.nodes.layout import alignment
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.brain.engine.sharing.amounts import GPUS
from gpuyard.model.outside.phrases import counted
from gpuyard.model.reasons import Code, Reason
from gpuyard.model.resources import WHOLE


def unaligned(draft: Draft, row: JobRow, view: NodesView) -> Failed:
    """Told where it is this that leaves tasks without a place, with the node that comes nearest."""
    columns, request, missing = draft.fleet.columns, row.requests[view.leaf], row.missing(view.leaf)
    fit = int(np.minimum(view.gpu_room, missing)[view.suitable].sum())
    if not (columns.aligned and request.aligns) or fit >= missing:
        return []
    too_small = ~view.alignable & view.shape & view.model & view.labels
    held_up = np.flatnonzero(too_small | (view.suitable & (view.loose_room > view.gpu_room)))
    if not len(held_up):
        return []
    never = not view.suitable.any()
    lying = {n: _most(columns, n, request.gpus, never) for n in held_up.tolist() if n in columns.aligned}
    best = min(lying, key=lambda n: (-lying[n], n))
    size = alignment.fewest(columns.aligned[best], request.gpus)
    where = "one NUMA node" if size < 2 or columns.aligned[best].single else counted(size, "NUMA node")
    node = columns.nodes[best]
    there = len(node.gpus) if never else int(columns.whole[best])
    nearest = f"{node.name} has {there}{'' if never else ' free'}, {lying[best]} of them there"
    policy = f"the kubelet's policy is {node.alignment.value}"
    if missing == 1:
        asked = f"{row.name} needs {task_words(row, view.leaf)} in {where} ({policy})"
        told = f"no node has {request.gpus} {'GPUs' if never else 'free GPUs'} in {where}"
    else:
        asked = (
            f"{row.name} needs {counted(missing, 'task')} of {task_words(row, view.leaf)}, each in {where} ({policy})"
        )
        told = f"{fit} of them {'fits' if fit == 1 else 'fit'} so"
    needed, free = draft.fleet.shortfall(row)[GPUS], int(view.free[view.suitable].sum())
    largest = fit * request.gpus * WHOLE or lying[best] * WHOLE
    message = f"{asked}; {told}: {nearest}"
    reason = Reason(Code.NUMA_UNMET, needed=needed, free=free, largest_fit=largest, where=node.name, message=message)
    return [(reason, draft.fleet.probe(row, replace(row.job, placements=()), frozenset((requests.can_align,))))]


def _most(columns: Columns, n: int, count: int, when_empty: bool) -> int:
    """The most devices that lie where a task of so many would have to lie."""
    aligned = columns.aligned[n]
    return alignment.most_together(aligned, sum(aligned.masks) if when_empty else columns.free_mask[n], count)
