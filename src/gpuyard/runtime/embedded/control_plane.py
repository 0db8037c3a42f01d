"""The control plane of the embedded yard: store, launcher, local world and driver, wired together.

Used by `embedded`, which speaks with people. It takes the state folder, adopts what an earlier control plane left
running, and lets go again; the jobs do not notice.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gpuyard.agent.keeper import Machine
from gpuyard.agent.nvml.caller import NvmlCaller, NvmlSource
from gpuyard.agent.watching import Watch
from gpuyard.brain.controllers.alarms.remembering import AlarmsKept
from gpuyard.brain.engine.picture.memory import Memory
from gpuyard.files.reading.fleet import ONLY_QUEUE
from gpuyard.files.units import write_time
from gpuyard.model.errors import Refused
from gpuyard.model.outside.ports import Clock
from gpuyard.model.ownership import NO_CAPS, Caps
from gpuyard.model.snapshot import Snapshot
from gpuyard.runtime.alerting import channels
from gpuyard.runtime.alerting.channels import NotifyWish
from gpuyard.runtime.alerting.notifier import Notifier
from gpuyard.runtime.alerting.standing import Alerting
from gpuyard.runtime.clock import SteadyClock
from gpuyard.runtime.driving.driver import Driver
from gpuyard.runtime.driving.journal import Journal
from gpuyard.runtime.driving.loop import Loop
from gpuyard.runtime.driving.pace import Pace
from gpuyard.runtime.driving.recovery import Recovery
from gpuyard.runtime.embedded import fitting
from gpuyard.runtime.embedded.history import History
from gpuyard.runtime.embedded.measuring import EVERY_S, Measuring
from gpuyard.runtime.embedded.real_gpus import RealGpus
from gpuyard.runtime.embedded.state_folder import Holder
from gpuyard.runtime.service import Document
from gpuyard.runtime.serving import fitting as queue_fitting
from gpuyard.runtime.serving import queueing
from gpuyard.worlds.local.attempts import housekeeping
from gpuyard.worlds.local.attempts.desk import Desk
from gpuyard.worlds.local.attempts.gates import Gates
from gpuyard.worlds.local.attempts.lifecycle import Lifecycle
from gpuyard.worlds.local.launching import orders
from gpuyard.worlds.local.launching.launch import PROGRESS, Supervisors
from gpuyard.worlds.local.ports import FaultPoint, no_fault
from gpuyard.worlds.local.seam.archive import StoreArchive
from gpuyard.worlds.local.seam.breakage import Fault
from gpuyard.worlds.local.state import book as books
from gpuyard.worlds.local.state.store import FILE, Store, StoreError
from gpuyard.worlds.local.supervising.confine import own_cgroup
from gpuyard.worlds.local.world import LocalWorld

NOTICES = "notices"
"""The fact that holds what is still to be passed on."""
QUEUES = "queues"
"""The fact that holds queues as they were set while the yard was up."""
AS_BEFORE = (
    "Start the yard with the fleet that it had (`yard up` remembers a --fleet), let them end or cancel them, "
    "then change the fleet"
)


@dataclass(frozen=True, slots=True)
class Settings:
    """How a yard is run. `fleet` has the nodes, queues, pools and policy."""

    folder: pathlib.Path
    fleet: Snapshot
    virtual: bool = True
    shared: bool = False
    caps: Caps = NO_CAPS
    nvml: NvmlSource | None = None
    """How the GPUs are measured; where it is not given real ones are by NVML, and virtual ones not at all."""
    measure_every_s: float = EVERY_S
    machine: Machine | None = None
    """Where real GPUs are kept; none for virtual ones, unless it is given."""
    keeps_places: bool = False
    """Whether a fleet without what running jobs stand on is refused: one that is written down can be put right."""
    backoff: float = 10.0
    term_grace: float = 10.0
    faults: tuple[Fault, ...] = ()
    notify: NotifyWish = NotifyWish()
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))


class ControlPlane:
    """One local world and what drives it."""

    store: Store
    archive: StoreArchive
    desk: Desk
    world: LocalWorld
    launcher: Supervisors
    driver: Driver
    alerting: Alerting
    recovery: Recovery

    def __init__(self, settings: Settings, clock: Clock, fault: FaultPoint = no_fault) -> None:
        self.settings = settings
        self.clock = SteadyClock(clock)
        self._fault = fault
        self.since = 0.0
        self.overruled: tuple[str, ...] = ()
        """Queues of the fleet that are as they were set by command, and not as the fleet has them."""
        self.devices: RealGpus | None = None
        self.measuring: Measuring | None = None
        self.notifier: Notifier | None = None
        self._channel = channels.channel(settings.notify, clock)

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
        self.archive = StoreArchive(self.store)
        self.launcher = Supervisors(folder, self.clock, self._fault, own_cgroup())
        if self.settings.shared:  # people find the sockets of their terminals and the pipes of their tasks, and can
            for open_to_all in (folder, folder / "tty", folder / PROGRESS):  # look nowhere else
                open_to_all.chmod(0o711)
        around = orders.surroundings(str(folder.resolve()), self.settings.environ, self.settings.shared)
        self.desk = Desk(self.store, self.launcher, self.clock, around)
        life = Lifecycle(
            self.desk, Gates(self.desk, self.settings.caps), self.settings.backoff, self.settings.term_grace
        )
        self.world = LocalWorld(self.desk, self._fleet(), life, self._timed_faults())
        self.desk.book = books.load(self.store)
        self._check_fit()
        self.devices = self._keep_devices()
        self.world.adopt()
        if self.devices is not None and self.settings.shared:
            self.devices.keeper.separate()
        self.world.withhold(housekeeping.clear_away(self.store, self.launcher, self.desk))
        self._housekeeper = housekeeping.Housekeeper(self.desk, housekeeping.EVERY_S, self.settings.caps.output)
        self._housekeeper.start()
        self.history = History(self.desk, self.archive)
        self.history.start()
        self.measuring = self._measure()
        self._drive()
        if self.measuring is not None:
            self.measuring.start()

    def _check_fit(self) -> None:
        """Nobody is lost because a fleet or its queues are other than they were."""
        book, queues = self.desk.book, self.world.queues
        try:
            queue_fitting.check_queues(
                queues, ((each.key, each.template.job.queue) for each in book.active()), AS_BEFORE
            )
            if self.settings.keeps_places:
                fitting.check_places(self.desk.nodes, book.active(), self.launcher.boot, AS_BEFORE)
        except Refused:
            self.launcher.close()
            self.store.close()
            raise

    def _drive(self) -> None:
        journal = Journal(self.archive)
        loop = Loop(self.world, self.clock, journal, self._holder)
        loop.memory = self._memory(journal)
        self.alerting = Alerting(self._say, loop.memory.of(AlarmsKept).alerts.values())
        loop.heard = self.alerting.hear
        if self._channel is not None:
            self.notifier = Notifier(self._channel, self.clock, lambda kept: self.archive.keep(NOTICES, kept))
            self.notifier.start(self._kept_notices())
            self.alerting.passed_on = self.notifier.pass_on
        self.recovery = Recovery(loop, self.archive)
        self.driver = Driver(loop, self.clock, Pace(), journal, self.recovery)
        if self.devices is not None:
            self.driver.chores = self.devices.look_after
        self.driver.start()

    def _kept_notices(self) -> Any:
        try:
            return self.archive.kept(NOTICES)
        except ValueError as error:
            self.desk.aside.put("notices", NOTICES, str(error), self.archive.raw(NOTICES))
            return None

    def _say(self, kind: str, **document: Any) -> None:
        with self.desk.change():
            self.desk.say(kind, **document)

    def _memory(self, journal: Journal) -> Memory:
        """What was remembered; what cannot be read is as if it had not been, part by part."""
        try:
            memory, unreadable = journal.memory()
        except ValueError as error:
            memory, unreadable = Memory(), {"memory": str(error)}
        for name, why in unreadable.items():
            self.desk.aside.put("memory", name, why, self.archive.raw("memory"))
        return memory

    def _keep_devices(self) -> RealGpus | None:
        """Real GPUs are claimed before anything goes on them; who has the others is told."""
        if self.settings.virtual and self.settings.machine is None:
            return None
        machine = self.settings.machine or Machine()
        devices = RealGpus(self.world, machine, self.settings.folder.resolve(), self.desk.around.mark)
        self.desk.keeper = self.launcher.keeper = devices.keeper
        return devices

    def _measure(self) -> Measuring | None:
        """Real GPUs have sensors; virtual ones only if they are those of a recorded machine."""
        source = self.settings.nvml or (None if self.settings.virtual else NvmlSource())
        if source is None:
            return None
        watch = Watch(NvmlCaller(source, self.clock.monotonic), self.clock.now)
        return Measuring(self.world, watch, self.settings.measure_every_s)

    def _timed_faults(self) -> list[Fault]:
        begun = self.clock.monotonic()
        return [replace(fault, at=begun + fault.at) for fault in self.settings.faults]

    def _fleet(self) -> Snapshot:
        """The fleet as given, with the queues as they were last set; one without any has one for everybody."""
        fleet, changes = self.settings.fleet, self.queue_changes()
        fleet = fleet if fleet.queues else replace(fleet, queues=(ONLY_QUEUE,))
        given = {queue.name for queue in fleet.queues}
        self.overruled = tuple(name for name in changes if name in given)
        for name, change in changes.items():
            try:
                fleet = replace(fleet, queues=queueing.laid_over(fleet.queues, [change], fleet.topology))
            except Refused as error:  # it does not fit the fleet that is given now; the fleet has the say
                self.desk.aside.put("queue", name, str(error), change)
        return fleet

    def queue_changes(self) -> dict[str, Document]:
        """What was set by command, queue by queue, in the order in which it was first set."""
        try:
            kept = dict(self.archive.kept(QUEUES) or {})
        except (ValueError, TypeError) as error:
            self.desk.aside.put("queue", QUEUES, str(error), self.archive.raw(QUEUES))
            return {}
        return {str(name): change for name, change in kept.items() if isinstance(change, dict)}

    def close(self, jobs: bool = False) -> None:
        """Stop turning and let go of the state folder; the jobs run on, unless they are to end too."""
        if jobs:
            self._end_all()
        self._housekeeper.stop()
        self.history.stop()
        if self.measuring is not None:
            self.measuring.stop()
        self.world.close()
        self.driver.close()
        if self.notifier is not None:
            self.notifier.close()
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
                self.world.requests.cancel(entry, "the yard was taken down with its jobs")
        deadline = self.clock.monotonic() + self.settings.term_grace + 5.0
        seen = -1
        while any(self.desk.book.entries.values()) and self.clock.monotonic() < deadline:
            self.store.wait_news(seen, 0.2)
            seen = self.store.last_event

    # --- the moment ------------------------------------------------------------------------------

    def bare(self) -> Snapshot:
        """The fleet without jobs."""
        return self.world.bare()

    def moment(self) -> Snapshot:
        """The whole moment, and what the brain remembers."""
        return replace(self.world.snapshot(), memory=self.driver.loop.memory.to_document())

    # --- how it stands ---------------------------------------------------------------------------

    @property
    def turns(self) -> int:
        """How many plans were applied since it is up."""
        return self.driver.loop.turns

    def checks(self) -> dict[str, str]:
        """Whether it turns, and whether turns succeed; if not, why."""
        alive = "ok" if self.driver.alive else "the loop has ended; start the yard again"
        return {"loop": alive, "turns": self.driver.trouble() or "ok"}
