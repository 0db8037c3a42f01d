"""What people do to jobs: cancel, hold, release, requeue, vouch; each by the rights of whoever asks."""

from __future__ import annotations

from typing import Generic

from gpuyard.model.errors import Conflict, Denied, Refused
from gpuyard.runtime.service import Document
from gpuyard.runtime.serving.lookup import Lookup
from gpuyard.runtime.serving.port import R, ServedWorld
from gpuyard.runtime.serving.submissions.submitting import Submitting
from gpuyard.runtime.serving.viewing import Viewer


class Acting(Generic[R]):
    """Asks for rights, then tells the world."""

    def __init__(self, world: ServedWorld[R], lookup: Lookup[R], submitting: Submitting[R]) -> None:
        self._world = world
        self._lookup = lookup
        self._submitting = submitting

    def act(self, viewer: Viewer, name: str, verb: str) -> Document:
        """See `Service.act`; of an array every member."""
        with self._world.change():
            jobs = self._lookup.meant(viewer, name)
            for job in jobs:
                self._check(viewer, job, verb)
                self._do(viewer, job, verb)
            at_work = sum(job.attempt is not None and not job.attempt.why for job in jobs)
        return {"name": name, "phase": jobs[0].phase.value, "jobs": len(jobs), "running": at_work}

    def _check(self, viewer: Viewer, job: R, verb: str) -> None:
        caller = viewer.caller
        if not (caller.admin or viewer.owns(job.owner)):
            raise Denied(f"{job.name} belongs to {job.owner.user}, who alone can {verb} it")
        if verb == "vouch" and not caller.admin:
            raise Denied(f"{caller.user} may not vouch for {job.name}; an administrator can")
        if job.over and verb != "requeue":
            raise Conflict(f"{job.name} has ended already: {job.phase.value}")

    def _do(self, viewer: Viewer, job: R, verb: str) -> None:
        user, requests = viewer.caller.user, self._world.requests
        match verb:
            case "cancel":
                requests.cancel(job, f"cancelled by {user}")
            case "hold" | "requeuehold":
                requests.hold(job, requeue=verb == "requeuehold")
            case "release":
                requests.release(job)
            case "requeue":
                if job.over:
                    self._submitting.let_begin_again(viewer, job)
                requests.requeue(job)
            case "vouch":
                requests.vouch(job, user)
            case _:
                raise Refused(f"there is no such act: {verb}; a job can be cancelled, held, released or requeued")
