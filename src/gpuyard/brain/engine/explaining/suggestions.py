"""What would let a waiting job run: the smallest changes, each tried in a transaction before it is told (rule 24)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from gpuyard.brain.engine.giving_way import victims
from gpuyard.brain.engine.nodes.columns import Held
from gpuyard.brain.engine.nodes.vacancy import Vacancy
from gpuyard.brain.engine.picture.draft import Draft
from gpuyard.brain.engine.picture.job_rows import JobRow
from gpuyard.brain.engine.placing import gang
from gpuyard.brain.engine.reserving import backfill
from gpuyard.brain.engine.sharing.amounts import GPUS, Amounts
from gpuyard.brain.engine.sharing.quota import Excess
from gpuyard.model.job import Bundle, Job, TaskGroup
from gpuyard.model.outside.phrases import are, counted
from gpuyard.model.reasons import Code, Outcome, Reason, Suggestion
from gpuyard.model.resources import MILLI, WHOLE, as_gpus, gpu_words
from gpuyard.model.topology import NVLINK, TopologyAsk

MOVE_CANDIDATES = 64
"""How many running jobs are tried as the one that could move; more would not be read anyway."""


Others = Callable[[], Sequence[JobRow]]
"""Names the jobs that one might move."""


def find(draft: Draft, row: JobRow, reason: Reason, movable: Others) -> list[Suggestion]:
    """Changes that were tried and work, the gentlest first."""
    if reason.code in (Code.HELD, Code.MEMBERS_ENDED, Code.MEMBERS_ABSENT, Code.RESERVED):
        return []  # nothing the job could change would help
    changes = (
        _more_quota(draft, row, reason),
        _move_one(draft, row, reason, movable),
        _other_model(draft, row),
        _other_level(draft, row),
        _smaller_gang(draft, row),
        _other_size(draft, row),
    )
    return [found for finder in changes for found in islice(finder, 3)]


def starts(draft: Draft, row: JobRow) -> bool:
    """Whether the job (or a stand-in) finds its places now, and its queues and others' reservations let it."""
    if draft.fleet.tree.refuses(row.queue, draft.fleet.shortfall(row), row.firm) is not None:
        return False
    with draft.trial():
        backfill.hold_against(draft, row)
        return gang.place(draft, row)


def _would_start(draft: Draft, row: JobRow, stand_in: JobRow) -> bool:
    """Whether the job would start as the stand-in: its placed members would come anew and count nowhere meanwhile."""
    with draft.trial():
        draft.tx.lift_all(row, [held for held in row.held if not held.terminating])
        return starts(draft, stand_in)


def _probe(draft: Draft, row: JobRow, job: Job) -> JobRow:
    return draft.fleet.probe(row, replace(job, placements=()))


# --- quota ------------------------------------------------------------------------------------------------------------


def _more_quota(draft: Draft, row: JobRow, reason: Reason) -> Iterator[Suggestion]:
    """Every quota and limit that must rise, and to what; told only if the job then starts."""
    if reason.code not in (Code.OVER_LIMIT, Code.OVER_QUOTA):
        return
    raised = _raised(draft, row)
    if raised:
        yield Suggestion(f"raise {' and '.join(raised)}", "quota")
    if reason.code is Code.OVER_QUOTA and _would_start(
        draft, row, _probe(draft, row, replace(row.job, preemptible=True))
    ):
        yield Suggestion("submit it as preemptible: it may then borrow above quota", "preemptible")


def _raised(draft: Draft, row: JobRow) -> list[str]:
    """What was raised, level by level, until the job started; empty if it does not start even then."""
    tree, asked = draft.fleet.tree, draft.fleet.shortfall(row)
    undo: list[tuple[Amounts, int, int]] = []
    told: list[str] = []
    while (excess := tree.refuses(row.queue, asked, row.firm)) is not None:
        q, r = tree.index[excess.queue], tree.resources.index(excess.resource)
        amounts = (tree.limit if excess.kind == "limit" else tree.quota)[q]
        undo.append((amounts, r, amounts[r]))
        told.append(_raise_words(excess))
        amounts[r] = excess.used + excess.asked
    fits = starts(draft, row)
    for amounts, r, amount in reversed(undo):
        amounts[r] = amount
    return told if fits else []


def _raise_words(excess: Excess) -> str:
    new = (
        -(-(excess.used + excess.asked) // MILLI) * MILLI
        if excess.resource not in ("cpu", "memory")
        else (excess.used + excess.asked)
    )  # told numbers are rounded up, or following them would fall short by a hair
    steps = (new - excess.allowed, excess.allowed, new)
    if excess.resource in ("cpu", "memory"):
        unit, scale = ("CPUs", 1000) if excess.resource == "cpu" else ("Gi", 2**30)
        more, old, total = (f"{amount / scale:g}" for amount in steps)
    else:
        unit = "GPUs"
        more, old, total = (str(as_gpus(amount)) for amount in steps)
    what = "" if excess.resource == "gpu" else f"{excess.resource} "
    return f"the {what}{excess.kind} of queue {excess.queue} by {more}, from {old} to {total} {unit}"


# --- make room --------------------------------------------------------------------------------------------------------


def movable(draft: Draft) -> list[JobRow]:
    """The running jobs that could be the one to move, the smallest first; one more than are tried, for nobody moves
    out of its own way."""
    return draft.fleet.smallest.first(MOVE_CANDIDATES + 1, draft.tx.touched())


def _move_one(draft: Draft, row: JobRow, reason: Reason, movable: Others) -> Iterator[Suggestion]:
    """One running job that, moved elsewhere, lets this one start."""
    if reason.outcome is Outcome.NEVER or reason.code in (Code.OVER_LIMIT, Code.OVER_QUOTA):
        return
    if draft.fleet.shortfall(row)[GPUS] > draft.fleet.columns.idle_total and not draft.fleet.moving_may_free:
        return
    others = [other for other in movable() if other is not row][:MOVE_CANDIDATES]
    kept: Suggestion | None = None
    for other in _worth_a_try(draft, row, others):
        budget = victims.forbids(draft, other)
        if (kept is not None and budget) or (places := _after_moving(draft, row, other)) is None:
            continue
        if not budget:
            yield Suggestion(f"move {other.name} ({gpu_words(other.cost())}) {_off(draft, other, places)}", "move")
            return
        change = f"let budget {budget} spare {other.name}, which could then move {_off(draft, other, places)}"
        kept = Suggestion(change, "budget")
    if kept is not None:
        yield kept


def _off(draft: Draft, other: JobRow, places: Sequence[Held]) -> str:
    """From where, as a person would say it: nobody moves off a node to the same node."""
    nodes = draft.fleet.columns.nodes
    left = {held.node for held in other.held} - {held.node for held in places}
    if left:
        return f"off {', '.join(sorted(nodes[n].name for n in left))}"
    moved = {held.node for held in other.held if all(held.gpus != now.gpus for now in places if now.node == held.node)}
    return f"to other GPUs of {', '.join(sorted(nodes[n].name for n in moved))}"


def _worth_a_try(draft: Draft, row: JobRow, others: Sequence[JobRow]) -> Iterator[JobRow]:
    """Those who leave enough room behind, levels and neighbours aside: arithmetic, before anything is tried."""
    if not row.single:
        yield from others
        return
    lacks = row.missing()
    shapes = list(gang.shapes(draft, row, 0))
    room = [int(np.minimum(shape.room, lacks).sum()) for shape in shapes]
    somewhere: dict[int, bool] = {}
    for other in others:
        if max(room, default=0) < lacks and not _has_elsewhere(draft, other, somewhere):
            continue
        gains = _room_left_behind(draft, row, other)
        for shape, before in zip(shapes, room, strict=True):
            more = sum(max(0, left - int(shape.room[node])) for node, left in gains.items() if shape.eligible[node])
            if before + more >= lacks:
                yield other
                break


def _has_elsewhere(draft: Draft, other: JobRow, known: dict[int, bool]) -> bool:
    """Whether a node has room for a task of the other now. With as many tasks on the same nodes as before it would have
    made no room at all: whole devices count the same whichever they are."""
    shapes, request = draft.fleet.shapes, other.request
    if not other.single or not request.gpus or draft.fleet.columns.any_suspect:
        return True
    if request.id not in known:
        tiers = shapes.tiers(request, other.group.tasks == 1)
        known[request.id] = any(shapes.get(request, tier).room.any() for tier in tiers)
    return known[request.id]


def _room_left_behind(draft: Draft, row: JobRow, other: JobRow) -> dict[int, int]:
    """How many tasks of the job the other's nodes would hold if it left, per node."""
    vacancies: dict[int, Vacancy] = {}
    for held in other.held:
        if held.node not in vacancies:
            vacancies[held.node] = Vacancy(draft.fleet.columns, row.request, held.node)
        vacancies[held.node].leave(held)
    return {node: vacancy.room() for node, vacancy in vacancies.items()}


def _after_moving(draft: Draft, row: JobRow, other: JobRow) -> tuple[Held, ...] | None:
    """Where the other would then run, if both fit."""
    with draft.trial():
        draft.tx.lift_all(other, list(other.held))
        return tuple(other.held) if gang.place(draft, row) and gang.place(draft, other) else None


# --- ask for something else -------------------------------------------------------------------------------------------


def _other_model(draft: Draft, row: JobRow) -> Iterator[Suggestion]:
    if not row.job.models:
        return
    for model in draft.fleet.columns.models:
        if model and _would_start(draft, row, _probe(draft, row, replace(row.job, models=(model,)))):
            yield Suggestion(f"allow {model}", "model")


def _other_level(draft: Draft, row: JobRow) -> Iterator[Suggestion]:
    """The narrowest wider level that works, else none at all."""
    bundle = row.job.gang
    required = gang.innermost(draft.fleet.columns, [bundle.topology.required, *_leaf_levels(bundle)])
    if not required:
        return
    order = (*draft.fleet.columns.level_names, NVLINK)
    for level in (*reversed(order[: order.index(required)]), ""):
        if _would_start(draft, row, _probe(draft, row, replace(row.job, gang=_with_level(bundle, required, level)))):
            change = (
                f"require the same {level} instead of the same {required}"
                if level
                else f"only prefer the same {required}"
            )
            yield Suggestion(change, "level")
            return


def _leaf_levels(bundle: Bundle) -> list[str]:
    return [group.topology.required for group in bundle.leaves()]


def _with_level(bundle: Bundle, old: str, new: str) -> Bundle:
    def changed(request: TopologyAsk) -> TopologyAsk:
        return replace(request, required=new) if request.required == old else request

    groups = tuple(
        _with_level(g, old, new) if isinstance(g, Bundle) else replace(g, topology=changed(g.topology))
        for g in bundle.groups
    )
    return replace(bundle, topology=changed(bundle.topology), groups=groups)


def _smaller_gang(draft: Draft, row: JobRow) -> Iterator[Suggestion]:
    """The most tasks that would start now, fewer than asked."""
    if not row.single or row.group.min <= 1 or _some_ended(row):
        return
    low, high = 0, row.group.min - 1
    while low < high:
        middle = (low + high + 1) // 2
        if _would_start(draft, row, _with_tasks(draft, row, middle)):
            low = middle
        else:
            high = middle - 1
    if low:
        yield Suggestion(f"run with {counted(low, 'task')} instead of {row.group.min}", "gang")


def _some_ended(row: JobRow) -> bool:
    """Whether members ended already: another size would be another job."""
    return any(group.failed or group.succeeded for group in row.groups)


def _with_tasks(draft: Draft, row: JobRow, tasks: int) -> JobRow:
    group = replace(row.group, tasks=tasks, min=tasks)
    return _probe(draft, row, replace(row.job, gang=_with_group(row.job.gang, group)))


def _with_group(bundle: Bundle, group: TaskGroup) -> Bundle:
    inner = bundle.groups[0]
    return replace(bundle, groups=(_with_group(inner, group) if isinstance(inner, Bundle) else group,))


def _other_size(draft: Draft, row: JobRow) -> Iterator[Suggestion]:
    """Sizes that divide a node evenly, with the number of places that open up."""
    if not row.single or row.request.gpus < 2 or _some_ended(row):
        return
    for gpus, tasks in _sizes(draft, row):
        request = replace(row.group.request, gpus=gpus)
        group = replace(row.group, request=request, tasks=tasks, min=tasks)
        other = _probe(draft, row, replace(row.job, gang=_with_group(row.job.gang, group)))
        if _would_start(draft, row, other):
            places = _places(draft, other)
            each = gpu_words(gpus * WHOLE)
            asked = each if tasks == 1 else f"{counted(tasks, 'task')} of {each}"
            opened = f"{counted(places, 'place')} {are(places)} open"
            yield Suggestion(f"ask for {asked} instead of {_now(row)}", "size", f"{opened} for {each}")


def _now(row: JobRow) -> str:
    gpus, tasks = row.request.gpus, row.group.min
    return gpu_words(gpus * WHOLE) if tasks == 1 else f"{tasks} × {gpus}"


def _sizes(draft: Draft, row: JobRow) -> Iterator[tuple[int, int]]:
    """(GPUs a task, tasks): the same total in pieces that divide a node evenly, then the next smaller powers of two."""
    gpus, tasks, width = row.request.gpus, row.group.min, draft.fleet.columns.width
    even = next((piece for piece in _powers_of_two(min(gpus, width)) if gpus * tasks % piece == 0), gpus)
    if 1 < even != gpus:
        yield even, gpus * tasks // even
    for smaller in _powers_of_two(min(gpus - 1, width)):
        yield smaller, tasks


def _powers_of_two(largest: int) -> Iterator[int]:
    """Those that are no larger, the largest first."""
    size = 1 << largest.bit_length() >> 1
    while size:
        yield size
        size //= 2


def _places(draft: Draft, row: JobRow) -> int:
    """How many tasks of this kind fit now, over all models."""
    shapes = draft.fleet.shapes
    tiers = shapes.tiers(row.request, True)
    return sum(int(shapes.get(row.request, tier).room.sum()) for tier in tiers)
