"""The engine of the embedded yard: store, launcher, world and loop wired together, turning in a thread of its own.

Used by `embedded`, which speaks with people. It takes the state folder, adopts what an earlier control plane left
running, and lets go again; the jobs do not notice.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import threading
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace

from gpuyard.agent.keeper import Machine
from gpuyard.brain.engine.picture.fleet import Fleet
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.brain.foresee import Drainage, drainage
from gpuyard.files.fleet import ONLY_QUEUE
from gpuyard.files.units import write_time
from gpuyard.model.errors import GpuYardError, Refused
from gpuyard.model.job import Job, Placement
from gpuyard.model.node import Budget, Closure, Node, Place
from gpuyard.model.ports import Clock
from gpuyard.model.snapshot import Reservation, Snapshot
from gpuyard.runtime import queueing
from gpuyard.runtime.clock import SteadyClock
from gpuyard.runtime.holder import Devices, Holder
from gpuyard.runtime.journal import Journal
from gpuyard.runtime.loop import Loop
from gpuyard.runtime.service import Document
from gpuyard.worlds.local import housekeeping, orders
from gpuyard.worlds.local.confine import own_cgroup
from gpuyard.worlds.local.crowd import NO_CAPS, Caps
from gpuyard.worlds.local.desk import Desk
from gpuyard.worlds.local.gates import Gates
from gpuyard.worlds.local.launch import Supervisors
from gpuyard.worlds.local.life import Life
from gpuyard.worlds.local.ports import FaultPoint, no_fault
from gpuyard.worlds.local.records import Entry
from gpuyard.worlds.local.store import FILE, Store, StoreError
from gpuyard.worlds.local.world import Fault, LocalWorld

CROWDED_JOBS = 2000
"""With so many jobs the loop rests twice as long as it works: people who submit must not wait for it."""
BURST_S = 0.3
"""So much deciding may come at once: whoever submits to a yard at rest does not wait."""
REST_MAX_S = 2.0


@dataclass(frozen=True, slots=True)
class Settings:
    """How a yard is run. `fleet` has the nodes, queues, pools and policy."""

    folder: pathlib.Path
    fleet: Snapshot
    virtual: bool = True
    shared: bool = False
    caps: Caps = NO_CAPS
    machine: Machine | None = None
    """Where real GPUs are kept; none for virtual ones, unless it is given."""
    backoff: float = 10.0
    term_grace: float = 10.0
    faults: tuple[Fault, ...] = ()
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))


class Pace:
    """How much of a core deciding may take: a burst, then a share of the time."""

    def __init__(self) -> None:
        self._credit = BURST_S
        self._at = 0.0

    def rest(self, now: float, took: float, crowded: bool) -> float:
        """How long to rest after a turn that took so long."""
        share = 0.33 if crowded else 0.7
        self._credit = min(BURST_S, self._credit + (now - self._at) * share) - took
        self._at = now
        return min(max(0.0, -self._credit) / share, REST_MAX_S)


class Engine:
    """Everything that turns."""

    store: Store
    desk: Desk
    world: LocalWorld
    launcher: Supervisors

    def __init__(self, settings: Settings, clock: Clock, fault: FaultPoint = no_fault) -> None:
        self.settings = settings
        self.clock = SteadyClock(clock)
        self._fault = fault
        self._broken = ""
        self.since = 0.0
        self.last_cycle = 0.0
        self.cycles = 0
        self.cycle_seconds = 0.0
        self._pace = Pace()
        self._thread: threading.Thread | None = None
        self.devices: Devices | None = None

    # --- up and down -----------------------------------------------------------------------------

    def start(self) -> None:
        """Take the state folder, adopt what runs, begin to turn."""
        if self.settings.shared and os.geteuid() != 0:
            raise Refused("a shared yard runs each task as its submitter, which only root can; start it as root")
        self.since = self.clock.now()
        folder = self.settings.folder
        self._holder = Holder(folder, os.getpid(), write_time(round(self.since)))
        try:
            self._come_up(folder)
        except OSError as error:
            self._holder.release()
            what = error.filename if isinstance(error.filename, str) else folder
            told = f"the yard cannot use {what}: {error.strerror or error}; move it away, or name another state folder"
            raise Refused(told) from error
        except BaseException:
            self._holder.release()
            raise

    def _come_up(self, folder: pathlib.Path) -> None:
        self.store = Store(folder / FILE, self._fault)
        self.launcher = Supervisors(folder, self.clock, self._fault, own_cgroup())
        if self.settings.shared:  # people find the sockets of their terminals, and can look nowhere else
            folder.chmod(0o711)
            (folder / "tty").chmod(0o711)
        around = orders.surroundings(str(folder.resolve()), self.settings.environ)
        self.desk = Desk(self.store, self.launcher, self.clock, around)
        life = Life(self.desk, Gates(self.desk, self.settings.caps), self.settings.backoff, self.settings.term_grace)
        self.world = LocalWorld(self.desk, self._fleet(), life, self._timed_faults())
        self.devices = self._keep_devices()
        self.world.adopt()
        if self.devices is not None and self.settings.shared:
            self.devices.keeper.separate()
        housekeeping.tidy(self.store, self.launcher, self.desk)
        self._housekeeper = housekeeping.Housekeeper(self.desk, housekeeping.EVERY_S)
        self._housekeeper.start()
        self._begin_to_turn()

    def _keep_devices(self) -> Devices | None:
        """Real GPUs are claimed before anything goes on them; who has the others is told."""
        if self.settings.virtual and self.settings.machine is None:
            return None
        machine = self.settings.machine or Machine()
        devices = Devices(self.world, machine, self.settings.folder.resolve(), self.desk.around.mark)
        self.desk.keeper = self.launcher.keeper = devices.keeper
        return devices

    def _timed_faults(self) -> list[Fault]:
        begun = self.clock.monotonic()
        return [replace(fault, at=begun + fault.at) for fault in self.settings.faults]

    def _fleet(self) -> Snapshot:
        """The fleet as given, with the queues as they were last set; one without any has one for everybody."""
        fleet, changes = self.settings.fleet, self.queue_changes()
        fleet = fleet if fleet.queues else replace(fleet, queues=(ONLY_QUEUE,))
        for name, change in changes.items():
            try:
                fleet = replace(fleet, queues=queueing.laid_over(fleet.queues, [change], fleet.topology))
            except Refused as error:  # it does not fit the fleet that is given now; the fleet has the say
                self.desk.aside.put("queue", name, str(error), change)
        return fleet

    def queue_changes(self) -> dict[str, Document]:
        """What was set by command, queue by queue, in the order in which it was first set."""
        return {str(name): change for name, change in self._fact("queues").items() if isinstance(change, dict)}

    def _fact(self, name: str) -> Document:
        """What was written down under a name; what cannot be read is as if it had not been."""
        rows = self.store.rows("SELECT document FROM facts WHERE name = ?", (name,))
        try:
            return dict(json.loads(rows[0][0])) if rows else {}
        except (ValueError, TypeError) as error:
            self.desk.aside.put("queue" if name == "queues" else name, name, str(error), rows[0][0])
            return {}

    def _memory(self) -> Memory:
        document = self._fact("memory")
        try:
            return Memory.from_document(document)
        except (ValueError, TypeError, AttributeError) as error:
            self.desk.aside.put("memory", "memory", str(error), document)
            return Memory()

    def _begin_to_turn(self) -> None:
        self._journal = Journal(self.store)
        memory = self._memory()
        bare = replace(self.bare(), memory=memory.to_document())
        self._journal.begin(bare)
        self._loop = Loop(self.world, Fleet(bare), memory, self._journal)
        self._thread = threading.Thread(target=self._turn_on, name="yard", daemon=True)
        self._thread.start()

    def _turn_on(self) -> None:
        try:
            while self.world.wait():
                self._turn()
        except GpuYardError as error:
            self._broken = str(error)

    def _turn(self) -> None:
        began = self.clock.monotonic()
        if self._journal.long:
            self._begin_line()
        if self.devices is not None:
            self.devices.look_after(began)
        self._loop.turn()
        took = self.clock.monotonic() - began
        self.last_cycle = self.clock.now()
        self.cycles += 1
        self.cycle_seconds += took
        self._journal.remember(self._loop.memory, self.last_cycle)
        crowded = len(self.desk.book.entries) > CROWDED_JOBS
        now = self.clock.monotonic()
        self.world.pause_until = now + self._pace.rest(now, took, crowded)

    def foresee_drain(self, place: Place, closure: Closure) -> tuple[Snapshot, Drainage]:
        """What draining this would do now."""
        moment = self.moment()
        nodes = tuple(_closed(node, place, closure) if node.name == place.node else node for node in moment.nodes)
        moment = replace(moment, nodes=nodes)
        return moment, drainage(moment)

    def _begin_line(self) -> None:
        """A new line of the journal: the fleet without jobs, then every job as it stands."""
        with self.desk.lock:
            bare = replace(self.bare(), memory=self._loop.memory.to_document())
            self._journal.begin(bare)
            self._loop.fleet = Fleet(bare)
            self.world.tell_all()

    def close(self, jobs: bool = False) -> None:
        """Stop turning and let go of the state folder; the jobs run on, unless they are to end too."""
        if jobs:
            self._end_all()
        self._housekeeper.stop()
        self.world.end()
        if self._thread is not None:
            self._thread.join(10.0)
        self._journal.remember(self._loop.memory, self.clock.now(), soon=False)
        with contextlib.suppress(StoreError):  # then a few numbers are skipped
            self.desk.numbers.settle(self.desk.book.next_job - 1, self.desk.book.next_template - 1)
        self.store.close()
        self.store.wake_waiting()
        self.launcher.close()
        if self.devices is not None:
            self.devices.keeper.close()
        self._holder.release()

    def _end_all(self) -> None:
        with self.desk.change():
            for entry in list(self.desk.book.active()):
                self.world.cancel(entry, "the yard was taken down with its jobs")
        deadline = self.clock.monotonic() + self.settings.term_grace + 5.0
        seen = -1
        while any(self.desk.book.entries.values()) and self.clock.monotonic() < deadline:
            self.store.wait_news(seen, 0.2)
            seen = self.store.last_event

    # --- the moment ------------------------------------------------------------------------------

    def bare(self) -> Snapshot:
        """The fleet without jobs."""
        nodes = tuple(self.desk.nodes[name] for name in sorted(self.desk.nodes))
        return replace(
            self.settings.fleet, now=self.desk.now(), nodes=nodes, queues=self.world.queues, jobs=(), reservations=()
        )

    def moment(self) -> Snapshot:
        """The whole moment as the brain sees it; a job whose places are promised has a reservation there."""
        with self.desk.lock:
            jobs, reservations = [], []
            for entry in self.desk.book.active():
                job, promised = _as_seen(entry, self.world.life)
                jobs.append(job)
                if promised:
                    reservations.append(Reservation(job.name, promised))
            bare = replace(self.bare(), budgets=_about(self.settings.fleet.budgets, {job.name for job in jobs}))
            memory = self._loop.memory.to_document()
            return replace(bare, jobs=tuple(jobs), reservations=tuple(reservations), memory=memory)

    def check(self) -> str:
        """Whether it turns; if not, why."""
        if self._thread is not None and not self._thread.is_alive():
            return self._broken or "the loop has ended; start the yard again"
        return "ok"


def _closed(node: Node, place: Place, closure: Closure) -> Node:
    if place.gpu is None:
        return replace(node, closed=closure)
    gpus = tuple(replace(gpu, closed=closure) if gpu.index == place.gpu else gpu for gpu in node.gpus)
    return replace(node, gpus=gpus)


def _about(budgets: Iterable[Budget], jobs: Container[str]) -> tuple[Budget, ...]:
    """The budgets over jobs that are there; a fleet's may speak of jobs to come."""
    found = (replace(budget, jobs=tuple(job for job in budget.jobs if job in jobs)) for budget in budgets)
    return tuple(budget for budget in found if budget.jobs)


def _as_seen(entry: Entry, life: Life) -> tuple[Job, tuple[Placement, ...]]:
    """A job for a snapshot, and what it is promised: behind a gate it is held; what it is to have and somebody else
    still holds it does not have yet, because no file can say that two jobs have one GPU."""
    job = entry.job()
    attempt = entry.attempt
    if attempt is None:
        return (job if entry.shown else replace(job, on_hold=True)), ()
    if entry.following is not None:
        kept = tuple(place for place in job.placements if place.terminating)
        return replace(job, placements=kept), tuple(place for place in job.placements if not place.terminating)
    if life.could_launch(entry):
        return job, ()
    if attempt.state == "promised":
        return replace(job, placements=(), started=None), job.placements
    late = {task.placement for task in life.unbegun(entry, attempt)}
    return replace(job, placements=tuple(place for place in job.placements if place not in late)), ()
