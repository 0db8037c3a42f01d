"""Claims, volumes and classes as they are kept, which pods use which claim, and who has it.

Owned by `observe`, filled by reflectors in the world's loop once the first pod with a claim was seen: few clusters of
GPUs need them, and none pays for what it does not need.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from gpuyard.kube.objects import DeviceClaimObject, PodObject
from gpuyard.kube.storage import CsiNodeObject, StorageClassObject, VolumeClaimObject, VolumeObject
from gpuyard.worlds.kubernetes import pods
from gpuyard.worlds.kubernetes.asking import volumes
from gpuyard.worlds.kubernetes.asking.volumes import Storage
from gpuyard.worlds.kubernetes.cache import Cache
from gpuyard.worlds.kubernetes.keeping.objects import Objects


class KnownStorage:
    """What pods are told of their volumes rests on this."""

    def __init__(self, cache: Cache, known: Callable[[Storage], None]) -> None:
        """`known` hears of it when all there is has been seen."""
        self.claims: Objects[VolumeClaimObject] = Objects(self._claim_changed)
        self.volumes: Objects[VolumeObject] = Objects(self._volume_changed)
        self.classes: Objects[StorageClassObject] = Objects(self._class_changed)
        self.devices: Objects[DeviceClaimObject] = Objects(self._device_claim_changed)
        self.devices_needed: Callable[[], None] = lambda: None
        """Called when the first pod of ours is seen that claims devices."""
        self._claimers: dict[str, set[str]] = {}
        """Keys of pods of ours by the claim on devices that they name."""
        self._devices_asked = False
        self.nodes: Objects[CsiNodeObject] = Objects(self._node_changed)
        self.needed: Callable[[], None] = lambda: None
        """Called when the first pod of ours with a claim is seen."""
        self._known = known
        self._cache = cache
        self._users: dict[str, set[str]] = {}
        """Keys of pods by the claim that they use."""
        self._used: dict[str, tuple[str, ...]] = {}
        self._in_use: dict[str, str] = {}
        self._waiting: dict[str, set[str]] = {}
        """Keys of claims that are not bound, by their class."""
        self._limited: Counter[str] = Counter()
        self._asked = False
        self._watched = False
        cache.pod_seen = self._pod_seen

    def picture(self) -> Storage:
        """As it is now, and as it comes to be: nothing is copied."""
        return Storage(
            self.claims.objects, self.volumes.objects, self.classes.objects, self.devices.objects,
            self.nodes.objects, self._limited, self._in_use, self._watched,
        )  # fmt: skip

    def watch(self) -> None:
        """All there is has been seen; from now on every change is followed."""
        self._watched = True
        self._known(self.picture())
        self._look_at_users(self._users)
        for node in self.nodes.objects if self._limited else ():
            self._cache.look_at_node(node)

    # --- who uses what -----------------------------------------------------------------------------------

    def _pod_seen(self, before: PodObject | None, now: PodObject | None) -> None:
        self._follow(before, now)
        if now is None and before is not None:  # ours and others' are watched apart: a namesake may be known by now
            key = before.metadata.key
            if (namesake := self._cache.pods.get(key) or self._cache.others.get(key)) is not None:
                self._follow(None, namesake)

    def _follow(self, before: PodObject | None, now: PodObject | None) -> None:
        seen = now or before
        assert seen is not None
        if seen.spec.resource_claims:
            self._hear_of_devices(seen, now is not None)
        if not seen.spec.volumes:
            return  # most pods
        key = seen.metadata.key
        claims = tuple(dict.fromkeys(volumes.claims_of(seen.spec, seen.metadata)))
        if not claims:
            return
        for claim in claims:
            users = self._users.setdefault(claim, set())
            users.add(key) if now is not None else users.discard(key)
            if not users:
                del self._users[claim]
        self._used.pop(key, None)
        if now is not None:
            self._used[key] = claims
        self._hold(claims)
        if not self._asked and now is not None and key in self._cache.pods.objects:
            self._asked = True
            self.needed()

    def _hear_of_devices(self, pod: PodObject, there: bool) -> None:
        """Whoever names a claim is looked at when that changes."""
        key = pod.metadata.key
        for claim in volumes.device_claims_of(pod.spec, pod.metadata):
            claimers = self._claimers.setdefault(claim, set())
            claimers.add(key) if there else claimers.discard(key)
            if not claimers:
                del self._claimers[claim]
        if not self._devices_asked and there and key in self._cache.pods.objects:
            self._devices_asked = True
            self.devices_needed()

    def watch_devices(self) -> None:
        """All claims on devices have been seen; from now on every change is followed."""
        self._known(self.picture())
        for claim in list(self._claimers):
            self._look_at_claimers(claim)

    def _device_claim_changed(self, before: DeviceClaimObject | None, now: DeviceClaimObject | None) -> None:
        if before is not None and now is not None and before.status == now.status:
            return
        seen = now or before
        assert seen is not None
        self._look_at_claimers(seen.metadata.key)

    def _look_at_claimers(self, claim: str) -> None:
        for pod in self._claimers.get(claim, ()):
            self._cache.look_at(self._cache.gang_of(pod))

    def assumed(self, pod: PodObject) -> None:
        """It was sent to a node, or is so no longer: whoever else wants its claim for himself hears of it."""
        if pod.metadata.key in self._used:
            self._hold(self._used[pod.metadata.key])

    def wanted_twice(self, starting: Iterable[PodObject]) -> str:
        """A claim for one pod alone that two of these want, or one while another has it; "" if there is none."""
        wanted: dict[str, str] = {}
        for pod in starting:
            for claim in self._used.get(pod.metadata.key, ()):
                known = self.claims.get(claim)
                if known is None or volumes.ALONE not in (known.spec.access_modes or ()):
                    continue
                if wanted.setdefault(claim, self._in_use.get(claim, pod.metadata.uid)) != pod.metadata.uid:
                    return claim
        return ""

    def _hold(self, claims: Iterable[str]) -> None:
        for claim in claims:
            before = self._in_use.pop(claim, "")
            holders = [uid for key in self._users.get(claim, ()) if (uid := self._holds(key))]
            if before in holders:
                self._in_use[claim] = before
            elif holders:
                self._in_use[claim] = min(holders)
            known = self.claims.get(claim)
            if self._in_use.get(claim, "") != before and known and volumes.ALONE in (known.spec.access_modes or ()):
                self._look_at_users((claim,))

    def _holds(self, key: str) -> str:
        """The pod's uid, if it has a node and is not over."""
        pod = self._cache.pods.get(key) or self._cache.others.get(key)
        if pod is None or pods.is_over(pod):
            return ""
        return pod.metadata.uid if pods.is_bound(pod) or pod.metadata.uid in self._cache.assumed else ""

    def _look_at_users(self, claims: Iterable[str]) -> None:
        for claim in claims:
            for pod in self._users.get(claim, ()):
                self._cache.look_at(self._cache.gang_of(pod))
                if (other := self._cache.others.get(pod)) is not None and other.node_name:
                    self._cache.look_at_load(other.node_name)

    def _node_changed(self, before: CsiNodeObject | None, now: CsiNodeObject | None) -> None:
        """Who asks for volumes of a driver is told apart once the first node has a limit of them."""
        gone, come = (volumes.limits_of(each) if each is not None else {} for each in (before, now))
        if gone == come:
            return
        known = {*self._limited}
        self._limited.update(come.keys())
        self._limited.subtract(gone.keys())
        self._limited = +self._limited
        if not self._watched:
            return
        seen = now or before
        assert seen is not None
        self._cache.look_at_node(seen.metadata.name)
        if known != {*self._limited}:
            self._known(self.picture())
            self._look_at_users(self._users)

    # --- what changes --------------------------------------------------------------------------------------

    def _claim_changed(self, before: VolumeClaimObject | None, now: VolumeClaimObject | None) -> None:
        seen = now or before
        assert seen is not None
        key = seen.metadata.key
        if before is not None:
            self._waiting.get(_class_of(before), set()).discard(key)
        if now is not None and not volumes.is_bound(now):
            self._waiting.setdefault(_class_of(now), set()).add(key)
        if self._watched:
            self._look_at_users((key,))

    def _volume_changed(self, before: VolumeObject | None, now: VolumeObject | None) -> None:
        """Whoever has it, and whoever could have it."""
        if not self._watched or (before and now and _told_of(before) == _told_of(now)):
            return
        for seen in filter(None, (before, now)):
            if (meant := seen.spec.claim_ref) is not None:
                self._look_at_users((f"{meant.namespace}/{meant.name}",))
            self._look_at_users(self._waiting.get(seen.spec.storage_class_name, ()))

    def _class_changed(self, before: StorageClassObject | None, now: StorageClassObject | None) -> None:
        seen = now or before
        assert seen is not None
        if self._watched:
            self._look_at_users(self._waiting.get(seen.metadata.name, ()))


def _told_of(volume: VolumeObject) -> tuple[object, ...]:
    """All of it that somebody's place could rest on; its labels name zones, and claims select by them."""
    return volume.spec, volume.status, volume.metadata.labels, volume.metadata.deletion_timestamp


def _class_of(claim: VolumeClaimObject) -> str:
    return claim.spec.storage_class_name or ""
