"""Tells the cluster whether this node's kubelet has devices to give: the condition `PluginReady` of its `GpuNode`.

Used by `yard agent --device-plugin`. A kubelet that starts refuses for good whatever was bound to it before its plugin
has registered again, so nothing should be bound there meanwhile. Applied as a part of its own: whoever else writes the
GpuNode keeps what is theirs.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from gpuyard.kube.definitions import gpu_nodes
from gpuyard.model.outside.ports import Clock

APPLY = "application/apply-patch+yaml"
MANAGER = "?fieldManager=gpuyard-device-plugin&force=true"
CALL_S = 2.0
NOT_FOUND = 404


class AskedCluster(Protocol):
    """The API server: `bound.BoundPods`."""

    def ask(self, method: str, path: str, body: Any, kind: str, seconds: float) -> int: ...


@dataclass(frozen=True, slots=True)
class Readiness:
    """One node's."""

    door: AskedCluster
    clock: Clock
    node: str

    def tell(self, ready: bool) -> bool:
        """Whether it was told, or nobody there wants to know: a cluster without the kind has no GpuNodes."""
        path = f"{gpu_nodes.GPU_NODES.path}/{self.node}"
        at = datetime.fromtimestamp(self.clock.now(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {
            "type": gpu_nodes.PLUGIN_READY,
            "status": str(ready),
            "reason": "Registered" if ready else "NotRegistered",
            "message": "the kubelet knows every GPU" if ready else "no kubelet here has been told of the GPUs",
            "lastTransitionTime": at,
        }
        made = self.door.ask("PATCH", path + MANAGER, self._object() | {"spec": {}}, APPLY, CALL_S)
        if made == NOT_FOUND:
            return True
        body = self._object() | {"status": {"conditions": [condition]}}
        return made in (200, 201) and self.door.ask("PATCH", f"{path}/status{MANAGER}", body, APPLY, CALL_S) == 200

    def _object(self) -> dict[str, Any]:
        return {"apiVersion": "gpuyard.dev/v1", "kind": "GpuNode", "metadata": {"name": self.node}}
