"""What the nodes say about one group of a job: who could run its tasks, who has room, what is in the way where.

Made by `explain` for a job that waits; `rungs` folds it into reasons. Looks at the fleet as it is and changes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gpuyard.brain.engine.nodes import feasibility, requests
from gpuyard.brain.engine.nodes.columns import Bools, Columns, Ints, closed, sick
from gpuyard.brain.engine.nodes.requests import Checker
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.brain.engine.placing import neighbours
from gpuyard.model.reasons import Code
from gpuyard.model.resources import WHOLE, gpu_words

SUITABLE: tuple[Checker, ...] = tuple(check for check in requests.STATIC_CHECKERS if check is not requests.has_cpu)
"""What makes a node suitable, its CPU and memory aside."""


class View(NamedTuple):
    """What the nodes say about one group of a job."""

    leaf: int
    shape: Bools
    """Has the GPUs for one task when empty."""
    model: Bools
    labels: Bools
    machinery: Bools
    cpu: Bools
    """Has the CPU and memory now."""
    policy: dict[Code, Bools]
    """Closed by neighbours or caps."""
    single: bool
    """Whether a node takes at most one task of the job."""
    free: Ints
    """GPUs free, in grains."""
    best: int
    """The most free GPU on one node; on one device, for a task that takes part of one."""
    with_sick: Ints
    """GPUs free if the sick ones were well."""
    with_closed: Ints
    """GPUs free if those were open that are closed by themselves."""
    gpu_room: Ints
    """Tasks that fit by their GPUs alone."""
    room: Ints
    """Tasks that fit."""

    suitable: Bools
    """Nodes that are open, of the right model, labels and shape, and when empty have the CPU and memory."""


def look(draft: Draft, row: JobRow, leaf: int) -> View:
    """Ask every node about one group."""
    fleet, ask = draft.fleet, row.asks[leaf]
    columns, shapes = fleet.columns, fleet.shapes
    everyone = np.arange(len(columns.nodes))
    suitable = shapes.static(ask, SUITABLE)
    gpu_room = np.where(suitable, feasibility.gpu_room(columns, ask, shapes.need(ask), everyone, False), 0)
    model = shapes.static(ask, (requests.has_model,))
    if row.live[leaf] and not ask.request.cpu_only:
        home = next(held.node for held in row.held if held.leaf == leaf and not held.terminating)
        model = model & (columns.model == columns.model[home])  # members that run fix the model
        suitable, gpu_room = suitable & model, np.where(model, gpu_room, 0)
    limits = neighbours.limits(draft, row, leaf)
    room = np.where(suitable, feasibility.room_on(columns, ask, shapes.need(ask), everyone, False), 0)
    if limits is not None:
        room = limits.cut(room, columns.everywhere)
    return View(
        leaf,
        shape=shapes.static(ask, (requests.has_shape,)),
        model=model,
        labels=shapes.static(ask, (requests.has_labels, requests.bears_taints)),
        machinery=shapes.static(ask, (requests.is_open,)),
        cpu=(columns.cpu >= ask.request.cpu) & (columns.memory >= ask.request.memory),
        policy=limits.closed if limits is not None else {},
        single=limits is not None and limits.single,
        free=columns.idle,
        best=_most_in_one_place(columns, ask, suitable),
        with_sick=columns.idle_with(sick),
        with_closed=columns.idle_with(closed),
        gpu_room=gpu_room,
        room=room,
        suitable=shapes.static(ask, requests.STATIC_CHECKERS) & model,
    )


def _most_in_one_place(columns: Columns, ask: requests.Ask, suitable: Bools) -> int:
    if ask.request.shared:
        return int(columns.shares[suitable].max(initial=0))
    return int(columns.whole[suitable].max(initial=0)) * WHOLE


def fits_alone(row: JobRow, view: View) -> bool:
    """Whether the group alone finds room for what it lacks, levels and other groups aside."""
    return int(np.minimum(view.room, row.missing(view.leaf)).sum()) >= row.missing(view.leaf)


def task_cost(row: JobRow, view: View) -> int:
    """What one task asks for, in grains; 0 where that depends on the device."""
    request = row.asks[view.leaf].request
    return request.gpus * WHOLE or request.share or 0


def task_words(row: JobRow, leaf: int) -> str:
    """What one task asks for, in words."""
    request = row.asks[leaf].request
    if request.mig:
        gpus = " + ".join(f"{count} × {profile}" for profile, count in request.mig)
    elif request.gpu_memory:
        gpus = f"{request.gpu_memory / 2**30:g}Gi of GPU memory"
    else:
        gpus = gpu_words(request.gpus * WHOLE or request.share)
    return gpus
