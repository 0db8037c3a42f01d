"""Each rung that stands between a job and its start, as a reason with numbers and a stand-in that leaves it out.

Asked by `explain`. A rung here is one that nodes fail: what there is, how it lies, levels, models, health, labels, CPU,
neighbours. Quota and order come before them and are `admission`'s and the cycle's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from gpuyard.brain.engine.explaining import constraints
from gpuyard.brain.engine.explaining.numa_words import unaligned
from gpuyard.brain.engine.explaining.views import Failed, NodesView, fits_alone, task_cost, task_words
from gpuyard.brain.engine.nodes import requests
from gpuyard.brain.engine.nodes.columns import Bools, Columns, Ints
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.brain.engine.placing import fragmentation, gang, neighbours
from gpuyard.brain.engine.sharing.amounts import GPUS
from gpuyard.model.job import Bundle, TaskGroup
from gpuyard.model.outside.phrases import agreeing, are, counted
from gpuyard.model.reasons import Code, Outcome, Reason
from gpuyard.model.resources import WHOLE, Request, as_gpus, gpu_words
from gpuyard.model.topology import ANYWHERE, NODE, NVLINK


def failed_rungs(draft: Draft, row: JobRow, view: NodesView) -> Failed:
    """Every rung that the job fails, in ladder order."""
    failed = _too_thin(draft, row, view)
    if failed:
        return failed
    if row.requests[view.leaf].resources.cpu_only:
        return [*_excluded(draft, row, view), *_short_of_cpu(draft, row, view), *_crowded(draft, row, view)]
    if not (view.shape & view.model & view.labels).any():
        failed += _impossible(draft, row, view)
        if failed:
            return failed
    needed = draft.fleet.shortfall(row)[GPUS]
    free = int(view.free[view.suitable].sum())
    if view.suitable.any() and free < needed:
        failed.append((not_enough(row, view, needed, free), None))
    elif view.suitable.any() and _scattered(draft, row, view):
        failed.append((_fragmented(row, view, needed, free), None))
    failed += unaligned(draft, row, view)
    failed += _topology(draft, row, view)
    failed += _model(draft, row, view) or _one_model(draft, row, view)
    failed += _health(draft, row, view, needed)
    failed += _excluded(draft, row, view)
    failed += _short_of_cpu(draft, row, view)
    failed += _crowded(draft, row, view)
    failed += _closed_devices(draft, row, view, needed)
    return failed


def _scattered(draft: Draft, row: JobRow, view: NodesView) -> bool:
    """Whether the GPUs do not fit as they lie, but would if what runs were packed."""
    missing, resources = row.missing(view.leaf), row.requests[view.leaf].resources
    if int(np.minimum(view.loose_room, missing)[view.suitable].sum()) >= missing:
        return False
    if not resources.gpus:
        return True
    usable = [draft.fleet.columns.usable[n].bit_count() for n in np.flatnonzero(view.suitable)]
    free = int(view.free[view.suitable].sum()) // WHOLE
    return fragmentation.if_packed(free, usable, resources.gpus) >= missing


def _impossible(draft: Draft, row: JobRow, view: NodesView) -> Failed:
    """No node could hold one task even when empty; told only if model and labels are not the cause."""
    nodes = draft.fleet.columns.nodes
    fitting = view.model & view.labels
    if not fitting.any():
        return []
    most = max(len(nodes[i].gpus) for i in np.flatnonzero(fitting))
    resources = row.requests[view.leaf].resources
    cost = row.requests[view.leaf].cost_on(nodes[int(np.flatnonzero(fitting)[0])])
    message = (
        f"{row.name} asks for {task_words(row, view.leaf)} on one node; the largest node has {gpu_words(most * WHOLE)}"
    )
    if resources.gpus <= most:
        message = f"{row.name} asks for {task_words(row, view.leaf)} on one node; no node has that even when empty"
    return [(Reason(Code.SHAPE_IMPOSSIBLE, needed=cost, largest_fit=most * WHOLE, message=message), None)]


def not_enough(row: JobRow, view: NodesView, needed: int, free: int) -> Reason:
    """Too few are free, however they lie."""
    message = f"{_needs(row, view, needed)}; {as_gpus(free)} {are(as_gpus(free))} free where it may run"
    fit = int(np.minimum(view.gpu_room, row.missing(view.leaf)).sum()) * task_cost(row, view)
    largest = fit or view.best
    return Reason(Code.NOT_ENOUGH_GPUS, needed=needed, free=free, largest_fit=largest, message=message)


def _needs(row: JobRow, view: NodesView, needed: int) -> str:
    several = row.groups[view.leaf].min > 1 or not row.single
    together = " at once" if several else " together" if needed > WHOLE else ""
    return f"{row.name} needs {gpu_words(needed)}{together}"


def never(draft: Draft, row: JobRow, view: NodesView, reason: Reason) -> Reason:
    """The same where no end of anything else would help: what there is counts then, not what is free."""
    needed = reason.needed or 0
    if reason != not_enough(row, view, needed, reason.free or 0):
        return replace(reason, outcome=Outcome.NEVER)
    nodes = draft.fleet.columns.nodes
    there = sum(len(nodes[n].gpus) for n in np.flatnonzero(view.suitable)) * WHOLE
    told = f"the {gpu_words(there)} where it may run do not hold all its tasks, even when empty"
    if there < needed:
        told = f"there {are(as_gpus(there))} {gpu_words(there)} where it may run, used or not"
    return replace(reason, outcome=Outcome.NEVER, message=f"{_needs(row, view, needed)}; {told}")


def _fragmented(row: JobRow, view: NodesView, needed: int, free: int) -> Reason:
    fit = int(np.minimum(view.gpu_room, row.missing(view.leaf)).sum())
    best = view.best
    largest = fit * task_cost(row, view) or best
    tasks = row.missing(view.leaf)
    scattered = f"{are(as_gpus(free))} free but scattered"
    if tasks == 1:
        place = "device" if row.requests[view.leaf].shared else "node"
        message = (
            f"{row.name} needs {gpu_words(needed)} on one {place}; {as_gpus(free)} {scattered}: "
            f"the most on one {place} is {as_gpus(best)}"
        )
    else:
        message = (
            f"{row.name} needs {counted(tasks, 'task')} of {task_words(row, view.leaf)}; "
            f"{gpu_words(free)} {scattered}: {fit} of its tasks {agreeing(fit, 'fits', 'fit')}"
        )
    return Reason(Code.FRAGMENTED, needed=needed, free=free, largest_fit=largest, message=message)


def _topology(draft: Draft, row: JobRow, view: NodesView) -> Failed:
    levels = required_levels(row.job.gang)
    if not levels:
        return []
    relaxed = draft.fleet.probe(row, replace(row.job, gang=_without_levels(row.job.gang), placements=()))
    if row.alive():
        if not fits_alone(row, view):
            return []
    elif not would_start(draft, relaxed):
        return []
    level = gang.innermost(draft.fleet.columns, levels) or levels[0]
    room, where = _best_domain(draft, view, level, row.missing(view.leaf))
    needed = draft.fleet.shortfall(row)[GPUS]
    fit = room * task_cost(row, view)
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


def _without_levels(bundle: Bundle) -> Bundle:
    groups = tuple(
        _without_levels(g) if isinstance(g, Bundle) else replace(g, topology=ANYWHERE) for g in bundle.groups
    )
    return replace(bundle, topology=ANYWHERE, groups=groups)


def _best_domain(draft: Draft, view: NodesView, level: str, missing: int) -> tuple[int, str]:
    columns = draft.fleet.columns
    domains = columns.level(NODE if level == NVLINK else level)
    sums = np.bincount(domains.domain, weights=np.minimum(view.room, missing), minlength=len(domains.names))
    sums = np.where(domains.known, sums, -1)
    best = int(sums.argmax()) if len(sums) else -1
    if best < 0 or sums[best] < 0:
        return 0, ""
    return int(sums[best]), f"{level} {domains.names[best]}"


def _model(draft: Draft, row: JobRow, view: NodesView) -> Failed:
    job = row.job
    if not (job.models or job.min_gpu_memory or job.min_architecture or job.architecture):
        return []
    free_job = replace(job, models=(), min_gpu_memory=0, min_architecture="", architecture="", placements=())
    relaxed = draft.fleet.probe(row, free_job)
    exists = bool((view.model & view.shape).any())
    if exists and not would_start(draft, relaxed):
        return []
    needed = draft.fleet.shortfall(row)[GPUS]
    free = int(view.free[view.suitable].sum())
    wanted = " or ".join(job.models) or job.architecture
    wanted = wanted or (f"{job.min_architecture} or newer" if job.min_architecture else "enough memory")
    if exists:
        message = (
            f"{row.name} needs {gpu_words(needed)} of {wanted}; "
            f"{as_gpus(free)} of those {are(as_gpus(free))} free, other models have room"
        )
    else:
        message = f"{row.name} asks for {wanted}, and no node of the fleet has that"
    reason = Reason(Code.MODEL_UNAVAILABLE, needed=needed, free=free, where=wanted, message=message)
    return [(reason, relaxed)]


def _one_model(draft: Draft, row: JobRow, view: NodesView) -> Failed:
    """The tasks of a group need one model (rule 11), and no single model has room for all of them."""
    missing, model = row.missing(view.leaf), draft.fleet.columns.model
    rooms = np.bincount(model, weights=np.minimum(view.room, missing), minlength=len(draft.fleet.columns.models))
    if row.requests[view.leaf].resources.cpu_only or rooms.max(initial=0) >= missing or rooms.sum() < missing:
        return []
    best = int(rooms.argmax())
    needed, fit = draft.fleet.shortfall(row)[GPUS], int(rooms[best]) * task_cost(row, view)
    message = (
        f"{row.name} needs {counted(missing, 'task')} on one GPU model; "
        f"{draft.fleet.columns.models[best]} has room for {int(rooms[best])}, other models for the rest"
    )
    free = int(view.free[view.suitable].sum())
    return [(Reason(Code.MODEL_UNAVAILABLE, needed=needed, free=free, largest_fit=fit, message=message), None)]


def _health(draft: Draft, row: JobRow, view: NodesView, needed: int) -> Failed:
    sick = view.with_sick - view.free
    held_up = view.suitable & (sick > 0)
    if not held_up.any():
        return []
    count = as_gpus(int(sick[held_up].sum()))
    are_sick = "is sick and takes" if count == 1 else "are sick and take"
    message = f"{row.name} needs {gpu_words(needed)}; {count} that it could use {are_sick} nothing new"
    free = int(view.free[view.suitable].sum())
    return [(Reason(Code.GPUS_SICK, needed=needed, free=free, message=message), None)]


def _closed_devices(draft: Draft, row: JobRow, view: NodesView, needed: int) -> Failed:
    """Devices that somebody closed on nodes that are open themselves."""
    shut = view.with_closed - view.free
    held_up = np.flatnonzero(view.suitable & (shut > 0))
    if not len(held_up):
        return []
    node = draft.fleet.columns.nodes[int(held_up[0])]
    gpu = next(gpu for gpu in node.gpus if gpu.closed is not None)
    count = as_gpus(int(shut[held_up].sum()))
    take = "takes" if count == 1 else "take"
    told = f"{count} that it could use {take} nothing new: {node.name}:{gpu.index} is"
    message = f"{row.name} needs {gpu_words(needed)}; {told} {gpu.closed}"
    free = int(view.free[view.suitable].sum())
    return [(Reason(Code.NODES_UNAVAILABLE, needed=needed, free=free, where=node.name, message=message), None)]


LABEL_CHECKS: frozenset[requests.Checker] = frozenset((requests.has_labels, requests.bears_taints))


def _excluded(draft: Draft, row: JobRow, view: NodesView) -> Failed:
    failed: Failed = []
    needed = draft.fleet.shortfall(row)[GPUS]
    out = ~view.labels & view.model & view.shape
    if out.any():
        told = constraints.kept_off(draft.fleet.shapes, row.requests[view.leaf], out)
        message = f"{row.name} is kept off {told}{_left_to_it(draft, row, view)}"
        relaxed = draft.fleet.probe(row, replace(row.job, placements=()), LABEL_CHECKS)
        failed.append((Reason(Code.NODES_EXCLUDED, needed=needed, message=message), relaxed))
    shut = ~view.machinery & view.labels & view.model & view.shape
    if shut.any():
        nodes = [draft.fleet.columns.nodes[i] for i in np.flatnonzero(shut)[:3]]
        told = ", ".join(f"{node.name}, which is {node.closed}" for node in nodes)
        message = f"{row.name} could use {told}"
        relaxed = draft.fleet.probe(row, replace(row.job, placements=()), frozenset((requests.is_open,)))
        failed.append((Reason(Code.NODES_UNAVAILABLE, needed=needed, message=message), relaxed))
    return failed


def _left_to_it(draft: Draft, row: JobRow, view: NodesView) -> str:
    """What there is on the nodes that labels and taints leave to the job, and is not enough."""
    left, resources = view.labels & view.model & view.shape & view.machinery, row.requests[view.leaf].resources
    if not left.any():
        return ""
    fit, tasks = int(np.minimum(view.room, row.missing(view.leaf))[left].sum()), row.missing(view.leaf)
    if fit:
        return (
            f"; where it may run, {fit} of its {counted(tasks, 'task')} {agreeing(fit, 'fits', 'fit')}"
            if fit < tasks
            else ""
        )
    if (view.uncut[left] > 0).any():  # there is room, and others keep it off
        others = neighbours.words(draft.fleet, row)
        return f"; where it may run, it is kept off by {others}" if others else ""
    columns = draft.fleet.columns
    if not (resources.cpu_only or view.gpu_room[left].any()):
        free = np.where(left, columns.idle if resources.shared else columns.whole * WHOLE, -1)
        best = int(free.argmax())
        where = f" ({columns.nodes[best].name})" if free[best] else ""
        return f"; where it may run, the most free on one node is {as_gpus(int(free[best]))}{where}"
    lack = _most_of_the_rest(draft, row, view, left)
    verb = "are" if lack.code is Code.NOT_ENOUGH_CPU else "is"
    return f"; where it may run, the most {lack.what} on one node {verb} {lack.words(lack.most)} ({lack.node})"


class _Lack(NamedTuple):
    """What a task lacks beside GPUs: how much it needs, and the most there is, on which node."""

    code: Code
    needed: int
    most: int
    node: str
    extra: str = ""

    @property
    def what(self) -> str:
        """What it is."""
        return self.extra or ("CPUs" if self.code is Code.NOT_ENOUGH_CPU else "memory")

    def words(self, amount: int) -> str:
        """Cores, Gi, or as it is."""
        if self.extra:
            return str(amount)
        return f"{amount / 1000:g}" if self.code is Code.NOT_ENOUGH_CPU else f"{amount / 2**30:g}Gi"


def _most_of_the_rest(draft: Draft, row: JobRow, view: NodesView, among: Bools) -> _Lack:
    """What the task lacks on these nodes; extras only where CPU and memory would do."""
    columns, asked = draft.fleet.columns, row.requests[view.leaf].resources
    enough = among & (_free(columns.cpu, among) >= asked.cpu) & (_free(columns.memory, among) >= asked.memory)
    for name, amount in asked.extras:
        free = _free(columns.extras.free(name), among)
        if enough.any() and not (enough & (free >= amount)).any():
            best = int(np.where(enough, free, -1).argmax())
            return _Lack(Code.NOT_ENOUGH_EXTRA, amount, int(free[best]), columns.nodes[best].name, name)
    return _most_cores(columns, asked, among)


def _most_cores(columns: Columns, asked: Request, among: Bools) -> _Lack:
    """On a node that is too small even when empty, its size counts."""
    cpu, memory = (_free(column, among) for column in (columns.cpu, columns.memory))
    tight_cpu = asked.cpu > cpu.max() or (asked.memory <= memory.max() and asked.cpu > 0)
    best = int((cpu if tight_cpu else memory).argmax())
    node = columns.nodes[best].name
    if tight_cpu:
        return _Lack(Code.NOT_ENOUGH_CPU, asked.cpu, int(cpu[best]), node)
    return _Lack(Code.NOT_ENOUGH_MEMORY, asked.memory, int(memory[best]), node)


def _free(left: Ints, among: Bools) -> Ints:
    """What is left on these nodes, below that of no other: nothing where more is taken than there is."""
    return np.where(among, np.maximum(left, 0), -1)


def _short_of_cpu(draft: Draft, row: JobRow, view: NodesView) -> Failed:
    """Nodes that have the GPUs, and not the cores or the memory; what neighbours and caps keep off is not short."""
    resources = row.requests[view.leaf].resources
    short = view.uncut < view.gpu_room
    if not (resources.cpu or resources.memory or resources.extras) or not short.any():
        return []
    missing = row.missing(view.leaf)
    if resources.cpu_only and int(np.minimum(view.uncut, missing).sum()) >= missing:
        return []  # there is enough, and neighbours keep it off
    return _lacking(draft, row, view, short)


def _too_thin(draft: Draft, row: JobRow, view: NodesView) -> Failed:
    """No node has the cores and memory for one task even when empty, whatever its labels."""
    fitting = view.model & view.shape
    if not fitting.any() or draft.fleet.shapes.static(row.requests[view.leaf], (requests.has_cpu,))[fitting].any():
        return []
    return _lacking(draft, row, view, fitting & view.labels if (fitting & view.labels).any() else fitting)


def _lacking(draft: Draft, row: JobRow, view: NodesView, among: Bools) -> Failed:
    lack = _most_of_the_rest(draft, row, view, among)
    what = "of memory" if lack.code is Code.NOT_ENOUGH_MEMORY else lack.what
    with_gpus = "with GPUs for it" if not row.requests[view.leaf].resources.cpu_only else "where it may run"
    message = (
        f"{row.name} needs {lack.words(lack.needed)} {what} a task; "
        f"the most free on a node {with_gpus} is {lack.words(lack.most)} ({lack.node})"
    )
    relaxed = draft.fleet.probe(row, replace(row.job, gang=_without_cpu(row.job.gang), placements=()))
    reason = Reason(lack.code, needed=lack.needed, free=lack.most, where=lack.extra, message=message)
    return [(reason, relaxed)]


def _without_cpu(bundle: Bundle) -> Bundle:
    def bare(group: TaskGroup) -> TaskGroup:
        return replace(group, request=replace(group.request, cpu=0, memory=0, extras=()))

    groups = tuple(_without_cpu(g) if isinstance(g, Bundle) else bare(g) for g in bundle.groups)
    return replace(bundle, groups=groups)


def _crowded(draft: Draft, row: JobRow, view: NodesView) -> Failed:
    failed: Failed = []
    if view.single and int(np.minimum(view.room, 1).sum()) < row.missing(view.leaf):
        places = counted(row.missing(view.leaf), "place")
        message = f"{row.name} keeps its own tasks apart: it needs {places}, there are fewer"
        return [(Reason(Code.NEIGHBOURS, needed=draft.fleet.shortfall(row)[GPUS], message=message), None)]
    for code, mask in view.policy.items():
        shut = mask & view.suitable
        if shut.any():
            what = "whom it avoids, or who avoids it," if code is Code.NEIGHBOURS else "the pool's cap on busy GPUs"
            if code is Code.NEIGHBOURS and any(map(draft.fleet.company.concerns, row.requests)):
                what = neighbours.words(draft.fleet, row)
            message = f"{row.name} is kept off {counted(int(shut.sum()), 'node')} by {what}"
            failed.append((Reason(code, needed=draft.fleet.shortfall(row)[GPUS], message=message), None))
    return failed


def required_levels(bundle: Bundle) -> list[str]:
    """The levels that a gang or its groups must stay inside."""
    levels = [bundle.topology.required] if bundle.topology.required else []
    for group in bundle.groups:
        if isinstance(group, Bundle):
            levels += required_levels(group)
        elif group.topology.required:
            levels.append(group.topology.required)
    return levels


def would_start(draft: Draft, row: JobRow) -> bool:
    """Whether the job (or a stand-in for it) finds its places now, quota aside."""
    with draft.relaxed(quota=False):
        return gang.place(draft, row)
