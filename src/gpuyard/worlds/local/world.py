"""This machine as a world: what people ask for and what supervisors tell becomes events, plans become processes.

Driven by `runtime.driver` (one thread); `accept`, `cancel` and their like are called by the embedded yard from others.
A node is this machine, or a virtual one of a fleet file whose tasks run here all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gpuyard.model.actions import Action, Cordon, Drain, Evict, Move, Plan, Start, Terminate, Waiting
from gpuyard.model.errors import Conflict, NotFound
from gpuyard.model.events import Event, JobSeen, NodeLost, NodeSeen, QueuesChanged
from gpuyard.model.job import Phase, Placement
from gpuyard.model.node import CORDONED, Closure, Health, Node, Place
from gpuyard.model.queue import Queue
from gpuyard.model.reasons import Code, Reason
from gpuyard.model.snapshot import Snapshot
from gpuyard.worlds.local import book as books
from gpuyard.worlds.local.burials import withheld
from gpuyard.worlds.local.closures import Closures
from gpuyard.worlds.local.desk import RETRY_S, Desk
from gpuyard.worlds.local.gates import Gates
from gpuyard.worlds.local.life import Life
from gpuyard.worlds.local.ports import TaskKey
from gpuyard.worlds.local.records import Attempt, Entry, Task, Template, survives
from gpuyard.worlds.local.seam.moment import bare_moment, open_moment, whole_moment
from gpuyard.worlds.local.store import StoreError

IDLE_S = 60.0
"""The longest sleep; nobody is disturbed by it."""
FLUSH_S = 0.2
"""How long what may be forgotten is kept from the disk."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that breaks at a moment: a GPU's health changes, or a whole node is gone (and comes back)."""

    at: float
    """By the monotonic clock."""
    node: str
    gpu: int | None = None
    health: Health = Health.SICK
    lasts: float | None = None
    """How long; None is for good."""
    kills: bool = False
    """Whether what runs on the GPU dies of it."""


class LocalWorld:
    """Implements `worlds.base.World`."""

    def __init__(self, desk: Desk, fleet: Snapshot, life: Life, faults: Sequence[Fault] = ()) -> None:
        self.desk = desk
        self.gates: Gates = life.gates
        self.life = life
        self.fleet = fleet
        self.closures = Closures(desk, fleet.nodes)
        desk.pools = {pool.name: pool for pool in fleet.pools}
        self._lost: dict[str, Node] = {}
        self._faults = sorted(faults, key=lambda fault: fault.at)
        self._over = False
        self._untold: Sequence[Waiting] = ()
        """What the last plan says of those who wait, as long as nobody has asked."""
        self._look_at: float | None = 0.0
        """When to look again though nothing happens, by the last plan and the monotonic clock."""
        self._flush_at = 0.0
        self._told_news = False
        """Whether `apply` told the brain more than that its own wishes come true."""

    @property
    def queues(self) -> tuple[Queue, ...]:
        """The queue tree as it is now."""
        return self.fleet.queues

    # --- the world -------------------------------------------------------------------------------

    def open(self) -> Snapshot:
        """The moment as the brain is to see it."""
        with self.desk.lock:
            self.desk.events = []
            self._look_at = 0.0
            return open_moment(self.desk, self.fleet)

    def bare(self) -> Snapshot:
        """The fleet without jobs."""
        with self.desk.lock:
            return bare_moment(self.desk, self.fleet)

    def snapshot(self) -> Snapshot:
        """The whole moment, also of jobs behind a gate."""
        with self.desk.lock:
            return whole_moment(self.desk, self.fleet, self.life)

    def wait(self, not_before: float = 0.0) -> bool:
        """Until there is something for the brain; what only concerns us is dealt with here."""
        while not self._over:
            self.desk.launcher.wait(self._patience(not_before))
            self._flush()
            with self.desk.change():
                for report in self.desk.launcher.reports():
                    self.life.hear(report)
                self._on_time()
            if self.desk.trouble:
                self.desk.retry()
            now = self.desk.monotonic()
            if now >= not_before and (self._has_news() or (self._look_at is not None and now >= self._look_at)):
                self._told_news = False
                return True
        return False

    def _has_news(self) -> bool:
        return self._told_news or self.desk.has_news

    def _patience(self, not_before: float) -> float:
        now = self.desk.monotonic()
        due = [now + IDLE_S, self.gates.next_due(), self._faults[0].at if self._faults else None]
        if self._has_news():
            due.append(not_before)
        elif self._look_at is not None:
            due.append(max(self._look_at, not_before))
        if self.desk.trouble:
            due.append(now + RETRY_S)
        elif self.desk.store.has_deferred:
            due.append(max(self._flush_at, now))
        return max(0.0, min(moment - now for moment in due if moment is not None))

    def _flush(self) -> None:
        """What may be forgotten is written soon all the same."""
        now = self.desk.monotonic()
        if not self.desk.store.has_deferred:
            self._flush_at = now + FLUSH_S
        elif now >= self._flush_at and not self.desk.trouble:
            self.desk.retry()

    def _on_time(self) -> None:
        now = self.desk.monotonic()
        self.gates.rested(now)
        self.life.end_doomed()
        while self._faults and self._faults[0].at <= now:
            self.break_down(self._faults.pop(0))

    def look_at_once(self) -> None:
        """Have the next plan made though nothing happened."""
        self._look_at = 0.0
        self.desk.launcher.wake()

    def close(self) -> None:
        """The world is over; tasks run on."""
        self._over = True
        self.desk.launcher.wake()

    def now(self) -> float:
        """The present."""
        return self.desk.now()

    def observe(self) -> Sequence[Event]:
        """What happened since the last call."""
        with self.desk.lock:
            seen, self.desk.events = self.desk.events, []
            return seen

    def apply(self, plan: Plan, turn: int) -> Sequence[Event]:
        """Carry out the actions, as far as the world is still as the brain saw it."""
        with self.desk.lock:
            self.carry_out(plan.actions)
            self._untold = plan.waiting
            self._look_at = self._next_look(plan.look_again_at)
            self._told_news = self.desk.has_news
            return self.observe()

    def _next_look(self, wanted: float | None) -> float | None:
        """The next moment that this plan or an earlier one wants looked at."""
        now = self.desk.monotonic()
        due = None if wanted is None else now + wanted - self.desk.now()
        return min((at for at in (due, self._look_at) if at is not None and at > now), default=None)

    def carry_out(self, actions: Iterable[Action]) -> None:
        """Do these; what they lead to comes back as events."""
        with self.desk.change():
            for action in actions:
                match action:
                    case Evict():
                        self._evict(action)
                    case Move():
                        self._move(action)
                    case Start():
                        self._start(action)
                    case Terminate(job=name):
                        self._terminate(name)
                    case Cordon(node=name, gpu=gpu) | Drain(node=name, gpu=gpu):
                        closure = Closure(str(action.reason), "the scheduler", drains=isinstance(action, Drain))
                        self.closures.set(Place(name, gpu), closure)
                    case _:
                        pass
            self._launch_promised()

    def note_reasons(self) -> None:
        """Note why each job waits by the last plan; only when somebody asks, for there may be ten thousand.

        Noted without its name: jobs that are alike share one reason, told of the first of them.
        """
        with self.desk.lock:
            waiting, self._untold = list(self._untold), ()
            told: dict[int, Reason] = {}
            for each in waiting:
                reason = each.reason
                if id(reason) not in told or reason.message.startswith(f"{each.job} "):
                    told[id(reason)] = replace(reason, message=reason.message.removeprefix(f"{each.job} "))
            for each in waiting:
                entry = self.desk.book.find(each.job)
                if entry is not None and entry.shown and entry.phase is Phase.WAITING:
                    entry.reason = told[id(each.reason)]

    def _start(self, action: Start) -> None:
        entry = self.desk.book.find(action.job)
        if entry is None or not entry.shown or not self._all_here(action.placements):
            return
        if entry.attempt is None:
            if not self.gates.keep_out(entry, len(action.placements)):
                self.life.begin(entry, action.placements)
        elif entry.attempt.state == "stopping":
            if entry.following is None and entry.attempt.why in ("preempted", "requeued", "drained"):
                self.life.follow(entry, action.placements)
        elif not entry.attempt.why and not self.gates.crowd.hindrance(entry, len(action.placements)):
            self.life.grow(entry, action.placements)

    def _all_here(self, places: Iterable[Placement]) -> bool:
        return all(place.node in self.desk.nodes for place in places)

    def _evict(self, action: Evict) -> None:
        entry = self.desk.book.find(action.job)
        if entry is None or entry.attempt is None or entry.attempt.why:
            return
        entry.reason = action.reason
        tasks = _standing(entry.attempt, action.placements)
        if not action.placements or len(tasks) == len(entry.attempt.live()):
            self.life.stop(entry, "drained" if action.reason.code is Code.DRAINED else "preempted")
        elif tasks:
            self.life.shrink(entry, tasks)

    def _move(self, action: Move) -> None:
        """The whole gang is started anew: ranks that know each other by number cannot be moved one by one."""
        entry = self.desk.book.find(action.job)
        if entry is None or entry.attempt is None or entry.attempt.why or not self._all_here(action.target):
            return
        leaving = {task.serial for task in _standing(entry.attempt, action.source)}
        staying = [task.placement for task in entry.attempt.live() if task.serial not in leaving]
        self.life.follow(entry, [*staying, *action.target])

    def _terminate(self, name: str) -> None:
        entry = self.desk.book.find(name)
        if entry is not None and entry.attempt is not None and not entry.attempt.why:
            self.life.stop(entry, "timeout")

    def _launch_promised(self) -> None:
        for entry in self.desk.book.active():
            if entry.attempt is not None and entry.attempt.state in ("promised", "starting", "running"):
                self.life.launch(entry)

    # --- what people ask for ---------------------------------------------------------------------

    def accept(self, templates: Sequence[Template], entries: Sequence[Entry], key: tuple[object, ...] | None) -> None:
        """Jobs are on disk before anybody is told; then the brain hears of them. Others who wait share the commit."""
        try:
            self._write_down(templates, entries, key)
        except StoreError:
            with self.desk.lock:
                self.desk.book.unreserve(entries)
            raise
        with self.desk.lock:
            self.desk.book.make_way(entries)
            self.desk.book.arrays.update({each.key: each for each in templates if each.members})
            for entry in entries:
                self.desk.book.add(entry)
                self.gates.consider(entry)
        self.desk.launcher.wake()

    def _write_down(
        self, templates: Sequence[Template], entries: Sequence[Entry], key: tuple[object, ...] | None
    ) -> None:
        first = {entry.template.id: entry for entry in reversed(entries)}
        with self.desk.store.batch() as batch:
            for template in templates:
                books.save_template(batch, template)
                members = template.members or None
                self.desk.note(batch, "submitted", first[template.id], array=members)
            books.make_way(batch, entries)
            books.insert_jobs(batch, entries)
            if key is not None:
                batch.add("INSERT INTO keys(user, key, digest, names, at) VALUES (?, ?, ?, ?, ?)", key)

    def cancel(self, entry: Entry, told: str) -> None:
        """End a job for good; an ended one is left alone."""
        with self.desk.change():
            entry.told = told
            self.life.unfollow(entry)
            if entry.over:
                raise Conflict(f"{entry.name} has ended already: {entry.phase.value}")
            if entry.attempt is None:
                self.life.over(entry, Phase.CANCELLED, told, None)
            elif entry.attempt.why != "cancelled":
                self.life.stop(entry, "cancelled")
        self.desk.launcher.wake()

    def hold(self, entry: Entry) -> None:
        """Keep a job back; one that runs gives way as if preempted."""
        with self.desk.change():
            entry.held = True
            self.life.unfollow(entry)
            if entry.attempt is not None and not entry.attempt.why:
                self.desk.keep(entry)
                self.life.stop(entry, "held")
            elif entry.attempt is None:
                self.life.wait_again(entry, "held")
        self.desk.launcher.wake()

    def release(self, entry: Entry) -> None:
        """Let a held job go on."""
        if not entry.held:
            raise Conflict(f"{entry.name} is not held; it is {entry.phase.value}")
        with self.desk.change():
            entry.held = False
            self.desk.keep(entry)
            if entry.attempt is None:
                entry.phase, entry.told = Phase.WAITING, ""
                self.desk.keep(entry)
                self.desk.say("released", entry)
                self.gates.consider(entry)
        self.desk.launcher.wake()

    def requeue(self, entry: Entry) -> None:
        """Stop what runs and let it wait for a new start; one that has ended begins again."""
        with self.desk.change():
            entry.not_before = 0.0
            if entry.over:
                self._revive(entry)
            elif entry.attempt is None:
                self.gates.consider(entry)
            elif not entry.attempt.why:
                self.life.stop(entry, "requeued")
        self.desk.launcher.wake()

    def vouch(self, entry: Entry, user: str) -> None:
        """An operator says that nothing is left of its tasks that are in doubt."""
        attempt = entry.attempt
        doubts = self.desk.launcher.doubts()
        keys = [key for key in doubts if attempt and (key.job, key.attempt) == (entry.id, attempt.number)]
        if not keys:
            raise Conflict(f"nothing of {entry.name} is in doubt; `yard status` names what is")
        with self.desk.change():
            for key in keys:
                self.desk.say("vouched", entry, message=f"{user} vouched that nothing is left of it: {doubts[key]}")
                self.desk.launcher.vouch(key)

    def withheld(self) -> list[str]:
        """What nobody else gets because its last holder is not proven gone, and why."""
        told = []
        for key, doubt in self.desk.launcher.doubts().items():
            entry = self.desk.book.entries.get(key.job)
            attempt = entry.attempt if entry is not None else None
            if entry is None or attempt is None or attempt.number != key.attempt:
                told.append(f"a task that no job knows of may not be gone: {doubt}")
                continue
            place = attempt.tasks[key.serial].placement
            told.append(f"{entry.key}: {withheld(place, doubt)}; end it, or `yard vouch {entry.key}`")
        return told

    def _revive(self, entry: Entry) -> None:
        entry.phase = Phase.HELD if entry.held else Phase.WAITING  # held while it ran its last, it stays held
        entry.told, entry.failures, entry.losses = "", 0, 0
        entry.ended = entry.exit = entry.started = None
        entry.begin_anew()
        self.desk.book.revive(entry)
        self.desk.keep(entry)
        self.desk.say("requeued", entry)
        self.gates.consider(entry)

    def set_queues(self, queues: tuple[Queue, ...]) -> None:
        """The queue tree, anew; the caller has written it down."""
        with self.desk.lock:
            self.fleet = replace(self.fleet, queues=queues)
            self.desk.events.append(QueuesChanged(queues))
            changed = self.desk.book.keep_within(self.fleet.policy, queues)
            self.desk.events += [JobSeen(entry.job()) for entry in changed if entry.shown]
        self.desk.launcher.wake()

    # --- what breaks and what is closed ----------------------------------------------------------

    def cordon(self, name: str, closed: bool) -> None:
        """Nothing new goes on the node, or it is open again."""
        self.closures.set(Place(name), CORDONED if closed else None)

    def break_down(self, fault: Fault) -> None:
        """A fault from the fleet file or a test."""
        if fault.gpu is None:
            self.lose_node(fault.node)
            if fault.lasts is not None:
                back = replace(fault, at=fault.at + fault.lasts, lasts=None, gpu=-1)
                self._faults = sorted([*self._faults, back], key=lambda each: each.at)
        elif fault.gpu < 0:
            self.return_node(fault.node)
        else:
            self.set_health(fault.node, fault.gpu, fault.health, fault.kills)
            if fault.lasts is not None:
                well = replace(fault, at=fault.at + fault.lasts, lasts=None, health=Health.HEALTHY, kills=False)
                self._faults = sorted([*self._faults, well], key=lambda each: each.at)

    def set_health(self, name: str, gpu: int, health: Health, kills: bool = False) -> None:
        """One device changed its state; what runs on it may die of that."""
        with self.desk.change():
            self.closures.see_health(name, gpu, health)
            self.desk.say(
                "health", node=name, gpu=gpu, health=health.value, message=f"GPU {gpu} of {name} is {health.value}"
            )
            self.life.drop_unsound_promises()
            if kills:
                holders = sorted(self.desk.holdings.holders(name, gpu))
                self.desk.then(lambda: self.desk.launcher.kill(*holders))
        self.desk.launcher.wake()

    def lose_node(self, name: str) -> None:
        """A node is gone with everything on it; its gangs end and wait again."""
        with self.desk.change():
            self._lost[name] = self._node(name)
            struck = [entry for entry in self.desk.book.active() if _stands_on(entry, name)]
            for entry in struck:
                assert entry.attempt is not None
                self._kill_on(entry, entry.attempt, name)
            del self.desk.nodes[name]
            self.desk.events.append(NodeLost(name))
            self.desk.say("health", node=name, message=f"node {name} is gone")
            self.desk.events += [JobSeen(entry.job()) for entry in struck if entry.shown]
        self.desk.launcher.wake()

    def _kill_on(self, entry: Entry, attempt: Attempt, name: str) -> None:
        there = [task.serial for task in attempt.live() if task.placement.node == name]
        if not attempt.why and not survives(entry, attempt, without=there):
            self.life.stop(entry, "node")
        elif late := [task for task in self.life.unbegun(entry, attempt) if task.serial in there]:
            self.life.shrink(entry, late)
        keys = [TaskKey(entry.id, attempt.number, serial) for serial in there]
        self.desk.then(lambda: self.desk.launcher.kill(*keys))

    def return_node(self, name: str) -> None:
        """A lost node is back."""
        with self.desk.change():
            node = self._lost.pop(name, None)
            if node is not None:
                self.desk.nodes[name] = node
                self.desk.events.append(NodeSeen(node))
                self.desk.say("health", node=name, message=f"node {name} is back")
        self.desk.launcher.wake()

    def _node(self, name: str) -> Node:
        try:
            return self.desk.nodes[name]
        except KeyError:
            raise NotFound(f"there is no node {name}") from None

    # --- after a crash ---------------------------------------------------------------------------

    def adopt(self) -> None:
        """Take over what the store knows: attempts of this boot are looked for, those of an earlier one are lost."""
        from gpuyard.worlds.local.recovery import recover

        recover(self.desk, self.life, self.fleet)


def _standing(attempt: Attempt, places: Iterable[Placement]) -> list[Task]:
    wanted = {(place.group, place.task, place.node) for place in places}
    return [t for t in attempt.live() if (t.placement.group, t.placement.task, t.placement.node) in wanted]


def _stands_on(entry: Entry, node: str) -> bool:
    return entry.attempt is not None and any(task.placement.node == node for task in entry.attempt.live())
