"""Jobs, nodes, reasons as plain documents: the snapshot's keys, plus phase, reason and what else is known.

Called by the embedded yard. Nothing here decides; amounts leave the model's grains here and become GPUs.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterable
from typing import Any

from gpuyard.files.units import write_time
from gpuyard.files.writing import job_document, node_document
from gpuyard.model.job import Placement
from gpuyard.model.node import Node
from gpuyard.model.reasons import Code, Explanation, Reason
from gpuyard.model.resources import UNLIMITED, as_gpus
from gpuyard.worlds.local.holdings import Holdings
from gpuyard.worlds.local.records import Attempt, Entry, Task

Document = dict[str, Any]


def entry_document(entry: Entry) -> Document:
    """One job as a listing shows it."""
    document = job_document(entry.job(), -1.0)
    document |= {"id": entry.id, "user": entry.owner.user, "phase": entry.phase.value, "attempts": entry.attempts}
    if entry.reason is not None and not entry.over:
        document["reason"] = reason_document(entry.reason)
    times = {"started": entry.started, "ended": entry.ended}
    document |= {key: write_time(moment) for key, moment in times.items() if moment is not None}
    if entry.member is not None:
        document |= {"array": entry.template.name, "index": entry.member}
    if entry.exit is not None:
        document["exit_code"] = entry.exit
    counts = {"message": entry.told, "failures": entry.failures, "losses": entry.losses}
    return document | {key: value for key, value in counts.items() if value}


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
    return [placement_document(task.placement) for task in live]


def read_output(folder: pathlib.Path, offset: int, most: int = 1 << 20) -> tuple[bytes, int]:
    """Bytes from an offset on; what was rotated away is skipped."""
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
            content += file.read(most - len(content))
    return content, offset + len(content)


def placement_document(place: Placement) -> Document:
    """Where one task stands."""
    document: Document = {"group": place.group, "task": place.task, "node": place.node, "gpus": list(place.gpus)}
    return document | ({"mig": list(place.mig)} if place.mig else {})


def nodes_documents(nodes: Iterable[Node], holdings: Holdings, names: dict[int, str]) -> list[Document]:
    """The nodes, and who holds each GPU."""
    return [node_document(node) | {"held": _held(node, holdings, names)} for node in nodes]


def _held(node: Node, holdings: Holdings, names: dict[int, str]) -> dict[str, list[str]]:
    held = {}
    for gpu in node.gpus:
        jobs = sorted({names.get(key.job, "") for key in holdings.holders(node.name, gpu.index)} - {""})
        if jobs:
            held[str(gpu.index)] = jobs
    return held


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
    return (
        document | {"ladder": ladder} | ({"in_the_way": list(explanation.in_the_way)} if explanation.in_the_way else {})
    )


def _amount(code: Code, amount: int) -> float | int | str:
    if amount >= UNLIMITED:
        return "unlimited"
    if code is Code.NOT_ENOUGH_MEMORY:
        return amount
    if code is Code.NOT_ENOUGH_CPU:
        return amount / 1000
    return as_gpus(amount)
