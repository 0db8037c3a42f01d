"""From what a caller submits to jobs the world can accept: read, checked against queues, rights, caps and names.

Used by `submitting`, which trusts nobody. Every refusal is one sentence.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Generic

from gpuyard import files
from gpuyard.files.problems import nearest
from gpuyard.files.reading.submissions import Submission
from gpuyard.files.units import write_duration
from gpuyard.model.errors import Conflict, Denied, NotFound, Refused
from gpuyard.model.job import Job
from gpuyard.model.outside.phrases import are, counted
from gpuyard.model.ownership import Owner
from gpuyard.model.policy import GRACE, MIN_RUNTIME, TIME_LIMIT, Policy, bound_of
from gpuyard.model.queue import Queue
from gpuyard.runtime.service import Caller, Document
from gpuyard.runtime.serving import call_limits
from gpuyard.runtime.serving.port import R, ServedWorld

ENDED_NAME = re.compile(r"@[0-9]+$")
"""How an ended job is called once its name is used again; nobody else may be."""
UNNAMED = "-?"
"""The end of a name that has no number yet."""
KEY_MAX = 253
"""What a snapshot file takes for a name."""


class Intake(Generic[R]):
    """Reads submissions for one yard."""

    def __init__(self, world: ServedWorld[R]) -> None:
        self._jobs = world.jobs
        self._acceptance = world.acceptance

    def read(self, caller: Caller, document: Document, now: float) -> Submission:
        """What a document asks for; a job without a name gets the stem of one, after its program (see `named`)."""
        call_limits.check_parts(document, "a job")
        call_limits.check_text(document, "a job")
        document = {key: value for key, value in document.items() if key not in ("user", "submitted")}
        if "name" not in document:
            document["name"] = _stem_for(document) + UNNAMED
        asked = files.read_submission(document, now, "job")
        job = replace(asked.job, user=caller.user, submitted=now)
        if job.run is None or not job.run.command:
            raise Refused(f"job {job.name} says nothing to run; give run.command, a list of words")
        if ENDED_NAME.search(job.name):
            told = f"job {job.name} is called as an ended job whose name was used again: name and number"
            raise Refused(f"{told}; choose a name that does not end in @ and a number")
        if job.foreign:
            raise Refused(f"job {job.name} is marked foreign, which only what runs already can be")
        if job.run.image:
            self._acceptance.check_run(job.run)
        return replace(asked, job=job)

    def named(self, asked: Submission, number: int) -> Submission:
        """The same under a name: one that has only the stem of one gets a number."""
        if not asked.job.name.endswith(UNNAMED):
            return asked
        return replace(asked, job=replace(asked.job, name=asked.job.name.removesuffix(UNNAMED) + f"-{number}"))

    def check(self, caller: Caller, asked: Submission, queues: Sequence[Queue]) -> None:
        """Whether the caller may stand in that queue, and whether it is one."""
        job, known = asked.job, {queue.name: queue for queue in queues}
        queue = known.get(job.queue)
        if queue is None:
            near = nearest(job.queue, known)
            hint = f"; did you mean {near}?" if near else f" (there are: {', '.join(sorted(known))})"
            raise NotFound(f"job {job.name} stands in queue {job.queue}, which does not exist{hint}")
        if any(other.parent == queue.name for other in queues):
            told = f"job {job.name} stands in queue {queue.name}, which has queues below it; jobs stand in leaf queues"
            raise Refused(told)
        while queue is not None:
            self._check_rights(caller, queue)
            queue = known.get(queue.parent)

    def _check_rights(self, caller: Caller, queue: Queue) -> None:
        if caller.admin or not (queue.users or queue.groups):
            return
        if caller.user not in queue.users and not set(caller.groups) & set(queue.groups):
            who = ", ".join([*queue.users, *(f"group {group}" for group in queue.groups)])
            raise Denied(f"{caller.user} may not use queue {queue.name}; it is open to {who}")

    def check_names(self, owner: Owner, asked: Sequence[Submission]) -> None:
        """A name of an owner's means one job that is not over."""
        seen: set[str] = set()
        for submission in asked:
            for name in submission.names():
                key = owner.key(name)
                if len(key) > KEY_MAX:
                    raise Refused(f"the name {name[:40]}... is too long: with its owner's it has {len(key)} characters")
                if key in seen or self._acceptance.is_taken(key):
                    raise Conflict(f"there is a job {name} already, and it has not ended; choose another name")
                seen.add(key)

    def check_caps(self, caller: Caller, owner: Owner, asked: Sequence[Submission]) -> None:
        """Nobody fills the yard alone; what is more than may ever run at once is refused rather than kept waiting."""
        for submission in asked:
            self._check_tasks(caller, submission.job)
        cap = self._acceptance.caps.jobs
        if not cap or caller.admin:
            return
        own = sum(job.owner.identity == owner.identity for job in self._jobs.active())
        if own + sum(len(each.names()) for each in asked) > cap:
            told = f"{caller.user} has {counted(own, 'job')} that {are(own)} not over, and {cap} {are(cap)} allowed"
            raise Refused(f"{told}; wait for some to end")

    def _check_tasks(self, caller: Caller, job: Job) -> None:
        count = sum(group.min for group in job.task_groups())
        allowed = self._acceptance.caps
        caps = [allowed.tasks] if caller.admin else [allowed.user_tasks, allowed.tasks]
        cap = min((cap for cap in caps if cap), default=0)
        if cap and count > cap:
            raise Refused(f"job {job.name} has {counted(count, 'task')}, and {cap} may run at once here; give it fewer")


def _stem_for(document: Document) -> str:
    run = document.get("run")
    command = run.get("command") if isinstance(run, dict) else None
    word = command[0] if isinstance(command, list) and command and isinstance(command[0], str) else "job"
    stem = "".join(c if c.isalnum() or c in "._" else "-" for c in word.rsplit("/", 1)[-1])[:40].strip("-.")
    return stem or "job"


def digest(documents: Sequence[Document]) -> str:
    """What was asked under an idempotency key, so that a reused key is noticed."""
    return hashlib.sha256(json.dumps(list(documents), sort_keys=True).encode()).hexdigest()


# --- how long a job may ask for ------------------------------------------------------------------


def kept_to(asked: Submission, policy: Policy, queues: Sequence[Queue]) -> Submission:
    """The submission, if it asks for no more than it may; one without a time limit gets the one that is allowed."""
    job = asked.job
    _check_priority(job, policy)
    grace = job.checkpoint.grace if job.checkpoint is not None else None
    for key, wanted, name in (
        ("checkpoint.grace", grace, GRACE),
        ("min_runtime", job.min_runtime, MIN_RUNTIME),
        ("time_limit", job.time_limit, TIME_LIMIT),
    ):
        bound = bound_of(job, policy, queues, name)
        if bound is not None and wanted is not None and wanted > bound.seconds:
            raise Refused(
                f"job {job.name} asks for {key} {write_duration(wanted)}, and {bound.whose} allows at most "
                f"{write_duration(bound.seconds)} ({bound.key}); ask for less"
            )
    limit = bound_of(job, policy, queues, TIME_LIMIT)
    if job.time_limit is None and limit is not None:
        return replace(asked, job=replace(job, time_limit=limit.seconds))
    return asked


def _check_priority(job: Job, policy: Policy) -> None:
    names = policy.named_priorities()
    if isinstance(job.priority, str) and job.priority not in names:
        known = ", ".join(f"{name} {names[name]}" for name in sorted(names, key=lambda name: names[name]))
        raise Refused(f"job {job.name} has priority {job.priority}, which is no name here (there are: {known})")
