"""Who is on each node, what they take of it, and which devices each of them holds. Used by `observe`."""

from __future__ import annotations

from dataclasses import replace

from gpuyard.kube.objects import PodObject
from gpuyard.model.node import NO_LOAD, Load, Node
from gpuyard.model.resources import Request
from gpuyard.worlds.kubernetes import pods
from gpuyard.worlds.kubernetes.asking.amounts import Needs
from gpuyard.worlds.kubernetes.asking.marks import ReadingSettings
from gpuyard.worlds.kubernetes.asking.volumes import Storage
from gpuyard.worlds.kubernetes.cache import Cache
from gpuyard.worlds.kubernetes.gathering.holdings import Held
from gpuyard.worlds.kubernetes.keeping.alike import ByParts
from gpuyard.worlds.kubernetes.keeping.seats import NO_DEVICES, seats_on
from gpuyard.worlds.kubernetes.nodes import Holding


class Holders:
    """Pods by node, ours and others'."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._excesses: ByParts[Load] = ByParts()
        self._asked: ByParts[tuple[Request, ...]] = ByParts()
        self._taken: ByParts[Needs] = ByParts()
        self._held: dict[Held, Held] = {}
        """Few are different: each is kept once."""
        self.crowded: set[str] = set()
        """Nodes where somebody has fewer devices than he asked for: there were not as many."""

    def taken(self, node: str, storage: Storage) -> Load:
        """What others use of it, and what ours hold beyond their requests."""

        def taken_by(pod: PodObject) -> Needs:
            held, attached = self._taken_by(pod), pods.attached_by(pod, storage)
            return held | attached if attached else held

        theirs = pods.load_of(there, taken_by) if (there := self._others_on(node)) else NO_LOAD
        ours = [each for pod in self._ours_on(node) if (each := self._excess_of(pod)) != NO_LOAD]
        if not ours:
            return theirs
        cpu, memory = sum(each.cpu for each in ours), sum(each.memory for each in ours)
        return replace(theirs, cpu=theirs.cpu + cpu, memory=theirs.memory + memory)

    def _excess_of(self, pod: PodObject) -> Load:
        parts = pod.spec, pod.status
        known = self._excesses.get(parts)
        return self._excesses.put(parts, pods.excess_of(pod)) if known is None else known

    def _taken_by(self, pod: PodObject) -> Needs:
        parts = pod.spec, pod.status
        known = self._taken.get(parts)
        return self._taken.put(parts, pods.taken_by(pod)) if known is None else known

    def strangers(self, node: str) -> list[PodObject]:
        """Pods there that are not ours."""
        return [self._cache.others.objects[key] for key in sorted(self._cache.strangers.of(node))]

    def _others_on(self, node: str) -> list[PodObject]:
        """The same in no order, for whoever adds them up."""
        return [self._cache.others.objects[key] for key in self._cache.strangers.of(node)]

    def _ours_on(self, node: str) -> list[PodObject]:
        """In no order."""
        found = map(self._cache.pods.objects.__getitem__, self._cache.on.of(node))
        return [pod for pod in found if not pods.is_over(pod)]

    def held_on(self, node: str) -> Holding:
        """The devices that somebody has, as far as it is known."""
        there = (*self._others_on(node), *self._ours_on(node), *self._coming_to(node))
        held = (index for pod in there for index in self._cache.devices.get(pod.metadata.uid, ((), ()))[0])
        return Holding(frozenset(held))

    def devices(self, pod: PodObject, node: Node, settings: ReadingSettings) -> Held:
        """Those it has been given; else those that nobody has."""
        known = self._cache.devices
        if pod.metadata.uid not in known:
            there = (*self._others_on(node.name), *self._ours_on(node.name), *self._coming_to(node.name))
            holders = [(each, self._devices_of(each, settings)) for each in there]
            seats = seats_on(node, holders, known)
            for each, asked in holders:  # also those that hold none, or each of them would be looked at for itself
                held = seats.get(each.metadata.uid, NO_DEVICES)
                held = known.setdefault(each.metadata.uid, self._held.setdefault(held, held))
                if len(held[0]) < pods.devices_wanted(asked):
                    self.crowded.add(node.name)
        return known.setdefault(pod.metadata.uid, NO_DEVICES)

    def forget(self, node: str) -> None:
        """Its devices are others than they were: who holds which is worked out anew."""
        self.crowded.discard(node)
        for pod in (*self._others_on(node), *self._ours_on(node), *self._coming_to(node)):
            self._cache.devices.pop(pod.metadata.uid, None)

    def forget_parts(self, settings: ReadingSettings) -> None:
        """A part of a device is another than it was: so many as fitted on one may not."""
        known = self._cache.devices
        for pod in (*self._cache.pods.objects.values(), *self._cache.others.objects.values()) if known else ():
            if pod.metadata.uid in known and any(each.shared for each in self._devices_of(pod, settings)):
                del known[pod.metadata.uid]

    def lacking(self, node: str, settings: ReadingSettings) -> list[PodObject]:
        """Those on a crowded node who went without: there may be devices for them by now, which is to be worked out."""
        self.crowded.discard(node)
        known, there = self._cache.devices, (*self._others_on(node), *self._ours_on(node), *self._coming_to(node))
        wanted = {pod.metadata.uid: pods.devices_wanted(self._devices_of(pod, settings)) for pod in there}
        found = [pod for pod in there if len(known.get(pod.metadata.uid, ((), ()))[0]) < wanted[pod.metadata.uid]]
        for pod in found:
            known.pop(pod.metadata.uid, None)
        return found

    def _devices_of(self, pod: PodObject, settings: ReadingSettings) -> tuple[Request, ...]:
        parts = pod.spec, pod.metadata.annotations, settings
        known = self._asked.get(parts)
        return self._asked.put(parts, pods.devices_of(pod, settings)) if known is None else known

    def _coming_to(self, node: str) -> list[PodObject]:
        """Those that we have sent there and that have not arrived."""
        found = map(self._cache.pods.get, self._cache.assumed.coming_to(node))
        return [pod for pod in found if pod is not None]
