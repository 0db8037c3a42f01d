"""This machine as those see it who serve people: implements `runtime.serving.port` over the local world.

Made by `yard` once the control plane is up. It asks and tells; what a caller may see or do is decided above, what is
on disk and how is the world's own business.
"""

from __future__ import annotations

import os
import pathlib
import pwd
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager

import gpuyard
from gpuyard.brain.controllers.alarms.remembering import AlarmsKept
from gpuyard.model.alerts import Alert
from gpuyard.model.errors import Conflict, Denied
from gpuyard.model.job import Job, Phase, Run
from gpuyard.model.node import Closure, Health, Node, Place
from gpuyard.model.ownership import Caps, Owner
from gpuyard.model.policy import Policy
from gpuyard.model.queue import Queue
from gpuyard.model.snapshot import Snapshot
from gpuyard.runtime.alerting import documents as alert_documents
from gpuyard.runtime.embedded.control_plane import QUEUES, ControlPlane
from gpuyard.runtime.service import Document
from gpuyard.runtime.serving import queueing
from gpuyard.runtime.serving.port import Given, PastEvent, SubmissionKey, Used
from gpuyard.worlds.local.launching import containers, output_reading
from gpuyard.worlds.local.seam import archive, past
from gpuyard.worlds.local.seam.requests import Requests
from gpuyard.worlds.local.state import book as books
from gpuyard.worlds.local.state.records import Attempt, Entry

DISK_LOW_BYTES = 64 << 20


class LocalPort:
    """Implements `ServedWorld[Entry]`."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self.jobs = LocalJobs(plane)
        self.requests: Requests = plane.world.requests
        self.acceptance = LocalAcceptance(plane)
        self.site = LocalSite(plane)
        self.past = LocalPast(plane)
        self.change = plane.desk.change
        self.unwritten = plane.desk.unwritten
        self.now = plane.desk.now
        self.monotonic = plane.clock.monotonic

    @property
    def shared(self) -> bool:
        """Whether many people have jobs here."""
        return self._plane.settings.shared

    def status(self) -> Document:
        """Up since when, where, how well."""
        plane, desk = self._plane, self._plane.desk
        with desk.lock:
            nodes = list(desk.nodes.values())
            free = desk.holdings.free_devices(nodes)
            phases = [entry.phase for entry in desk.book.active()]
            checks = self._checks()
        gpus = [gpu for node in nodes for gpu in node.gpus]
        return {
            "pid": os.getpid(), "version": gpuyard.__version__, "since": plane.since,
            "state": str(plane.settings.folder), "virtual": plane.settings.virtual,
            "nodes": len(nodes), "gpus": len(gpus),
            "gpus_held": desk.holdings.devices(), "gpus_sick": sum(g.health is Health.SICK for g in gpus),
            "gpus_free": free, "gpus_stranded": sum(pool["stranded"] for pool in self.stranding().values()),
            "waiting": phases.count(Phase.WAITING), "running": phases.count(Phase.RUNNING),
            "alerts": alert_documents.counts(plane.alerting.standing), "queues_overruled": list(plane.overruled),
            **({} if plane.notifier is None else {"notices": plane.notifier.check()}),
            "healthy": checks["loop"] == "ok", "checks": checks, "last_cycle": plane.driver.last_turn,
            "left_out": plane.driver.loop.left_out(),
        }  # fmt: skip

    def _checks(self) -> dict[str, str]:
        """Everything that may ail a yard, `ok` or in one sentence."""
        plane, desk = self._plane, self._plane.desk
        free = shutil.disk_usage(plane.settings.folder).free
        low = "" if free >= DISK_LOW_BYTES else f"only {free >> 20} MiB are left on the disk of the state folder"
        return {
            "store": desk.trouble or "ok",
            **plane.checks(),
            "disk": low or "ok",
            "processes": "; ".join(plane.world.requests.withheld()) or "ok",
            "devices": "; ".join(plane.devices.keeper.notices() if plane.devices else ()) or "ok",
            "set aside": desk.aside.told() or "ok",
        }

    def alerts(self) -> Sequence[Alert]:
        """As the last plan has them."""
        return self._plane.alerting.standing

    def stranding(self) -> Document:
        """As the brain remembers it."""
        return dict(self._plane.driver.loop.memory.of(AlarmsKept).stranding)

    def cycles(self) -> Document:
        """How many plans were made, and the seconds that took."""
        return {"count": self._plane.turns, "seconds": self._plane.driver.seconds}

    def backup(self, path: str) -> int:
        """A consistent copy of the state in a new file; its bytes."""
        return self._plane.store.backup(pathlib.Path(path))


class LocalJobs:
    """Implements `KnownJobs[Entry]`: the book for what is not over, the store for the rest."""

    def __init__(self, plane: ControlPlane) -> None:
        self._desk = plane.desk
        self._world = plane.world
        self._launcher = plane.launcher

    def still(self) -> AbstractContextManager[object]:
        """Under the desk's lock."""
        return self._desk.lock

    def refresh(self) -> None:
        """Reasons as the last plan has them."""
        self._world.note_reasons()

    def settle(self) -> None:
        """What may be forgotten is on disk, too."""
        self._desk.store.flush()

    def active(self) -> Iterable[Entry]:
        """Those that are not over, oldest first."""
        return self._desk.book.active()

    def recent(self) -> Iterable[Entry]:
        """The newest that ended."""
        return self._desk.book.ended

    def ended(self, owner: Owner | None) -> Sequence[Entry]:
        """All that ended, of one owner or of all."""
        return books.ended(self._desk.store, owner)

    def find(self, key: str) -> Entry | None:
        """One by its name among everybody's."""
        return self._desk.known(key)

    def members(self, key: str) -> Sequence[Entry]:
        """The members of an array that are not over."""
        return self._desk.book.members(key)

    def array_owners(self, key: str) -> Sequence[Owner]:
        """Whose arrays of that name there are."""
        return books.array_owners(self._desk.store, key)

    def history(self, number: int) -> Sequence[Attempt]:
        """All attempts of a job."""
        return books.history(self._desk.store, number)

    def output(self, number: int, task: int, offset: int) -> tuple[bytes, int]:
        """From the segments that supervisors write."""
        return output_reading.read_output(self._launcher.output(number, task), offset)

    def output_folder(self, number: int) -> str:
        """Where its tasks' output lies."""
        return str(self._launcher.output(number, 0).parent)

    def terminal(self, number: int, task: int) -> str:
        """The path of a Unix socket."""
        entry = self._desk.book.entries.get(number)
        attempt = entry.attempt if entry is not None else None
        if attempt is None:
            return ""
        running = (each.serial for each in attempt.live() if each.rank == task and each.state == "running")
        serial = next(running, None)
        return "" if serial is None else str(self._launcher.terminal_of(number, attempt.number, serial))


class LocalAcceptance:
    """Implements `Acceptance[Entry]`."""

    def __init__(self, plane: ControlPlane) -> None:
        self.caps: Caps = plane.settings.caps
        self._shared = plane.settings.shared
        self._desk = plane.desk
        self._gates = plane.world.gates
        self._launcher = plane.launcher
        self._requests: Requests = plane.world.requests

    def check_run(self, run: Run) -> None:
        """An image needs something that runs images."""
        if run.image:
            containers.check(run, self._desk.around.engine)

    def only_counted(self, job: Job) -> Sequence[str]:
        """By what control groups can do on this machine."""
        requests = [group.request for group in job.task_groups()]
        asked = {"cpu": any(each.cpu for each in requests), "memory": any(each.memory for each in requests)}
        return [name for name, is_asked in asked.items() if is_asked and name not in self._launcher.enforces]

    def next_number(self) -> int:
        """The number that the next job gets."""
        return self._desk.book.next_job

    def is_taken(self, key: str) -> bool:
        """Also by one that is about to be accepted."""
        return self._desk.book.is_taken(key)

    def state_of(self, owner: Owner, name: str) -> str:
        """As those who follow it would find it."""
        return self._gates.look(owner, name)[1]

    def take(self, owner: Owner, given: Sequence[Given]) -> Sequence[Entry]:
        """Numbered and their names kept; in a shared yard they will run as their submitter."""
        owner = Owner(owner.user, owner.uid, _group_of(owner)) if self._shared else owner
        return self._requests.take(owner, [(each.asked, each.document) for each in given])

    def accept(self, owner: Owner, taken: Sequence[Entry], key: SubmissionKey | None) -> None:
        """On disk before this returns."""
        self._requests.accept(taken, None if key is None else (owner.identity, key.word, key.digest))

    def known(self, owner: Owner, word: str) -> tuple[str, Sequence[Entry]] | None:
        """What was submitted with that key before, as far as it is still known."""
        store, active = self._desk.store, self._desk.book.entries
        try:
            known = books.known_key(store, owner.identity, word)
        except books.UNREADABLE:
            raise Conflict(f"what was submitted with the key {word} cannot be read any more; use a new one") from None
        if known is None:
            return None
        digest, numbers = known
        found = {entry.id: entry for number in numbers if (entry := active.get(number)) is not None}
        found |= {entry.id: entry for entry in books.numbered(store, set(numbers) - found.keys())}
        return digest, [found[number] for number in numbers if number in found]

    def renew(self, job: Entry, asked: Job) -> None:
        """One that ended is asked for anew in this form."""
        job.template.job = asked


def _group_of(owner: Owner) -> int:
    try:
        return pwd.getpwuid(owner.uid).pw_gid
    except KeyError:
        raise Denied(f"user id {owner.uid} is nobody on this machine, so nothing can run as it") from None


class LocalSite:
    """Implements `Site`."""

    def __init__(self, plane: ControlPlane) -> None:
        self.policy: Policy = plane.settings.fleet.policy
        self._plane = plane
        self._desk = plane.desk
        self._world = plane.world
        self.moment = plane.moment

    @property
    def queues(self) -> Sequence[Queue]:
        """As they are now."""
        return self._world.queues

    def bare(self) -> Snapshot:
        """The fleet without jobs."""
        return self._world.bare()

    def nodes(self) -> Iterable[Node]:
        """As they are now."""
        return self._desk.nodes.values()

    def holders(self) -> Mapping[tuple[str, int], Mapping[int, int]]:
        """By what is true, and not by what was planned."""
        return self._desk.holdings.by_device()

    def measured(self) -> Mapping[tuple[str, int], Document]:
        """By the last look of the agent's code."""
        return self._plane.measuring.devices() if self._plane.measuring is not None else {}

    def standing(self) -> Iterable[tuple[str, str]]:
        """Which job stands in which queue, or is about to."""
        return self._desk.book.standing()

    def version(self) -> object:
        """By the newest event and the turns of the loop."""
        return self._desk.store.last_event, self._plane.turns

    def closure(self, place: Place) -> Closure | None:
        """What closes a node or GPU by itself."""
        self._world.closures.check(place)
        return self._world.closures.of(place)

    def close(self, place: Place, closure: Closure | None, by: str) -> None:
        """Close it, or open it again."""
        self._world.closures.set(place, closure, by=by)

    def set_queues(self, queues: tuple[Queue, ...], change: Document) -> None:
        """On disk first; what was set before of the same queue and is not set now stays."""
        name, gone = change["name"], queueing.DELETED in change
        with self._desk.change() as batch:
            changes = self._plane.queue_changes()
            changes[name] = change if gone else changes.get(name, {}) | change
            archive.keep(batch, QUEUES, changes)
            self._desk.say("queue", queue=name, message=f"queue {name} was {'deleted' if gone else 'changed'}")
        self._world.set_queues(queues)


class LocalPast:
    """Implements `Past`."""

    def __init__(self, plane: ControlPlane) -> None:
        self._desk = plane.desk
        self._plane = plane
        self.wait = plane.store.wait_news
        self.samples = plane.history.samples

    def used(self, columns: Sequence[str], since: float, identity: str | None) -> Sequence[Used]:
        """The ledger, and what still runs."""
        with self._desk.lock:
            sums = past.used(self._desk, columns, since, identity)
        return [Used(keys, held, money, int(tasks), *rest) for keys, (held, money, tasks, *rest) in sums.items()]

    def counts(self) -> Document:
        """Since the yard was made."""
        measuring = self._plane.measuring
        sensed = {"gpu_metrics": measuring.metrics()} if measuring is not None else {}
        return past.counts(self._desk.store) | sensed

    def last(self) -> int:
        """The number of the newest event."""
        return self._desk.store.last_event

    def events(self, after: int, limit: int) -> Iterable[PastEvent]:
        """Those with higher numbers, oldest first."""
        return [PastEvent(*row) for row in past.events(self._desk.store, after, limit)]

    def events_of(self, number: int) -> Iterable[PastEvent]:
        """The newest of what happened to one job, oldest first."""
        return [PastEvent(*row) for row in past.events_of(self._desk.store, number)]
