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
from dataclasses import replace
from typing import Any

import gpuyard
from gpuyard import files
from gpuyard.files.explanations import reason_document
from gpuyard.files.writing import queue_document, shape_document
from gpuyard.model import text
from gpuyard.model.errors import Conflict, Denied, Never, NotFound, Refused
from gpuyard.model.job import Job, Phase
from gpuyard.model.node import Health
from gpuyard.model.ports import Clock
from gpuyard.model.reasons import Outcome, without_names
from gpuyard.model.snapshot import Snapshot
from gpuyard.runtime import draining_documents, forecast, intake, masking, queueing, reporting, telling
from gpuyard.runtime.engine import Engine, Settings
from gpuyard.runtime.service import Caller, Document
from gpuyard.worlds.local import book as books
from gpuyard.worlds.local.desk import Desk
from gpuyard.worlds.local.ports import FaultPoint, no_fault
from gpuyard.worlds.local.records import Entry, Template
from gpuyard.worlds.local.store import Store
from gpuyard.worlds.local.world import LocalWorld

__all__ = ["EmbeddedYard", "Settings"]

FORECAST_JOBS_MAX = 200
"""With more jobs than this in the yard a submission is not told its forecast: acceptance must stay quick."""

DISK_LOW_BYTES = 64 << 20

SOMEBODY = "other"
"""How a job is called towards those who may not know of it."""


class EmbeddedYard:
    """Implements `runtime.service.Yard`. Every method may be called from any thread."""

    def __init__(self, settings: Settings, clock: Clock, fault: FaultPoint = no_fault) -> None:
        self.settings = settings
        self._engine = Engine(settings, clock, fault)
        self._intake = intake.Intake(settings.shared, settings.user_cap)
        self._queues_at: tuple[int, int] = (-1, -1)
        self._queue_documents: list[Document] = []
        self._possible: set[Job] = set()
        self._possible_on: object = None

    def start(self) -> None:
        """Take the state folder, adopt what runs, begin to turn. `Refused` says who holds the folder."""
        self._engine.start()
        self._intake.engine = self._desk.around.engine

    def close(self, jobs: bool = False) -> None:
        """Stop turning and let go of the state folder; the jobs run on, unless they are to end too."""
        self._engine.close(jobs)

    @property
    def _desk(self) -> Desk:
        return self._engine.desk

    @property
    def store(self) -> Store:
        """Where everything is written."""
        return self._engine.store

    @property
    def world(self) -> LocalWorld:
        """This machine."""
        return self._engine.world

    def snapshot(self) -> Document:
        """The whole moment, as a snapshot file."""
        return files.snapshot_document(self._engine.moment())

    # --- submitting ------------------------------------------------------------------------------

    def submit(
        self, caller: Caller, jobs: Sequence[Document], key: str = "", queue_anyway: bool = False
    ) -> list[Document]:
        """Accept jobs (all or none), durably, before returning."""
        digest = intake.digest(jobs)
        with self._desk.lock:
            before = self._known_key(caller, key, digest)
            if before is not None:
                return before
            asked = self._checked_all(caller, jobs)
            if not queue_anyway:
                for submission in asked:
                    self._refuse_never(submission.job)
            forecasts = self._forecasts(caller, asked)
            templates, entries = self._make(caller, jobs, asked)
            self._desk.book.reserve(entries)
        names = json.dumps([entry.name for entry in entries])
        row = (caller.user, key, digest, names, self._desk.now()) if key else None
        try:
            self.world.accept(templates, entries, row)
        except Refused:
            before = self._known_key(caller, key, digest)  # somebody with the same key was quicker
            if before is None:
                raise
            return before
        return [self._accepted(entry, forecasts) for entry in entries]

    def _accepted(self, entry: Entry, forecasts: Mapping[str, Document]) -> Document:
        answer = {"name": entry.name, "phase": entry.phase.value, "id": entry.id}
        known = forecasts.get(entry.template.name)
        return answer | ({"forecast": known} if known is not None else {})

    def _known_key(self, caller: Caller, key: str, digest: str) -> list[Document] | None:
        """What was answered to the same submission before."""
        if not key:
            return None
        if told := text.wrong_line(key):
            raise Refused(f"the key {told}")
        rows = self.store.rows("SELECT digest, names FROM keys WHERE user = ? AND key = ?", (caller.user, key))
        if not rows:
            return None
        if rows[0][0] != digest:
            raise Conflict(f"the key {key} was used for another submission; use a new one")
        return [{"name": name, "phase": self._find(name).phase.value} for name in json.loads(rows[0][1])]

    def _checked_all(self, caller: Caller, jobs: Sequence[Document]) -> list[files.Submission]:
        asked: list[files.Submission] = []
        beside: set[str] = set()
        for number, document in enumerate(jobs):
            submission = self._intake.read(caller, document, self._desk.book.next_job + number, self._desk.now())
            self._intake.check(caller, submission, self.world.queues)
            for after in submission.after:
                if after.job not in beside and not self.world.gates.state_of(after.job):
                    raise NotFound(f"job {submission.job.name} is to follow {after.job}, which nobody knows")
            asked.append(submission)
            beside.add(submission.job.name)
        self._intake.check_names(asked, self._desk.book)
        self._intake.check_cap(caller, sum(len(intake.names_of(each)) for each in asked), self._desk.book)
        return asked

    def _refuse_never(self, job: Job) -> None:
        """Jobs of one kind are asked about once, until the fleet or the queues change."""
        kind = replace(job, name="?", submitted=0.0, user="", run=None, on_hold=False)
        fleet = (self.world.queues, tuple(self._desk.nodes))
        if self._possible_on != fleet:
            self._possible, self._possible_on = set(), fleet
        if kind in self._possible:
            return
        explanation = forecast.never(self._engine.bare(), job)
        if explanation is not None and explanation.reason.outcome is Outcome.NEVER:
            told = str(explanation.reason).removeprefix(f"{job.name} ")
            raise Never(f"{job.name} could never run on this fleet: it {told}")
        self._possible.add(kind)

    def _make(
        self, caller: Caller, jobs: Sequence[Document], asked: Sequence[files.Submission]
    ) -> tuple[list[Template], list[Entry]]:
        templates: list[Template] = []
        entries: list[Entry] = []
        for document, submission in zip(jobs, asked, strict=True):
            kept = {key: value for key, value in document.items() if key != "submitted"}
            text = json.dumps(kept | {"name": submission.job.name, "user": caller.user}, separators=(",", ":"))
            template, made = self._intake.make(caller, submission, self._desk.book, text)
            templates.append(template)
            entries += made
        return templates, entries

    def _forecasts(self, caller: Caller, asked: Sequence[files.Submission]) -> dict[str, Document]:
        """What is likely to become of them; not told where telling would take longer than accepting."""
        if len(self._desk.book.entries) > FORECAST_JOBS_MAX or len(asked) > 1:
            return {}
        moment = self._moment_for(caller)
        return {each.job.name: forecast.expect(moment, _first(each)) for each in asked}

    def preview(self, caller: Caller, jobs: Sequence[Document]) -> list[Document]:
        """What would happen."""
        with self._desk.lock:
            asked = self._checked_all(caller, jobs)
            moment = self._moment_for(caller)
        return [forecast.preview(moment, _first(each)) for each in asked]

    # --- jobs ------------------------------------------------------------------------------------

    def jobs(self, caller: Caller, all_ended: bool = False, fields: Sequence[str] = ()) -> list[Document]:
        """The active jobs and the newest hundred that ended; all that ended on request; only `fields` if any."""
        tell = telling.Teller(self.settings.fleet.policy, fields, self._sees_all(caller)).tell
        with self._desk.lock:
            self.world.note_reasons()
            shown = [*self._desk.book.active(), *([] if all_ended else self._desk.book.ended)]
            found = [tell(entry) for entry in shown if self._may_see(caller, entry)]
        if all_ended:
            ended = books.entries(self.store, f"j.phase {books.OVER} ORDER BY j.id", (), {})
            found += [tell(entry) for entry in ended if self._may_see(caller, entry)]
        return found

    def _sees_all(self, caller: Caller) -> bool:
        return not self.settings.shared or caller.admin

    def _may_see(self, caller: Caller, entry: Entry) -> bool:
        return self._sees_all(caller) or caller.user == entry.owner.user

    def _moment_for(self, caller: Caller) -> Snapshot:
        """The moment, in which jobs that the caller may not know of have other names: so has whatever is said of it."""
        moment = self._engine.moment()
        if self._sees_all(caller):
            return moment
        hidden = [entry for entry in self._desk.book.active() if not self._may_see(caller, entry)]
        return masking.renamed(moment, {entry.name: f"{SOMEBODY}-{entry.id}" for entry in hidden})

    def _find(self, name: str) -> Entry:
        entry = self._desk.book.find(name)
        if entry is not None:
            return entry
        if told := text.wrong_line(name):
            raise NotFound(f"there is no such job: its name {told}")
        found = books.entries(self.store, "j.name = ?", (name,), {})
        if found:
            return found[0]
        if name in self._desk.book.arrays:
            raise NotFound(f"{name} is an array, not one job; its jobs are {name}-0 and so on")
        raise NotFound(f"there is no job {name}")

    def _seen(self, caller: Caller, name: str) -> Entry:
        """A job the caller may know of; others do not exist for them."""
        entry = self._find(name)
        if not self._may_see(caller, entry):
            raise NotFound(f"there is no job {name}")
        return entry

    def job(self, caller: Caller, name: str) -> Document:
        """One job with its attempts, placements, exit codes and history."""
        with self._desk.lock:
            self.store.flush()
            self.world.note_reasons()
            entry = self._seen(caller, name)
            attempts = books.attempts(self.store, entry.id)
            document = telling.Teller(self.settings.fleet.policy, (), self._sees_all(caller)).tell(entry)
        return document | {"history": [telling.attempt_document(attempt) for attempt in attempts]}

    def why(self, caller: Caller, name: str) -> Document:
        """Why it does not run: the sentence, the ladder, suggestions, ETA; or where it runs."""
        entry = self._seen(caller, name)
        document: Document = {"job": name, "phase": entry.phase.value}
        if entry.phase is not Phase.WAITING or entry.attempt is not None:
            return document | telling.standing_document(entry)
        document |= shape_document(entry.description())
        if not entry.shown and entry.reason is not None:
            reason = entry.reason if self._sees_all(caller) else without_names(entry.reason)
            return document | {"message": str(reason), "reason": reason_document(reason)}
        return document | forecast.why(self._moment_for(caller), name)

    def act(self, caller: Caller, name: str, verb: str) -> Document:
        """`cancel`, `hold`, `release` or `requeue` a job, or every member of an array."""
        with self._desk.change():
            entries = [
                entry for entry in self._desk.book.active() if entry.template.name == name and entry.member is not None
            ]
            entries.sort(key=lambda entry: entry.shown)  # those that wait first, or they would follow those that end
            entries = entries or [self._seen(caller, name)]
            for entry in entries:
                if not (caller.admin or caller.user == entry.owner.user):
                    raise Denied(f"{entry.name} belongs to {entry.owner.user}, who alone can {verb} it")
                if verb == "vouch" and not caller.admin:
                    raise Denied(f"{caller.user} may not vouch for {entry.name}; an administrator can")
                self._act(entry, verb, caller.user)
        return {"name": name, "phase": entries[0].phase.value, "jobs": len(entries)}

    def _act(self, entry: Entry, verb: str, user: str) -> None:
        if entry.over and verb != "requeue":
            raise Conflict(f"{entry.name} has ended already: {entry.phase.value}")
        match verb:
            case "cancel":
                self.world.cancel(entry, f"cancelled by {user}")
            case "hold":
                self.world.hold(entry)
            case "release":
                self.world.release(entry)
            case "requeue":
                self.world.requeue(entry)
            case "vouch":
                self.world.vouch(entry, user)
            case _:
                raise Refused(f"there is no such act: {verb}; a job can be cancelled, held, released or requeued")

    def logs(self, caller: Caller, name: str, task: int, offset: int) -> tuple[bytes, int, bool]:
        """Output from `offset` on: the bytes, the next offset, and whether more may come."""
        entry = self._seen(caller, name)
        over = entry.over  # asked before reading, or the last words could be missed
        content, following = telling.read_output(self._engine.launcher.output(entry.id, task), offset)
        return content, following, bool(content) or not over

    def attach(self, caller: Caller, name: str, task: int) -> str:
        """The path of the Unix socket of a task's terminal."""
        with self._desk.lock:
            entry = self._seen(caller, name)
            run = entry.description().run
            if run is None or not run.tty:
                raise Conflict(f"{name} has no terminal; start it with one: `yard run -it`")
            live = entry.attempt.live() if entry.attempt is not None else []
            serial = next((t.serial for t in live if t.rank == task and t.state == "running"), None)
            if serial is None or entry.attempt is None:
                raise Conflict(f"{name} does not run; it is {entry.phase.value}")
            return str(self._engine.launcher.terminal_of(entry.id, entry.attempt.number, serial))

    # --- the rest --------------------------------------------------------------------------------

    def status(self) -> Document:
        """Up since when, where, how well."""
        with self._desk.lock:
            nodes = list(self._desk.nodes.values())
            phases = [entry.phase for entry in self._desk.book.active()]
            checks = {
                "store": self._desk.trouble or "ok",
                "loop": self._engine.check(),
                "disk": self._disk_check(),
                "processes": "; ".join(self.world.withheld()) or "ok",
            }
        gpus = [gpu for node in nodes for gpu in node.gpus]
        return {
            "pid": os.getpid(), "version": gpuyard.__version__, "since": self._engine.since,
            "state": str(self.settings.folder), "virtual": self.settings.virtual,
            "nodes": len(nodes), "gpus": len(gpus),
            "gpus_held": self._desk.holdings.devices(), "gpus_sick": sum(g.health is Health.SICK for g in gpus),
            "waiting": phases.count(Phase.WAITING), "running": phases.count(Phase.RUNNING),
            "healthy": checks["loop"] == "ok", "checks": checks, "last_cycle": self._engine.last_cycle,
        }  # fmt: skip

    def _disk_check(self) -> str:
        free = shutil.disk_usage(self.settings.folder).free
        return "ok" if free >= DISK_LOW_BYTES else f"only {free >> 20} MiB are left on the disk of the state folder"

    def nodes(self) -> list[Document]:
        """The nodes with their GPUs, health and who holds them."""
        with self._desk.lock:
            names = {entry.id: entry.name for entry in self._desk.book.active()}
            return telling.nodes_documents(self._desk.nodes.values(), self._desk.holdings, names)

    def drain(self, caller: Caller, place: Document, dry_run: bool = False) -> Document:
        """Close a node or one GPU of it, and empty it gently."""
        if not caller.admin:
            raise Denied(f"{caller.user} may not drain nodes; an administrator can")
        where, closure = draining_documents.place_of(place), draining_documents.closure(place, caller.user)
        with self._desk.lock:
            self.world.closures.check(where)
            moment, drainage = self._engine.foresee_drain(where, closure)
            if not dry_run:
                self.world.closures.set(where, closure)
        return draining_documents.answer(where, moment, drainage, applied=not dry_run)

    def undrain(self, caller: Caller, place: Document) -> Document:
        """Open a node or GPU again."""
        if not caller.admin:
            raise Denied(f"{caller.user} may not open nodes; an administrator can")
        where = draining_documents.place_of(place)
        with self._desk.lock:
            self.world.closures.check(where)
            if self.world.closures.of(where) is None:
                raise Conflict(f"{where} is open already")
            self.world.closures.set(where, None, by=caller.user)
        return {"place": str(where), "message": f"{where} is open again"}

    def queues(self) -> list[Document]:
        """The queues with quota, limit, use, fair share and how many wait."""
        seen = (self.store.last_event, self._engine.cycles)
        if self._queues_at != seen:
            self._queues_at, self._queue_documents = seen, queueing.documents(self._engine.moment())
        return self._queue_documents

    def set_queue(self, caller: Caller, document: Document, dry_run: bool) -> Document:
        """Create or change a queue; a dry run tells who would lose or get GPUs."""
        if not caller.admin:
            raise Denied(f"{caller.user} may not change queues; an administrator can")
        moment = self._engine.moment()
        queues = queueing.laid_over(moment.queues, [document], moment.topology)
        answer = queueing.consequences(moment, queues)
        changed = next(queue for queue in queues if queue.name == document["name"])
        answer |= {"queue": {"name": changed.name} | queue_document(changed), "applied": not dry_run}
        if not dry_run:
            self._keep_queue(document)
            self.world.set_queues(queues)
        return answer

    def _keep_queue(self, document: Document) -> None:
        with self._desk.change() as batch:
            changes = self._engine.queue_changes()
            changes[document["name"]] = changes.get(document["name"], {}) | document
            batch.add(
                "INSERT INTO facts(name, document) VALUES ('queues', ?) "
                "ON CONFLICT(name) DO UPDATE SET document=excluded.document",
                (json.dumps(changes),),
            )
            self._desk.say("queue", queue=document["name"], message=f"queue {document['name']} was changed")

    def report(self, caller: Caller, by: str, since: float) -> list[Mapping[str, Any]]:
        """GPU-seconds and money by user or queue, or both; what runs now counts up to this moment."""
        columns = [column.strip() for column in by.replace("team", "queue").split(",")]
        if not columns or set(columns) - {"user", "queue"}:
            raise Refused(f"a report is by user or by queue, not by {by}")
        with self._desk.lock:
            rows = reporting.report(self.store, self._desk, columns, since)
        return [row for row in rows if self._sees_all(caller) or row.get("user", caller.user) == caller.user]

    def events(self, after: int, limit: int) -> list[Document]:
        """What happened, each with a growing `id`."""
        if after < 0:
            after = self.store.last_event + 1 + after
        rows = self.store.rows(
            "SELECT id, at, kind, job, document FROM events WHERE id > ? ORDER BY id LIMIT ?", (after, limit)
        )
        return [
            {"id": number, "at": at, "kind": kind} | ({"job": job} if job else {}) | json.loads(text)
            for number, at, kind, job, text in rows
        ]

    def wait_events(self, after: int, timeout: float) -> bool:
        """Block until there is an event newer than `after`."""
        return self.store.wait_news(after, timeout)

    def measures(self) -> Document:
        """What /metrics tells beyond the listings."""
        return {"cycles": {"count": self._engine.cycles, "seconds": self._engine.cycle_seconds}} | reporting.measures(
            self.store
        )

    def backup(self, caller: Caller, path: str) -> Document:
        """A consistent copy of the state in a new file."""
        if not caller.admin:
            raise Denied("a backup holds everybody's jobs; only an administrator can make one")
        return {"path": path, "bytes": self.store.backup(pathlib.Path(path))}


def _first(asked: files.Submission) -> Job:
    """The job, or the first member of its array."""
    return replace(asked.job, name=intake.names_of(asked)[0])
