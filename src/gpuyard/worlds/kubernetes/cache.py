"""What the API server has, as far as scheduling goes, and which of it is to be looked at anew.

Filled by reflectors, read by `observe`; everything here happens in the world's one loop. The inbox is a *set* of names
and cannot overflow: who changed twice is looked at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gpuyard.kube.definitions import gpu_nodes
from gpuyard.kube.definitions.gpu_nodes import GpuNodeObject
from gpuyard.kube.objects import BudgetObject, NodeObject, PodObject, Projection
from gpuyard.kube.sharing import SharedParts
from gpuyard.model.node import NO_LOAD
from gpuyard.worlds.kubernetes import gangs, nodes, pods, queues
from gpuyard.worlds.kubernetes.asking import marks
from gpuyard.worlds.kubernetes.gathering import kept_back
from gpuyard.worlds.kubernetes.gathering.controllers import is_suspended
from gpuyard.worlds.kubernetes.gathering.holdings import Held
from gpuyard.worlds.kubernetes.gathering.layouts import Seat
from gpuyard.worlds.kubernetes.keeping import changes
from gpuyard.worlds.kubernetes.keeping.alike import PlainPods
from gpuyard.worlds.kubernetes.keeping.assumptions import Assumptions
from gpuyard.worlds.kubernetes.keeping.bags import Bags
from gpuyard.worlds.kubernetes.keeping.known_owners import KnownOwners
from gpuyard.worlds.kubernetes.keeping.objects import Objects
from gpuyard.worlds.kubernetes.queues import QueueObject


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
        self.scheduler_names = marks.DEFAULTS.scheduler_names
        """Whose pods are ours; what another scheduler has suspended is its own to resume."""
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
            if now.status.phase == "Failed" != before.status.phase and changes.is_refused(now):
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
            return going and self._is_kept(now.node_name) and changes.is_bound_alone(before, now)
        return changes.matters(before) == changes.matters(now)

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
        if before is not None and now is not None and changes.without_version(before) == changes.without_version(now):
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
        mark = kept_back.mark_of(now.metadata) if now is not None and is_suspended(now) else None
        remembered = () if mark is None else kept_back.remembered(now.metadata, mark)
        if all(pod.spec.scheduler_name in self.scheduler_names for pod in remembered) and mark is not None:
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
        if not name or name in self.emptied or not changes.is_evicted(pod) or pod.metadata.uid in self.sent_away:
            return
        node = self.nodes.get(name)
        if node is not None and node.spec.unschedulable:
            self.emptied.add(name)
            self.look_at_node(name)

    def _budget_changed(self, before: BudgetObject | None, now: BudgetObject | None) -> None:
        if before is not None and now is not None and changes.told_of(before) == changes.told_of(now):
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
        if not pod.node_name or (
            before is not None and now is not None and changes.matters(before) == changes.matters(now)
        ):
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
