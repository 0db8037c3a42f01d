"""What a plan starts: a pod for every place, assumed at once and sent to its node; and what did not come about.

Called by `world` in its loop. An assumption ends by the API server's word (`cache`) or by a failure that is certain.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpuyard.kube.client import ApiUnreachable
from gpuyard.kube.objects import PodObject
from gpuyard.model.actions import Start
from gpuyard.model.events import ActionFailed, Event, TasksAssigned
from gpuyard.model.job import Placement
from gpuyard.model.outside.ports import Clock
from gpuyard.model.reasons import Code, Reason
from gpuyard.worlds.kubernetes.acting.bind import Binder, Binding, Ending
from gpuyard.worlds.kubernetes.acting.preparing import VolumePreparer
from gpuyard.worlds.kubernetes.acting.tell import AFTER_S, ConditionTeller, Message
from gpuyard.worlds.kubernetes.asking.marks import STAY
from gpuyard.worlds.kubernetes.asking.refusals import RefusalName
from gpuyard.worlds.kubernetes.following import Do
from gpuyard.worlds.kubernetes.observe import ClusterObserver, Free, in_order

TROUBLES = 3
"""So often a pod is tried again at once."""
Seated = tuple[tuple[str, int], PodObject]
"""A group and number, and the pod that has it."""


class Starter:
    """Starts, and forgets what could not be started. What it has no value for here is given once the loop runs."""

    binder: Binder
    teller: ConditionTeller
    preparer: VolumePreparer

    def __init__(self, observer: ClusterObserver, clock: Clock, do: Do, stay: Mapping[str, str] = STAY) -> None:
        """`stay` are the marks that keep autoscalers from taking the node of a gang's member away."""
        self.failures: list[Event] = []
        """What is to be told with the next account."""
        self._troubles: Counter[str] = Counter()
        """How often pods could not be bound, though nothing was wrong with them, by uid."""
        self._observer = observer
        self._cache = observer.cache
        self._avoidance = observer.avoidance
        self._clock = clock
        self._do = do
        self._stay = stay

    def begin(self, start: Start) -> list[Event]:
        """All of it on its way, or none."""
        free = self._observer.free.get(start.job, {})
        pods = self._chosen(start, free)
        job = self._observer.jobs.get(start.job)
        if pods is None or job is None:
            return [ActionFailed(start.job, start.placements, Reason(Code.WORLD_CHANGED))]
        if wanted_twice := self._observer.storage.wanted_twice([pod for _, pod in pods]):
            self._avoidance.rest(start.job, f"the volume claim {wanted_twice} is for one pod at a time")
            return [ActionFailed(start.job, start.placements, Reason(Code.WORLD_CHANGED))]
        placed = []
        for place, (chair, pod) in zip(start.placements, pods, strict=True):
            del free[chair]
            theirs = replace(place, group=chair[0], task=chair[1], uid=pod.metadata.uid, assigned=True)
            placed.append(theirs)
        self.send(start.job, [(place, pod) for place, (_, pod) in zip(placed, pods, strict=True)])
        self._observer.jobs[start.job] = replace(job, placements=in_order((*job.placements, *placed)))
        return [TasksAssigned(start.job, tuple(placed), self._clock.now())]

    def _chosen(self, start: Start, free: Free) -> list[Seated] | None:
        """A pod for every place: the one with that number, else any of its group; None if there are too few."""
        by_uid = {pod.metadata.uid: pod for pod in self._cache.gang(start.job)}
        wanted = {(place.group, place.task) for place in start.placements}
        spare = [chair for chair in sorted(free, reverse=True) if chair not in wanted]
        chosen: list[Seated] = []
        for place in start.placements:
            chair = (place.group, place.task)
            if chair not in free:
                chair = next((other for other in reversed(spare) if other[0] == place.group), chair)
                spare = [other for other in spare if other != chair]
            if free.get(chair) not in by_uid:
                return None
            chosen.append((chair, by_uid[free[chair]]))
        return chosen

    def _assume(self, place: Placement, pod: PodObject) -> Placement:
        self._cache.assumed.put(place, pod.metadata.key)
        self._cache.devices[place.uid] = (place.gpus, place.mig)
        self._observer.storage.assumed(pod)
        self.teller.forget(place.uid)
        return place

    def send(self, job: str, placed: Sequence[tuple[Placement, PodObject]]) -> None:
        """To their nodes: at once, or when the volumes of all of them are there. Assumed they are from now on."""
        for place, pod in placed:
            self._assume(place, pod)
        bindings = [
            Binding(
                job,
                pod.metadata.namespace,
                pod.metadata.name,
                place,
                self._observer.granted(place),
                self._marks(job, pod),
            )
            for place, pod in placed
        ]
        if any(self.preparer.wants(pod) for _, pod in placed):
            self._do(self._send_prepared(bindings, [(pod, place.node) for place, pod in placed]))
        else:
            for binding in bindings:
                self.binder.send(binding)

    def _marks(self, name: str, pod: PodObject) -> tuple[tuple[str, str], ...]:
        """Of a gang's member those that it does not bear already: whatever its owner wrote there holds."""
        job = self._observer.jobs.get(name)
        if job is None or sum(group.tasks for group in job.task_groups()) < 2:
            return ()
        return tuple((key, told) for key, told in self._stay.items() if key not in (pod.metadata.annotations or {}))

    async def _send_prepared(self, bindings: list[Binding], placed: list[tuple[PodObject, str]]) -> None:
        """Nobody goes before all can: a gang that waited for a volume with half of it bound would hold GPUs twice."""
        telling = asyncio.create_task(self._tell_of_volumes(placed))
        try:
            unprepared = await self.preparer.prepare(placed)
        finally:
            telling.cancel()
        there = [binding for binding in bindings if self._cache.assumed.get(binding.place.uid) is binding.place]
        for binding in there:
            if unprepared is None:
                self.binder.send(binding)
            else:
                self.failed(binding, Ending.UNPREPARED, unprepared.why)
        if unprepared is not None and unprepared.node and there:
            self._avoidance.shun(there[0].job, unprepared.node)
            self._avoidance.rest(there[0].job, unprepared.why)

    async def _tell_of_volumes(self, placed: Sequence[tuple[PodObject, str]]) -> None:
        """Who waits for them for a while hears it, though the place is settled; one that is lost is no harm."""
        await self._clock.sleep(AFTER_S)
        for pod, node in placed:
            if claims := ", ".join(self.preparer.unbound(pod)):
                words = f"its place on {node} is kept until the volume claim {claims} is bound there"
                with contextlib.suppress(ApiUnreachable):
                    await self.teller.write_condition(pod, Message(RefusalName.VOLUME_UNBOUND.value, words))

    def failed(self, binding: Binding, ending: Ending, told: str) -> None:
        """Nobody is there: forget it, unless the API server has said meanwhile that somebody is."""
        place = binding.place
        if self._cache.assumed.end(place.uid) is None:
            return
        self._cache.devices.pop(place.uid, None)
        if (pod := self._cache.pods.get(f"{binding.namespace}/{binding.name}")) is not None:
            self._observer.storage.assumed(pod)
        words = f"{binding.name} could not be bound: {told}"
        job = self._observer.jobs.get(binding.job)
        if job is not None:
            kept = tuple(other for other in job.placements if other.uid != place.uid)
            self._observer.jobs[binding.job] = replace(job, placements=kept)
            self.failures.append(ActionFailed(binding.job, (place,), Reason(Code.WORLD_CHANGED, message=words)))
        if ending is Ending.REFUSED or self._troubled_again(place.uid, ending):
            self._avoidance.rest(binding.job, words)
        for gang in {binding.job, self._cache.gang_of(f"{binding.namespace}/{binding.name}")}:  # it may go by another
            self._cache.look_at(gang)

    def _troubled_again(self, uid: str, ending: Ending) -> bool:
        """Whether it has failed so often that trying again at once would only be one more request."""
        if ending is not Ending.TROUBLED:
            return False
        self._troubles[uid] += 1
        if self._troubles[uid] < TROUBLES:
            return False
        self._troubles.clear()
        return True
