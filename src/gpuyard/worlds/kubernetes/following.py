"""Which kinds of objects a world follows, and whether all of them are known.

Called by `world` in its loop; what is heard goes into the cache. Kinds of owners that are installed later are found
later; storage is followed once somebody needs it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from gpuyard.kube.client import KubeClient
from gpuyard.kube.objects import BudgetObject, DeviceClaimObject, NodeObject, PodObject
from gpuyard.kube.reflector import ObjectKind, Reflector, Sink
from gpuyard.kube.storage import CsiNodeObject, StorageClassObject, VolumeClaimObject, VolumeObject
from gpuyard.model.errors import GpuYardError
from gpuyard.model.outside.ports import Clock, Dice
from gpuyard.worlds.kubernetes import kinds
from gpuyard.worlds.kubernetes.cache import Cache
from gpuyard.worlds.kubernetes.storage import KnownStorage

DEVICE_CLAIM = "ResourceClaim.resource.k8s.io"
MOMENT_S = 0.02
Do = Callable[[Coroutine[Any, Any, None]], None]
"""Has the loop do something beside everything else."""


class Following:
    """All reflectors of one world. `run` is a task of the loop; the rest may be asked from any thread."""

    def __init__(self, client: KubeClient, cache: Cache, clock: Clock, dice: Dice, do: Do) -> None:
        self.reflectors: tuple[Reflector[Any], ...] = ()
        self._client = client
        self._cache = cache
        self._clock = clock
        self._dice = dice
        self._do = do
        self._known: frozenset[str] = frozenset()
        """Kinds that are followed."""
        self._found = False
        """Whether it is known what there is to follow."""
        self._trouble = ""
        self._unknown = 0
        """What somebody waits for to be known."""

    async def run(self, scheduler: str) -> None:
        """Owners first, so that few pods come before theirs; until it is cancelled."""
        while True:
            try:
                found = await kinds.served(self._client, self._known)
            except (GpuYardError, msgspec.MsgspecError) as error:
                self._trouble = str(error)
                await self._clock.sleep(1.0)
                continue
            for kind in found:
                self._cache.owners.paths[kind.name] = kind.objects.path
                self.follow(kind.objects, self._cache.sink_of(kind.name))
            self._known |= {kind.name for kind in found}
            if not self._found:
                self._follow_cluster(scheduler)
            self._found, self._trouble = True, ""
            await self._clock.sleep(kinds.EVERY_S)

    def _follow_cluster(self, name: str) -> None:
        """Pods by two watches: one that leaves out who is over tells of an end as if the pod were gone."""
        cache = self._cache
        ours = (("fieldSelector", f"spec.schedulerName={name}"),)
        strangers = f"spec.schedulerName!={name},status.phase!=Succeeded,status.phase!=Failed"
        self.follow(ObjectKind("/api/v1/nodes", NodeObject), cache.nodes)
        self.follow(ObjectKind("/apis/policy/v1/poddisruptionbudgets", BudgetObject), cache.budgets)
        self.follow(ObjectKind("/api/v1/pods", PodObject, ours), cache.pods)
        self.follow(ObjectKind("/api/v1/pods", PodObject, (("fieldSelector", strangers),)), cache.others)

    def follow(self, kind: ObjectKind[Any], sink: Sink[Any]) -> Reflector[Any]:
        """From now on."""
        reflector = Reflector(self._client, kind, sink, self._clock, self._dice)
        self.reflectors = (*self.reflectors, reflector)
        self._do(reflector.run())
        return reflector

    def follow_storage(self, storage: KnownStorage) -> None:
        """From now on; it is told when all of it is known."""
        kinds_of = (
            (ObjectKind("/api/v1/persistentvolumeclaims", VolumeClaimObject), storage.claims),
            (ObjectKind("/api/v1/persistentvolumes", VolumeObject), storage.volumes),
            (ObjectKind("/apis/storage.k8s.io/v1/storageclasses", StorageClassObject), storage.classes),
            (ObjectKind("/apis/storage.k8s.io/v1/csinodes", CsiNodeObject), storage.nodes),
        )
        self._unknown += 1
        self._do(self._once_known([self.follow(kind, sink) for kind, sink in kinds_of], storage.watch))

    def follow_devices(self, storage: KnownStorage) -> None:
        """Claims on devices, from now on, where the server has any and tells us of them: few need them, and what it
        tells instead keeps nobody else waiting."""
        self._unknown += 1
        self._do(self._follow_devices(storage))

    async def _follow_devices(self, storage: KnownStorage) -> None:
        path = await self._path_of_devices()
        if not path:
            self._unknown -= 1
        while not path:
            await self._clock.sleep(kinds.EVERY_S)
            if path := await self._path_of_devices():
                self._unknown += 1
        claims = Reflector(self._client, ObjectKind(path, DeviceClaimObject), storage.devices, self._clock, self._dice)
        self._do(claims.run())
        while not (claims.synced.is_set() or claims.trouble):
            await self._clock.sleep(MOMENT_S)
        refused = not claims.synced.is_set()
        self._unknown -= refused
        await claims.synced.wait()
        storage.watch_devices()
        self._unknown -= not refused

    async def _path_of_devices(self) -> str:
        with contextlib.suppress(GpuYardError, msgspec.MsgspecError):
            return await kinds.path_of(self._client, DEVICE_CLAIM)
        return ""

    async def _once_known(self, reflectors: list[Reflector[Any]], then: Callable[[], None]) -> None:
        for each in reflectors:
            await each.synced.wait()
        then()
        self._unknown -= 1

    async def list_anew(self, since: float) -> None:
        """Return once all there is was listed by requests made after that moment (by the clock that only counts up).

        What was listed so already, as by one who found the Lease free when it began, is not asked for again.
        """
        await asyncio.gather(*(each.list_anew() for each in self.reflectors if each.listed_from < since))

    def synced(self) -> bool:
        """Whether all there is has been seen once."""
        return self._found and not self._unknown and all(each.synced.is_set() for each in self.reflectors)

    def heard_s(self) -> float:
        """How long ago the server was last heard, of the kind of objects that was heard of least."""
        return self._clock.monotonic() - min((each.heard_at for each in self.reflectors), default=0.0)

    def unread(self) -> str:
        """An object that cannot be read, if there is one, and why."""
        for each in self.reflectors:
            for key, why in list(each.unread.items())[:1]:
                return f"{key} of {each.kind.path} is passed over, because it cannot be read: {why}"
        return ""

    def trouble(self) -> str:
        """Why something is not followed now, if it is not."""
        return self._trouble or next((each.trouble for each in self.reflectors if each.trouble), "")
