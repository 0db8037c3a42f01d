"""Jobs, nodes, reasons as plain documents: the snapshot's keys, plus phase, reason and what else is known.

Called by the embedded yard. Nothing here decides; amounts leave the model's grains here and become GPUs.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterable
from typing import Any

from gpuyard.files.units import write_time
from gpuyard.files.writing import job_document, node_document
from gpuyard.model.job import Job, Placement
from gpuyard.model.node import Health, Node
from gpuyard.model.policy import Policy
from gpuyard.model.reasons import Code, Explanation, Reason
from gpuyard.model.resources import UNLIMITED, WHOLE, as_gpus, mig_cost
from gpuyard.worlds.local import ledger
from gpuyard.worlds.local.holdings import Holdings
from gpuyard.worlds.local.records import Attempt, Entry, Task, Template

Document = dict[str, Any]
OUTPUT_MAX = 1 << 20


# --- jobs ----------------------------------------------------------------------------------------


def entry_document(entry: Entry, policy: Policy) -> Document:
    """One job as a listing shows it."""
    template = entry.template
    if template.document is None:
        template.document = _asked(template, policy)
    document = template.document | {"name": entry.name, "id": entry.id, "phase": entry.phase.value}
    document |= {"attempts": entry.attempts, "held_gpus": _held_gpus(entry)}
    if entry.reason is not None and not entry.over:
        document["reason"] = reason_document(entry.reason)
    if entry.attempt is not None:
        document["placements"] = places_of(entry)
    times = {"started": entry.started, "ended": entry.ended}
    document |= {key: write_time(moment) for key, moment in times.items() if moment is not None}
    if entry.member is not None:
        document |= {"array": template.name, "index": entry.member}
    if entry.exit is not None:
        document["exit_code"] = entry.exit
    more = {"message": entry.told, "failures": entry.failures, "losses": entry.losses, "evictions": entry.evictions}
    return document | {key: value for key, value in more.items() if value}


def _asked(template: Template, policy: Policy) -> Document:
    """What all members of an array have in common."""
    job = template.job
    first = job.task_groups()[0]
    defaults: Document = {"queue": job.queue, "class": job.job_class.value}
    if len(job.task_groups()) == 1:
        defaults |= {"tasks": first.tasks, "min": first.min, "gpus": first.request.gpus}
    known = {
        "user": template.owner.user,
        "priority": policy.priority(job),
        "preemptible": policy.preemptible(job),
        "submitted": write_time(template.submitted),
        "asked_gpus": _asked_gpus(job),
    }
    after = [f"{each.job}:{'any' if each.anyhow else 'ok'}" for each in template.after]
    return defaults | job_document(job, job.submitted) | known | ({"after": after} if after else {})


def _asked_gpus(job: Job) -> float | int | str:
    total = 0
    for group in job.task_groups():
        request = group.request
        sliced = sum(count * mig_cost(profile) for profile, count in request.mig)
        total += group.tasks * (request.gpus * WHOLE + request.share + sliced)
    return as_gpus(total)


def _held_gpus(entry: Entry) -> float | int:
    attempt = entry.attempt
    if attempt is None or attempt.state == "promised":
        return 0
    held = round(sum(ledger.gpus_of(entry, task, None) for task in attempt.live()), 3)
    return int(held) if held == int(held) else held


def attempt_document(attempt: Attempt) -> Document:
    """One attempt with its tasks."""
    times = {"created": attempt.created, "started": attempt.started, "ended": attempt.ended}
    return {
        "number": attempt.number,
        "state": attempt.state,
        **({"why": attempt.why} if attempt.why else {}),
        **{key: write_time(moment) for key, moment in times.items() if moment is not None},
        "tasks": [_task_document(task) for task in attempt.tasks.values()],
    }


def _task_document(task: Task) -> Document:
    document: Document = {"rank": task.rank, "state": task.state} | placement_document(task.placement)
    more = {"outcome": task.outcome, "pid": task.pid, "message": task.told}
    document |= {key: value for key, value in more.items() if value}
    if task.exit is not None:
        document["exit_code"] = task.exit
    return document | ({"ended": write_time(task.ended)} if task.ended is not None else {})


def places_of(entry: Entry) -> list[Document]:
    """Where the job's tasks stand."""
    live = entry.attempt.live() if entry.attempt is not None else []
    return [
        placement_document(task.placement) | ({"terminating": True} if task.state == "stopping" else {})
        for task in live
    ]


def placement_document(place: Placement) -> Document:
    """Where one task stands."""
    document: Document = {"group": place.group, "task": place.task, "node": place.node, "gpus": list(place.gpus)}
    return document | ({"mig": list(place.mig)} if place.mig else {})


def read_output(folder: pathlib.Path, offset: int) -> tuple[bytes, int]:
    """Bytes from an offset on, some at a time; what was rotated away is skipped."""
    try:
        segments = sorted(int(path.name) for path in folder.iterdir())
    except OSError:
        return b"", offset
    begin = max((start for start in segments if start <= offset), default=segments[0] if segments else 0)
    offset = max(offset, begin)
    content = b""
    for start in (start for start in segments if start >= begin):
        with open(folder / f"{start:020d}", "rb") as file:
            file.seek(max(0, offset + len(content) - start))
            content += file.read(OUTPUT_MAX - len(content))
    return content, offset + len(content)


# --- nodes ---------------------------------------------------------------------------------------


def nodes_documents(nodes: Iterable[Node], holdings: Holdings, names: dict[int, str]) -> list[Document]:
    """The nodes, and who holds each GPU."""
    use = holdings.by_device()
    return [_node_document(node, use, names) for node in sorted(nodes, key=lambda node: node.name)]


def _node_document(node: Node, use: dict[tuple[str, int], dict[int, int]], names: dict[int, str]) -> Document:
    devices = [_device(node, index, use.get((node.name, index), {}), names) for index in range(len(node.gpus))]
    free = [device for device in devices if not device["jobs"] and device["health"] != Health.SICK.value]
    defaults = {"name": node.name, "pool": "", "gpus": 0, "model": "", "domains": {}, "cordoned": False}
    return (
        defaults
        | node_document(node)
        | {
            "phase": "cordoned" if node.cordoned else "ready",
            "free": 0 if node.cordoned else len(free),
            "used": round(sum(device["used"] for device in devices), 3),
            "jobs": sorted({job for device in devices for job in device["jobs"]}),
            "devices": devices,
        }
    )


def _device(node: Node, index: int, held: dict[int, int], names: dict[int, str]) -> Document:
    gpu = node.gpus[index]
    return {
        "index": index,
        "uuid": gpu.uuid,
        "health": gpu.health.value,
        "island": gpu.island,
        "jobs": sorted({names.get(job, "") for job in held} - {""}),
        "used": round(min(1.0, sum(held.values()) / WHOLE), 3),
    }


# --- reasons -------------------------------------------------------------------------------------


def reason_document(reason: Reason) -> Document:
    """A reason with its numbers."""
    amounts = {
        key: _amount(reason.code, amount)
        for key, amount in (("needed", reason.needed), ("free", reason.free), ("largest_fit", reason.largest_fit))
        if amount is not None
    }
    more = {"outcome": reason.outcome.value if reason.code.rung is not None else "", "where": reason.where}
    return {"code": reason.code.value, "message": str(reason)} | amounts | {k: v for k, v in more.items() if v}


def explanation_document(explanation: Explanation) -> Document:
    """Why a job waits: reason, ladder, what would let it run, who is in the way."""
    suggestions = [
        {"change": each.change, "kind": each.kind} | ({"effect": each.effect} if each.effect else {})
        for each in explanation.suggestions
    ]
    ladder = [
        {"rung": each.rung.title, "holds": each.holds, "nodes": each.nodes} | ({"note": each.note} if each.note else {})
        for each in explanation.ladder
    ]
    document = {"job": explanation.job, "reason": reason_document(explanation.reason) | {"suggestions": suggestions}}
    blockers = {"in_the_way": list(explanation.in_the_way)} if explanation.in_the_way else {}
    return document | {"ladder": ladder} | blockers


def _amount(code: Code, amount: int) -> float | int | str:
    if amount >= UNLIMITED:
        return "unlimited"
    if code is Code.NOT_ENOUGH_MEMORY:
        return amount
    if code is Code.NOT_ENOUGH_CPU:
        return amount / 1000
    return as_gpus(amount)
