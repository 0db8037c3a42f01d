"""The model's values back to plain data, as short as the reader allows: what it would fill in itself is left out.

Called by `yard snapshot` and wherever a moment is kept as a file; turning data into text is the caller's. Reading what
is written here gives the same snapshot.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from gpuyard.files.data.gpu_models import architecture_of, memory_of
from gpuyard.files.format.entries import API_VERSION, PlacementEntry
from gpuyard.files.reading.fleet import ONLY_QUEUE
from gpuyard.files.reading.placements import task_numbers
from gpuyard.files.units import write_bytes, write_cpu, write_duration, write_time
from gpuyard.model.job import (
    MAIN,
    AffinityTerm,
    Avoid,
    Bundle,
    Checkpoint,
    Evenness,
    Expression,
    Job,
    JobClass,
    Neighbour,
    Placement,
    Run,
    TaskGroup,
    Toleration,
)  # fmt: skip
from gpuyard.model.node import CORDONED, Alignment, Budget, Closure, Effect, Gpu, Health, Node, Pool, Taint
from gpuyard.model.policy import Policy
from gpuyard.model.queue import DEFAULT, NO_LIMIT, NO_QUOTA, ROOT, Allowance, Queue
from gpuyard.model.resources import UNLIMITED, WHOLE, Request, as_gpus
from gpuyard.model.snapshot import Reservation, Snapshot
from gpuyard.model.topology import TopologyAsk

Data = dict[str, Any]


def snapshot_document(snapshot: Snapshot) -> Data:
    """A snapshot as the data of its file."""
    named_by_nodes = {node.pool for node in snapshot.nodes}
    pools = [
        pool_document(pool) for pool in snapshot.pools if pool != Pool(pool.name) or pool.name not in named_by_nodes
    ]
    return {
        "apiVersion": API_VERSION,
        "kind": "Snapshot",
        "now": write_time(snapshot.now),
        **_given(
            topology=list(snapshot.topology),
            policy=policy_document(snapshot.policy),
            pools=pools,
            nodes=[node_document(node) for node in snapshot.nodes],
            queues=[queue_document(queue) for queue in snapshot.queues if snapshot.queues != (ONLY_QUEUE,)],
            jobs=[job_document(job, snapshot.now) for job in snapshot.jobs],
            budgets=[budget_document(budget) for budget in snapshot.budgets],
            reservations=[reservation_document(reservation, snapshot) for reservation in snapshot.reservations],
            memory=dict(snapshot.memory),
        ),
    }


def _given(**values: Any) -> Data:
    """Without what is None, empty, zero or false: those are the reader's defaults wherever this is used."""
    return {key: value for key, value in values.items() if value not in (None, "", 0, False, [], {})}


# --- the fleet -----------------------------------------------------------------------------------


def pool_document(pool: Pool) -> Data:
    """One entry of `pools`."""
    return {"name": pool.name} | _given(
        price=_number(pool.price), max_busy=dict(pool.max_busy), min_nodes=pool.min_nodes, max_nodes=pool.max_nodes
    )


def node_document(node: Node) -> Data:
    """One entry of `nodes`."""
    known_memory, known_architecture = memory_of(node.model), architecture_of(node.model)
    health = {gpu.index: gpu.health.value for gpu in node.gpus if gpu.health is not Health.HEALTHY}
    slices = {gpu.index: list(gpu.slices) for gpu in node.gpus if gpu.slices is not None}
    return {"name": node.name} | _given(
        pool=node.pool,
        gpus=len(node.gpus),
        model=node.model,
        gpu_memory=write_bytes(node.gpu_memory) if node.gpu_memory != known_memory else None,
        architecture=node.architecture if node.architecture != known_architecture else None,
        uuids=[gpu.uuid for gpu in node.gpus] if any(gpu.uuid for gpu in node.gpus) else None,
        islands=_parted(node, lambda gpu: gpu.island),
        switches=_parted(node, lambda gpu: gpu.switch),
        numa=_parted(node, lambda gpu: gpu.numa),
        alignment=node.alignment.value if node.alignment is not Alignment.NONE else None,
        domains=dict(node.domains),
        labels=dict(node.labels),
        taints=[_taint(taint) for taint in node.taints],
        workloads=list(node.workloads),
        health=health,
        mig=slices,
        taken=_given(
            cpu=write_cpu(node.taken.cpu),
            memory=write_bytes(node.taken.memory),
            extras={name: write_bytes(amount) for name, amount in node.taken.extras},
        ),
        extras={name: write_bytes(amount) for name, amount in node.extras},
        **_closed(node),
    ) | {
        key: written
        for key, amount, written in (
            ("cpu", node.cpu, write_cpu(node.cpu)), ("memory", node.memory, write_bytes(node.memory)),
        )
        if amount != UNLIMITED  # none at all is an amount, too
    }  # fmt: skip


def _closed(node: Node) -> Data:
    """What is closed without a word is `cordoned`; the rest says why."""
    shut = [gpu.index for gpu in node.gpus if gpu.closed == CORDONED]
    told = {gpu.index: _closure(gpu.closed) for gpu in node.gpus if gpu.closed not in (None, CORDONED)}
    if node.closed == CORDONED:
        told |= {index: {} for index in shut}
    return {
        "cordoned": node.closed == CORDONED or shut,
        "closed": _closure(node.closed) if node.closed != CORDONED else None,
        "closed_gpus": told,
    }


def _closure(closure: Closure | None) -> Data | None:
    if closure is None:
        return None
    since = write_time(closure.since) if closure.since else None
    return _given(reason=closure.reason, by=closure.by, drains=closure.drains, force=closure.force, since=since)


def _parted(node: Node, part: Callable[[Gpu], int]) -> list[list[int]] | None:
    numbers = {part(gpu) for gpu in node.gpus}
    if len(numbers) <= 1:
        return None
    return [[gpu.index for gpu in node.gpus if part(gpu) == number] for number in sorted(numbers)]


def _taint(taint: Taint) -> Data:
    effect = taint.effect.value if taint.effect is not Effect.NO_SCHEDULE else None
    return {"key": taint.key} | _given(value=taint.value, effect=effect)


def queue_document(queue: Queue) -> Data:
    """One entry of `queues`."""
    written: Data = {"name": queue.name}
    if queue.parent not in (ROOT, ""):
        written["parent"] = queue.parent
    if queue.quota != NO_QUOTA:
        written["quota"] = _allowance(queue.quota)
    if queue.limit != NO_LIMIT:
        written["limit"] = _allowance(queue.limit)
    if queue.weight != 1.0:
        written["weight"] = _number(queue.weight)
    bounds = {key: write_duration(getattr(queue, key)) for key in ("max_grace", "max_min_runtime", "max_time_limit")}
    bounds = {key: value for key, value in bounds.items() if getattr(queue, key)}
    return written | _given(priority=queue.priority, users=list(queue.users), groups=list(queue.groups), **bounds)


def _allowance(allowance: Allowance) -> Any:
    gpu = _gpus(allowance.gpu)
    if allowance == Allowance(allowance.gpu):
        return gpu
    written = {"gpu": gpu, **{model: _gpus(amount) for model, amount in allowance.models}}
    if allowance.cpu is not None:
        written["cpu"] = write_cpu(allowance.cpu)
    if allowance.memory is not None:
        written["memory"] = write_bytes(allowance.memory)
    return written


def _gpus(grains: int) -> float | str:
    """`as_gpus` is for people and rounds; a file must not."""
    if grains >= UNLIMITED:
        return as_gpus(grains)
    return _number(grains / WHOLE)


def _number(value: float) -> float:
    return int(value) if value == int(value) else value


# --- jobs ----------------------------------------------------------------------------------------


def job_document(job: Job, now: float) -> Data:
    """One entry of `jobs`."""
    default_queue = "" if job.foreign else DEFAULT
    default_submitted = now if job.started is None else job.started
    written: Data = {"name": job.name} | _given(
        queue=job.queue if job.queue != default_queue else None,
        user=job.user,
        **{"class": job.job_class.value if job.job_class is not JobClass.TRAINING else None},
    )
    for key, value in (("priority", job.priority), ("preemptible", job.preemptible)):
        if value is not None:
            written[key] = value
    written |= _times(job, default_submitted) | _gang(job.gang)
    return written | _given(
        models=list(job.models),
        min_gpu_memory=write_bytes(job.min_gpu_memory),
        min_architecture=job.min_architecture,
        architecture=job.architecture,
        avoid=_avoid(job.avoid) if job.avoid else None,
        evictions=job.evictions,
        placements=_placements(job.placements, job.task_groups()),
        foreign=job.foreign,
        held=job.on_hold,
        held_for=job.held_for,
        family=job.family,
    ) | _parts(job)  # fmt: skip


def shape_document(job: Job) -> Data:
    """How many tasks of what shape a job has: `tasks` and what one asks for, or one such entry for each group."""
    groups = [{"tasks": group.tasks} | _given(**_request(group.request)) for group in job.task_groups()]
    return groups[0] if len(groups) == 1 else {"groups": groups}


def _parts(job: Job) -> Data:
    """What means something even where it is empty."""
    parts: Data = {} if job.takes else {"takes": False}
    if job.checkpoint:
        parts["checkpoint"] = _checkpoint(job.checkpoint)
    return parts | ({"run": _run(job.run)} if job.run else {})


def _times(job: Job, default_submitted: float) -> Data:
    moments = {
        "submitted": job.submitted if job.submitted != default_submitted else None,
        "started": job.started,
        "waiting_since": job.waiting_since,
        "stale_since": job.stale_since,
    }
    spans = {
        "time_limit": job.time_limit, "min_runtime": job.min_runtime, "warm_up": job.warm_up,
        "stale_grace": job.stale_grace, "duration": job.duration, "attained": job.attained or None,
    }  # fmt: skip
    return {key: write_time(moment) for key, moment in moments.items() if moment is not None} | {
        key: write_duration(span) for key, span in spans.items() if span is not None
    }


def _gang(gang: Bundle) -> Data:
    """A job with one group named `main` is written without groups."""
    only = gang.groups[0] if len(gang.groups) == 1 else None
    if isinstance(only, TaskGroup) and only.name == MAIN and only.topology == TopologyAsk():
        return _tasks(only) | _given(topology=_topology(gang.topology))
    return _given(topology=_topology(gang.topology)) | _bundle(gang)


def _bundle(bundle: Bundle) -> Data:
    groups = []
    for group in bundle.groups:
        inner = _bundle(group) if isinstance(group, Bundle) else _tasks(group)
        groups.append({"name": group.name, **inner, **_given(topology=_topology(group.topology))})
    least = bundle.min_groups if bundle.min_groups != len(bundle.groups) else None
    return {**_given(min_groups=least), "groups": groups}


def _tasks(group: TaskGroup) -> Data:
    return _counts(group) | _given(
        **_request(group.request),
        node_selector=dict(group.node_selector),
        tolerations=[_toleration(toleration) for toleration in group.tolerations],
        affinity=[_term(term) for term in group.terms[0]] if group.terms else None,
        terms=[[_term(term) for term in terms] for terms in group.terms[1:]],
        labels=dict(group.labels),
        near=[_neighbour(term) for term in group.near],
        apart=[_neighbour(term) for term in group.apart],
        even=[_evenness(each) for each in group.even],
        likes=[_term(term) | ({"weight": weight} if weight != 1 else {}) for term, weight in group.likes],
        failed=group.failed,
        succeeded=group.succeeded,
        absent=group.absent,
        ended=list(group.ended),
        tried=list(group.tried),
    )


def _counts(group: TaskGroup) -> Data:
    """A minimum of 0 is told: the reader takes all."""
    given = _given(tasks=group.tasks if group.tasks != 1 else None)
    return given if group.min == group.tasks else given | {"min": group.min}


def _request(request: Request) -> Data:
    single = len(request.mig) == 1 and request.mig[0][1] == 1
    return {
        "gpus": request.gpus,
        "fraction": _gpus(request.share),
        "gpu_memory": write_bytes(request.gpu_memory),
        "mig": request.mig[0][0] if single else dict(request.mig),
        "cpu": write_cpu(request.cpu),
        "memory": write_bytes(request.memory),
        "extras": {name: write_bytes(amount) for name, amount in request.extras},
    }


def _topology(ask: TopologyAsk) -> Data:
    return _given(required=ask.required, preferred=ask.preferred)


def _toleration(toleration: Toleration) -> Data:
    operator = toleration.operator if toleration.operator != "Equal" else None
    return _given(key=toleration.key, operator=operator, value=toleration.value, effect=toleration.effect)


def _term(term: AffinityTerm) -> Data:
    return {"matchExpressions": _expressions(term.expressions)}


def _expressions(expressions: Sequence[Expression]) -> list[Data]:
    return [{"key": e.key, "operator": e.operator} | _given(values=list(e.values)) for e in expressions]


def _neighbour(term: Neighbour | Evenness) -> Data:
    return {"level": term.level, "matchExpressions": _expressions(term.labels)}


def _evenness(even: Evenness) -> Data:
    """That all nodes are compared, an empty list, is told: without a word it is those that the task may use."""
    among = {} if even.among is None else {"among": [[_term(term) for term in terms] for terms in even.among]}
    return _neighbour(even) | _given(skew=even.skew, least_domains=even.least_domains) | among


def _avoid(avoid: Avoid) -> Data:
    return {"level": avoid.level} | _given(queues=list(avoid.queues), self=avoid.own)


def _checkpoint(checkpoint: Checkpoint) -> Data:
    written: Data = {}
    if checkpoint.interval is not None:
        written["interval"] = write_duration(checkpoint.interval)
    if checkpoint.last is not None:
        written["last"] = write_time(checkpoint.last)
    return written | {"grace": write_duration(checkpoint.grace), "signal": checkpoint.signal}


def _run(run: Run) -> Data:
    return _given(
        command=list(run.command),
        env=dict(run.env),
        workdir=run.workdir,
        retries=run.retries,
        image=run.image,
        tty=run.tty,
    )


def _placements(placements: Sequence[Placement], groups: Sequence[TaskGroup]) -> list[Data]:
    """Groups where there are several, task numbers where the reader would give others."""
    numbered = {}
    for group in groups:
        members = [place for place, placement in enumerate(placements) if placement.group == group.name]
        bare = [PlacementEntry(node="", terminating=placements[place].terminating) for place in members]
        given = task_numbers(bare, group.tasks)
        by_itself = all(placements[place].task == number for place, number in zip(members, given, strict=True))
        numbered.update(dict.fromkeys(members, not by_itself))
    return [_placement(placement, len(groups) > 1, numbered[place]) for place, placement in enumerate(placements)]


def _placement(placement: Placement, grouped: bool, numbered: bool) -> Data:
    written: Data = {"node": placement.node}
    if placement.gpus:
        written["gpus"] = list(placement.gpus)
    if grouped:
        written["group"] = placement.group
    if numbered:
        written["task"] = placement.task
    return written | _given(
        mig=list(placement.mig),
        terminating=placement.terminating,
        assigned=placement.assigned,
        uid=placement.uid,
    )


# --- the rest of a moment ------------------------------------------------------------------------


def budget_document(budget: Budget) -> Data:
    """One entry of `budgets`."""
    bounds = {"min_available": budget.min_available, "max_unavailable": budget.max_unavailable}
    bounds["allowed"] = budget.allowed
    given: Data = {key: bound for key, bound in bounds.items() if bound is not None}
    for job, group in budget.covers:
        given.setdefault("covers", {}).setdefault(job, []).append(group)
    return {"name": budget.name, "jobs": list(budget.jobs), **given}


def reservation_document(reservation: Reservation, snapshot: Snapshot) -> Data:
    """One entry of `reservations`."""
    groups = next(job.task_groups() for job in snapshot.jobs if job.name == reservation.job)
    until = write_time(reservation.until) if reservation.until is not None else None
    return {"job": reservation.job} | _given(placements=_placements(reservation.placements, groups), until=until)


def policy_document(policy: Policy) -> Data:
    """The overrides that make this policy out of the default one."""
    return _changes(policy, Policy())


def _changes(value: Any, default: Any) -> Data:
    changed = {}
    for field in dataclasses.fields(value):
        new, old = getattr(value, field.name), getattr(default, field.name)
        if new == old:
            continue
        if isinstance(new, dict):
            changed[field.name] = {_plain(of): _changed(new[of], old.get(of)) for of in new if new[of] != old.get(of)}
        elif dataclasses.is_dataclass(new):
            changed[field.name] = _changes(new, old)
        else:
            changed[field.name] = _plain(new)
    return changed


def _changed(new: Any, old: Any) -> Any:
    return _changes(new, old) if dataclasses.is_dataclass(new) else new


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else list(value) if isinstance(value, tuple) else value
