"""Jobs as plain documents: the snapshot's keys, plus phase, reason and what else is known.

Nothing here decides; amounts leave the model's grains here and become GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from gpuyard.files.explanations import reason_document
from gpuyard.files.units import write_time
from gpuyard.files.writing import job_document
from gpuyard.model.answers.progress import Progress
from gpuyard.model.job import Job, Phase, Placement
from gpuyard.model.policy import Policy
from gpuyard.model.reasons import Reason, without_names
from gpuyard.model.resources import WHOLE, as_gpus, mig_cost
from gpuyard.runtime.service import Document
from gpuyard.runtime.serving.port import AttemptRecord, JobRecord, TaskRecord, TemplateRecord
from gpuyard.runtime.serving.viewing import Viewer


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

    def tell(self, job: JobRecord) -> Document:
        """One job as a listing shows it."""
        template = job.template
        common = self._templates.get(template.id)
        if common is None:
            common = self._templates[template.id] = self._common(template)
        document = common.copy()
        for key, get in self._own:
            value = get(job)
            if value is not None:
                document[key] = value
        if self._tells_reason and job.reason is not None and not job.over:
            document["reason"] = self._reason(job.reason)
        return self._viewer.told(job, document)

    def _common(self, template: TemplateRecord) -> Document:
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


def _held_gpus(job: JobRecord) -> float | int:
    held = round(job.held_gpus(), 3)
    return int(held) if held == int(held) else held


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else write_time(seconds)


def progress_document(progress: Progress | None) -> Document | None:
    """How far an attempt is by its own word, if it told; `ends` is when it will be done at its pace so far."""
    if progress is None:
        return None
    document = {
        "done": progress.done, "total": progress.total or None, "steps_per_second": round(progress.pace, 6) or None,
        "at": _moment(progress.at), "saved": _moment(progress.saved), "ends": _moment(progress.ends()),
    }  # fmt: skip
    return {key: value for key, value in document.items() if value is not None}


OWN: tuple[tuple[str, Callable[[JobRecord], Any]], ...] = (
    ("name", lambda job: job.name),
    ("id", lambda job: job.id),
    ("phase", lambda job: job.phase.value),
    ("attempts", lambda job: job.attempts),
    ("held_gpus", _held_gpus),
    ("placements", lambda job: None if job.attempt is None else places_of(job)),
    ("started", lambda job: _moment(job.started)),
    ("progress", lambda job: None if job.attempt is None else progress_document(job.attempt.progress)),
    ("waiting_since", lambda job: None if job.attempt is not None or job.over else _moment(job.waits)),
    ("ended", lambda job: _moment(job.ended)),
    ("array", lambda job: None if job.member is None else job.template.name),
    ("index", lambda job: job.member),
    ("exit_code", lambda job: job.exit),
    ("message", lambda job: job.told or None),
    ("failures", lambda job: job.failures or None),
    ("losses", lambda job: job.losses or None),
    ("evictions", lambda job: job.evictions or None),
)
"""What each job has for itself, and how it is told; None is left out."""


def _asked(template: TemplateRecord, policy: Policy) -> Document:
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


def attempt_document(attempt: AttemptRecord) -> Document:
    """One attempt with its tasks."""
    times = {
        "created": attempt.created, "started": attempt.started, "stopped": attempt.stopped, "ended": attempt.ended,
    }  # fmt: skip
    return {
        "number": attempt.number,
        "state": attempt.state,
        **({"why": attempt.why} if attempt.why else {}),
        **({"message": attempt.told} if attempt.told else {}),
        **{key: write_time(moment) for key, moment in times.items() if moment is not None},
        **({"progress": progress_document(attempt.progress)} if attempt.progress is not None else {}),
        "tasks": [_task_document(task) for task in attempt.tasks.values()],
    }


def _task_document(task: TaskRecord) -> Document:
    document: Document = {"rank": task.rank, "state": task.state} | placement_document(task.placement)
    more = {"outcome": task.outcome, "pid": task.pid, "message": task.told}
    document |= {key: value for key, value in more.items() if value}
    if task.exit is not None:
        document["exit_code"] = task.exit
    return document | ({"ended": write_time(task.ended)} if task.ended is not None else {})


def places_of(job: JobRecord) -> list[Document]:
    """Where the job's tasks stand."""
    live = job.attempt.live() if job.attempt is not None else []
    return [
        placement_document(task.placement) | ({"terminating": True} if task.state == "stopping" else {})
        for task in live
    ]


def standing_document(job: JobRecord) -> Document:
    """Where a job that does not merely wait stands, since when, and what there is to say of it."""
    attempt = job.attempt
    document: Document = {"placements": places_of(job)}
    if attempt is not None and attempt.state == "promised":
        return document | {"message": "its GPUs are kept for it until those who still hold them have stopped"}
    if attempt is not None and attempt.why:
        return document | {"message": f"it is being {attempt.story}"}
    if job.phase is Phase.RUNNING:
        told = None if attempt is None else progress_document(attempt.progress)
        return document | {"started": _moment(job.started)} | ({"progress": told} if told else {})
    return document | {"message": job.told or job.phase.value}


def disturbed_document(attempts: Sequence[AttemptRecord]) -> Document:
    """When the job was last stopped or moved for others, and what that cost it; nothing if it never was."""
    for attempt in reversed(attempts):
        if attempt.told:
            at = attempt.stopped or attempt.ended or attempt.created
            return {"disturbed": {"at": write_time(at), "message": attempt.told}}
    return {}


def placement_document(place: Placement) -> Document:
    """Where one task stands."""
    document: Document = {"group": place.group, "task": place.task, "node": place.node, "gpus": list(place.gpus)}
    return document | ({"mig": list(place.mig)} if place.mig else {})
