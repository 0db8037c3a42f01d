"""The difference between what was last told and what is, as events.

Called by `world` in its loop. A gang is described anew from all its pods and compared with what the brain was told of
it; nothing here follows single changes of the API.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from gpuyard.kube.definitions import gpu_nodes
from gpuyard.kube.objects import PodObject
from gpuyard.model.events import (
    Event,
    JobEvicted,
    JobGone,
    JobSeen,
    NodeLoaded,
    NodeLost,
    NodeSeen,
    QueuesChanged,
    TasksEnded,
    TasksRunning,
    TasksStopping,
)
from gpuyard.model.job import Expression, Job, Placement
from gpuyard.model.node import Node
from gpuyard.model.outside.ports import Clock
from gpuyard.worlds.kubernetes import gangs, nodes, pods
from gpuyard.worlds.kubernetes.asking import company, refusals
from gpuyard.worlds.kubernetes.asking.marks import ReadingSettings
from gpuyard.worlds.kubernetes.asking.refusals import Refusal, RefusalName
from gpuyard.worlds.kubernetes.avoiding import Avoidance
from gpuyard.worlds.kubernetes.cache import Cache
from gpuyard.worlds.kubernetes.gangs import Gathered
from gpuyard.worlds.kubernetes.gathering.holdings import Held
from gpuyard.worlds.kubernetes.gathering.members import place_of
from gpuyard.worlds.kubernetes.gathering.promises import Promises
from gpuyard.worlds.kubernetes.keeping.alike import Alike
from gpuyard.worlds.kubernetes.observing.covering import ToldBudgets
from gpuyard.worlds.kubernetes.observing.holders import Holders
from gpuyard.worlds.kubernetes.observing.refused import RefusedGang
from gpuyard.worlds.kubernetes.observing.settled import Settled
from gpuyard.worlds.kubernetes.observing.staleness import Staleness
from gpuyard.worlds.kubernetes.storage import KnownStorage

Free = dict[tuple[str, int], str]
"""Uids of pods that could be placed, by group and number."""
Read = Callable[[str], Iterator[Event]]


class ClusterObserver:
    """What the brain was told last, and what it is to be told next."""

    def __init__(self, cache: Cache, settings: ReadingSettings, clock: Clock) -> None:
        self.cache = cache
        self.avoidance = Avoidance(clock, cache.look_at_node, cache.look_at)
        self._clock = clock
        cache.scheduler_names = settings.scheduler_names
        self.settled = Settled(cache, settings)
        """By what a cluster is read."""
        self._alike = Alike(cache.plain)
        self._holders = Holders(cache)
        self.nodes: dict[str, Node] = {}
        self._machines: dict[str, str] = {}
        """Uids of nodes, by name: another one of the same name has nothing of what was known of it."""
        self.jobs: dict[str, Job] = {}
        self.free: dict[str, Free] = {}
        self.refused: dict[str, Refusal] = {}
        """Gangs that cannot be had here, and why; the brain never hears of them."""
        self.gathered: dict[str, Gathered] = {}
        """How gangs are made up, and how each is taken back; ask `gathered_of`: of pods like others it is not kept."""
        self._staleness = Staleness(clock)
        self.evicting: dict[str, frozenset[str]] = {}
        """Gangs that a plan wanted gone, and the uids of their pods."""
        self.promises = Promises()
        """Places that are kept."""
        self.foreign: dict[str, set[str]] = {}
        """Names of jobs of others, by node."""
        self.storage = KnownStorage(cache, self.settled.know_storage)
        self.budgets = ToldBudgets(cache)
        self._meant: frozenset[tuple[Expression, ...]] = frozenset()
        """Neighbours that somebody seeks, shuns or lies evenly among: of others' pods these are told, too."""
        self._guessed: dict[str, frozenset[int]] = {}
        """Nodes whose kubelet holds devices back, which are guessed to be among those that nobody has: by those that
        somebody had then."""
        self._left: dict[str, set[str]] = {}
        """Names of what pods of refused gangs hold all the same, by gang."""
        self.unread: set[str] = set()
        """Gangs and nodes that cannot be read by a mistake of ours."""
        self.stumbled: Callable[[str, Exception], None] = lambda _name, _error: None
        """Called with each of them, and how that went."""

    def hindrance(self, name: str) -> str:
        """Why a gang cannot be taken back without harm, in words; "" if it can, or says that it may be deleted."""
        found = self.gathered_of(name)
        return found.hindrance if found is not None and found.job is not None and not found.job.preemptible else ""

    def gathered_of(self, name: str) -> Gathered | None:
        """How the gang is made up, of one that the brain was told of."""
        return self.gathered.get(name) or (self._gathered(name) if name in self.jobs else None)

    def forget(self) -> None:
        """Nothing was told: all there is is to be looked at."""
        self.nodes, self.jobs, self.free, self.foreign, self.refused, self._left = {}, {}, {}, {}, {}, {}
        self.settled.read_queues()
        self.budgets.forget()
        self.unread = set()
        self.cache.devices.clear()  # nodes may have others by now
        dirty = self.cache.dirty
        dirty.nodes.update(self.cache.nodes.objects)
        self.cache.look_at_every_gang()
        dirty.loads.update(self.cache.strangers)
        dirty.budgets.update(self.cache.budgets.objects)

    def events(self) -> Iterator[Event]:
        """One after another, until nothing is left to be looked at; the caller may rest in between."""
        dirty = self.cache.dirty
        if dirty.queues and self.settled.read_queues():
            yield QueuesChanged(self.settled.queues)
        self.budgets.hear()
        while dirty.nodes:
            yield from self._tried(self._node, dirty.nodes.pop(), self._node_unread)
        if dirty:
            self._look_at_the_crowded()
        while dirty.loads or dirty.gangs:  # each may make others of the other kind interesting
            while dirty.loads:
                yield from self._tried(self._load, dirty.loads.pop(), self._node_unread)
            while dirty.gangs:
                yield from self._tried(self._gang, dirty.gangs.popitem()[0], self._gang_unread)
        for name in [name for name, held in self._guessed.items() if held != self._holders.held_on(name).held]:
            yield from self._tried(self._node, name, self._node_unread)
        yield from self.budgets.events()

    # --- what cannot be read, by a mistake of ours -----------------------------------------------------

    def _tried(self, read: Read, name: str, unread: Callable[[str, Exception], Iterator[Event]]) -> Iterator[Event]:
        """Whoever cannot be read keeps nobody else from being heard of; tried again once something of it changes."""
        try:
            yield from read(name)
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is about this one alone
            self.unread.add(name)
            self.stumbled(name, error)
            yield from unread(name, error)
        else:
            self.unread.discard(name)

    def _gang_unread(self, name: str, error: Exception) -> Iterator[Event]:
        """It is not placed, and told why; those of it that have their nodes hold what they hold."""
        self.refused[name] = refusals.unread(error)
        yield from self._tell(name, None)
        yield from self._tell_of_those_left(name)

    def _node_unread(self, name: str, error: Exception) -> Iterator[Event]:
        """What it has, or what others use of it, is not known: nothing new goes there."""
        before = self.nodes.get(name)
        if before is not None and before.closed is None:
            self.nodes[name] = nodes.avoided(before, refusals.unread(error).message, 0.0)
            yield NodeSeen(self.nodes[name])

    # --- nodes ---------------------------------------------------------------------------------------

    def _node(self, name: str) -> Iterator[Event]:
        seen = self.cache.nodes.get(name)
        before = self.nodes.get(name)
        self._guessed.pop(name, None)
        parts = nodes.replicas_of(seen) if seen is not None else 0
        if seen is not None and self._machines.get(name) != seen.metadata.uid:
            parts = parts or 0  # nothing of what was known of the one before holds of it
        if self.settled.hear_of_replicas(name, parts):
            self._holders.forget_parts(self.settled.settings)
        if seen is None or not nodes.is_managed(seen):
            if before is not None:
                del self.nodes[name], self._machines[name]
                self._forget_devices(name)
                yield NodeLost(name)
            return
        kept = before if self._machines.get(name) == seen.metadata.uid else None
        self._machines[name] = seen.metadata.uid
        if before is None:
            self._look_at_those_on(name)
        load, holding = self._holders.taken(name, self.settled.settings.storage), self._holders.held_on(name)
        if nodes.withheld(seen):
            self._guessed[name] = holding.held
        node = nodes.node_of(seen, load, kept, self.settled.settings, holding)
        node = nodes.with_agent(node, self.cache.gpu_nodes.get(name), self.settled.settings)
        if name in self.cache.emptied:
            node = nodes.drained_by_others(node)
        if node.closed is None and gpu_nodes.plugin_is_away(self.cache.gpu_nodes.get(name)):
            node = replace(node, closed=nodes.PLUGIN_AWAY)
        if name in self.avoidance.nodes:
            node = nodes.avoided(node, self.avoidance.nodes[name], 0.0)
        if before is not None and not nodes.keeps_devices(before, node):
            yield from self._unseat(name)
        if node != before:
            self.settled.hear_of_levels(node)
            self.nodes[name] = node
            yield NodeSeen(node)

    def _unseat(self, name: str) -> Iterator[Event]:
        """Its devices are others than they were, so nobody stands there until it is worked out anew who holds which:
        the brain is never told of a place on a device that is not there."""
        self._forget_devices(name)
        for key in self.cache.assumed.coming_to(name):
            self.cache.look_at(self.cache.gang_of(key))
        queues = {"", *(queue.name for queue in self.settled.queues)}
        for job in [job for job in self.jobs.values() if any(place.node == name for place in job.placements)]:
            if job.queue not in queues:  # the brain would not hear of it any more
                yield from self._tell(job.name, None)
                continue
            elsewhere = tuple(place for place in job.placements if place.node != name)
            self.jobs[job.name] = replace(job, placements=elsewhere)
            yield JobSeen(self.jobs[job.name])

    def _forget_devices(self, name: str) -> None:
        """Promises of them cannot be kept."""
        self._holders.forget(name)
        self._look_at_those_on(name)
        for job in self.promises:
            promised = self.promises.get(job)
            if promised is not None and any(place.node == name for place in promised.places.values()):
                self.promises.drop(job)
                self.cache.await_no_longer(job)
                self.cache.look_at(job)

    def _look_at_the_crowded(self) -> None:
        """Whoever went without a device may have one now: somebody left, or more came."""
        for name in sorted(self._holders.crowded):
            for pod in self._holders.lacking(name, self.settled.settings):
                self.cache.look_at(self.cache.gang_of(pod.metadata.key))
            if name in self.cache.strangers:
                self.cache.dirty.loads.add(name)

    def granted(self, place: Placement) -> tuple[str, ...]:
        """The UUIDs of a place's whole devices, where our own plugin hands them out; else which it gets is nobody's
        to say beforehand."""
        found, node = self.cache.gpu_nodes.get(place.node), self.nodes.get(place.node)
        if found is None or node is None or not found.spec.plugin or place.mig:
            return ()
        named = {gpu.index: gpu.uuid for gpu in node.gpus}
        uuids = tuple(named.get(index, "") for index in place.gpus)
        return uuids if all(uuids) else ()

    def _look_at_those_on(self, node: str) -> None:
        """Pods may precede their node, and outlive it."""
        for key in (*self.cache.on.of(node), *self.cache.assumed.coming_to(node)):
            self.cache.look_at(self.cache.gang_of(key))
        if node in self.cache.strangers or node in self.foreign:
            self.cache.dirty.loads.add(node)

    def _load(self, name: str) -> Iterator[Event]:
        node = self.nodes.get(name)
        here = self._holders.strangers(name) if node is not None else []
        if self.settled.hear_of_labels(pod for pod in here if company.keeps_apart(pod.spec)):
            self.cache.dirty.loads.update(self.foreign)
        if node is not None and (taken := self._holders.taken(name, self.settled.settings.storage)) != node.taken:
            self.nodes[name] = node = replace(node, taken=taken)
            yield NodeLoaded(name, taken)
        held = {pod.metadata.uid: self._devices(pod, node) for pod in here} if node is not None else {}
        told = [pod for pod in here if held and (held[pod.metadata.uid][0] or self._is_neighbour(pod))]
        jobs = [gangs.foreign_of(pod, *held[pod.metadata.uid], self.settled.settings) for pod in told]
        for gone in sorted(self.foreign.get(name, set()) - {job.name for job in jobs}):
            yield from self._tell(gone, None)
            self.cache.look_at(self._gang_of_left(gone))  # of ours one may have its name by now
        self.foreign.pop(name, None)
        if jobs:
            self.foreign[name] = {job.name for job in jobs}
        for job in jobs:
            yield from self._tell(job.name, job)

    def _is_neighbour(self, pod: PodObject) -> bool:
        """Whether somebody of ours could mind it, or it them, beside what it takes."""
        return company.keeps_apart(pod.spec) or company.is_meant(pod.metadata, self._meant)

    def _devices(self, pod: PodObject, node: Node) -> Held:
        return self._holders.devices(pod, node, self.settled.settings)

    # --- gangs ---------------------------------------------------------------------------------------

    def _gang(self, name: str) -> Iterator[Event]:
        self.free.pop(name, None)
        self.refused.pop(name, None)
        if self.gathered.pop(name, None) is not None:
            self.budgets.see(name, None)
        job = self._alone(name)
        yield from self._whole_gang(name) if job is None else self._tell(name, job)

    def _alone(self, name: str) -> Job | None:
        """The job of a pod that is like others, if nothing but the pod itself has a say in it: it is told without
        anything being kept beside it, as most of a large cluster can be."""
        pod = self.cache.pods.get(name) if self.cache.members.only(name) == name else None
        if pod is None or name in self.cache.kept_back or name in self._left or name in self.promises:
            return None
        if self.avoidance.concerns(name) or self.budgets.concern(pod.metadata.namespace):
            return None
        job = self._alike.job(pod, self.cache.owners.owners, self.settled.settings, self._place(pod))
        if job is not None:
            self._staleness.end(name)
            if is_free(pod) and not job.placements and pod.metadata.uid not in self.cache.assumed:
                self.free[name] = {(job.gang.groups[0].name, 0): pod.metadata.uid}
        return job

    def _whole_gang(self, name: str) -> Iterator[Event]:
        found = self._gathered(name)
        job = found.job if found is not None else None
        self.budgets.see(name, found)
        if found is not None and job is not None:
            if free := self._free(found):
                self.free[name] = free
            self.gathered[name] = found
            self._hear_of_neighbours(job)
            job = self.promises.onto(self._with_avoidance(job), free)
            if len(job.placements) > 1:
                job = replace(job, placements=in_order(job.placements))
            job = self._staleness.told(job, found)
        elif found is not None and found.refusal is not None:
            self.refused[name] = found.refusal
        if job is not None or not self._is_left_by_another(name, name):
            yield from self._tell(name, job)
        yield from self._tell_of_those_left(name)

    def _tell_of_those_left(self, name: str) -> Iterator[Event]:
        """Pods of a gang that is refused now and was not when they were sent to their nodes hold what they hold."""
        there = self.cache.gang(name) if name in self.refused else []
        placed = [(pod, place) for pod in there if (place := self._place(pod)) is not None]
        jobs = [self._left_of(pod, place, self.refused[name]) for pod, place in placed]
        for gone in sorted(self._left.pop(name, set()) - {job.name for job in jobs}):
            if gone != self._gang_of_left(gone) and not self._is_left_by_another(gone, name):
                yield from self._tell(gone, None)
        if jobs:
            self._left[name] = {job.name for job in jobs}
        for job in jobs:
            yield from self._tell(job.name, job)

    def refused_gangs(self) -> Iterator[RefusedGang]:
        """All of them, with what their pods hold."""
        for name, refusal in sorted(self.refused.items()):
            left = [self.jobs[told] for told in sorted(self._left.get(name, ())) if told in self.jobs]
            yield RefusedGang(name, refusal, self.cache.gang(name), left)

    def _gang_of_left(self, told: str) -> str:
        """The gang that the pod is in by now which was told by that name; "" if none of ours is."""
        return self.cache.gang_of(told.replace("/pod/", "/", 1))

    def _is_left_by_another(self, told: str, name: str) -> bool:
        """Whether another gang than this says what that pod holds."""
        other = self._gang_of_left(told)
        return other != name and told in self._left.get(other, ())

    def _left_of(self, pod: PodObject, place: Placement, refusal: Refusal) -> Job:
        if refusal.reason is RefusalName.SET_APART:
            return gangs.unread_of(pod, place.gpus, place.mig)
        return gangs.left_of(pod, place, self.settled.settings)

    def _with_avoidance(self, job: Job) -> Job:
        """Held for a while, or kept off nodes, after it could not be started."""
        why = self.avoidance.gangs.get(job.name)
        if why is not None:
            job = gangs.held_back(job, why)
        nodes = self.avoidance.shunned_by(job.name)
        return gangs.kept_off(job, nodes) if nodes else job

    def _gathered(self, name: str) -> Gathered | None:
        members = self.cache.told(name)
        if not members:
            return None
        if self.settled.hear_of_labels(members):
            self.cache.dirty.loads.update(self.foreign)
        places = {pod.metadata.uid: place for pod in members if (place := self._place(pod)) is not None}
        found = self._alike.gather(members, self.cache.owners.owners, self.settled.settings, places)
        return found if isinstance(found, Gathered) else gangs.orphaned(name, found)

    def _hear_of_neighbours(self, job: Job) -> None:
        """Others' pods that somebody means by a selector are looked for on every node from now on."""
        meant = frozenset(company.meant_by(job.task_groups()))
        if not meant <= self._meant:
            self._meant |= meant
            self.cache.dirty.loads.update(self.cache.strangers)

    def _place(self, pod: PodObject) -> Placement | None:
        uid = pod.metadata.uid
        if pods.is_over(pod):
            self.cache.devices.pop(uid, None)
            return None
        if not pods.is_bound(pod):
            return self._assumed(pod)
        node = self.nodes.get(pod.node_name)
        place = place_of(pod, *self._devices(pod, node)) if node is not None else None
        if place is not None and uid in self.cache.sent_away:
            return replace(place, terminating=True)
        return place

    def _assumed(self, pod: PodObject) -> Placement | None:
        """Where it will be, on the devices that there are by now."""
        place = self.cache.assumed.get(pod.metadata.uid)
        node = self.nodes.get(place.node) if place is not None else None
        if place is None or node is None:  # nobody stands on a node that is gone
            return None
        gpus, mig = self._devices(pod, node)
        return place if (place.gpus, place.mig) == (gpus, mig) else replace(place, gpus=gpus, mig=mig)

    def _free(self, found: Gathered) -> Free:
        return {
            (chair.group, chair.task): chair.pod.metadata.uid
            for chair in found.chairs
            if is_free(chair.pod) and chair.pod.metadata.uid not in self.cache.assumed
        }

    def _tell(self, name: str, job: Job | None) -> Iterator[Event]:
        before = self.jobs.pop(name, None)
        if name in self.evicting and not (
            job is not None and any(p.uid in self.evicting[name] for p in job.placements)
        ):
            del self.evicting[name]
            yield JobEvicted(name, self._clock.now())
        if job is None:
            if before is not None:
                yield JobGone(name)
                self._look_for_namesake(name)
            return
        self.jobs[name] = job
        if before != job:
            yield from [JobSeen(job)] if before is None else _difference(before, job)

    def _look_for_namesake(self, gone: str) -> None:
        """A pod of others that has come to another node under the name of the one that is gone may have been told
        before that was: it is told again."""
        other = self.cache.others.get(gone.replace("/pod/", "/", 1))
        if other is not None and other.node_name:
            self.cache.dirty.loads.add(other.node_name)


def in_order(places: Iterable[Placement]) -> tuple[Placement, ...]:
    """As they are compared: two accounts of the same places are the same."""
    return tuple(sorted(places, key=lambda place: (place.group, place.task, place.uid)))


def is_free(pod: PodObject) -> bool:
    """Whether it waits for a place, and for nothing else."""
    return not (pods.is_bound(pod) or pods.is_over(pod) or pods.is_leaving(pod) or pods.is_gated(pod))


def _difference(before: Job, now: Job) -> list[Event]:
    """As little as says it; whatever is not plainly about places is told as the whole job."""
    if replace(before, placements=(), started=None) != replace(now, placements=(), started=None):
        return [JobSeen(now)]
    old = {_whose(place): place for place in before.placements}
    new = {_whose(place): place for place in now.placements}
    if any(who not in old or _seat(place) != _seat(old[who]) for who, place in new.items()):
        return [JobSeen(now)]
    told: list[Event] = []
    running = tuple(place for who, place in new.items() if old[who].assigned and not place.assigned)
    stopping = tuple(place for who, place in new.items() if place.terminating and not old[who].terminating)
    gone = tuple(place for who, place in old.items() if who not in new)
    if running:
        told.append(TasksRunning(now.name, running, now.started or 0.0))
    if stopping:
        told.append(TasksStopping(now.name, stopping))
    if gone:
        told.append(TasksEnded(now.name, gone))
    return told


def _whose(place: Placement) -> tuple[str, str, int]:
    """A pod of others may have several places."""
    return place.uid, place.group, place.task


def _seat(place: Placement) -> tuple[object, ...]:
    """What it is and has; all but how far it is."""
    return place.node, place.gpus, place.mig
