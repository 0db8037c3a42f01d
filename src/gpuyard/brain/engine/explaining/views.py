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
from gpuyard.model.reasons import Code, Reason
from gpuyard.model.resources import WHOLE, gpu_words

SUITABLE: tuple[Checker, ...] = tuple(check for check in requests.STATIC_CHECKERS if check is not requests.has_cpu)
"""What makes a node suitable, its CPU and memory aside."""


Failed = list[tuple[Reason, JobRow | None]]
"""Reasons in ladder order, each with a stand-in for the job that leaves this rung out (None: no such stand-in)."""


class NodesView(NamedTuple):
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
    loose_room: Ints
    """Tasks that would, were there no kubelets that insist on NUMA nodes."""
    alignable: Bools
    """Where such a kubelet could give one task its GPUs, the node being empty."""
    room: Ints
    """Tasks that fit."""
    uncut: Ints
    """Tasks that would fit if neighbours and caps had no say."""

    suitable: Bools
    """Nodes that are open, of the right model, labels and shape, and when empty have the CPU and memory."""


def look(draft: Draft, row: JobRow, leaf: int) -> NodesView:
    """Ask every node about one group."""
    fleet, request = draft.fleet, row.requests[leaf]
    columns, shapes = fleet.columns, fleet.shapes
    everyone = np.arange(len(columns.nodes))
    suitable = shapes.static(request, SUITABLE)
    gpu_room = np.where(suitable, feasibility.gpu_room(columns, request, shapes.need(request), everyone, False), 0)
    loose_room = np.where(suitable, feasibility.loose_room(columns, request, shapes.need(request), everyone, False), 0)
    model = shapes.static(request, (requests.has_model,))
    if row.live[leaf] and not request.resources.cpu_only:
        home = next(held.node for held in row.held if held.leaf == leaf and not held.terminating)
        model = model & (columns.model == columns.model[home])  # members that run fix the model
        suitable, gpu_room, loose_room = suitable & model, np.where(model, gpu_room, 0), np.where(model, loose_room, 0)
    limits = neighbours.limits(draft.fleet, row, leaf)
    room = np.where(suitable, feasibility.room_on(columns, request, shapes.need(request), everyone, False), 0)
    uncut = room
    if limits is not None:
        room = limits.cut(room, columns.everywhere)
    return NodesView(
        leaf,
        shape=shapes.static(request, (requests.has_shape,)),
        model=model,
        labels=shapes.static(request, (requests.has_labels, requests.bears_taints)),
        machinery=shapes.static(request, (requests.is_open,)),
        cpu=_has_the_rest(columns, request),
        policy=limits.closed if limits is not None else {},
        single=limits is not None and limits.single,
        free=columns.idle,
        best=_most_in_one_place(columns, request, suitable),
        with_sick=columns.idle_with(sick),
        with_closed=columns.idle_with(closed),
        gpu_room=gpu_room,
        loose_room=loose_room,
        alignable=shapes.static(request, (requests.can_align,)),
        room=room,
        uncut=uncut,
        suitable=shapes.static(request, requests.STATIC_CHECKERS) & model,
    )


def _has_the_rest(columns: Columns, request: requests.TaskRequest) -> Bools:
    """Whether a node has what one task needs beside GPUs; nothing is had also where more is taken than there is."""
    cpu, memory = np.maximum(columns.cpu, 0), np.maximum(columns.memory, 0)
    there: Bools = (cpu >= request.resources.cpu) & (memory >= request.resources.memory)
    for name, amount in request.resources.extras:
        there = there & (columns.extras.free(name) >= amount)
    return there


def _most_in_one_place(columns: Columns, request: requests.TaskRequest, suitable: Bools) -> int:
    if request.shared:
        return int(columns.shares[suitable].max(initial=0))
    return int(columns.whole[suitable].max(initial=0)) * WHOLE


def fits_alone(row: JobRow, view: NodesView) -> bool:
    """Whether the group alone finds room for what it lacks, levels and other groups aside."""
    return int(np.minimum(view.room, row.missing(view.leaf)).sum()) >= row.missing(view.leaf)


def task_cost(row: JobRow, view: NodesView) -> int:
    """What one task asks for, in grains; 0 where that depends on the device."""
    resources = row.requests[view.leaf].resources
    return resources.gpus * WHOLE or resources.share or 0


def task_words(row: JobRow, leaf: int) -> str:
    """What one task asks for, in words."""
    resources = row.requests[leaf].resources
    if resources.mig:
        gpus = " + ".join(f"{count} × {profile}" for profile, count in resources.mig)
    elif resources.gpu_memory:
        gpus = f"{resources.gpu_memory / 2**30:g}Gi of GPU memory"
    else:
        gpus = gpu_words(resources.gpus * WHOLE or resources.share)
    return gpus
