"""Every question and every wish, handed to whoever answers it: the `Service` of any world."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Generic

from gpuyard import files
from gpuyard.model.errors import Conflict, Denied, Unwritten
from gpuyard.runtime.alerting import documents as alert_documents
from gpuyard.runtime.service import Caller, Document
from gpuyard.runtime.serving import reporting
from gpuyard.runtime.serving.acting import Acting
from gpuyard.runtime.serving.draining import Draining, place_of
from gpuyard.runtime.serving.inspecting import Inspecting
from gpuyard.runtime.serving.lookup import Lookup
from gpuyard.runtime.serving.port import R, ServedWorld
from gpuyard.runtime.serving.prospects.overview import Overview
from gpuyard.runtime.serving.queueing import Queueing
from gpuyard.runtime.serving.submissions.submitting import Submitting
from gpuyard.runtime.serving.viewing import Viewer

PRIVATE = ("memory", "budgets")
"""Sections of a snapshot that are for operators."""


class ServedYard(Generic[R]):
    """Implements `runtime.service.Service` over a `ServedWorld`. Every method may be called from any thread."""

    def __init__(self, world: ServedWorld[R]) -> None:
        self._world = world
        lookup = Lookup(world.jobs)
        self._submitting = Submitting(world)
        self._acting = Acting(world, lookup, self._submitting)
        self._inspecting = Inspecting(world, lookup)
        self._queueing = Queueing(world.jobs, world.site)
        self._draining = Draining(world.jobs, world.site)
        self._overview = Overview(world)

    def _viewer(self, caller: Caller) -> Viewer:
        return Viewer(caller, self._world.shared)

    def status(self) -> Document:
        """Up since when, where, how well."""
        return self._world.status()

    def snapshot(self, caller: Caller) -> Document:
        """The whole moment, as a snapshot file; of others' jobs only an operator sees more than their shape."""
        viewer = self._viewer(caller)
        document = files.snapshot_document(self._inspecting.moment(viewer))
        return document if viewer.sees_all else {key: document[key] for key in document if key not in PRIVATE}

    # --- jobs ------------------------------------------------------------------------------------

    def submit(
        self, caller: Caller, jobs: Sequence[Document], key: str = "", queue_anyway: bool = False
    ) -> list[Document]:
        """Accept jobs (all or none), durably, before returning."""
        return self._submitting.submit(self._viewer(caller), jobs, key, queue_anyway)

    def preview(self, caller: Caller, jobs: Sequence[Document]) -> list[Document]:
        """What would happen."""
        return self._submitting.preview(self._viewer(caller), jobs)

    def jobs(self, caller: Caller, all_ended: bool = False, fields: Sequence[str] = ()) -> list[Document]:
        """The active jobs and the newest hundred that ended; all that ended on request; only `fields` if any."""
        return self._inspecting.jobs(self._viewer(caller), all_ended, fields)

    def job(self, caller: Caller, name: str) -> Document:
        """One job with its attempts, placements, exit codes and history."""
        return self._inspecting.job(self._viewer(caller), name)

    def why(self, caller: Caller, name: str) -> Document:
        """Why it does not run: the sentence, the ladder, suggestions, ETA; or where it runs."""
        return self._inspecting.why(self._viewer(caller), name)

    def act(self, caller: Caller, name: str, verb: str) -> Document:
        """`cancel`, `hold`, `release` or `requeue` a job, or every member of an array."""
        with self._written(f"{verb} {name}"):
            return self._acting.act(self._viewer(caller), name, verb)

    def logs(self, caller: Caller, name: str, task: int, offset: int) -> tuple[bytes, int, bool]:
        """Output from `offset` on: the bytes, the next offset, and whether more may come."""
        return self._inspecting.logs(self._viewer(caller), name, task, offset)

    def attach(self, caller: Caller, name: str, task: int) -> str:
        """The path of the Unix socket of a task's terminal."""
        return self._inspecting.attach(self._viewer(caller), name, task)

    def alerts(self, caller: Caller) -> list[Document]:
        """What an operator should hear of, the worst first."""
        names = self._viewer(caller).sees_all
        return [alert_documents.document(alert, names) for alert in self._world.alerts()]

    # --- nodes and queues ------------------------------------------------------------------------

    def nodes(self, caller: Caller) -> list[Document]:
        """The nodes with their GPUs, health and who holds them."""
        return self._inspecting.nodes(self._viewer(caller))

    def drain(self, caller: Caller, place: Document, dry_run: bool = False) -> Document:
        """Close a node or one GPU of it, and empty it gently."""
        with self._written(f"drain {place_of(place)}", dry_run):
            return self._draining.drain(caller, place, dry_run)

    def undrain(self, caller: Caller, place: Document) -> Document:
        """Open a node or GPU again."""
        with self._written(f"open {place_of(place)}"):
            return self._draining.undrain(caller, place)

    def overview(self, caller: Caller) -> Document:
        """History, prospects and fragmentation: what the live page shows beside the listings."""
        return self._overview.told(caller)

    def queues(self) -> list[Document]:
        """The queues with quota, limit, use, fair share and how many wait."""
        return self._queueing.queues()

    def set_queue(self, caller: Caller, document: Document, dry_run: bool) -> Document:
        """Create or change a queue; a dry run tells who would lose or get GPUs."""
        with self._written(f"change queue {document['name']}", dry_run):
            return self._queueing.set_queue(caller, document, dry_run)

    def delete_queue(self, caller: Caller, name: str, dry_run: bool) -> Document:
        """Delete a queue in which no job stands; a dry run tells who would lose or get GPUs."""
        with self._written(f"delete queue {name}", dry_run):
            return self._queueing.delete_queue(caller, name, dry_run)

    @contextmanager
    def _written(self, wish: str, dry_run: bool = False) -> Iterator[None]:
        """Nobody is told yes, or that it was so before, of what a crash would forget."""
        try:
            yield
        except Conflict:
            self._must_be_written(wish)
            raise
        if not dry_run:
            self._must_be_written(wish)

    def _must_be_written(self, wish: str) -> None:
        if told := self._world.unwritten():
            raise Unwritten(
                f"to {wish} was heard, but cannot be written down yet, and a crash would forget it: {told}; "
                "ask again once there is room"
            )

    # --- what happened ---------------------------------------------------------------------------

    def report(self, caller: Caller, by: str, since: float) -> list[Mapping[str, Any]]:
        """GPU-seconds and money by user or queue, or both; what runs now counts up to this moment."""
        return reporting.report(self._world.past, self._viewer(caller), by, since)

    def events(self, caller: Caller, after: int, limit: int) -> list[Document]:
        """What happened, each with a growing `id`."""
        return reporting.events(self._world.past, self._viewer(caller), after, limit)

    def wait_events(self, after: int, timeout: float) -> bool:
        """Block until there is an event newer than `after`."""
        return self._world.past.wait(after, timeout)

    def measures(self) -> Document:
        """What /metrics tells beyond the listings."""
        return {"cycles": self._world.cycles(), "stranding": self._world.stranding()} | self._world.past.counts()

    def backup(self, caller: Caller, path: str) -> Document:
        """A consistent copy of the state in a new file."""
        if not caller.admin:
            raise Denied("a backup holds everybody's jobs; only an administrator can make one")
        return {"path": path, "bytes": self._world.backup(path)}
