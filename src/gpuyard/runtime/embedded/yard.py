"""The embedded yard: one control plane in this process, on this machine or a virtual fleet, with its state on disk.

`server.api` and `yard demo` use it as a `runtime.service.Yard`. It wires the local world, the loop and the store,
answers questions, and keeps people out of each other's jobs; what runs where is the brain's business.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

import gpuyard
from gpuyard import files
from gpuyard.files.explanations import reason_document
from gpuyard.files.writing import queue_document, shape_document
from gpuyard.model.errors import Conflict, Denied, NotFound, Refused
from gpuyard.model.job import Phase
from gpuyard.model.node import Health
from gpuyard.model.outside import text
from gpuyard.model.outside.ports import Clock
from gpuyard.model.queue import Queue
from gpuyard.model.reasons import without_names
from gpuyard.model.snapshot import Snapshot
from gpuyard.runtime.alerting import documents as alerting
from gpuyard.runtime.embedded import fitting
from gpuyard.runtime.embedded.control_plane import QUEUES, ControlPlane, Settings
from gpuyard.runtime.embedded.submitting import Submitting
from gpuyard.runtime.service import Caller, Document
from gpuyard.runtime.serving import draining, forecast, job_documents, queueing, reporting
from gpuyard.runtime.serving.viewing import Viewer
from gpuyard.worlds.local.attempts.desk import Desk
from gpuyard.worlds.local.ports import FaultPoint, no_fault
from gpuyard.worlds.local.seam import archive
from gpuyard.worlds.local.state import book as books
from gpuyard.worlds.local.state.records import Entry
from gpuyard.worlds.local.state.store import Store
from gpuyard.worlds.local.world import LocalWorld

__all__ = ["EmbeddedYard", "Settings"]

DISK_LOW_BYTES = 64 << 20
PRIVATE = ("memory", "budgets")
"""Sections of a snapshot that are for operators."""


class EmbeddedYard:
    """Implements `runtime.service.Yard`. Every method may be called from any thread."""

    def __init__(self, settings: Settings, clock: Clock, fault: FaultPoint = no_fault) -> None:
        self.settings = settings
        self._plane = ControlPlane(settings, clock, fault)
        self._submitting = Submitting(self._plane)
        self._queues_at: tuple[int, int] = (-1, -1)
        self._queue_documents: list[Document] = []

    def start(self) -> None:
        """Take the state folder, adopt what runs, begin to turn. `Refused` says who holds the folder."""
        self._plane.start()
        self._submitting.begin()

    def close(self, jobs: bool = False) -> None:
        """Stop turning and let go of the state folder; the jobs run on, unless they are to end too."""
        self._plane.close(jobs)

    @property
    def _desk(self) -> Desk:
        return self._plane.desk

    @property
    def store(self) -> Store:
        """Where everything is written."""
        return self._plane.store

    @property
    def world(self) -> LocalWorld:
        """This machine."""
        return self._plane.world

    def _viewer(self, caller: Caller) -> Viewer:
        return Viewer(caller, self.settings.shared)

    def snapshot(self, caller: Caller) -> Document:
        """The whole moment, as a snapshot file; of others' jobs only an operator sees more than their shape."""
        viewer = self._viewer(caller)
        document = files.snapshot_document(self._moment_for(viewer))
        return document if viewer.sees_all else {key: document[key] for key in document if key not in PRIVATE}

    # --- submitting ------------------------------------------------------------------------------

    def submit(
        self, caller: Caller, jobs: Sequence[Document], key: str = "", queue_anyway: bool = False
    ) -> list[Document]:
        """Accept jobs (all or none), durably, before returning."""
        return self._submitting.submit(self._viewer(caller), jobs, key, queue_anyway)

    def preview(self, caller: Caller, jobs: Sequence[Document]) -> list[Document]:
        """What would happen."""
        return self._submitting.preview(self._viewer(caller), jobs)

    # --- jobs ------------------------------------------------------------------------------------

    def jobs(self, caller: Caller, all_ended: bool = False, fields: Sequence[str] = ()) -> list[Document]:
        """The active jobs and the newest hundred that ended; all that ended on request; only `fields` if any."""
        viewer = self._viewer(caller)
        tell = job_documents.Teller(self.settings.fleet.policy, viewer, fields).tell
        with self._desk.lock:
            self.world.note_reasons()
            shown = [*self._desk.book.active(), *([] if all_ended else self._desk.book.ended)]
            found = [tell(entry) for entry in shown if viewer.sees(entry)]
        if all_ended:
            found += [tell(entry) for entry in self._ended(viewer)]
        return found

    def _ended(self, viewer: Viewer) -> list[Entry]:
        """All that ended, and may be known of."""
        own = "" if viewer.sees_all else " AND j.template IN (SELECT id FROM templates WHERE user = ? AND uid = ?)"
        whose = () if viewer.sees_all else (viewer.owner.user, viewer.owner.uid)
        return books.entries(self.store, f"j.phase {books.OVER}{own} ORDER BY j.id", whose, {})

    def _moment_for(self, viewer: Viewer) -> Snapshot:
        with self._desk.lock:
            return viewer.moment(self._plane.moment(), self._desk.book.active())

    def _find(self, key: str) -> Entry | None:
        entry = self._desk.book.find(key)
        if entry is not None:
            return entry
        if told := text.wrong_line(key):
            raise NotFound(f"there is no such job: its name {told}")
        found = books.entries(self.store, "j.name = ?", (key,), {})
        return found[0] if found else None

    def _seen(self, viewer: Viewer, name: str) -> Entry:
        """A job the caller may know of; others do not exist for them."""
        for key in viewer.keys(name):
            entry = self._find(key)
            if entry is not None and viewer.sees(entry):
                return entry
        if self._is_array(viewer, name):
            raise NotFound(f"{name} is an array, not one job; its jobs are {name}-0 and so on")
        raise NotFound(f"there is no job {name}{self._hint(viewer, name)}")

    def _is_array(self, viewer: Viewer, name: str) -> bool:
        """Whether the caller may know of an array of that name, also of one that has ended."""
        owners = (owner for key in viewer.keys(name) for owner in books.array_owners(self.store, key))
        return any(viewer.sees_all or viewer.owns(owner) for owner in owners)

    def _hint(self, viewer: Viewer, name: str) -> str:
        """Operators are told under which name they find it."""
        if not (viewer.sees_all and viewer.shared):
            return ""
        near = sorted(entry.key for entry in self._desk.book.active() if entry.name == name)
        return f"; did you mean {near[0]}?" if near else ""

    def _members(self, viewer: Viewer, name: str) -> list[Entry]:
        """The members of an array that are not over."""
        for key in viewer.keys(name):
            found = [entry for entry in self._desk.book.members(key) if viewer.sees(entry)]
            if found:
                return found
        return []

    def job(self, caller: Caller, name: str) -> Document:
        """One job with its attempts, placements, exit codes and history."""
        with self._desk.lock:
            self.store.flush()
            self.world.note_reasons()
            viewer = self._viewer(caller)
            entry = self._seen(viewer, name)
            attempts = books.history(self.store, entry.id)
            document = job_documents.Teller(self.settings.fleet.policy, viewer).tell(entry)
            output = str(self._plane.launcher.output(entry.id, 0).parent)
        history = [job_documents.attempt_document(attempt) for attempt in attempts]
        return document | {"history": history, "output": output, "events": self._events_of(viewer, entry)}

    def _events_of(self, viewer: Viewer, entry: Entry) -> list[Document]:
        """The newest of what happened to one job, oldest first."""
        return [viewer.event((*row[:5], _event(row[5]))) for row in books.events_of(self.store, entry.id)]

    def why(self, caller: Caller, name: str) -> Document:
        """Why it does not run: the sentence, the ladder, suggestions, ETA; or where it runs."""
        viewer = self._viewer(caller)
        entry = self._seen(viewer, name)
        document: Document = {"job": name, "phase": entry.phase.value}
        if entry.phase is not Phase.WAITING or entry.attempt is not None:
            return document | job_documents.standing_document(entry)
        document |= shape_document(entry.description())
        if not entry.shown and entry.reason is not None:
            reason = entry.reason if viewer.sees_all else without_names(entry.reason)
            return document | {"message": str(reason), "reason": reason_document(reason)}
        return document | forecast.why(self._moment_for(viewer), viewer.name_in_moment(entry)) | {"job": name}

    def act(self, caller: Caller, name: str, verb: str) -> Document:
        """`cancel`, `hold`, `release` or `requeue` a job, or every member of an array."""
        viewer = self._viewer(caller)
        with self._desk.change():
            entries = self._members(viewer, name)
            entries.sort(key=lambda entry: entry.shown)  # those that wait first, or they would follow those that end
            entries = entries or [self._seen(viewer, name)]
            for entry in entries:
                if not (caller.admin or viewer.owns(entry.owner)):
                    raise Denied(f"{entry.name} belongs to {entry.owner.user}, who alone can {verb} it")
                if verb == "vouch" and not caller.admin:
                    raise Denied(f"{caller.user} may not vouch for {entry.name}; an administrator can")
                self._act(viewer, entry, verb)
        return {"name": name, "phase": entries[0].phase.value, "jobs": len(entries)}

    def _act(self, viewer: Viewer, entry: Entry, verb: str) -> None:
        user = viewer.caller.user
        if entry.over and verb != "requeue":
            raise Conflict(f"{entry.name} has ended already: {entry.phase.value}")
        match verb:
            case "cancel":
                self.world.requests.cancel(entry, f"cancelled by {user}")
            case "hold":
                self.world.requests.hold(entry)
            case "release":
                self.world.requests.release(entry)
            case "requeue":
                if entry.over:
                    self._submitting.let_begin_again(viewer, entry)
                self.world.requests.requeue(entry)
            case "vouch":
                self.world.requests.vouch(entry, user)
            case _:
                raise Refused(f"there is no such act: {verb}; a job can be cancelled, held, released or requeued")

    def logs(self, caller: Caller, name: str, task: int, offset: int) -> tuple[bytes, int, bool]:
        """Output from `offset` on: the bytes, the next offset, and whether more may come."""
        entry = self._seen(self._viewer(caller), name)
        over = entry.over  # asked before reading, or the last words could be missed
        content, following = job_documents.read_output(self._plane.launcher.output(entry.id, task), offset)
        return content, following, bool(content) or not over

    def attach(self, caller: Caller, name: str, task: int) -> str:
        """The path of the Unix socket of a task's terminal."""
        with self._desk.lock:
            entry = self._seen(self._viewer(caller), name)
            run = entry.description().run
            if run is None or not run.tty:
                raise Conflict(f"{name} has no terminal; start it with one: `yard run -it`")
            live = entry.attempt.live() if entry.attempt is not None else []
            serial = next((t.serial for t in live if t.rank == task and t.state == "running"), None)
            if serial is None or entry.attempt is None:
                raise Conflict(f"{name} does not run; it is {entry.phase.value}")
            return str(self._plane.launcher.terminal_of(entry.id, entry.attempt.number, serial))

    # --- the rest --------------------------------------------------------------------------------

    def status(self) -> Document:
        """Up since when, where, how well."""
        with self._desk.lock:
            nodes = list(self._desk.nodes.values())
            free = self._desk.holdings.free_devices(nodes)
            phases = [entry.phase for entry in self._desk.book.active()]
            checks = {
                "store": self._desk.trouble or "ok",
                **self._plane.checks(),
                "disk": self._disk_check(),
                "processes": "; ".join(self.world.requests.withheld()) or "ok",
                "devices": "; ".join(self._plane.devices.keeper.notices() if self._plane.devices else ()) or "ok",
                "set aside": self._desk.aside.told() or "ok",
            }
        gpus = [gpu for node in nodes for gpu in node.gpus]
        return {
            "pid": os.getpid(), "version": gpuyard.__version__, "since": self._plane.since,
            "state": str(self.settings.folder), "virtual": self.settings.virtual,
            "nodes": len(nodes), "gpus": len(gpus),
            "gpus_held": self._desk.holdings.devices(), "gpus_sick": sum(g.health is Health.SICK for g in gpus),
            "gpus_free": free,
            "waiting": phases.count(Phase.WAITING), "running": phases.count(Phase.RUNNING),
            "alerts": alerting.counts(self._plane.alerting.standing),
            "healthy": checks["loop"] == "ok", "checks": checks, "last_cycle": self._plane.driver.last_turn,
        }  # fmt: skip

    def _disk_check(self) -> str:
        free = shutil.disk_usage(self.settings.folder).free
        return "ok" if free >= DISK_LOW_BYTES else f"only {free >> 20} MiB are left on the disk of the state folder"

    def nodes(self, caller: Caller) -> list[Document]:
        """The nodes with their GPUs, health and who holds them."""
        viewer = self._viewer(caller)
        with self._desk.lock:
            names = {entry.id: viewer.called(entry) for entry in self._desk.book.active()}
            return job_documents.nodes_documents(self._desk.nodes.values(), self._desk.holdings, names)

    def drain(self, caller: Caller, place: Document, dry_run: bool = False) -> Document:
        """Close a node or one GPU of it, and empty it gently."""
        if not caller.admin:
            raise Denied(f"{caller.user} may not drain nodes; an administrator can")
        where, closure = draining.place_of(place), draining.closure(place, caller.user)
        with self._desk.lock:
            self.world.closures.check(where)
            moment, drainage = self._plane.foresee_drain(where, closure)
            devices = self._desk.holdings.by_device()
            held = sum(node == where.node and where.gpu in (None, gpu) for node, gpu in devices)
            if not dry_run:
                self.world.closures.set(where, closure)
        return draining.answer(where, moment, drainage, held, applied=not dry_run)

    def undrain(self, caller: Caller, place: Document) -> Document:
        """Open a node or GPU again."""
        if not caller.admin:
            raise Denied(f"{caller.user} may not open nodes; an administrator can")
        where = draining.place_of(place)
        with self._desk.lock:
            self.world.closures.check(where)
            if self.world.closures.of(where) is None:
                raise Conflict(f"{where} is open already")
            self.world.closures.set(where, None, by=caller.user)
        return {"place": str(where), "message": f"{where} is open again"}

    def alerts(self, caller: Caller) -> list[Document]:
        """What an operator should hear of, the worst first."""
        names = self._viewer(caller).sees_all
        return [alerting.document(alert, names) for alert in self._plane.alerting.standing]

    def queues(self) -> list[Document]:
        """The queues with quota, limit, use, fair share and how many wait."""
        seen = (self.store.last_event, self._plane.turns)
        if self._queues_at != seen:
            self._queues_at, self._queue_documents = seen, queueing.documents(self._plane.moment())
        return self._queue_documents

    def set_queue(self, caller: Caller, document: Document, dry_run: bool) -> Document:
        """Create or change a queue; a dry run tells who would lose or get GPUs."""
        if not caller.admin:
            raise Denied(f"{caller.user} may not change queues; an administrator can")
        with self._desk.lock:
            moment = self._plane.moment()
            queues = self._queues_with(document)
        answer = queueing.consequences(moment, queues)
        changed = next(queue for queue in queues if queue.name == document["name"])
        answer |= {"queue": {"name": changed.name} | queue_document(changed), "applied": not dry_run}
        if not dry_run:
            with self._desk.lock:  # looking ahead took a while: others may have changed something meanwhile
                queues = self._queues_with(document)
                self._keep_queue(document)
                self.world.set_queues(queues)
        return answer

    def _queues_with(self, document: Document) -> tuple[Queue, ...]:
        """The tree with one queue set anew; refused where jobs stand in what would no longer be a leaf."""
        fleet, jobs = self.world.fleet, self._desk.book.standing()
        queues = queueing.laid_over(fleet.queues, [document], fleet.topology)
        fitting.check_queues(queues, jobs, "Let them end, or cancel them, first")
        return queues

    def _keep_queue(self, document: Document) -> None:
        with self._desk.change() as batch:
            changes = self._plane.queue_changes()
            changes[document["name"]] = changes.get(document["name"], {}) | document
            archive.keep(batch, QUEUES, changes)
            self._desk.say("queue", queue=document["name"], message=f"queue {document['name']} was changed")

    def report(self, caller: Caller, by: str, since: float) -> list[Mapping[str, Any]]:
        """GPU-seconds and money by user or queue, or both; what runs now counts up to this moment."""
        columns = [column.strip() for column in by.replace("team", "queue").split(",")]
        if not columns or set(columns) - {"user", "queue"}:
            raise Refused(f"a report is by user or by queue, not by {by}")
        viewer = self._viewer(caller)
        whose = None if viewer.sees_all or "user" not in columns else viewer.owner.identity
        with self._desk.lock:
            return reporting.report(self.store, self._desk, columns, since, whose)

    def events(self, caller: Caller, after: int, limit: int) -> list[Document]:
        """What happened, each with a growing `id`."""
        viewer = self._viewer(caller)
        if after < 0:
            after = self.store.last_event + 1 + after
        rows = self.store.rows(
            "SELECT id, at, kind, job, owner, document FROM events WHERE id > ? ORDER BY id LIMIT ?", (after, limit)
        )
        return [viewer.event((*row[:5], _event(row[5]))) for row in rows]

    def wait_events(self, after: int, timeout: float) -> bool:
        """Block until there is an event newer than `after`."""
        return self.store.wait_news(after, timeout)

    def measures(self) -> Document:
        """What /metrics tells beyond the listings."""
        return {"cycles": {"count": self._plane.turns, "seconds": self._plane.driver.seconds}} | reporting.measures(
            self.store
        )

    def backup(self, caller: Caller, path: str) -> Document:
        """A consistent copy of the state in a new file."""
        if not caller.admin:
            raise Denied("a backup holds everybody's jobs; only an administrator can make one")
        return {"path": path, "bytes": self.store.backup(pathlib.Path(path))}


def _event(text: str) -> Document:
    """What an event says besides; one that cannot be read holds nobody up who follows them."""
    try:
        return dict(json.loads(text))
    except (ValueError, TypeError):
        return {"message": "what happened then cannot be read any more"}
