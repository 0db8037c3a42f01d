"""Why a job waits: one dominant reason with numbers, the ladder with counts, and what would let it run (rule 24).

`no_place` is what the cycle notes in passing; `explain` tells the whole story and is asked only when somebody wants to
know. It folds what the checkers say; it never parses text. A rung is dominant if leaving it out alone, in a
transaction, lets the job start.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from gpuyard.brain.engine import (
    admission,
    asks,
    eta,
    feasibility,
    fragmentation,
    gang,
    neighbours,
    obstacles,
    suggestions,
)
from gpuyard.brain.engine.asks import Checker
from gpuyard.brain.engine.columns import Bools, Columns, Ints
from gpuyard.brain.engine.draft import Draft
from gpuyard.brain.engine.rows import JobRow
from gpuyard.model.job import Bundle, TaskGroup
from gpuyard.model.reasons import Code, Explanation, Outcome, Reason, Rung, RungCount
from gpuyard.model.resources import WHOLE, as_gpus, gpu_words
from gpuyard.model.topology import ANYWHERE, NODE, NVLINK


def no_place(draft: Draft, row: JobRow) -> Reason:
    """The cheap answer while planning: nothing fits now."""
    return Reason(Code.NOT_ENOUGH_GPUS, needed=draft.fleet.shortfall(row)[0])


SUITABLE: tuple[Checker, ...] = tuple(check for check in asks.STATIC_CHECKERS if check is not asks.has_cpu)
"""What makes a node suitable, its CPU and memory aside."""


class _View(NamedTuple):
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
    gpu_room: Ints
    """Tasks that fit by their GPUs alone."""
    room: Ints
    """Tasks that fit."""

    suitable: Bools
    """Nodes that are open, of the right model, labels and shape, and when empty have the CPU and memory."""


def explain(draft: Draft, row: JobRow, started: list[JobRow], ever: Callable[[JobRow], bool]) -> Explanation:
    """The whole story of one waiting job.

    `started` are the jobs that start in this plan; `ever` says whether a job could run on the fleet if it were empty.
    """
    views = [_view(draft, row, leaf) for leaf in range(len(row.groups))]
    open_ = [view for view in views if 0 < row.missing(view.leaf) <= row.pending(view.leaf)] or views
    view = next((view for view in open_ if not _fits_alone(row, view)), open_[0])
    reason = _dominant(draft, row, view, started)
    if reason.outcome is Outcome.NOT_NOW and reason.code not in PATIENT and not ever(row):
        reason = replace(reason, outcome=Outcome.NEVER)
    changes = tuple(suggestions.find(draft, row, reason))
    soon = reason.outcome is Outcome.NOT_NOW and reason.code not in PATIENT
    return Explanation(
        row.name,
        reason,
        _ladder(draft, row, view, reason),
        changes,
        in_the_way=tuple(obstacles.in_the_way(draft, row)) if soon else (),
        eta=eta.estimate(draft, row) if soon else None,
    )


PATIENT = frozenset((Code.HELD, Code.MEMBERS_ENDED, Code.OVER_QUOTA))
"""Codes that somebody's decision ends, not the fleet."""


def _fits_alone(row: JobRow, view: _View) -> bool:
    return int(np.minimum(view.room, row.missing(view.leaf)).sum()) >= row.missing(view.leaf)


# --- looking ----------------------------------------------------------------------------------------------------------


def _view(draft: Draft, row: JobRow, leaf: int) -> _View:
    fleet, ask = draft.fleet, row.asks[leaf]
    columns, shapes = fleet.columns, fleet.shapes
    everyone = np.arange(len(columns.nodes))
    suitable = shapes.static(ask, SUITABLE)
    gpu_room = np.where(suitable, feasibility.gpu_room(columns, ask, shapes.need(ask), everyone, False), 0)
    model = shapes.static(ask, (asks.has_model,))
    if row.live[leaf] and not ask.request.cpu_only:
        home = next(held.node for held in row.held if held.leaf == leaf and not held.terminating)
        model = model & (columns.model == columns.model[home])  # members that run fix the model
        suitable, gpu_room = suitable & model, np.where(model, gpu_room, 0)
    limits = neighbours.limits(draft, row, leaf)
    room = np.where(suitable, feasibility.room_on(columns, ask, shapes.need(ask), everyone, False), 0)
    if limits is not None:
        room = limits.cut(room, columns.everywhere)
    return _View(
        leaf,
        shape=shapes.static(ask, (asks.has_shape,)),
        model=model,
        labels=shapes.static(ask, (asks.has_labels, asks.bears_taints)),
        machinery=shapes.static(ask, (asks.is_open,)),
        cpu=(columns.cpu >= ask.request.cpu) & (columns.memory >= ask.request.memory),
        policy=limits.closed if limits is not None else {},
        single=limits is not None and limits.single,
        free=columns.idle,
        best=_most_in_one_place(columns, ask, suitable),
        with_sick=columns.idle_if_well(),
        gpu_room=gpu_room,
        room=room,
        suitable=shapes.static(ask, asks.STATIC_CHECKERS) & model,
    )


def _most_in_one_place(columns: Columns, ask: asks.Ask, suitable: Bools) -> int:
    if ask.request.shared:
        return int(columns.shares[suitable].max(initial=0))
    return int(columns.whole[suitable].max(initial=0)) * WHOLE


# --- the dominant reason ----------------------------------------------------------------------------------------------


def _dominant(draft: Draft, row: JobRow, view: _View, started: list[JobRow]) -> Reason:
    """The cheapest rung whose removal alone lets the job start, else the first that failed."""
    refusal = admission.refuses(draft, row, draft.fleet.shortfall(row))
    if refusal is not None:
        return refusal  # quota is the first rung: either its removal suffices or it is the first of several
    noted = draft.waits.of(row.name)
    if noted is not None and noted.code in (Code.RESERVED, Code.OUTRANKED):
        return noted
    if started and _if_first(draft, row, started):
        return _outranked(row, started)
    failed = _failed_rungs(draft, row, view)
    for reason, relaxed in failed:
        if reason.code is Code.FRAGMENTED:
            return reason  # the free GPUs suffice, so packing what runs is all it takes
        if relaxed is not None and _would_start(draft, relaxed):
            return reason
        if reason.code is Code.GPUS_SICK and _if_well(draft, row):
            return reason
    if not failed and not view.suitable.any():
        return _not_enough(row, view, draft.fleet.shortfall(row)[0], 0)
    if failed:
        return failed[0][0]
    return _crowded_out(draft, row) or (_not_together(draft, row, view) if len(row.groups) > 1 else _puzzled(row))


def _not_together(draft: Draft, row: JobRow, view: _View) -> Reason:
    """Groups that fit one by one, but not side by side."""
    needed, free = draft.fleet.shortfall(row)[0], int(view.free[view.suitable].sum())
    code = Code.NOT_ENOUGH_GPUS if free < needed else Code.FRAGMENTED
    message = f"{row.name} needs {gpu_words(needed)}; its groups fit one by one, but not side by side"
    return Reason(code, needed=needed, free=free, largest_fit=view.best, message=message)


def _crowded_out(draft: Draft, row: JobRow) -> Reason | None:
    """Caps or neighbours that let single tasks in, but not all of them together."""
    fleet = draft.fleet
    capped, fleet.capped = fleet.capped, []
    fits = bool(capped) and _would_start(draft, row)
    fleet.capped = capped
    needed = fleet.shortfall(row)[0]
    if fits:
        message = f"{row.name} needs {gpu_words(needed)}; a pool's cap on busy GPUs leaves no room for all of them"
        return Reason(Code.POWER_CAP, needed=needed, message=message)
    avoiders, fleet.avoiders = fleet.avoiders, {}
    fits = bool(avoiders) and _would_start(draft, row)
    fleet.avoiders = avoiders
    message = f"{row.name} would fit, but not beside those it avoids or who avoid it"
    return Reason(Code.NEIGHBOURS, needed=needed, message=message) if fits else None


def _puzzled(row: JobRow) -> Reason:
    message = f"{row.name} seems to fit, yet was not started: please report this with the snapshot"
    return Reason(Code.NOT_ENOUGH_GPUS, Outcome.BUG, message=message)


def _would_start(draft: Draft, row: JobRow) -> bool:
    """Whether the job (or a stand-in for it) finds its places now, quota aside."""
    mark = draft.tx.checkpoint()
    draft.quota_aside = True
    fits = gang.place(draft, row)
    draft.quota_aside = False
    draft.tx.rollback(mark)
    return fits


def _if_first(draft: Draft, row: JobRow, started: list[JobRow]) -> bool:
    """Whether it would start had it gone before those that start in this plan."""
    mark = draft.tx.checkpoint()
    for other in started:
        if other is not row:
            draft.tx.lift_all(other, [held for held in other.held if held not in draft.origin(other)])
    fits = gang.place(draft, row)
    draft.tx.rollback(mark)
    return fits


def _if_well(draft: Draft, row: JobRow) -> bool:
    columns = draft.fleet.columns
    columns.pretend_well(True)
    draft.fleet.shapes.revalue()
    fits = _would_start(draft, row)
    columns.pretend_well(False)
    draft.fleet.shapes.revalue()
    return fits


def _outranked(row: JobRow, started: list[JobRow]) -> Reason:
    names = ", ".join(other.name for other in started[:3]) + (" and others" if len(started) > 3 else "")
    return Reason(
        Code.OUTRANKED,
        where=started[0].name,
        message=f"{row.name} would fit, but {names} came first in the order and took the room",
    )


Failed = list[tuple[Reason, JobRow | None]]
"""Reasons in ladder order, each with a stand-in for the job that leaves this rung out (None: no such stand-in)."""


def _failed_rungs(draft: Draft, row: JobRow, view: _View) -> Failed:
    failed: Failed = []
    if row.asks[view.leaf].request.cpu_only:
        return [*_excluded(draft, row, view), *_short_of_cpu(draft, row, view), *_closed(draft, row, view)]
    if not (view.shape & view.model & view.labels).any():
        failed += _impossible(draft, row, view)
        if failed:
            return failed
    needed = draft.fleet.shortfall(row)[0]
    free = int(view.free[view.suitable].sum())
    if view.suitable.any() and free < needed:
        failed.append((_not_enough(row, view, needed, free), None))
    elif view.suitable.any() and _scattered(draft, row, view):
        failed.append((_fragmented(row, view, needed, free), None))
    failed += _topology(draft, row, view)
    failed += _model(draft, row, view) or _one_model(draft, row, view)
    failed += _health(draft, row, view, needed)
    failed += _excluded(draft, row, view)
    failed += _short_of_cpu(draft, row, view)
    failed += _closed(draft, row, view)
    return failed


def _scattered(draft: Draft, row: JobRow, view: _View) -> bool:
    """Whether the GPUs do not fit as they lie, but would if what runs were packed."""
    missing, request = row.missing(view.leaf), row.asks[view.leaf].request
    if int(np.minimum(view.gpu_room, missing)[view.suitable].sum()) >= missing:
        return False
    if not request.gpus:
        return True
    usable = [draft.fleet.columns.usable[n].bit_count() for n in np.flatnonzero(view.suitable)]
    free = int(view.free[view.suitable].sum()) // WHOLE
    return fragmentation.if_packed(free, usable, request.gpus) >= missing


def _impossible(draft: Draft, row: JobRow, view: _View) -> Failed:
    """No node could hold one task even when empty; told only if model and labels are not the cause."""
    nodes = draft.fleet.columns.nodes
    fitting = view.model & view.labels
    if not fitting.any():
        return []
    most = max(len(nodes[i].gpus) for i in np.flatnonzero(fitting))
    request = row.asks[view.leaf].request
    cost = row.asks[view.leaf].cost_on(nodes[int(np.flatnonzero(fitting)[0])])
    message = f"{row.name} asks for {_task(row, view.leaf)} on one node; the largest node has {most} GPUs"
    if request.gpus <= most:
        message = f"{row.name} asks for {_task(row, view.leaf)} on one node; no node has that even when empty"
    return [(Reason(Code.SHAPE_IMPOSSIBLE, needed=cost, largest_fit=most * WHOLE, message=message), None)]


def _not_enough(row: JobRow, view: _View, needed: int, free: int) -> Reason:
    together = "at once" if row.groups[view.leaf].min > 1 or len(row.groups) > 1 else "together"
    message = f"{row.name} needs {gpu_words(needed)} {together}; {as_gpus(free)} are free where it may run"
    fit = int(np.minimum(view.gpu_room, row.missing(view.leaf)).sum()) * _task_cost(row, view)
    largest = fit or view.best
    return Reason(Code.NOT_ENOUGH_GPUS, needed=needed, free=free, largest_fit=largest, message=message)


def _fragmented(row: JobRow, view: _View, needed: int, free: int) -> Reason:
    fit = int(np.minimum(view.gpu_room, row.missing(view.leaf)).sum())
    best = view.best
    largest = fit * _task_cost(row, view) or best
    tasks = row.missing(view.leaf)
    if tasks == 1:
        message = (
            f"{row.name} needs {gpu_words(needed)} on one {_place_word(row, view)}; {as_gpus(free)} are free "
            f"but scattered: the most on one {_place_word(row, view)} is {as_gpus(best)}"
        )
    else:
        message = (
            f"{row.name} needs {tasks} tasks of {_task(row, view.leaf)}; {gpu_words(free)} are free but scattered: "
            f"{fit} of its tasks fit"
        )
    return Reason(Code.FRAGMENTED, needed=needed, free=free, largest_fit=largest, message=message)


def _place_word(row: JobRow, view: _View) -> str:
    return "device" if row.asks[view.leaf].request.shared else "node"


def _task_cost(row: JobRow, view: _View) -> int:
    request = row.asks[view.leaf].request
    return request.gpus * WHOLE or request.share or 0


def _topology(draft: Draft, row: JobRow, view: _View) -> Failed:
    levels = _required_levels(row.job.gang)
    if not levels:
        return []
    relaxed = draft.fleet.probe(row, replace(row.job, gang=_without_levels(row.job.gang), placements=()))
    if row.alive():
        if not _fits_alone(row, view):
            return []
    elif not _would_start(draft, relaxed):
        return []
    level = gang.innermost(draft, levels) or levels[0]
    room, where = _best_domain(draft, view, level, row.missing(view.leaf))
    needed = draft.fleet.shortfall(row)[0]
    fit = room * _task_cost(row, view)
    message = (
        f"{row.name} needs {gpu_words(needed)} inside one {level}; the roomiest ({where}) holds {as_gpus(fit)} of them"
        if where
        else f"{row.name} needs {gpu_words(needed)} inside one {level}, and no node says which {level} it is in"
    )
    free = int(view.free[view.suitable].sum())
    if row.alive():
        message = f"{row.name} runs in part and must stay inside one {level}, where there is no room for the rest"
    reason = Reason(Code.TOPOLOGY_UNMET, needed=needed, free=free, largest_fit=fit, where=level, message=message)
    return [(reason, None if row.alive() else relaxed)]


def _required_levels(bundle: Bundle) -> list[str]:
    levels = [bundle.topology.required] if bundle.topology.required else []
    for group in bundle.groups:
        if isinstance(group, Bundle):
            levels += _required_levels(group)
        elif group.topology.required:
            levels.append(group.topology.required)
    return levels


def _without_levels(bundle: Bundle) -> Bundle:
    groups = tuple(
        _without_levels(g) if isinstance(g, Bundle) else replace(g, topology=ANYWHERE) for g in bundle.groups
    )
    return replace(bundle, topology=ANYWHERE, groups=groups)


def _best_domain(draft: Draft, view: _View, level: str, missing: int) -> tuple[int, str]:
    columns = draft.fleet.columns
    domains = columns.level(NODE if level == NVLINK else level)
    sums = np.bincount(domains.domain, weights=np.minimum(view.room, missing), minlength=len(domains.names))
    sums = np.where(domains.known, sums, -1)
    best = int(sums.argmax()) if len(sums) else -1
    if best < 0 or sums[best] < 0:
        return 0, ""
    return int(sums[best]), f"{level} {domains.names[best]}"


def _model(draft: Draft, row: JobRow, view: _View) -> Failed:
    job = row.job
    if not (job.models or job.min_gpu_memory or job.min_architecture):
        return []
    free_job = replace(job, models=(), min_gpu_memory=0, min_architecture="", placements=())
    relaxed = draft.fleet.probe(row, free_job)
    exists = bool((view.model & view.shape).any())
    if exists and not _would_start(draft, relaxed):
        return []
    needed = draft.fleet.shortfall(row)[0]
    free = int(view.free[view.suitable].sum())
    wanted = " or ".join(job.models) or (
        f"{job.min_architecture} or newer" if job.min_architecture else "enough memory"
    )
    if exists:
        message = (
            f"{row.name} needs {gpu_words(needed)} of {wanted}; "
            f"{as_gpus(free)} of those are free, other models have room"
        )
    else:
        message = f"{row.name} asks for {wanted}, and no node of the fleet has that"
    reason = Reason(Code.MODEL_UNAVAILABLE, needed=needed, free=free, where=wanted, message=message)
    return [(reason, relaxed)]


def _one_model(draft: Draft, row: JobRow, view: _View) -> Failed:
    """The tasks of a group need one model (rule 11), and no single model has room for all of them."""
    missing, model = row.missing(view.leaf), draft.fleet.columns.model
    rooms = np.bincount(model, weights=np.minimum(view.room, missing), minlength=len(draft.fleet.columns.models))
    if row.asks[view.leaf].request.cpu_only or rooms.max(initial=0) >= missing or rooms.sum() < missing:
        return []
    best = int(rooms.argmax())
    needed, fit = draft.fleet.shortfall(row)[0], int(rooms[best]) * _task_cost(row, view)
    message = (
        f"{row.name} needs {missing} tasks on one GPU model; "
        f"{draft.fleet.columns.models[best]} has room for {int(rooms[best])}, other models for the rest"
    )
    free = int(view.free[view.suitable].sum())
    return [(Reason(Code.MODEL_UNAVAILABLE, needed=needed, free=free, largest_fit=fit, message=message), None)]


def _health(draft: Draft, row: JobRow, view: _View, needed: int) -> Failed:
    sick = view.with_sick - view.free
    held_up = view.suitable & (sick > 0)
    if not held_up.any():
        return []
    count = int(sick[held_up].sum())
    message = f"{row.name} needs {gpu_words(needed)}; {as_gpus(count)} that it could use are sick and take nothing new"
    free = int(view.free[view.suitable].sum())
    return [(Reason(Code.GPUS_SICK, needed=needed, free=free, message=message), None)]


LABEL_CHECKS: frozenset[Checker] = frozenset((asks.has_labels, asks.bears_taints))


def _excluded(draft: Draft, row: JobRow, view: _View) -> Failed:
    failed: Failed = []
    out = ~view.labels & view.model & view.shape
    if out.any():
        message = f"{row.name} is kept off {int(out.sum())} nodes by taints or by its own selector"
        relaxed = draft.fleet.probe(row, replace(row.job, placements=()), LABEL_CHECKS)
        failed.append((Reason(Code.NODES_EXCLUDED, needed=draft.fleet.shortfall(row)[0], message=message), relaxed))
    shut = ~view.machinery & view.labels & view.model & view.shape
    if shut.any():
        names = [draft.fleet.columns.nodes[i].name for i in np.flatnonzero(shut)[:3]]
        message = f"{row.name} could use {', '.join(names)}, but {'it is' if len(names) == 1 else 'they are'} cordoned"
        relaxed = draft.fleet.probe(row, replace(row.job, placements=()), frozenset((asks.is_open,)))
        failed.append((Reason(Code.NODES_UNAVAILABLE, needed=draft.fleet.shortfall(row)[0], message=message), relaxed))
    return failed


def _short_of_cpu(draft: Draft, row: JobRow, view: _View) -> Failed:
    request = row.asks[view.leaf].request
    if not (request.cpu or request.memory) or not (view.room < view.gpu_room).any():
        return []
    columns = draft.fleet.columns
    with_gpus = view.gpu_room > 0
    cpu = int(columns.cpu[with_gpus].max(initial=0))
    memory = int(columns.memory[with_gpus].max(initial=0))
    tight_cpu = request.cpu > cpu or (request.memory <= memory and request.cpu > 0)
    if tight_cpu:
        reason = Reason(Code.NOT_ENOUGH_CPU, needed=request.cpu, free=cpu, message=(
            f"{row.name} needs {request.cpu / 1000:g} CPUs a task; "
            f"the most free on a node with GPUs for it is {cpu / 1000:g}"))  # fmt: skip
    else:
        reason = Reason(Code.NOT_ENOUGH_MEMORY, needed=request.memory, free=memory, message=(
            f"{row.name} needs {request.memory / 2**30:g}Gi of memory a task; "
            f"the most free on a node with GPUs for it is {memory / 2**30:g}Gi"))  # fmt: skip
    return [(reason, draft.fleet.probe(row, replace(row.job, gang=_without_cpu(row.job.gang), placements=())))]


def _without_cpu(bundle: Bundle) -> Bundle:
    def bare(group: TaskGroup) -> TaskGroup:
        return replace(group, request=replace(group.request, cpu=0, memory=0))

    groups = tuple(_without_cpu(g) if isinstance(g, Bundle) else bare(g) for g in bundle.groups)
    return replace(bundle, groups=groups)


def _closed(draft: Draft, row: JobRow, view: _View) -> Failed:
    failed: Failed = []
    if view.single and int(np.minimum(view.room, 1).sum()) < row.missing(view.leaf):
        message = f"{row.name} keeps its own tasks apart: it needs {row.missing(view.leaf)} places, there are fewer"
        return [(Reason(Code.NEIGHBOURS, needed=draft.fleet.shortfall(row)[0], message=message), None)]
    for code, mask in view.policy.items():
        shut = mask & view.suitable
        if shut.any():
            what = "whom it avoids, or who avoids it," if code is Code.NEIGHBOURS else "the pool's cap on busy GPUs"
            message = f"{row.name} is kept off {int(shut.sum())} nodes by {what}"
            failed.append((Reason(code, needed=draft.fleet.shortfall(row)[0], message=message), None))
    return failed


# --- the ladder -------------------------------------------------------------------------------------------------------


def _ladder(draft: Draft, row: JobRow, view: _View, reason: Reason) -> tuple[RungCount, ...]:
    """Every rung: whether it holds, and how many nodes fail first there."""
    counts = _first_failures(draft, row, view)
    refused = admission.refuses(draft, row, draft.fleet.shortfall(row))
    lines = []
    for rung in Rung:
        nodes = counts.get(rung, 0)
        holds = rung is not reason.code.rung and not (rung is Rung.QUOTA and refused is not None)
        lines.append(RungCount(rung, holds, nodes, reason.message if rung is reason.code.rung else ""))
    return tuple(lines)


def _first_failures(draft: Draft, row: JobRow, view: _View) -> dict[Rung, int]:
    """Nodes per rung; each node counts once, at the first rung it fails."""
    suitable, cost = view.suitable, _task_cost(row, view)
    sick = view.with_sick > view.free
    closed = np.zeros(len(suitable), dtype=bool)
    for mask in view.policy.values():
        closed |= mask
    failing = {
        Rung.PRIORITY: suitable & (view.free == 0) & (view.with_sick == 0) & (cost > 0),
        Rung.SHAPE: ~view.shape,
        Rung.FRAGMENTATION: suitable & (view.gpu_room == 0) & ((view.with_sick < max(cost, 1)) | ~sick),
        Rung.MODEL: ~view.model,
        Rung.HEALTH: suitable & (view.gpu_room == 0),
        Rung.LABELS: ~view.labels,
        Rung.CPU_MEMORY: ~view.cpu,
        Rung.POLICY: closed,
        Rung.MACHINERY: ~view.machinery,
    }
    counts: dict[Rung, int] = {}
    rest = np.ones(len(suitable), dtype=bool)
    for rung in sorted(failing):
        first = failing[rung] & rest
        counts[rung] = int(first.sum())
        rest &= ~first
    if draft.fleet.columns.nodes and _required_levels(row.job.gang):
        counts[Rung.TOPOLOGY] = int(rest.sum())
    return counts


def _task(row: JobRow, leaf: int) -> str:
    request = row.asks[leaf].request
    if request.mig:
        gpus = " + ".join(f"{count} × {profile}" for profile, count in request.mig)
    elif request.gpu_memory:
        gpus = f"{request.gpu_memory / 2**30:g}Gi of GPU memory"
    else:
        gpus = gpu_words(request.gpus * WHOLE or request.share)
    return gpus


def for_job(explanation: Explanation, name: str) -> Explanation:
    """The same story told of another job that is answered alike."""
    if explanation.job == name:
        return explanation

    def renamed(text: str) -> str:
        return name + text.removeprefix(explanation.job) if text.startswith(explanation.job) else text

    reason = replace(explanation.reason, message=renamed(explanation.reason.message))
    ladder = tuple(replace(line, note=renamed(line.note)) for line in explanation.ladder)
    return replace(explanation, job=name, reason=reason, ladder=ladder)
