"""What the API server has, as far as scheduling goes, and which of it is to be looked at anew.

Filled by reflectors, read by `observe`; everything here happens in the world's one loop. The inbox is a *set* of names
and cannot overflow: who changed twice is looked at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from gpuyard.kube.objects import NodeObject, PodObject
from gpuyard.kube.owners import JobObject
from gpuyard.kube.reflector import ApiObject
from gpuyard.model.job import Placement
from gpuyard.model.resources import Request
from gpuyard.worlds.kubernetes import plain

S = TypeVar("S", bound=ApiObject)


class Objects(Generic[S]):
    """Objects of one kind by their key; a `Sink` that tells of every change, and of what was there before."""

    def __init__(self, changed: Callable[[S | None, S | None], None]) -> None:
        self.objects: dict[str, S] = {}
        self._changed = changed

    def put(self, seen: S) -> None:
        """Another uid under a known name: the one before is gone."""
        before = self.objects.get(seen.metadata.key)
        if before is not None and before.metadata.uid != seen.metadata.uid:
            self.drop(before.metadata.key)
            before = None
        self.objects[seen.metadata.key] = seen
        self._changed(before, seen)

    def drop(self, key: str) -> None:
        """Gone."""
        before = self.objects.pop(key, None)
        if before is not None:
            self._changed(before, None)

    def keys(self) -> Iterable[str]:
        """All there are."""
        return self.objects

    def get(self, key: str) -> S | None:
        """The one of that name."""
        return self.objects.get(key)


@dataclass(frozen=True, slots=True)
class Stranger:
    """A pod that is not ours to place, as the load that it is."""

    key: str
    uid: str
    request: Request
    ending: bool = False


@dataclass(slots=True)
class Dirty:
    """Names of what changed since it was last looked at."""

    gangs: set[str] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)
    """Their inventory and health."""
    loads: set[str] = field(default_factory=set)
    """What strangers use of them."""

    def __bool__(self) -> bool:
        return bool(self.gangs or self.nodes or self.loads)


class GivenDevices:
    """Which GPU of a node is whose, where nobody tells: the lowest free ones, until somebody does.

    In the mode `observe` the kubelet's device plugin chooses. Which numbers a pod has here matters to nobody; that no
    number is given twice does.
    """

    def __init__(self) -> None:
        self._held: dict[str, dict[int, str]] = {}
        self._of: dict[str, tuple[str, tuple[int, ...]]] = {}

    def take(self, uid: str, node: str, gpus: tuple[int, ...]) -> None:
        """These are its own; whatever it had before is not."""
        self.free(uid)
        held = self._held.setdefault(node, {})
        for index in gpus:
            held[index] = uid
        self._of[uid] = (node, gpus)

    def give(self, uid: str, node: str, count: int) -> tuple[int, ...]:
        """So many of the node; the same ones for whoever has them already."""
        has = self._of.get(uid)
        if has is not None and has[0] == node and len(has[1]) == count:
            return has[1]
        self.free(uid)
        held = self._held.get(node, {})
        free = [index for index in range(len(held) + count) if index not in held]
        self.take(uid, node, tuple(free[:count]))
        return tuple(free[:count])

    def free(self, uid: str) -> None:
        """It has none any more."""
        node, gpus = self._of.pop(uid, ("", ()))
        for index in gpus:
            if self._held[node].get(index) == uid:
                del self._held[node][index]


class Cache:
    """Everything that is known, and what is to be looked at."""

    def __init__(self) -> None:
        self.pods: Objects[PodObject] = Objects(self._pod_changed)
        self.jobs: Objects[JobObject] = Objects(self._job_changed)
        self.nodes: Objects[NodeObject] = Objects(self._node_changed)
        self.others: Objects[PodObject] = Objects(self._other_changed)
        self.dirty = Dirty()
        self.devices = GivenDevices()
        self.strangers: dict[str, dict[str, Stranger]] = {}
        """By node, by uid."""
        self.members: dict[str, set[str]] = {}
        """Keys of pods by the name of their gang."""
        self.grouped: dict[str, str] = {}
        """The gang of every pod that has one, by its key."""
        self.made: dict[str, set[str]] = {}
        """Keys of the pods that a Job made, by the Job's; also of those that wait for the Job to be seen."""
        self.assumed: dict[str, Placement] = {}
        """Where pods will be by our own doing, by uid, until the API server tells it or the binding failed."""
        self.news: Callable[[], None] = lambda: None
        """Called when something is to be looked at."""

    def gang(self, name: str) -> list[PodObject]:
        """Its pods, in the order of their names."""
        return [self.pods.objects[key] for key in sorted(self.members.get(name, ()))]

    def look_at(self, gang: str) -> None:
        """It is to be described anew."""
        if gang:
            self.dirty.gangs.add(gang)
            self.news()

    # --- pods of ours ------------------------------------------------------------------------------

    def _pod_changed(self, before: PodObject | None, now: PodObject | None) -> None:
        if now is None:
            assert before is not None
            self._forget(before)
        elif before is None:
            if made_by := plain.owner_key(now):
                self.made.setdefault(made_by, set()).add(now.metadata.key)
            self._group(now)
        elif not self._is_echo(before, now):
            self.look_at(self.grouped.get(now.metadata.key, ""))

    def _is_echo(self, before: PodObject, now: PodObject) -> bool:
        """Our own binding come true: everybody has known it since it was decided."""
        assumed = self.assumed.get(now.metadata.uid)
        if assumed is not None and now.spec.node_name == assumed.node:
            del self.assumed[now.metadata.uid]
            return now.status.phase == "Pending" and now.metadata.deletion_timestamp is None
        return matters(before) == matters(now)

    def _group(self, pod: PodObject) -> None:
        key = pod.metadata.key
        gang = plain.gang_of(pod, self.jobs.get(plain.owner_key(pod)))
        if gang:
            self.grouped[key] = gang
            self.members.setdefault(gang, set()).add(key)
            self.look_at(gang)

    def _forget(self, pod: PodObject) -> None:
        self.assumed.pop(pod.metadata.uid, None)
        self.devices.free(pod.metadata.uid)
        self._ungroup(pod.metadata.key)
        made_by = plain.owner_key(pod)
        if made := self.made.get(made_by):
            made.discard(pod.metadata.key)
            if not made:
                del self.made[made_by]

    def _ungroup(self, key: str) -> None:
        gang = self.grouped.pop(key, "")
        if members := self.members.get(gang):
            members.discard(key)
            if not members:
                del self.members[gang]
        self.look_at(gang)

    # --- whoever makes them --------------------------------------------------------------------------

    def _job_changed(self, before: JobObject | None, now: JobObject | None) -> None:
        if now is None:  # its pods go with it, one by one, and stay what they were until then
            return
        key = now.metadata.key
        if before is None or plain.is_gang(before) != plain.is_gang(now):
            for pod in sorted(self.made.get(key, ())):
                self._ungroup(pod)
                self._group(self.pods.objects[pod])
        if plain.is_gang(now) and (before is None or before.spec != now.spec):
            self.look_at(key)

    # --- nodes, and what others use of them ------------------------------------------------------------

    def _node_changed(self, before: NodeObject | None, now: NodeObject | None) -> None:
        node = now or before
        assert node is not None
        self.dirty.nodes.add(node.metadata.name)
        self.news()

    def _other_changed(self, before: PodObject | None, now: PodObject | None) -> None:
        pod = now or before
        assert pod is not None
        uid, node = pod.metadata.uid, pod.spec.node_name
        if not node:
            return
        there = self.strangers.setdefault(node, {})
        known = there.pop(uid, None)
        if now is None:
            self.devices.free(uid)
        else:
            ending = now.metadata.deletion_timestamp is not None
            there[uid] = Stranger(pod.metadata.key, uid, plain.request_of(now), ending)
        if there.get(uid) != known:
            self.dirty.loads.add(node)
            self.news()


def matters(pod: PodObject) -> tuple[object, ...]:
    """All of a pod that a decision or an account of it could rest on."""
    status = pod.status
    told = status.phase, status.reason, status.start_time
    return pod.spec, told, pod.metadata.deletion_timestamp, pod.metadata.labels, pod.metadata.annotations
