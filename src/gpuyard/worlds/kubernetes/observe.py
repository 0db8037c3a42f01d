"""The difference between what was last told and what is, as events.

Called by `world` in its loop. A gang is described anew from all its pods and compared with what the brain was told of
it; nothing here follows single changes of the API.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpuyard.kube.objects import PodObject
from gpuyard.model.events import (
    Event,
    JobGone,
    JobSeen,
    NodeLoaded,
    NodeLost,
    NodeSeen,
    TasksEnded,
    TasksRunning,
    TasksStopping,
)
from gpuyard.model.job import Job, Placement, TaskGroup, one_group
from gpuyard.model.node import Load, Node
from gpuyard.model.resources import Request
from gpuyard.worlds.kubernetes import plain
from gpuyard.worlds.kubernetes.cache import Cache, Stranger
from gpuyard.worlds.kubernetes.plain import Described

OTHERS = "(others)"
"""Before the names of pods that hold GPUs and are not ours to place."""


class ClusterObserver:
    """What the brain was told last, and what it is to be told next."""

    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        self.nodes: dict[str, Node] = {}
        self.jobs: dict[str, Job] = {}
        self.free: dict[str, dict[int, str]] = {}
        """Uids of pods that could be placed, by gang and number."""
        self.foreign: dict[str, set[str]] = {}
        """Names of jobs of others, by node."""
        self.resting: set[str] = set()
        """Gangs that are kept from starting for a while: the API server would not have them."""

    def forget(self) -> None:
        """Nothing was told: all there is is to be looked at."""
        self.nodes, self.jobs, self.free, self.foreign = {}, {}, {}, {}
        dirty = self.cache.dirty
        dirty.nodes.update(self.cache.nodes.objects)
        dirty.gangs.update(self.cache.members)
        dirty.loads.update(self.cache.strangers)

    def events(self) -> Iterator[Event]:
        """One after another, until nothing is left to be looked at; the caller may rest in between."""
        dirty = self.cache.dirty
        while dirty.nodes:
            yield from self._node(dirty.nodes.pop())
        while dirty.loads:
            yield from self._load(dirty.loads.pop())
        while dirty.gangs:
            yield from self._gang(dirty.gangs.pop())

    # --- nodes ---------------------------------------------------------------------------------------

    def _node(self, name: str) -> Iterator[Event]:
        seen = self.cache.nodes.get(name)
        node = plain.node_of(seen) if seen is not None else None
        before = self.nodes.get(name)
        if node is None:
            if before is not None:
                del self.nodes[name]
                self._look_at_those_on(name)
                yield NodeLost(name)
            return
        if before is None:
            self._look_at_those_on(name)
        node = replace(node, taken=self._taken(name))
        if node != before:
            self.nodes[name] = node
            yield NodeSeen(node)

    def _look_at_those_on(self, node: str) -> None:
        """Pods may precede their node, and outlive it."""
        for pod in self.cache.pods.objects.values():
            if pod.spec.node_name == node:
                self.cache.look_at(self.cache.grouped.get(pod.metadata.key, ""))
        self.cache.dirty.loads.add(node)

    def _taken(self, node: str) -> Load:
        loads = self.cache.strangers.get(node, {}).values()
        return Load(sum(each.request.cpu for each in loads), sum(each.request.memory for each in loads))

    def _load(self, name: str) -> Iterator[Event]:
        node = self.nodes.get(name)
        here = self.cache.strangers.get(name, {}) if node is not None else {}
        if node is not None and (taken := self._taken(name)) != node.taken:
            self.nodes[name] = replace(node, taken=taken)
            yield NodeLoaded(name, taken)
        jobs = {f"{OTHERS} {each.key}": each for each in here.values() if each.request.gpus}
        for gone in sorted(self.foreign.get(name, set()) - jobs.keys()):
            yield from self._tell(gone, None)
        self.foreign[name] = set(jobs)
        for job, stranger in sorted(jobs.items()):
            yield from self._tell(job, self._stranger(job, name, stranger))

    def _stranger(self, name: str, node: str, stranger: Stranger) -> Job:
        """It holds GPUs and nothing else: CPU and memory are in the node's load."""
        gpus = self.cache.devices.give(stranger.uid, node, stranger.request.gpus)
        place = Placement(node, gpus, uid=stranger.uid, terminating=stranger.ending)
        group = TaskGroup(request=Request(gpus=len(gpus)))
        return Job(name, one_group(group), queue="", foreign=True, preemptible=False, placements=(place,))

    # --- gangs ---------------------------------------------------------------------------------------

    def describe(self, name: str) -> Described | None:
        """A gang as it is now."""
        pods = self.cache.gang(name)
        if not pods:
            return None
        places = {pod.metadata.uid: place for pod in pods if (place := self._place(pod)) is not None}
        return plain.described(name, pods, self.cache.jobs.get(plain.owner_key(pods[0])), places)

    def _place(self, pod: PodObject) -> Placement | None:
        uid = pod.metadata.uid
        if pod.status.phase in plain.ENDED:
            self.cache.devices.free(uid)
            return None
        assumed = self.cache.assumed.get(uid)
        if not pod.spec.node_name:
            return assumed
        node = self.nodes.get(pod.spec.node_name)
        if node is None:
            return None
        gpus = self.cache.devices.give(uid, node.name, plain.request_of(pod).gpus)
        number = plain.number_of(pod)
        ends = pod.metadata.deletion_timestamp is not None
        return Placement(
            node.name, gpus, plain.MAIN, number, terminating=ends, assigned=pod.status.phase == "Pending", uid=uid
        )

    def _gang(self, name: str) -> Iterator[Event]:
        found = self.describe(name)
        if found is None:
            self.free.pop(name, None)
        else:
            self.free[name] = dict(found.numbers)
        job = found.job if found is not None else None
        yield from self._tell(name, replace(job, on_hold=True) if job is not None and name in self.resting else job)

    def _tell(self, name: str, job: Job | None) -> Iterator[Event]:
        before = self.jobs.pop(name, None)
        if job is None:
            if before is not None:
                yield JobGone(name)
            return
        self.jobs[name] = job
        if before != job:
            yield from [JobSeen(job)] if before is None else _difference(before, job)


def _difference(before: Job, now: Job) -> list[Event]:
    """As little as says it; whatever is not plainly about places is told as the whole job."""
    if replace(before, placements=(), started=None) != replace(now, placements=(), started=None):
        return [JobSeen(now)]
    old = {place.uid: place for place in before.placements}
    new = {place.uid: place for place in now.placements}
    if any(uid not in old or (place.node, place.gpus) != (old[uid].node, old[uid].gpus) for uid, place in new.items()):
        return [JobSeen(now)]
    told: list[Event] = []
    running = tuple(place for uid, place in new.items() if old[uid].assigned and not place.assigned)
    stopping = tuple(place for uid, place in new.items() if place.terminating and not old[uid].terminating)
    gone = tuple(place for uid, place in old.items() if uid not in new)
    if running:
        told.append(TasksRunning(now.name, running, now.started or 0.0))
    if stopping:
        told.append(TasksStopping(now.name, stopping))
    if gone:
        told.append(TasksEnded(now.name, gone))
    return told
