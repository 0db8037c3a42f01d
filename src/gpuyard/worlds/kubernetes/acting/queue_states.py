"""Whether a queue stands in the tree, told on the Queue itself: one condition per change.

Called by `world` in its loop, while we lead.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from gpuyard.kube.client import MERGE, ApiUnreachable, KubeClient
from gpuyard.model.outside import text
from gpuyard.model.outside.ports import Clock
from gpuyard.worlds.kubernetes.cache import Cache
from gpuyard.worlds.kubernetes.queues import QUEUES, ClusterQueues, QueueObject

READY = "Ready"
STANDS, ASIDE = "Stands", "SetAside"
REST_S = 30.0
"""Where it could not be written, it is tried again so much later."""


class QueueClerk:
    """Writes what is other than it was."""

    def __init__(self, client: KubeClient, cache: Cache, clock: Clock) -> None:
        self._client = client
        self._cache = cache
        self._clock = clock
        self._not_before = 0.0

    async def tell(self, tree: ClusterQueues) -> None:
        """Every queue that does not say so yet."""
        if self._clock.monotonic() < self._not_before:
            return
        for seen in list(self._cache.queues.objects.values()):
            wanted = condition(tree.wrong.get(seen.metadata.name, ""))
            if seen.metadata.deletion_timestamp is None and not says(seen, wanted):
                await self._write(seen, wanted)

    async def _write(self, seen: QueueObject, wanted: dict[str, str]) -> None:
        at = datetime.fromtimestamp(self._clock.now(), UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        kept = [each for each in seen.status.get("conditions", ()) if each.get("type") != READY]
        body = {"status": {"conditions": [*kept, {**wanted, "lastTransitionTime": at}]}}
        path = f"{QUEUES.path}/{seen.metadata.name}/status"
        try:
            done = (await self._client.patch(path, msgspec.json.encode(body), MERGE)).ok
        except ApiUnreachable:
            done = False
        if not done:
            self._not_before = self._clock.monotonic() + REST_S


def condition(wrong: str) -> dict[str, str]:
    """What is to be said of a queue."""
    if wrong:
        return {"type": READY, "status": "False", "reason": ASIDE, "message": text.line(wrong)}
    return {"type": READY, "status": "True", "reason": STANDS, "message": ""}


def says(seen: QueueObject, wanted: dict[str, Any]) -> bool:
    """Whether it says so already."""
    there = [each for each in seen.status.get("conditions", ()) if each.get("type") == READY]
    return bool(there) and all(there[0].get(key, "") == value for key, value in wanted.items())
