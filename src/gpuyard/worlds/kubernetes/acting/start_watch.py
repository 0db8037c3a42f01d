"""Who is late: bound and does not begin, or told to go and does not go; each is told with its cause.

Called by `world` in its loop. A gang with a pod that does not begin is taken back once and tried elsewhere; whoever
does not begin there either would begin nowhere, and is only told about. The same holds for gangs that cannot be taken
back without harm. Nobody who does not go is forced: as long as its pod is there it may use what it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpuyard.kube.objects import ContainerStatus, PodObject
from gpuyard.model.actions import Evict, Move
from gpuyard.model.events import Event
from gpuyard.model.outside.ports import Clock
from gpuyard.model.reasons import Code, Reason
from gpuyard.worlds.kubernetes import pods
from gpuyard.worlds.kubernetes.cache import Cache
from gpuyard.worlds.kubernetes.observe import ClusterObserver

NOT_YET = frozenset(("ContainerCreating", "PodInitializing"))
"""What a kubelet says while all goes well."""
KEPT_S = 86400.0
OVERDUE_S = 60.0
"""So long after its grace is over a kubelet may take to tell that a pod is gone."""

TakeBack = Callable[[list[Evict | Move]], list[Event]]


class StartWatch:
    """Who was bound and has not begun. `look` is called again and again."""

    def __init__(self, observer: ClusterObserver, take_back: TakeBack, clock: Clock, limit_s: float) -> None:
        self.events: list[Event] = []
        """What is to be told with the next account."""
        self.causes: list[tuple[PodObject, str]] = []
        """What is to be told on pods."""
        self._observer = observer
        self._take_back = take_back
        self._clock = clock
        self._limit_s = limit_s
        self._since: dict[str, float] = {}
        """Since when each has been bound, by uid, as far as we have seen it."""
        self._told: set[str] = set()
        self._again: dict[str, float] = {}
        """Gangs that were taken back for this, and when, until all of them have begun."""

    def look(self) -> None:
        """Those who are late are acted on, each once."""
        now, cache = self._clock.monotonic(), self._observer.cache
        waiting = {pod.metadata.uid: pod for key in cache.unbegun if (pod := cache.pods.get(key)) is not None}
        self._since = {uid: self._since.get(uid, now) for uid in waiting}
        self._told &= waiting.keys()
        self._again = {name: at for name, at in self._again.items() if now - at < KEPT_S and not self._runs(name)}
        late: dict[str, list[PodObject]] = {}
        for uid, since in self._since.items():
            if now - since >= self._limit_s and uid not in self._told:
                late.setdefault(cache.gang_of(waiting[uid].metadata.key), []).append(waiting[uid])
        for name, slow in late.items():
            self._told.update(pod.metadata.uid for pod in slow)
            self._act(name, sorted(slow, key=lambda pod: pod.metadata.key))

    def _runs(self, name: str) -> bool:
        """Whether all of it that is there has begun; while it is taken back nothing of it is."""
        job = self._observer.jobs.get(name)
        return job is not None and bool(job.placements) and not any(place.assigned for place in job.placements)

    def _act(self, name: str, late: Sequence[PodObject]) -> None:
        first = late[0]
        where = f"{first.metadata.name} has not begun on {first.node_name}"
        words = f"{where} for {self._limit_s:g} s: {cause_of(first)}"
        found = self._observer.gathered_of(name)
        if found is None or found.hindrance or name in self._again:
            self.causes.append((first, words))
            return
        self._again[name] = self._clock.monotonic()
        self.causes.append((first, f"{words}; all of {name} is taken back and tried elsewhere"))
        for node in sorted({pod.node_name for pod in late}):
            self._observer.avoidance.shun(name, node)
        self.events += self._take_back([Evict(name, Reason(Code.STALE, where=name, message=words))])


class StopWatch:
    """Who was told to go and is still there. `look` is called again and again."""

    def __init__(self, cache: Cache, clock: Clock) -> None:
        self._cache = cache
        self._clock = clock
        self._since: dict[str, float] = {}
        """Since when each has been leaving, by uid, as far as we have seen it."""
        self._told: set[str] = set()

    def look(self) -> list[tuple[PodObject, str]]:
        """Those that are late, each once, and what there is to say of it."""
        now, there = self._clock.monotonic(), self._cache.pods
        found = (pod for key in self._cache.leaving if (pod := there.get(key)) is not None)
        leaving = {pod.metadata.uid: pod for pod in found if not pods.is_over(pod)}
        self._since = {uid: self._since.get(uid, now) for uid in leaving}
        self._told &= leaving.keys()
        late = [
            pod
            for uid, pod in leaving.items()
            if uid not in self._told and now - self._since[uid] >= pods.grace_of(pod) + OVERDUE_S
        ]
        self._told.update(pod.metadata.uid for pod in late)
        return [(pod, self._words(pod)) for pod in sorted(late, key=lambda pod: pod.metadata.key)]

    def _words(self, pod: PodObject) -> str:
        told = f"{pod.metadata.name} was told to go and is still there on {pod.node_name}, {OVERDUE_S:g} s after its"
        node = self._cache.nodes.get(pod.node_name)
        ready = next((each for each in (node.status.conditions or ()) if each.type == "Ready"), None) if node else None
        silent = "; its kubelet does not answer" if ready is None or ready.status != "True" else ""
        return f"{told} grace of {pods.grace_of(pod)} s{silent}; what it holds stays its own until it is gone"


def cause_of(pod: PodObject) -> str:
    """Why it has not begun, as its kubelet says."""
    statuses: Sequence[ContainerStatus] = (
        *(pod.status.init_container_statuses or ()),
        *(pod.status.container_statuses or ()),
    )
    states = [each.state.waiting for each in statuses if each.state is not None and each.state.waiting is not None]
    wrong = next((state for state in states if state.reason not in NOT_YET), None)
    if wrong is not None:
        return f"{wrong.reason}: {wrong.message}" if wrong.message else wrong.reason
    if pod.status.message or pod.status.reason:
        return pod.status.message or pod.status.reason
    return "its containers are still being made" if states else "its kubelet has said nothing of it"
