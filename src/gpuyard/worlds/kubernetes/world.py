"""A cluster as a world: it implements `worlds.base.World` over one API server.

Two threads meet here. The driver's calls the methods of the seam; the world's own runs one event loop, which owns
caches, reflectors, bindings and the lease. They meet in `observe`, where the loop translates what has changed, and in
`apply`, where it takes over what was decided; neither waits for the API server.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent import futures
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from gpuyard.kube.client import ApiReply, ApiUnreachable, KubeClient
from gpuyard.kube.credentials import KubeAccess
from gpuyard.kube.gpu_grants import OTHER_GPUS
from gpuyard.kube.lease import Election
from gpuyard.kube.replies import Forbidden
from gpuyard.model.actions import Evict, Move, Plan, Start, Terminate
from gpuyard.model.errors import Broken, GpuYardError, Refused
from gpuyard.model.events import Event
from gpuyard.model.node import Pool
from gpuyard.model.outside.ports import Clock, Dice
from gpuyard.model.policy import PdbRule
from gpuyard.model.snapshot import Snapshot
from gpuyard.worlds.kubernetes.acting.bind import Binder
from gpuyard.worlds.kubernetes.acting.device_watch import DeviceWatch
from gpuyard.worlds.kubernetes.acting.disrupt import Disruptor
from gpuyard.worlds.kubernetes.acting.ending import Ender
from gpuyard.worlds.kubernetes.acting.nominate import Nominator
from gpuyard.worlds.kubernetes.acting.preparing import VolumePreparer
from gpuyard.worlds.kubernetes.acting.queue_states import QueueClerk
from gpuyard.worlds.kubernetes.acting.remember import Give, Keepsake, MemoryKeeper
from gpuyard.worlds.kubernetes.acting.start_watch import StartWatch, StopWatch
from gpuyard.worlds.kubernetes.acting.starting import Starter
from gpuyard.worlds.kubernetes.acting.taking_back import TakerBack
from gpuyard.worlds.kubernetes.acting.tell import ConditionTeller, Explain
from gpuyard.worlds.kubernetes.asking.levels import levels_of
from gpuyard.worlds.kubernetes.asking.marks import STAY, ReadingSettings
from gpuyard.worlds.kubernetes.cache import Cache
from gpuyard.worlds.kubernetes.following import Following
from gpuyard.worlds.kubernetes.observe import ClusterObserver
from gpuyard.worlds.kubernetes.observing import refused

SLICE_S = 0.005
"""So long the loop translates at a time; then bindings and the lease have their turn."""
CROWD = 256
CROWD_S = 0.5
"""With so many bindings in flight the driver wakes this seldom: nothing would be decided that could be sent."""
SYNC_S = 120.0
MOMENT_S = 0.02
PARTING_S = 0.5
"""So long whoever stops writes down what the next one should know; then it lets go all the same."""
LOOK_S = 1.0
"""So often whoever waits for the loop looks whether there still is one."""
IDLE_S = 5.0
AGAIN_S = 1.0
FALTERED_S = 60.0
Work = Callable[[], Coroutine[Any, Any, None]]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WorldSettings:
    """How a cluster is scheduled."""

    access: KubeAccess
    site: Snapshot
    """Queues, policy and topology; its nodes and jobs are the cluster's."""
    scheduler: str = "gpuyard"
    """The `schedulerName` of pods that are ours to place."""
    identity: str = ""
    """Ours among all that stand by; "" where nothing is decided here."""
    lease: str = "gpuyard-system/gpuyard-scheduler"
    elects: bool = True
    start_timeout: float = 600.0
    """So long a pod may take to begin once it has its node; images of many gigabytes are pulled meanwhile."""
    stay_marks: bool = True
    """Whether members of gangs bear the marks by which autoscalers leave their nodes alone."""
    explain: Explain = lambda _snapshot: {}
    """What those are told who wait."""
    memory: str = "gpuyard-system/gpuyard-memory"
    """The ConfigMap of what the next leader is to know."""
    gives: Give = Keepsake
    takes: Callable[[Keepsake], None] = lambda _kept: None
    """Hears, before the first plan of a new leader, what the one before it kept."""


def reading_of(settings: WorldSettings) -> ReadingSettings:
    """How its objects are read: levels by the names of the site, queues as it has them."""
    queues = {queue.name: frozenset(queue.users) for queue in settings.site.queues}
    return ReadingSettings((settings.scheduler,), levels_of(settings.site.topology), queues=queues)


class KubernetesWorld:
    """Implements `worlds.base.World` and, over its election, `worlds.base.Leadership`."""

    def __init__(self, settings: WorldSettings, clock: Clock, dice: Dice) -> None:
        self.settings = settings
        self.cache = Cache()
        self.observer = ClusterObserver(self.cache, reading_of(settings), clock)
        self.starter = Starter(self.observer, clock, self._do, STAY if settings.stay_marks else {})
        self.observer.settled.site_queues = settings.site.queues
        self.taker = TakerBack(self.observer, self.starter, clock, self._do)
        self.start_watch = StartWatch(self.observer, self.taker.take, clock, settings.start_timeout)
        self.stop_watch = StopWatch(self.cache, clock)
        self.device_watch = DeviceWatch(self.cache)
        self.ender = Ender(self.observer, self._do)
        self.taker.breaks_budgets = settings.site.policy.pdb is not PdbRule.NEVER
        self._clock = clock
        self._dice = dice
        self._wake = threading.Condition()
        self._news = False
        self._over = False
        self.forbidden = Forbidden()
        self._look_at: float | None = 0.0
        self._turned_at = 0.0
        self._read_for: float | None = None
        """The term of ours that the picture was read for: in no other do we have the right to act on it."""
        self.cache.news = self._has_news
        self.cache.refused_by_node = self.observer.avoidance.refused_by
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, name="cluster", daemon=True)
        self._up = threading.Event()
        self._unbegun: GpuYardError | None = None
        """Why the loop never began."""
        self.goes_on: Callable[[str], bool] = lambda _trouble: True
        """Whether `open` still waits for the cluster to be known, by what is in the way."""
        self._faltered = "", -math.inf
        """What last went wrong in the loop that nobody foresaw, and when."""

    # --- up and down ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to follow the cluster; `open` waits until all of it is known."""
        self._thread.start()
        while not self._up.wait(MOMENT_S):
            if not self._thread.is_alive():
                raise self._unbegun or Broken("the loop of the cluster has ended before it began")

    def close(self) -> None:
        """Let go of the lease when nothing is under way any more; pods notice nothing."""
        with self._wake:
            self._over = True
            self._wake.notify_all()
        if self._thread.is_alive():
            with contextlib.suppress(TimeoutError):
                self._ask(self._let_go(), 5.0)
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(5.0)

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except GpuYardError as error:
            self._unbegun = error

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self.client = await KubeClient(self.settings.access, self._clock).open()
        self.election = Election(
            self.client, self.settings.lease, self.settings.identity or "reader", self._clock, self._dice
        )
        self.binder = Binder(self.client, self._clock, self._may_act, self.starter.failed)
        self.teller = ConditionTeller(self.client, self.cache, self._clock, self.settings.identity)
        self.teller.hindrance = self.observer.hindrance
        self.keeper = MemoryKeeper(self.client, self.settings.memory, self._clock)
        self.binder.forbidden = self.teller.forbidden = self.forbidden
        self.starter.binder, self.starter.teller = self.binder, self.teller
        self.starter.preparer = VolumePreparer(
            self.client, self.cache, self.observer.storage, self._clock, self._may_act
        )
        disruptor = Disruptor(self.client, self._clock, self._may_act, self.cache.owners.paths)
        self.taker.disruptor = self.ender.disruptor = disruptor
        self.clerk = QueueClerk(self.client, self.cache, self._clock)
        self.following = Following(self.client, self.cache, self._clock, self._dice, self._do)
        self.observer.storage.needed = partial(self.following.follow_storage, self.observer.storage)
        self.observer.storage.devices_needed = partial(self.following.follow_devices, self.observer.storage)
        self._up.set()
        for work in self._works():
            self._do(self._keep_going(work))
        await self._stopping.wait()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.client.close()

    def _works(self) -> list[Work]:
        """What is done as long as the world is up."""
        if not self.settings.identity:
            return [self._follow]
        nominator = Nominator(self.client, self.observer, self._clock)
        works: list[Work] = [
            self._follow,
            partial(self.teller.run, self._may_act, self._moment, self.settings.explain),
            self._tend,
            partial(self.keeper.run, self._may_act, self.settings.gives),
            partial(nominator.run, self._may_act),
        ]
        if self.settings.elects:
            works.append(self.election.run)
        return works

    async def _keep_going(self, work: Work) -> None:
        """Until it is over. A mistake of ours in one of them would end it for good, and nobody would renew the Lease or
        tell those who wait: it is told, and begun again."""
        while True:
            try:
                await work()
            except Exception as error:  # noqa: BLE001 -- whatever it is, it goes on
                words = f"{type(error).__name__}: {error}; this is a bug of GPUYard: please report it"
                self._faltered = words, self._clock.monotonic()
                self.observer.stumbled("the scheduler itself", error)
                await self._clock.sleep(AGAIN_S)
            else:
                return

    async def _follow(self) -> None:
        """Who finds the Lease free has it before it lists the cluster, and lists it once."""
        if self.settings.identity and self.settings.elects:
            await self.election.tried.wait()
        await self.following.run(self.settings.scheduler)

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _tend(self) -> None:
        """Gangs that were refused are tried again by and by, and so are nodes; what was promised is not for ever."""
        while True:
            await self._clock.sleep(1.0)
            self.taker.expire()
            if self._may_act():
                await self.clerk.tell(self.observer.settled.tree)
                await self._watch_starts()
            self.observer.avoidance.lapse()

    async def _watch_starts(self) -> None:
        self.start_watch.look()
        causes, self.start_watch.causes = self.start_watch.causes, []
        with contextlib.suppress(ApiUnreachable):
            for pod, words in causes:
                await self.teller.write_event(pod, "StartTimeout", words)
            for pod, words in self.stop_watch.look():
                await self.teller.write_event(pod, "StopTimeout", words)
            for pod, reason, words in self.device_watch.look():
                await self.teller.write_event(pod, reason, words, once=reason == OTHER_GPUS)

    async def _let_go(self) -> None:
        """Nothing is begun any more; what is under way ends; the next one finds what is remembered, and may lead."""
        led, self._read_for = self._may_act(), None
        await self.binder.settle()
        if led:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.keeper.keep(self.settings.gives), PARTING_S)
        if self.settings.identity and self.settings.elects:
            await self.election.resign()

    def _ask(self, work: Coroutine[Any, Any, T], seconds: float | None = None) -> T:
        """Have the loop do it, and wait. Whoever asks while it ends is told so: what never begins is not waited for."""
        end = float("inf") if seconds is None else self._clock.monotonic() + seconds
        try:
            asked = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:  # it is closed
            asked = futures.Future()
        while not asked.done() and self._thread.is_alive() and self._clock.monotonic() < end:
            futures.wait([asked], min(LOOK_S, end - self._clock.monotonic()))
        if not asked.done() and not self._thread.is_alive():
            work.close()
            raise Refused("the cluster is followed no more: the scheduler is being stopped")
        return asked.result(0)

    def post(self, path: str, body: bytes) -> ApiReply:
        """Ask the API server something for somebody; from any thread but the loop's own."""
        return self._ask(self.client.post(path, body))

    def synced(self) -> bool:
        """Whether all there is has been seen once."""
        return self.following.synced()

    def trouble(self) -> str:
        """Why the cluster is not followed now, if it is not."""
        return self.following.trouble()

    def trouble_aside(self) -> str:
        """What is wrong beside that, and keeps nobody from being placed."""
        told = self.keeper.trouble or (self.election.trouble if self.settings.elects else "")
        faltered = "" if self._clock.monotonic() - self._faltered[1] > FALTERED_S else self._faltered[0]
        return self.forbidden.trouble or self.following.unread() or faltered or told

    # --- the right to act ------------------------------------------------------------------------------

    def held(self) -> bool:
        """Whether we lead, and the picture that was decided on is one that we got as the leader."""
        return self._may_act()

    def sight(self) -> tuple[bool, float]:
        """Whether all of the cluster is known, and how many seconds ago it was last heard of."""
        known = self._up.is_set() and self.following.synced()
        return known, self.following.heard_s() if known else 0.0

    def _term(self) -> float | None:
        """Since when we have led without a gap; None while we do not. Who is alone always has."""
        if not self.settings.identity or not self.settings.elects:
            return -math.inf if self.settings.identity else None
        return self.election.held_since if self.election.held() else None

    def _may_act(self) -> bool:
        term = self._term()
        return term is not None and term == self._read_for

    # --- the seam --------------------------------------------------------------------------------------

    def open(self) -> Snapshot:
        """The cluster as the brain is to see it, once all of it is known."""
        self._await_sync()
        return self._ask(self._opened())

    def _await_sync(self) -> None:
        end = self._clock.monotonic() + SYNC_S
        while not self.following.synced():
            trouble = self.client.stranger or self.trouble()
            ends = self._over or self.client.stranger or self._clock.monotonic() > end
            if ends or not self.goes_on(trouble):
                raise Refused(f"the cluster could not be read: {trouble or 'no answer yet'}")
            with self._wake:
                self._wake.wait(MOMENT_S)

    async def _opened(self) -> Snapshot:
        self.observer.forget()
        async for _ in self._events():
            pass
        self._look_at = 0.0
        return self._moment()

    def _moment(self) -> Snapshot:
        nodes = tuple(node for _, node in sorted(self.observer.nodes.items()))
        jobs = tuple(job for _, job in sorted(self.observer.jobs.items()))
        levels = tuple(level for level, _ in self.observer.settled.settings.levels)
        known = {pool.name for pool in self.settings.site.pools}
        pools = (*self.settings.site.pools, *(Pool(name) for name in sorted({n.pool for n in nodes} - known - {""})))
        site = replace(self.settings.site, topology=levels, pools=pools, queues=self.observer.settled.queues)
        return replace(site, now=self._clock.now(), nodes=nodes, jobs=jobs, budgets=self.observer.budgets.told)

    async def _events(self) -> AsyncIterator[Event]:
        """What failed while the loop did something else is told before what is found out after it: the account of a pod
        that somebody else has placed meanwhile stands."""
        for failure in self._failures():
            yield failure
        begun = self._clock.monotonic()
        for event in self.observer.events():
            yield event
            if self._clock.monotonic() - begun > SLICE_S:
                await asyncio.sleep(0)
                for failure in self._failures():
                    yield failure
                begun = self._clock.monotonic()

    def wait(self, not_before: float = 0.0) -> bool:
        """Until something changed that the brain does not know, or the last plan wanted to be asked again."""
        with self._wake:
            while not self._over:
                now = self._clock.monotonic()
                due = min(self._due(not_before), now + IDLE_S)
                if now >= self._due(not_before):
                    self._news = False
                    self._turned_at = now
                    return True
                self._wake.wait(max(0.0, due - now))
        return False

    def _due(self, not_before: float) -> float:
        """When the next turn may be."""
        crowded = self._turned_at + CROWD_S if self.binder.in_flight > CROWD else 0.0
        wanted = 0.0 if self._news else self._look_at
        return float("inf") if wanted is None else max(wanted, not_before, crowded)

    def _has_news(self) -> None:
        if not self._news:
            with self._wake:
                self._news = True
                self._wake.notify_all()

    def now(self) -> float:
        """The present."""
        return self._clock.now()

    def observe(self) -> Sequence[Event]:
        """What is other than it was told last."""
        return self._ask(self._collect())

    async def _collect(self) -> list[Event]:
        term = self._term()
        if term is not None and term != self._read_for:
            self.taker.forget_all()
            await self.following.list_anew(term)  # who has just come to lead is to have seen all that was done before
            self.settings.takes(await self.keeper.recall())
        events = [event async for event in self._events()]
        if term is not None:
            self.taker.tend()
            events += [event async for event in self._events()]
        self._read_for = term if term == self._term() else None
        return events

    def _failures(self) -> list[Event]:
        """What did not come about since it was last asked."""
        waiting = (self.starter.failures, self.taker.failures, self.ender.failures, self.start_watch.events)
        told = [event for events in waiting for event in events]
        for events in waiting:
            events.clear()
        return told

    def apply(self, plan: Plan, turn: int) -> Sequence[Event]:
        """Assume what was decided and send it on its way."""
        look = plan.look_again_at
        wanted = None if look is None else self._clock.monotonic() + look - self._clock.now()
        earlier = self._look_at if self._look_at is not None and self._look_at > self._clock.monotonic() else None
        self._look_at = min((at for at in (wanted, earlier) if at is not None), default=None)
        return self._ask(self._submit(plan))

    async def _submit(self, plan: Plan) -> list[Event]:
        self.teller.hear(plan.waiting, self.observer.refused)
        assumed = self.taker.take(action for action in plan.actions if isinstance(action, Evict | Move))
        for action in plan.actions:
            if isinstance(action, Start):
                begin = self.taker.promise if self.taker.must_wait(action) else self.starter.begin
                assumed += begin(action)
            elif isinstance(action, Terminate):
                assumed += self.ender.end(action)
        return assumed

    def snapshot(self) -> Snapshot:
        """The whole moment."""
        return self._ask(self._whole())

    async def _whole(self) -> Snapshot:
        return refused.shown(self._moment(), self.observer.refused_gangs(), self.observer.settled.settings)
