"""Who leads: one Lease, taken and renewed, and the right to act that ends before another can have it.

`Election` implements `worlds.base.Leadership` for the driver and is asked again before every write. A Lease fences
nothing by itself, so time does: whoever could not renew for six seconds has not acted for at least three when
the nine seconds are over after which somebody else may take it, and no write lasts longer than those three.
Whether another leader is alive is told by changes that we see, never by times that it wrote: clocks differ.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import msgspec

from gpuyard.kube.client import ApiReply, ApiUnreachable, KubeClient
from gpuyard.kube.objects import Metadata, Projection
from gpuyard.model.outside.ports import Clock, Dice

DURATION_S = 9.0
"""After so long without a sign of life others may take it."""
RENEW_S = 6.0
"""After so long without having renewed it we do nothing more."""
RETRY_S = 1.5
STAND_BY_S = 0.5
"""How often who does not lead looks whether it may: one that was let go is taken within a second."""
CALL_S = 2.5
"""No call lasts longer, so that a write of a leader that is none any more is over before the next one begins."""


class LeaseSpec(Projection, frozen=True):
    """Who has it, and for how long."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class LeaseObject(Projection, frozen=True):
    """A Lease."""

    metadata: Metadata = Metadata()
    spec: LeaseSpec = LeaseSpec()


class Election:
    """One candidate. `run` is a task of the client's loop; `held` may be asked from any thread."""

    def __init__(self, client: KubeClient, name: str, identity: str, clock: Clock, dice: Dice) -> None:
        """`name` is `namespace/name` of the Lease, `identity` ours alone among all candidates."""
        self.identity = identity
        self.leader = ""
        """Who has it, as far as we know."""
        self.trouble = ""
        self.held_since = 0.0
        """Since when it has been ours without a gap, by the clock that only counts up; of use only while it is."""
        self.tried = asyncio.Event()
        """Whether it is known if we could have it at once."""
        self._namespace, self._name = name.split("/")
        self._client = client
        self._clock = clock
        self._dice = dice
        self._until = 0.0
        self._resigned = False
        self._seen: tuple[str, str] | None = None
        """Holder and version of the Lease as last seen, and since when it has been so."""
        self._seen_at = 0.0

    # --- the right to act ------------------------------------------------------------------------

    def held(self) -> bool:
        """Whether it is ours now, with enough time left for a write to end before it may be another's."""
        return self._clock.monotonic() < self._until

    async def run(self) -> None:
        """Take it when it can be taken, and renew it, until cancelled or resigned."""
        while not self._resigned:
            try:
                await self._try()
                self.trouble = ""
            except (ApiUnreachable, msgspec.MsgspecError) as error:
                self.trouble = str(error)
            finally:
                self.tried.set()
            rest = RETRY_S if self.held() else STAND_BY_S
            await self._clock.sleep(rest * (0.8 + 0.4 * self._dice.random()))

    async def resign(self) -> None:
        """Let somebody else have it at once. Nothing of ours may be under way any more."""
        held, self._resigned, self._until = self.held(), True, 0.0
        if held:
            lease = await self._get()
            if lease is not None and lease.spec.holder_identity == self.identity:
                await self._put(lease, "", acquired=False)

    # --- one try ---------------------------------------------------------------------------------

    async def _try(self) -> None:
        lease = await self._get()
        if lease is None:
            await self._create()
            return
        holder = lease.spec.holder_identity or ""
        self._note(holder, lease.metadata.resource_version)
        if holder == self.identity:
            await self._put(lease, self.identity, acquired=False)
        elif not holder or self._clock.monotonic() - self._seen_at > self._lasts(lease):
            await self._put(lease, self.identity, acquired=True)

    def _note(self, holder: str, version: str) -> None:
        self.leader = holder
        if self._seen != (holder, version):
            self._seen, self._seen_at = (holder, version), self._clock.monotonic()

    def _lasts(self, lease: LeaseObject) -> float:
        return float(lease.spec.lease_duration_seconds or DURATION_S)

    async def _get(self) -> LeaseObject | None:
        reply = await self._client.send("GET", f"{self._folder}/{self._name}", timeout=CALL_S)
        if reply.status == 404:
            return None
        _must(reply)
        return msgspec.json.decode(reply.body, type=LeaseObject)

    async def _create(self) -> None:
        spec = self._spec(self.identity, None, acquired=True)
        document = {"metadata": {"name": self._name, "namespace": self._namespace}, "spec": spec}
        await self._write("POST", self._folder, document, self.identity)

    async def _put(self, lease: LeaseObject, holder: str, acquired: bool) -> None:
        metadata = {
            "name": self._name,
            "namespace": self._namespace,
            "resourceVersion": lease.metadata.resource_version,
        }
        document = {"metadata": metadata, "spec": self._spec(holder, lease.spec, acquired)}
        await self._write("PUT", f"{self._folder}/{self._name}", document, holder)

    async def _write(self, method: str, path: str, document: dict[str, object], holder: str) -> None:
        """What counts is when we asked, not when we were answered. A conflict is somebody else's success."""
        asked = self._clock.monotonic()
        body = msgspec.json.encode({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **document})
        reply = await self._client.send(method, path, body, timeout=CALL_S)
        if reply.status == 409:
            return
        _must(reply)
        self._note(holder, msgspec.json.decode(reply.body, type=LeaseObject).metadata.resource_version)
        if not self.held():  # another may have had it meanwhile
            self.held_since = self._clock.monotonic()
        self._until = asked + RENEW_S if holder else 0.0

    def _spec(self, holder: str, before: LeaseSpec | None, acquired: bool) -> dict[str, object]:
        now = datetime.fromtimestamp(self._clock.now(), UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        turns = (before.lease_transitions or 0) if before is not None else 0
        since = now if acquired or before is None or not before.acquire_time else before.acquire_time
        return {
            "holderIdentity": holder,
            "leaseDurationSeconds": round(DURATION_S) if holder else 1,
            "acquireTime": since,
            "renewTime": now,
            "leaseTransitions": turns + (acquired and before is not None),
        }

    @property
    def _folder(self) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{self._namespace}/leases"


def _must(reply: ApiReply) -> None:
    if not reply.ok:
        raise ApiUnreachable(f"the Lease: {reply.why()}")
