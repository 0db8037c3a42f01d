"""Jobs that ran into their time limit, ended for good by the way that whoever made them understands.

Called by `world` in its loop. A Job's deadline is brought forward to now, so that its own controller ends it; another
owner is suspended and nobody resumes it; pods without such an owner are deleted. Why stands on the owner.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpuyard.model.actions import Terminate
from gpuyard.model.events import ActionFailed, Event
from gpuyard.model.reasons import Code, Reason
from gpuyard.worlds.kubernetes import pods
from gpuyard.worlds.kubernetes.acting.disrupt import Disruptor
from gpuyard.worlds.kubernetes.following import Do
from gpuyard.worlds.kubernetes.gangs import Gathered
from gpuyard.worlds.kubernetes.gathering.layouts import Way
from gpuyard.worlds.kubernetes.observe import ClusterObserver


class Ender:
    """Ends jobs. `disruptor` is given once the loop runs."""

    disruptor: Disruptor

    def __init__(self, observer: ClusterObserver, do: Do) -> None:
        self.failures: list[Event] = []
        """What is to be told with the next account."""
        self._observer = observer
        self._do = do

    def end(self, action: Terminate) -> Sequence[Event]:
        """Nothing is assumed: its pods hold what they hold until they are told to go."""
        found = self._observer.gathered_of(action.job)
        if found is not None:
            self._do(self._end(found, str(action.reason)))
        return ()

    async def _end(self, found: Gathered, why: str) -> None:
        if told := await self._sent(found, why):
            reason = Reason(Code.WORLD_CHANGED, where=found.name, message=told)
            self.failures.append(ActionFailed(found.name, (), reason))
            self._observer.cache.look_at(found.name)

    async def _sent(self, found: Gathered, why: str) -> str:
        if found.way is Way.SUSPEND:
            return await self.disruptor.end(found, why)
        there = [chair.pod for chair in found.chairs if pods.is_bound(chair.pod) and not pods.is_over(chair.pod)]
        # whoever says so in its own spec is ended by its kubelet, and stays to be looked at
        going = [pod for pod in there if not pods.is_leaving(pod) and not pod.spec.active_deadline_seconds]
        return await self.disruptor.delete(going, why)
