"""Evictions, moves, and starts that wait: who leaves, what is kept for whom meanwhile, and who comes back.

Called by `world` in its loop. What a plan wants is assumed at once and told as such; the writes follow, and what they
did not bring about is told as `ActionFailed`. Nobody is touched before every budget allows everybody to go who goes for
the same beneficiary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gpuyard.kube.objects import PodObject
from gpuyard.kube.owners import JobObject
from gpuyard.model.actions import Evict, Move, Start
from gpuyard.model.events import ActionFailed, Event, TasksAssigned, TasksEnded, TasksStopping
from gpuyard.model.job import Job, Placement
from gpuyard.model.outside.ports import Clock
from gpuyard.model.reasons import Code, Reason
from gpuyard.worlds.kubernetes import pods
from gpuyard.worlds.kubernetes.acting import resizing
from gpuyard.worlds.kubernetes.acting.disrupt import Disruptor
from gpuyard.worlds.kubernetes.acting.starting import Starter
from gpuyard.worlds.kubernetes.following import Do
from gpuyard.worlds.kubernetes.gangs import Gathered
from gpuyard.worlds.kubernetes.gathering.controllers import LEADER, hindrance_of_deleting
from gpuyard.worlds.kubernetes.gathering.layouts import Way
from gpuyard.worlds.kubernetes.gathering.promises import Promised, matched
from gpuyard.worlds.kubernetes.observe import ClusterObserver, in_order

PROMISE_S = 60.0
"""So long a place is kept for a pod that nothing keeps from coming, and beyond the grace of those who leave it."""
STAYS_S = 10.0
"""Who could not be taken back is not tried again for so long: a plan would say the same at once."""


@dataclass(frozen=True)
class Departure:
    """Those of one gang who go, for whom, and how."""

    found: Gathered
    going: tuple[PodObject, ...]
    beneficiary: str
    why: str
    gently: bool
    """Nobody claims their places: the Eviction API is asked where the owner cannot be suspended."""
    way: Way


class TakerBack:
    """Who leaves, and what is promised. `disruptor` is given once the loop runs."""

    disruptor: Disruptor

    def __init__(self, observer: ClusterObserver, starter: Starter, clock: Clock, do: Do) -> None:
        self.failures: list[Event] = []
        """What is to be told with the next account."""
        self.breaks_budgets = False
        """Whether the policy lets disruption budgets be broken as a last resort; the brain has seen to that."""
        self.observer = observer
        self.cache = observer.cache
        self.promises = observer.promises
        self._starter = starter
        self._clock = clock
        self._do = do
        self._resuming: set[str] = set()
        self._staying: dict[str, str] = {}
        """Who does not go though the plan that is being applied says so, and why."""
        self._rests: dict[str, tuple[float, str]] = {}
        """Who could not be taken back lately: it is not tried again before then, and why."""

    # --- leaving -----------------------------------------------------------------------------------------

    def take(self, actions: Iterable[Evict | Move]) -> list[Event]:
        """They leave; those who go for the same beneficiary go together or not at all, and whoever counts on the place
        of one who does not go is not started."""
        assumed: list[Event] = []
        departures: dict[str, list[Departure]] = {}
        self._staying = {}
        actions = list(actions)
        refusals = {action.beneficiary or action.job: told for action in actions if (told := self._refusal(action))}
        for action in actions:
            told = refusals.get(action.beneficiary or action.job) or self._unkept_place(action)
            if told:
                self._staying[action.job] = told
                assumed.append(_failed(action.job, (), told))
                continue
            events, departure = self._evict(action) if isinstance(action, Evict) else self._move(action)
            assumed += events
            if departure is not None:
                departures.setdefault(departure.beneficiary or departure.found.name, []).append(departure)
        for together in departures.values():
            self._do(self._send_off(together))
        return assumed

    def _refusal(self, action: Evict | Move) -> str:
        """Why nobody of it goes now, if so."""
        found, job = self.observer.gathered_of(action.job), self.observer.jobs.get(action.job)
        if found is None or job is None:
            return f"{action.job} is not there any more"
        forced = isinstance(action, Evict) and action.reason.code is Code.DRAINED
        if found.hindrance and job.preemptible is False and not forced:
            return f"{action.job} stays: {found.hindrance}"
        until, told = self._rests.get(action.job, (0.0, ""))
        if until > self._clock.monotonic():
            return told
        named = () if isinstance(action, Evict) and not action.placements else action.uids
        promised = action.job in self.promises
        return "" if promised or self._those(action.job, named) else f"nobody of {action.job} is there any more"

    def _unkept_place(self, action: Evict | Move) -> str:
        after = action.after if isinstance(action, Move) else ()
        return next((self._staying[name] for name in after if name in self._staying), "")

    def _evict(self, evict: Evict) -> tuple[list[Event], Departure | None]:
        found, job = self.observer.gathered_of(evict.job), self.observer.jobs[evict.job]
        assert found is not None
        way = self._way(found, evict)
        whole = way not in (Way.DELETE, Way.SHRINK) or not evict.placements
        unkept = self.forget(job.name) if whole or way is Way.SHRINK else ()
        going = self._those(job.name, () if whole else [place.uid for place in evict.placements])
        ended: list[Event] = [TasksEnded(job.name, unkept)] if unkept else []
        if not going:
            return ended, None
        gently = evict.reason.code is Code.DRAINED
        if whole:
            self.observer.evicting[job.name] = frozenset(pod.metadata.uid for pod in going)
        departure = Departure(found, going, evict.beneficiary, _words(evict), gently, way)
        return [*ended, self._stopping(job.name, going)], departure

    def _way(self, found: Gathered, evict: Evict) -> Way:
        """Extras of a gang go alone where their owner does not mind; else there is only the way of the whole."""
        extras = self._those(evict.job, [place.uid for place in evict.placements]) if evict.placements else ()
        if extras and self._size_without(found, extras):
            return Way.SHRINK
        if extras and not hindrance_of_deleting(extras, self.cache.owners.owners):
            return Way.DELETE
        return found.way

    def _size_without(self, found: Gathered, going: Sequence[PodObject]) -> int:
        return resizing.left_after(found, {pod.metadata.uid for pod in going}, self.cache.assumed)

    def _move(self, move: Move) -> tuple[list[Event], Departure | None]:
        """A gang whose owner is suspended goes whole, and those who could stay get their places again."""
        found, job = self.observer.gathered_of(move.job), self.observer.jobs[move.job]
        assert found is not None
        whole = found.way is not Way.DELETE
        going = self._those(job.name, () if whole else [place.uid for place in move.source])
        leaving = {place.identity for place in move.source}
        staying = [place for place in job.placements if place.identity not in leaving and not place.terminating]
        unkept = self.forget(job.name) if whole else ()
        stopping = self._stopping(job.name, going)
        departure = Departure(found, going, move.beneficiary, _words(move), True, found.way)
        events: list[Event] = [TasksEnded(job.name, unkept)] if unkept else []
        if not whole and len(found.chairs) == 1:
            return [*events, stopping], departure  # whoever comes in its stead is another job
        kept = self._promise(job.name, [*staying, *move.target] if whole else move.target, (*move.after, job.name))
        return [*events, stopping, kept], departure

    def _those(self, name: str, uids: Sequence[str]) -> tuple[PodObject, ...]:
        """Pods of the gang that are bound and not leaving; of these uids, if any are named."""
        there = (pod for pod in self.cache.gang(name) if pods.is_bound(pod) and not pods.is_over(pod))
        staying = (pod for pod in there if not pods.is_leaving(pod) and pod.metadata.uid not in self.cache.sent_away)
        return tuple(pod for pod in staying if not uids or pod.metadata.uid in uids)

    def _stopping(self, name: str, going: Sequence[PodObject]) -> TasksStopping:
        uids = {pod.metadata.uid for pod in going}
        self.cache.sent_away |= uids
        job = self.observer.jobs[name]
        stopping = tuple(replace(place, terminating=True) for place in job.placements if place.uid in uids)
        self._set_placements(job, (*(place for place in job.placements if place.uid not in uids), *stopping))
        return TasksStopping(name, stopping)

    def _set_placements(self, job: Job, places: Iterable[Placement]) -> None:
        self.observer.jobs[job.name] = replace(job, placements=in_order(places))

    async def _send_off(self, together: Sequence[Departure]) -> None:
        going = [pod for departure in together for pod in departure.going]
        refused = "" if self.breaks_budgets else await self.disruptor.refusing(going)
        for departure in together:
            if told := refused or await self._go(departure):
                self._stay(departure, told)

    async def _go(self, departure: Departure) -> str:
        """By the way of whoever made them."""
        found, going = departure.found, departure.going
        if departure.way is Way.SUSPEND:
            return await self.disruptor.suspend(found, departure.why)
        if departure.way is Way.SHRINK:
            size = self._size_without(found, going)
            return await self.disruptor.resize(found, size, departure.why) if size else "others stand behind it by now"
        if departure.way is Way.DELETE_LEADER:
            leaders = {chair.pod.metadata.uid for chair in found.chairs if chair.group == LEADER}
            going = tuple(pod for pod in going if pod.metadata.uid in leaders) or going
        if departure.gently:
            return await self.disruptor.evict(going)
        return await self.disruptor.delete(going, departure.why)

    def _stay(self, departure: Departure, told: str) -> None:
        """They go on, and whoever counted on their places is told that those are not to be had."""
        name, uids = departure.found.name, {pod.metadata.uid for pod in departure.going}
        self.observer.evicting.pop(name, None)
        self.cache.sent_away -= uids
        self._rests[name] = self._clock.monotonic() + STAYS_S, told
        for other in self.promises:
            mine = self.promises.get(other)
            if mine is not None and not uids.isdisjoint(mine.leavers.values()):
                self._disappoint(other, told)
        job = self.observer.jobs.get(name)
        if job is not None:
            meant = tuple(place for place in job.placements if place.uid in uids)
            going_on = [replace(place, terminating=False) if place.uid in uids else place for place in job.placements]
            self._set_placements(job, going_on)
            self.failures.append(_failed(name, meant, told))
        self.cache.look_at(name)

    # --- promises ----------------------------------------------------------------------------------------

    def must_wait(self, start: Start) -> bool:
        """Whether others must leave first, or pods come that it does not have yet."""
        if start.job not in self.observer.jobs:
            return False
        wanted = Counter(place.group for place in start.placements)
        lacking = wanted - Counter(group for group, _ in self.observer.free.get(start.job, {}))
        found = self.observer.gathered_of(start.job) if start.after or lacking else None
        return found is not None and (bool(start.after) or found.unborn)

    def promise(self, start: Start) -> list[Event]:
        """Its places are kept until those are gone who must leave, and until its pods are there."""
        if told := next((self._staying[name] for name in start.after if name in self._staying), ""):
            return [_failed(start.job, (), told)]
        return [self._promise(start.job, start.placements, start.after)]

    def _promise(self, name: str, places: Sequence[Placement], after: Sequence[str]) -> Event:
        nodes = {place.node for place in places}
        leaving = [pod for other in after for pod in self._leaving(other) if pod.node_name in nodes]
        grace = max(map(pods.grace_of, leaving), default=0)
        leavers = {pod.metadata.key: pod.metadata.uid for pod in leaving}
        until = self._clock.monotonic() + grace + PROMISE_S
        made = self.promises.make(name, places, leavers, until)
        self.cache.awaited.add(name)
        job = self.observer.jobs[name]
        if (mine := self.promises.get(name)) is not None:
            mine.asked = {group.name: group.request for group in job.task_groups()} | mine.asked
        self._set_placements(job, (*job.placements, *made))
        self.cache.look_at(name)
        return TasksAssigned(name, tuple(made), self._clock.now())

    def _leaving(self, name: str) -> list[PodObject]:
        """Pods of that gang that leave, or are about to be told to."""
        job = self.observer.jobs.get(name)
        going = {place.uid for place in job.placements if place.terminating} if job is not None else set()
        return [pod for pod in self.cache.gang(name) if pod.metadata.uid in going or pods.is_leaving(pod)]

    def forget(self, name: str) -> tuple[Placement, ...]:
        """Nothing is kept for the job any more; what was."""
        unkept = self.promises.drop(name)
        self.cache.await_no_longer(name)
        job = self.observer.jobs.get(name)
        if unkept and job is not None:
            uids = {place.uid for place in unkept}
            self._set_placements(job, [place for place in job.placements if place.uid not in uids])
        return unkept

    def forget_all(self) -> None:
        """Whoever leads from now on has promised nothing."""
        for name in self.promises:
            self._disappoint(name, "somebody else has led since")

    def _disappoint(self, name: str, told: str, rests: bool = False) -> None:
        if unkept := self.forget(name):
            self.failures.append(_failed(name, unkept, told))
            self.cache.look_at(name)
            if rests:
                self.observer.avoidance.rest(name, told)

    def tend(self) -> None:
        """What can be kept by now is kept: owners are resumed, pods that came are sent to their places."""
        for name in self.promises:
            mine = self.promises.get(name)
            if mine is None:
                continue
            if name not in self.observer.jobs:
                self.forget(name)
            else:
                self._resume_if_due(name)
                self._keep(name, mine)

    def _keep(self, name: str, mine: Promised) -> None:
        there = self.cache.pods.objects
        waited_for = bool(mine.leavers)
        mine.leavers = {key: uid for key, uid in mine.leavers.items() if _is_there(there.get(key), uid)}
        if mine.leavers:
            return
        if waited_for:
            mine.until = self._clock.monotonic() + PROMISE_S
        free = self.observer.free.get(name, {})
        self._grow_if_due(name, mine)
        if group := mine.outgrown(self.observer.jobs[name], free):
            self._disappoint(name, f"its group {group} asks for more, or for other GPUs, than was kept for it")
            return
        by_uid = {pod.metadata.uid: pod for pod in self.cache.gang(name)}
        come = []
        for chair, seat in matched(mine.places, free):
            pod = by_uid.get(free.pop(seat))
            if pod is not None:
                place = self.promises.keep(name, chair)
                come.append((replace(place, group=seat[0], task=seat[1], uid=pod.metadata.uid), pod))
        if come:
            self._starter.send(name, come)
            self.cache.look_at(name)
        if name not in self.promises:
            self.cache.await_no_longer(name)

    def _resume_if_due(self, name: str) -> None:
        """Once its controller has heard of the suspension: one that is over before that would stop nobody."""
        kept = self.cache.kept_back.get(name)
        if kept is None or name in self._resuming or not self.cache.owners.bears_mark(kept.kind, kept.key):
            return
        if all(map(_is_going, self.cache.gang(name))) and _is_settled(self.cache.owners.get(kept.kind, kept.key)):
            self._resuming.add(name)
            self._do(self._resume(name, kept.kind, kept.key))

    def _grow_if_due(self, name: str, mine: Promised) -> None:
        """A Job that was made smaller has as many pods again as there are places kept for."""
        found = self.observer.gathered_of(name)
        if found is None or not found.resizable or name in self._resuming:
            return
        if size := resizing.size_for(self.cache.owners.get(found.owner_kind, found.owner), mine.places.values()):
            self._resuming.add(name)
            self._do(self._grow(found, size))

    async def _grow(self, found: Gathered, size: int) -> None:
        try:
            if told := await self.disruptor.resize(found, size, "there is room for more of it again"):
                self._disappoint(found.name, f"it could not be made larger: {told}", rests=True)
        finally:
            self._resuming.discard(found.name)

    async def _resume(self, name: str, kind: str, key: str) -> None:
        try:
            if told := await self.disruptor.resume(kind, key):
                self._disappoint(name, f"it could not be resumed: {told}", rests=True)
        finally:
            self._resuming.discard(name)

    def expire(self) -> None:
        """Nothing is kept for ever."""
        now = self._clock.monotonic()
        self._rests = {name: rest for name, rest in self._rests.items() if rest[0] > now}
        for name in self.promises:
            mine = self.promises.get(name)
            if mine is not None and mine.until < now:
                late = ", ".join(sorted(mine.leavers)[:4])
                told = f"{late} did not leave in time" if late else f"its pods did not come within {PROMISE_S:g} s"
                self._disappoint(name, told, rests=True)


def _words(action: Evict | Move) -> str:
    """Why, for the owner to read: who gains is named only within one namespace."""
    namespace, gains = action.job.partition("/")[0], action.beneficiary.partition("/")[0]
    told = str(action.reason)
    return told if gains in ("", namespace) else "its places go to a job of another namespace that has a claim to them"


def _failed(name: str, places: Sequence[Placement], told: str) -> ActionFailed:
    return ActionFailed(name, tuple(places), Reason(Code.WORLD_CHANGED, where=name, message=told))


def _is_there(pod: PodObject | None, uid: str) -> bool:
    return pod is not None and pod.metadata.uid == uid and not pods.is_over(pod)


def _is_going(pod: PodObject) -> bool:
    return pods.is_leaving(pod) or pods.is_over(pod)


def _is_settled(owner: object) -> bool:
    """Whether its controller knows that it is suspended; of other kinds than Jobs their pods tell."""
    if not isinstance(owner, JobObject):
        return True
    told = any(each.type == "Suspended" and each.status == "True" for each in owner.status.conditions or ())
    return told and not owner.status.active
