"""What a plan takes back, and what begins again afterwards.

Called by `world` in its loop; how a gang is taken back is `disrupt`'s.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace

from gpuyard.kube.client import ApiUnreachable
from gpuyard.kube.objects import PodObject
from gpuyard.model.actions import Evict
from gpuyard.model.events import ActionFailed, Event, TasksStopping
from gpuyard.model.reasons import Code, Reason
from gpuyard.worlds.kubernetes.acting.disrupt import Disruptor, is_taken_back
from gpuyard.worlds.kubernetes.following import Do
from gpuyard.worlds.kubernetes.gangs import Gathered
from gpuyard.worlds.kubernetes.observe import ClusterObserver, in_order


class TakerBack:
    """Takes gangs back, and lets them begin again. `disruptor` is given once the loop runs."""

    disruptor: Disruptor

    def __init__(self, observer: ClusterObserver, leads: Callable[[], bool], do: Do) -> None:
        self.failures: list[Event] = []
        """What is to be told with the next account."""
        self._observer = observer
        self._cache = observer.cache
        self._leads = leads
        self._do = do

    def take_back(self, evict: Evict) -> list[Event]:
        """Those that are bound are told to go; those that are only on their way will be, once they are there."""
        found, job = self._observer.gathered.get(evict.job), self._observer.jobs.get(evict.job)
        meant = {place.uid for place in (evict.placements or (job.placements if job is not None else ()))}
        pods = [pod for pod in self._cache.gang(evict.job) if pod.metadata.uid in meant and pod.spec.node_name]
        if found is None or job is None or not pods:
            return [ActionFailed(evict.job, evict.placements, Reason(Code.WORLD_CHANGED))]
        self._observer.evicting.add(evict.job)
        self._do(self._send_back(found, pods, str(evict.reason)))
        going = {pod.metadata.uid for pod in pods}
        stopping = tuple(replace(place, terminating=True) for place in job.placements if place.uid in going)
        kept = [place for place in job.placements if place.uid not in going]
        self._observer.jobs[evict.job] = replace(job, placements=in_order((*kept, *stopping)))
        return [TasksStopping(evict.job, stopping)]

    async def _send_back(self, found: Gathered, pods: list[PodObject], why: str) -> None:
        if self._leads() and (told := await self.disruptor.take_back(found, pods, why)):
            job = self._observer.jobs.get(found.name)
            reason = Reason(Code.WORLD_CHANGED, message=told)
            self.failures.append(ActionFailed(found.name, job.placements if job is not None else (), reason))
            self._observer.evicting.discard(found.name)
            self._cache.look_at(found.name)

    async def resume(self) -> None:
        """Jobs that were taken back begin again when nothing of them is left."""
        for job in [job for job in self._cache.owners.jobs() if is_taken_back(job)]:
            if self._leads() and not self._cache.has_members(job.metadata.key):
                with contextlib.suppress(ApiUnreachable):
                    await self.disruptor.resume(job)
