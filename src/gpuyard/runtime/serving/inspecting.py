"""What is told of jobs and nodes: listings, one job with its history, why it waits, its output and its terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic

from gpuyard.files.explanations import reason_document
from gpuyard.files.writing import shape_document
from gpuyard.model.errors import Conflict, NotFound
from gpuyard.model.job import Phase
from gpuyard.model.reasons import without_names
from gpuyard.model.snapshot import Snapshot
from gpuyard.runtime.service import Document
from gpuyard.runtime.serving.documents import job_documents, node_documents
from gpuyard.runtime.serving.lookup import Lookup
from gpuyard.runtime.serving.port import R, ServedWorld
from gpuyard.runtime.serving.prospects import forecast
from gpuyard.runtime.serving.viewing import Viewer


class Inspecting(Generic[R]):
    """Looks, and changes nothing."""

    def __init__(self, world: ServedWorld[R], lookup: Lookup[R]) -> None:
        self._world = world
        self._lookup = lookup

    def moment(self, viewer: Viewer) -> Snapshot:
        """The whole moment, as the caller may see it."""
        with self._world.jobs.still():
            return viewer.moment(self._world.site.moment(), self._world.jobs.active())

    def jobs(self, viewer: Viewer, all_ended: bool, fields: Sequence[str]) -> list[Document]:
        """See `Service.jobs`."""
        tell = job_documents.Teller(self._world.site.policy, viewer, fields).tell
        jobs = self._world.jobs
        with jobs.still():
            jobs.refresh()
            shown = [*jobs.active(), *([] if all_ended else jobs.recent())]
            found = [tell(job) for job in shown if viewer.sees(job)]
        if all_ended:
            found += [tell(job) for job in jobs.ended(None if viewer.sees_all else viewer.owner)]
        return found

    def job(self, viewer: Viewer, name: str) -> Document:
        """See `Service.job`."""
        jobs = self._world.jobs
        with jobs.still():
            jobs.settle()
            jobs.refresh()
            job = self._lookup.seen(viewer, name)
            attempts = jobs.history(job.id)
            document = job_documents.Teller(self._world.site.policy, viewer).tell(job)
        return document | {
            "history": [job_documents.attempt_document(attempt) for attempt in attempts],
            "output": jobs.output_folder(job.id),
            "events": [viewer.event(each) for each in self._world.past.events_of(job.id)],
        }

    def why(self, viewer: Viewer, name: str) -> Document:
        """See `Service.why`."""
        jobs = self._world.jobs
        with jobs.still():
            jobs.settle()
            job = self._lookup.seen(viewer, name)
            disturbed = job_documents.disturbed_document(jobs.history(job.id))
        document: Document = {"job": name, "phase": job.phase.value} | disturbed
        if job.phase is not Phase.WAITING or job.attempt is not None:
            return document | job_documents.standing_document(job)
        document |= shape_document(job.description())
        if not job.shown and job.reason is not None:
            reason = job.reason if viewer.sees_all else without_names(job.reason)
            return document | {"message": str(reason), "reason": reason_document(reason)}
        return document | forecast.why(self.moment(viewer), viewer.name_in_moment(job)) | {"job": name}

    def logs(self, viewer: Viewer, name: str, task: int, offset: int) -> tuple[bytes, int, bool]:
        """See `Service.logs`."""
        job = self._lookup.seen(viewer, name)
        tasks = sum(group.tasks for group in job.description().task_groups())
        if task >= tasks:
            raise NotFound(f"{name} has no task {task}; it has {tasks}, counted from 0")
        over = job.over  # asked before reading, or the last words could be missed
        content, following = self._world.jobs.output(job.id, task, offset)
        return content, following, bool(content) or not over

    def attach(self, viewer: Viewer, name: str, task: int) -> str:
        """See `Service.attach`."""
        with self._world.jobs.still():
            job = self._lookup.seen(viewer, name)
            run = job.description().run
            if run is None or not run.tty:
                raise Conflict(f"{name} has no terminal; start it with one: `yard run -it`")
            found = self._world.jobs.terminal(job.id, task)
            if not found:
                raise Conflict(f"{name} does not run; it is {job.phase.value}")
            return found

    def nodes(self, viewer: Viewer) -> list[Document]:
        """See `Service.nodes`."""
        with self._world.jobs.still():
            names = {job.id: viewer.called(job) for job in self._world.jobs.active()}
            site = self._world.site
            return node_documents.nodes_documents(site.nodes(), site.holders(), names, site.measured())
