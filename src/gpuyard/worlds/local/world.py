"""This machine as a world: what people ask for and what supervisors tell becomes events, plans become processes.

Driven by `runtime.driving` (one thread); what people ask for comes from others.
A node is this machine, or a virtual one of a fleet file whose tasks run here all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gpuyard.model.actions import Move, Plan, Waiting
from gpuyard.model.events import Event, JobProgressed, JobSeen, QueuesChanged
from gpuyard.model.job import Phase
from gpuyard.model.node import CORDONED, Place
from gpuyard.model.outside.phrases import counted
from gpuyard.model.queue import Queue
from gpuyard.model.reasons import Code, Reason
from gpuyard.model.resources import WHOLE
from gpuyard.model.snapshot import Snapshot
from gpuyard.worlds.local.attempts.desk import RETRY_S, Desk
from gpuyard.worlds.local.attempts.gates import Gates
from gpuyard.worlds.local.attempts.lifecycle import Lifecycle
from gpuyard.worlds.local.ports import Report, Stray, TaskKey
from gpuyard.worlds.local.seam.breakage import Breakage, Fault
from gpuyard.worlds.local.seam.closures import Closures
from gpuyard.worlds.local.seam.deeds import Deeds
from gpuyard.worlds.local.seam.moment import bare_moment, open_moment, whole_moment
from gpuyard.worlds.local.seam.requests import Requests

IDLE_S = 60.0
"""The longest sleep; nobody is disturbed by it."""
PROGRESS_S = 15.0
"""How long the brain may not know how far jobs are: nobody is decided about meanwhile."""
FLUSH_S = 0.2
"""How long what may be forgotten is kept from the disk."""


class LocalWorld:
    """Implements `worlds.base.World`."""

    def __init__(self, desk: Desk, fleet: Snapshot, life: Lifecycle, faults: Sequence[Fault] = ()) -> None:
        self.desk = desk
        self.gates: Gates = life.gates
        self.life = life
        self.fleet = fleet
        self.closures = Closures(desk, fleet.nodes)
        life.gates.crowd.policy = fleet.policy
        desk.pools = {pool.name: pool for pool in fleet.pools}
        self.requests = Requests(life)
        self.breakage = Breakage(life, self.closures, faults)
        self.deeds = Deeds(life, self.closures)
        self._withheld: dict[TaskKey, list[Place]] = {}
        """What tasks stand on that no job knows of."""
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
                    self._hear(report)
                self._on_time()
            self._heed_progress()
            if self.desk.trouble:
                self.desk.retry()
            now = self.desk.monotonic()
            if now >= not_before and (self._has_news() or (self._look_at is not None and now >= self._look_at)):
                self._told_news = False
                return True
        return False

    def _hear(self, report: Report) -> None:
        """One report that nobody can deal with costs its own job, and no other its report: each comes only once."""
        try:
            self.life.hear(report)
        except Exception as error:
            entry = self.desk.book.entries.get(report.key.job)
            if entry is None:
                raise
            self.life.give_up(entry, error)
        if report.kind == "ended" and report.key in self._withheld:
            for place in self._withheld.pop(report.key):
                if not any(place in places for places in self._withheld.values()):
                    self.closures.take_back(place)

    def withhold(self, strays: Iterable[Stray]) -> None:
        """Tasks run that no job knows of, as after a backup was restored: what they stand on is theirs until they are
        gone, and the brain plans nothing there."""
        with self.desk.lock:
            for stray in strays:
                self.desk.holdings.take(stray.key, [((stray.node, gpu, ""), WHOLE) for gpu in stray.gpus])
                places = [Place(stray.node, gpu) for gpu in stray.gpus]
                self._withheld[stray.key] = [place for place in places if self.closures.is_ours(place)]
                for place in self._withheld[stray.key]:
                    self.closures.give_away(place, f"withheld: {stray.key.told} is not gone, and no job knows of it")

    def _has_news(self) -> bool:
        return self._told_news or self.desk.has_news

    def _patience(self, not_before: float) -> float:
        now = self.desk.monotonic()
        due = [now + IDLE_S, self.gates.next_due(), self.breakage.next_due()]
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

    def _heed_progress(self) -> None:
        """What jobs tell of their progress is heard with the next turn, and no turn is long in coming."""
        if any(isinstance(event, JobProgressed) for event in self.desk.events):
            soon = self.desk.monotonic() + PROGRESS_S
            self._look_at = soon if self._look_at is None else min(self._look_at, soon)

    def _on_time(self) -> None:
        now = self.desk.monotonic()
        self.gates.rested(now)
        self.life.ending.end_doomed()
        self.breakage.strike(now)

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
            self.deeds.carry_out(plan.actions)
            self._untold = plan.waiting
            self._tell_proposals(plan)
            self._look_at = self._next_look(plan.look_again_at)
            self._told_news = self.desk.has_news
            return self.observe()

    def _tell_proposals(self, plan: Plan) -> None:
        """What controllers in shadow mode would have done, for those who follow the yard; whose jobs, the operator's
        own question tells."""
        proposed = (action for action in plan.proposed if isinstance(action, Move))
        moves = [move for move in proposed if move.reason.code is Code.DEFRAGMENTED]
        if moves:
            tasks, jobs = sum(len(move.source) for move in moves), len({move.job for move in moves})
            told = f"tidying up would pay: {counted(tasks, 'task')} of {counted(jobs, 'job')} to move"
            with self.desk.change():
                told += "; `yard defrag --dry-run` shows them with their bill"
                self.desk.say("proposed", message=told, moves=len(moves))

    def _next_look(self, wanted: float | None) -> float | None:
        """The next moment that this plan or an earlier one wants looked at."""
        now = self.desk.monotonic()
        due = None if wanted is None else now + wanted - self.desk.now()
        return min((at for at in (due, self._look_at) if at is not None and at > now), default=None)

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

    # --- what people set ------------------------------------------------------------------------

    def set_queues(self, queues: tuple[Queue, ...]) -> None:
        """The queue tree, anew; the caller has written it down."""
        with self.desk.lock:
            self.fleet = replace(self.fleet, queues=queues)
            self.desk.events.append(QueuesChanged(queues))
            changed = self.desk.book.keep_within(self.fleet.policy, queues)
            self.desk.events += [JobSeen(entry.job()) for entry in changed if entry.shown]
        self.desk.launcher.wake()

    def cordon(self, name: str, closed: bool) -> None:
        """Nothing new goes on the node, or it is open again."""
        self.closures.set(Place(name), CORDONED if closed else None)

    # --- after a crash ---------------------------------------------------------------------------

    def adopt(self) -> None:
        """Take over what the store knows: attempts of this boot are looked for, those of an earlier one are lost."""
        from gpuyard.worlds.local.attempts.recovery import recover

        recover(self.desk, self.life, self.fleet)
