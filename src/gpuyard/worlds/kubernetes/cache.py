"""What the API server has, as far as scheduling goes, and which of it is to be looked at anew.

Filled by reflectors, read by `observe`; everything here happens in the world's one loop. The inbox is a *set* of names
and cannot overflow: who changed twice is looked at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec

from gpuyard.kube.definitions import gpu_nodes
from gpuyard.kube.definitions.gpu_nodes import GpuNodeObject
from gpuyard.kube.objects import BudgetObject, Metadata, NodeObject, PodObject, PodSpec, Projection
from gpuyard.kube.reflector import ApiObject
from gpuyard.kube.sharing import SharedParts
from gpuyard.model.node import NO_LOAD
from gpuyard.worlds.kubernetes import gangs, nodes, pods, queues
from gpuyard.worlds.kubernetes.asking import amounts, marks
from gpuyard.worlds.kubernetes.gathering import kept_back
from gpuyard.worlds.kubernetes.gathering.controllers import JOB, is_suspended, name_alone
from gpuyard.worlds.kubernetes.gathering.layouts import Owners, Seat
from gpuyard.worlds.kubernetes.keeping.alike import PlainPods
from gpuyard.worlds.kubernetes.keeping.assumptions import Assumptions
from gpuyard.worlds.kubernetes.keeping.bags import Bags
from gpuyard.worlds.kubernetes.keeping.seats import Held
from gpuyard.worlds.kubernetes.queues import QueueObject

S = TypeVar("S", bound=ApiObject)
BY_BINDING = frozenset((marks.JOB, marks.TASK, marks.GPUS, *marks.STAY))
"""Annotations that come with a Binding."""


class Objects(Generic[S]):
    """Objects of one kind by their key; a `Sink` that tells of every change, and of what was there before."""

    def __init__(self, changed: Callable[[S | None, S | None], None], slim: Callable[[S], S] | None = None) -> None:
        self.objects: dict[str, S] = {}
        self._changed = changed
        self._slim = slim

    def put(self, seen: S) -> None:
        """Another uid under a known name: the one before is gone."""
        seen = self._slim(seen) if self._slim is not None else seen
        key = seen.metadata.key
        before = self.objects.get(key)
        if before is not None and before.metadata.uid != seen.metadata.uid:
            self.drop(key)
            before = None
        self.objects[key] = seen
        try:
            self._changed(before, seen)
        except Exception:
            self._take_back(key, before)
            raise

    def drop(self, key: str) -> None:
        """Gone."""
        before = self.objects.pop(key, None)
        if before is not None:
            self._changed(before, None)

    def _take_back(self, key: str, before: S | None) -> None:
        """It was not taken in: whatever is told of it next is told as if it had not been seen."""
        if before is None:
            del self.objects[key]
        else:
            self.objects[key] = before

    def keys(self) -> Iterable[str]:
        """All there are."""
        return self.objects

    def get(self, key: str) -> S | None:
        """The one of that name."""
        return self.objects.get(key)


@dataclass(slots=True)
class Dirty:
    """Names of what changed since it was last looked at."""

    gangs: dict[str, None] = field(default_factory=dict)
    """A set in the order of their coming: who came together lies together in memory, which is a quarter of the time
    that a large cluster takes to be told."""
    nodes: set[str] = field(default_factory=set)
    """Their inventory and health."""
    loads: set[str] = field(default_factory=set)
    """What strangers use of them."""
    budgets: set[str] = field(default_factory=set)
    queues: bool = False
    """Whether any of them changed: a tree is looked at as a whole."""

    def __bool__(self) -> bool:
        return bool(self.gangs or self.nodes or self.loads or self.budgets or self.queues)


@dataclass(frozen=True)
class _AskedOwners(Owners):
    """Remembers who was asked for."""

    asked: set[tuple[str, str]] = field(default_factory=set)

    def find(self, kind: str, key: str, shape: Any) -> Any:
        """As `Owners.find`."""
        self.asked.add((kind, key))
        return Owners.find(self, kind, key, shape)


class KnownOwners:
    """What makes pods, and which pods depend on each of them: also those that came before it."""

    def __init__(self, plain: PlainPods) -> None:
        self._plain = plain
        self._objects: dict[tuple[str, str], Projection] = {}
        self._dependent: dict[tuple[str, str], set[str]] = {}
        self._asked: dict[str, set[tuple[str, str]]] = {}
        self._gone: set[tuple[str, str]] = set()
        """Owners that are no more and whose pods still are."""
        self.owners = _AskedOwners(self._objects, frozenset())
        self.paths: dict[str, str] = {}
        """Where owners of each kind are kept."""
        self.renames: Callable[[str], None] = lambda _key: None
        """Called with the name of a Job that is there now, or is no more: a pod of that name goes by another one."""

    def serve(self, kind: str) -> None:
        """Objects of that kind are watched from now on, and worth waiting for."""
        self.owners = _AskedOwners(self._objects, self.owners.served | {kind})

    def put(self, kind: str, key: str, seen: Projection | None) -> None:
        """It is so now; None: it is gone, and what is known of its pods stays as it was until they go."""
        if seen is not None:
            self._gone.discard((kind, key))
            is_new = (kind, key) not in self._objects
            self._objects[kind, key] = seen
            if is_new and kind == JOB:
                self.renames(key)
        elif self._dependent.get((kind, key)):
            self._gone.add((kind, key))
        else:
            self._let_go(kind, key)

    def _let_go(self, kind: str, key: str) -> None:
        if self._objects.pop((kind, key), None) is not None and kind == JOB:
            self.renames(key)

    def gang_of(self, pod: PodObject, key: str) -> str:
        """The pod's gang, until its owner is known itself alone; whoever was asked for it is remembered."""
        if self._plain.has(pod):
            self.forget(key)
            return name_alone(pod, key, self.owners)
        self.owners.asked.clear()
        found = gangs.seat_of(pod, self.owners)
        asked, before = set(self.owners.asked), self._asked.get(key, set())
        for owner in asked:
            self._dependent.setdefault(owner, set()).add(key)
        self._asked[key] = before - asked
        self.forget(key)
        if asked:
            self._asked[key] = asked
        return found.gang if isinstance(found, Seat) else name_alone(pod, key, self.owners)

    def forget(self, pod: str) -> None:
        """It depends on nobody any more."""
        for owner in self._asked.pop(pod, ()):
            left = self._dependent[owner]
            left.discard(pod)
            if not left:
                del self._dependent[owner]
                if owner in self._gone:
                    self._gone.discard(owner)
                    self._let_go(*owner)

    def get(self, kind: str, key: str) -> Projection | None:
        """The one of that name, as it was last seen."""
        return self._objects.get((kind, key))

    def bears_mark(self, kind: str, key: str) -> bool:
        """Whether we have suspended it."""
        owner: Any = self._objects.get((kind, key))
        return is_suspended(owner) and bool(owner.metadata.annotation(marks.SUSPENDED))

    def dependent(self, kind: str, key: str) -> list[str]:
        """Keys of pods that were seated by what this one says."""
        return list(self._dependent.get((kind, key), ()))


@dataclass(frozen=True, slots=True)
class KeptBack:
    """A gang whose owner we have suspended: the owner, and what its pods were."""

    kind: str
    key: str
    pods: tuple[PodObject, ...]


class Cache:
    """Everything that is known, and what is to be looked at."""

    def __init__(self) -> None:
        shared = SharedParts((marks.JOB,))
        self.pods: Objects[PodObject] = Objects(self._pod_changed, shared.pod)
        self.others: Objects[PodObject] = Objects(self._other_changed, shared.pod)
        self.nodes: Objects[NodeObject] = Objects(self._node_changed, shared.node)
        self.budgets: Objects[BudgetObject] = Objects(self._budget_changed)
        self.queues: Objects[QueueObject] = Objects(self._queue_changed)
        self.gpu_nodes: Objects[GpuNodeObject] = Objects(self._gpu_node_changed)
        self.plain = PlainPods()
        self.owners = KnownOwners(self.plain)
        self.owners.renames = self._rename
        self.dirty = Dirty()
        self.devices: dict[str, Held] = {}
        """Which devices pods have, by uid: as it was decided, else as it was worked out once. Nobody swaps them."""
        self.on = Bags()
        """Keys of pods of ours that are bound, by node."""
        self.unbegun: set[str] = set()
        """Keys of pods of ours that are bound and have not begun."""
        self.leaving: set[str] = set()
        """Keys of pods of ours that are bound and were told to go."""
        self.holding_news: set[str] = set()
        """Keys of pods of ours whose kubelet told something of what they hold, since `device_watch` last looked."""
        self.strangers = Bags()
        """Keys of pods of others, by node."""
        self.members = Bags()
        """Keys of pods by the name of their gang."""
        self._grouped: dict[str, str] = {}
        """The gang of every pod whose gang does not go by its own key, by that key."""
        self.assumed = Assumptions()
        self.kept_back: dict[str, KeptBack] = {}
        """Gangs whose owner we have suspended, by name; also those `awaited` though their owner is resumed."""
        self._unseated: dict[tuple[str, str], Any] = {}
        """Owners that bear our mark and whose gang is not known yet: the group that it goes by has not come."""
        self.awaited: set[str] = set()
        """Gangs that places are kept for while they have no pods."""
        self.refused_by_node: Callable[[str, str, str], None] = lambda _node, _why, _gang: None
        """Called when a kubelet would not have a pod of ours."""
        self.emptied: set[str] = set()
        """Cordoned nodes that somebody else evicts pods from."""
        self.sent_away: set[str] = set()
        """Uids of pods that we want gone: they leave, though the API server may not say so yet."""
        self.pod_seen: Callable[[PodObject | None, PodObject | None], None] = lambda _before, _now: None
        """Called with every pod, ours or not, as it was and as it is."""
        self.news: Callable[[], None] = lambda: None
        """Called when something is to be looked at."""

    def gang(self, name: str) -> list[PodObject]:
        """Its pods, in the order of their names."""
        return [self.pods.objects[key] for key in sorted(self.members.of(name))]

    def gang_of(self, key: str) -> str:
        """The gang of the pod of that key; "" if it is in none, or not there."""
        return self._grouped.get(key) or (key if key in self.members.of(key) else "")

    def told(self, name: str) -> list[PodObject]:
        """Its pods; where it has none that could run, also those that it had before it was taken back."""
        there = self.gang(name)
        kept = self.kept_back.get(name)
        return there if kept is None or not all(map(pods.is_over, there)) else [*there, *kept.pods]

    def await_no_longer(self, name: str) -> None:
        """Nothing is kept for the gang: without pods and without our mark it is none."""
        self.awaited.discard(name)
        kept = self.kept_back.get(name)
        if kept is not None and not self.owners.bears_mark(kept.kind, kept.key):
            del self.kept_back[name]
            self.look_at(name)

    def look_at(self, gang: str) -> None:
        """It is to be described anew."""
        if gang:
            self.dirty.gangs[gang] = None
            self.news()

    # --- pods of ours ------------------------------------------------------------------------------

    def _pod_changed(self, before: PodObject | None, now: PodObject | None) -> None:
        self.pod_seen(before, now)
        self._hear_of_resize(before, now)
        if now is None:
            assert before is not None
            self._forget(before)
            return
        key, node = now.metadata.key, now.node_name
        (self.unbegun.add if pods.is_to_begin(now) else self.unbegun.discard)(key)
        if pods.is_leaving(now) and node:
            self.leaving.add(key)
        if node and (before is None or not before.node_name):
            self.on.add(node, key)
        self._hear_of_eviction(now)
        if pods.tells_holding(now) and (before is None or before.status != now.status):
            self.holding_news.add(key)
        if before is None:
            self._group(now, key)
        elif not self._is_echo(before, now):
            if now.status.phase == "Failed" != before.status.phase and is_refused(now):
                self.refused_by_node(node, now.status.reason, self.gang_of(key))
            if before.metadata.labels != now.metadata.labels or before.metadata.annotations != now.metadata.annotations:
                self._group(now, key)
            self.look_at(self.gang_of(key))

    def _hear_of_resize(self, before: PodObject | None, now: PodObject | None) -> None:
        """What a pod holds above what it asks for is counted with its node, as long as it is resized."""
        if before is not None and now is not None and (before.spec, before.status) == (now.spec, now.status):
            return  # who has just come to its node was given nothing yet
        for seen in (before, now):
            if seen is not None and seen.node_name and pods.excess_of(seen) != NO_LOAD:
                self.dirty.loads.add(seen.node_name)
                self.news()

    def _is_echo(self, before: PodObject, now: PodObject) -> bool:
        """Our own binding come true: everybody has known it since it was decided."""
        assumed = self.assumed.get(now.metadata.uid)
        if assumed is not None and now.node_name not in ("", assumed.node):  # somebody else has bound it
            self.assumed.end(now.metadata.uid)
            self.devices.pop(now.metadata.uid, None)
        if assumed is not None and now.node_name == assumed.node:
            self.assumed.end(now.metadata.uid)
            going = now.status.phase == "Pending" and now.metadata.deletion_timestamp is None
            return going and self._is_kept(now.node_name) and is_bound_alone(before, now)
        return matters(before) == matters(now)

    def _is_kept(self, node: str) -> bool:
        """Whether it is there, and is looked after."""
        found = self.nodes.get(node)
        return found is not None and nodes.is_managed(found)

    def _group(self, pod: PodObject, key: str) -> None:
        """Into its gang, which may be another than before."""
        gang, before = self.owners.gang_of(pod, key), self.gang_of(key)
        if gang == before:
            return
        if before:
            self._ungroup(key)
        if gang != key:
            self._grouped[key] = gang
        self.members.add(gang, key)
        self.look_at(gang)

    def _rename(self, key: str) -> None:
        """The pod of that name, if there is one: beside a Job that is called alike it would be taken for one of its."""
        pod = self.pods.get(key)
        if pod is not None:
            self._group(pod, key)

    def look_at_every_gang(self) -> None:
        """Also at those that have no pods now."""
        self.dirty.gangs |= dict.fromkeys((*self.members, *self.kept_back))

    def look_at_node(self, name: str) -> None:
        """It is to be described anew."""
        self.dirty.nodes.add(name)
        self.news()

    def look_at_load(self, node: str) -> None:
        """What others use of it is to be added up anew."""
        self.dirty.loads.add(node)
        self.news()

    def _forget(self, pod: PodObject) -> None:
        uid, key = pod.metadata.uid, pod.metadata.key
        self.assumed.end(uid)
        self.sent_away.discard(uid)
        self.unbegun.discard(key)
        self.leaving.discard(key)
        self.devices.pop(uid, None)
        self.on.discard(pod.node_name, key)
        self.owners.forget(key)
        self._ungroup(key)

    def _ungroup(self, key: str) -> None:
        gang = self.gang_of(key)
        self._grouped.pop(key, None)
        self.members.discard(gang, key)
        self.look_at(gang)

    # --- whoever makes them --------------------------------------------------------------------------

    def sink_of(self, kind: str) -> Objects[Any]:
        """Where objects of that kind are kept: our own, else whatever makes pods."""
        if kind == queues.KIND:
            return self.queues
        return self.gpu_nodes if kind == gpu_nodes.KIND else self.owner_kind(kind)

    def owner_kind(self, kind: str) -> Objects[Any]:
        """Where owners of one kind are kept."""

        def changed(before: Projection | None, now: Projection | None) -> None:
            self._owner_changed(kind, before, now)

        self.owners.serve(kind)
        return Objects(changed)

    def _owner_changed(self, kind: str, before: Any, now: Any) -> None:
        key = (now or before).metadata.key
        if before is not None and now is not None and _without_version(before) == _without_version(now):
            return
        self.owners.put(kind, key, now)
        self._hear_of_mark(kind, before, now)
        for (other, name), owner in list(self._unseated.items()):
            if self.owners.get(other, name) is owner and (other, name) != (kind, key):
                self._hear_of_mark(other, owner, owner)
        for pod in sorted(self.owners.dependent(kind, key)):
            if pod in self.pods.objects:
                self._group(self.pods.objects[pod], pod)
                self.look_at(self.gang_of(pod))

    def _queue_changed(self, before: QueueObject | None, now: QueueObject | None) -> None:
        if before is not None and now is not None and queues.matters(before) == queues.matters(now):
            return
        self.dirty.queues = True
        self.news()

    def _hear_of_mark(self, kind: str, before: Any, now: Any) -> None:
        """A gang that was taken back is known by what its owner's mark says of its pods."""
        self._unseated.pop((kind, (now or before).metadata.key), None)
        if now is not None and is_suspended(now) and (mark := kept_back.mark_of(now.metadata)) is not None:
            remembered = kept_back.remembered(now.metadata, mark)
            seats = [gangs.seat_of(pod, self.owners.owners) for pod in remembered]
            gang = next((seat.gang for seat in seats if isinstance(seat, Seat)), "")
            if gang:
                self.kept_back[gang] = KeptBack(kind, now.metadata.key, remembered)
                self.look_at(gang)
            elif remembered:
                self._unseated[kind, now.metadata.key] = now
        elif before is not None and before.metadata.annotation(marks.SUSPENDED):
            key = before.metadata.key
            for gang in [name for name, kept in self.kept_back.items() if (kept.kind, kept.key) == (kind, key)]:
                if now is None or gang not in self.awaited:
                    del self.kept_back[gang]
                self.look_at(gang)

    # --- nodes, and what others use of them ------------------------------------------------------------

    def _node_changed(self, before: NodeObject | None, now: NodeObject | None) -> None:
        node = now or before
        assert node is not None
        if now is None or not now.spec.unschedulable:
            self.emptied.discard(node.metadata.name)
        self.look_at_node(node.metadata.name)

    def _hear_of_eviction(self, pod: PodObject) -> None:
        """Whoever evicts from a node that is cordoned wants it empty, as `kubectl drain` does."""
        name = pod.node_name
        if not name or name in self.emptied or not is_evicted(pod) or pod.metadata.uid in self.sent_away:
            return
        node = self.nodes.get(name)
        if node is not None and node.spec.unschedulable:
            self.emptied.add(name)
            self.look_at_node(name)

    def _budget_changed(self, before: BudgetObject | None, now: BudgetObject | None) -> None:
        if before is not None and now is not None and _told_of(before) == _told_of(now):
            return
        budget = now or before
        assert budget is not None
        self.dirty.budgets.add(budget.metadata.key)
        self.news()

    def _gpu_node_changed(self, before: GpuNodeObject | None, now: GpuNodeObject | None) -> None:
        node = now or before
        assert node is not None
        self.look_at_node(node.metadata.name)

    def _other_changed(self, before: PodObject | None, now: PodObject | None) -> None:
        pod = now or before
        assert pod is not None
        if not pod.node_name or (before is not None and now is not None and matters(before) == matters(now)):
            return
        self.pod_seen(before, now)
        self._hear_of_eviction(pod)
        if now is None:
            self.strangers.discard(pod.node_name, pod.metadata.key)
            self.devices.pop(pod.metadata.uid, None)
        else:
            self.strangers.add(pod.node_name, pod.metadata.key)
        self.dirty.loads.add(pod.node_name)
        self.news()


def is_evicted(pod: PodObject) -> bool:
    """Whether it leaves because the Eviction API was asked."""
    if not pods.is_leaving(pod):
        return False
    told = (each for each in pod.status.conditions or () if each.type == "DisruptionTarget")
    return any(each.reason == "EvictionByEvictionAPI" for each in told)


def is_refused(pod: PodObject) -> bool:
    """Whether its kubelet would not have it, which no second try on the same node would change soon."""
    reason = pod.status.reason
    return reason in ("UnexpectedAdmissionError", "TopologyAffinityError") or reason.startswith("OutOf")


def is_bound_alone(before: PodObject, now: PodObject) -> bool:
    """Whether nothing is other than it was but what a Binding writes."""
    one, other = before.metadata, now.metadata
    if one.labels != other.labels or (before.spec is not now.spec and _bare(before) != _bare(now)):
        return False
    return one.annotations is other.annotations or _others_notes(one) == _others_notes(other)


def _bare(pod: PodObject) -> PodSpec:
    return msgspec.structs.replace(pod.spec, node_name="")


def _others_notes(metadata: Metadata) -> dict[str, str]:
    return {key: told for key, told in (metadata.annotations or {}).items() if key not in BY_BINDING}


def matters(pod: PodObject) -> tuple[object, ...]:
    """All of a pod that a decision or an account of it could rest on."""
    status, metadata = pod.status, pod.metadata
    told = status.phase, status.reason, pod.start_time, amounts.given_to(pod)
    return pod.spec, pod.node_name, told, metadata.deletion_timestamp, metadata.labels, metadata.annotations


def _told_of(budget: BudgetObject) -> tuple[object, ...]:
    """Whom it covers, what its controller said of it, and whether that is still about how it is."""
    return budget.spec, budget.status, budget.metadata.generation


def _without_version(owner: Any) -> Any:
    return msgspec.structs.replace(owner, metadata=msgspec.structs.replace(owner.metadata, resource_version=""))
