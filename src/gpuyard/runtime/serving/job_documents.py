"""Jobs and nodes as plain documents: the snapshot's keys, plus phase, reason and what else is known.

Called by the embedded yard. Nothing here decides; amounts leave the model's grains here and become GPUs.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from gpuyard.files.explanations import reason_document
from gpuyard.files.units import write_time
from gpuyard.files.writing import job_document, node_document
from gpuyard.model.job import Job, Phase, Placement
from gpuyard.model.node import Closure, Gpu, Health, Node
from gpuyard.model.policy import Policy
from gpuyard.model.reasons import Reason, without_names
from gpuyard.model.resources import WHOLE, as_gpus, mig_cost
from gpuyard.runtime.serving.viewing import Viewer
from gpuyard.worlds.local.launching.holdings import Holdings
from gpuyard.worlds.local.state import ledger
from gpuyard.worlds.local.state.records import Attempt, Entry, Task, Template

Document = dict[str, Any]
OUTPUT_MAX = 1 << 20
ROTATIONS_MAX = 10
"""So often a reader looks again whose segment is gone; a writer so much faster is read by nobody."""


# --- jobs ----------------------------------------------------------------------------------------


class Teller:
    """Tells jobs one after the other: whole, or only the keys that are asked for (`reason.code` is a part of one).

    What many jobs have in common (their template, their reason) is worked out once; ten thousand are told in a moment.
    """

    def __init__(self, policy: Policy, viewer: Viewer, fields: Sequence[str] = ()) -> None:
        self._policy = policy
        self._viewer = viewer
        self._fields = frozenset(fields)
        self._own = [(key, get) for key, get in OWN if self._wants(key)]
        self._tells_reason = "reason" if self._wants("reason") else "reason.code" if "reason.code" in fields else ""
        self._templates: dict[int, Document] = {}
        self._reasons: dict[int, Document] = {}

    def _wants(self, key: str) -> bool:
        return not self._fields or key in self._fields

    def tell(self, entry: Entry) -> Document:
        """One job as a listing shows it."""
        template = entry.template
        common = self._templates.get(template.id)
        if common is None:
            common = self._templates[template.id] = self._common(template)
        document = common.copy()
        for key, get in self._own:
            value = get(entry)
            if value is not None:
                document[key] = value
        if self._tells_reason and entry.reason is not None and not entry.over:
            document["reason"] = self._reason(entry.reason)
        return self._viewer.told(entry, document)

    def _common(self, template: Template) -> Document:
        if template.document is None:
            template.document = _asked(template, self._policy)
        return {key: value for key, value in template.document.items() if self._wants(key)}

    def _reason(self, reason: Reason) -> Document:
        known = self._reasons.get(id(reason))
        if known is None:
            told = reason if self._viewer.sees_all else without_names(reason)
            known = reason_document(told) if self._tells_reason == "reason" else {"code": told.code.value}
            self._reasons[id(reason)] = known
        return known


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else write_time(seconds)


OWN: tuple[tuple[str, Callable[[Entry], Any]], ...] = (
    ("name", lambda entry: entry.name),
    ("id", lambda entry: entry.id),
    ("phase", lambda entry: entry.phase.value),
    ("attempts", lambda entry: entry.attempts),
    ("held_gpus", lambda entry: 0 if entry.attempt is None else _held_gpus(entry, entry.attempt)),
    ("placements", lambda entry: None if entry.attempt is None else places_of(entry)),
    ("started", lambda entry: _moment(entry.started)),
    ("waiting_since", lambda entry: None if entry.attempt is not None or entry.over else _moment(entry.waits)),
    ("ended", lambda entry: _moment(entry.ended)),
    ("array", lambda entry: None if entry.member is None else entry.template.name),
    ("index", lambda entry: entry.member),
    ("exit_code", lambda entry: entry.exit),
    ("message", lambda entry: entry.told or None),
    ("failures", lambda entry: entry.failures or None),
    ("losses", lambda entry: entry.losses or None),
    ("evictions", lambda entry: entry.evictions or None),
)
"""What each job has for itself, and how it is told; None is left out."""


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
    shown = job if job.run is None else replace(job, run=job.run.kept_back())
    return defaults | job_document(shown, job.submitted) | known | ({"after": after} if after else {})


def _asked_gpus(job: Job) -> float | int | str:
    total = 0
    for group in job.task_groups():
        request = group.request
        sliced = sum(count * mig_cost(profile) for profile, count in request.mig)
        total += group.tasks * (request.gpus * WHOLE + request.share + sliced)
    return as_gpus(total)


def _held_gpus(entry: Entry, attempt: Attempt) -> float | int:
    if attempt.state == "promised":
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


def standing_document(entry: Entry) -> Document:
    """Where a job that does not merely wait stands, since when, and what there is to say of it."""
    attempt = entry.attempt
    document: Document = {"placements": places_of(entry)}
    if attempt is not None and attempt.state == "promised":
        return document | {"message": "its GPUs are kept for it until those who still hold them have stopped"}
    if attempt is not None and attempt.why:
        return document | {"message": f"it is being stopped: {attempt.why}"}
    if entry.phase is Phase.RUNNING:
        return document | {"started": _moment(entry.started)}
    return document | {"message": entry.told or entry.phase.value}


def placement_document(place: Placement) -> Document:
    """Where one task stands."""
    document: Document = {"group": place.group, "task": place.task, "node": place.node, "gpus": list(place.gpus)}
    return document | ({"mig": list(place.mig)} if place.mig else {})


def read_output(folder: pathlib.Path, offset: int) -> tuple[bytes, int]:
    """Bytes from an offset on, some at a time; what was rotated away is skipped, also while it is being read."""
    for _ in range(ROTATIONS_MAX):
        try:
            return _read_segments(folder, offset)
        except FileNotFoundError:  # the oldest segment went after the listing: look again, further on
            continue
    return b"", offset


def _read_segments(folder: pathlib.Path, offset: int) -> tuple[bytes, int]:
    try:
        segments = sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())
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
    devices = [_device(gpu, use.get((node.name, gpu.index), {}), names) for gpu in node.gpus]
    open_ = [device for device in devices if "phase" not in device and device["health"] != Health.SICK.value]
    defaults = {"name": node.name, "pool": "", "gpus": 0, "model": "", "domains": {}, "cordoned": False}
    jobs = sorted({job for device in devices for job in device["jobs"]})
    return (
        defaults
        | node_document(node)
        | {
            "cordoned": node.closed is not None,
            "phase": _phase(node.closed, bool(jobs)) if node.closed is not None else "ready",
            "free": 0 if node.closed is not None else sum(not device["jobs"] for device in open_),
            "used": round(sum(device["used"] for device in devices), 3),
            "jobs": jobs,
            "devices": devices,
        }
        | drain_document(node.closed)
    )


def _device(gpu: Gpu, held: dict[int, int], names: dict[int, str]) -> Document:
    closed = {} if gpu.closed is None else {"phase": _phase(gpu.closed, bool(held))} | drain_document(gpu.closed)
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "health": gpu.health.value,
        "island": gpu.island,
        "jobs": sorted({names.get(job, "") for job in held} - {""}),
        "used": round(min(1.0, sum(held.values()) / WHOLE), 3),
    } | closed


def _phase(closure: Closure, held: bool) -> str:
    if not closure.drains:
        return "cordoned"
    return "draining" if held else "drained"


def drain_document(closure: Closure | None) -> Document:
    """Who drains it, since when and why."""
    if closure is None or not closure.drains:
        return {}
    return {"drain": {"reason": closure.reason, "by": closure.by, "since": write_time(closure.since)}}
