"""What containers hold by the kubelet's own word (podresources, v1): the other door to gRPC.

Used by `steering` and `comparing`. A kubelet lists a pod from the moment it looks whether it can take it: while it asks
which GPUs to prefer, the pod that it asks for is there without them.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import grpc

from gpuyard.agent.pods import podresources_pb2 as api

SOCKET = pathlib.Path("/var/lib/kubelet/pod-resources/kubelet.sock")
LIST = "/v1.PodResourcesLister/List"
CALL_S = 2.0
MESSAGE_MAX = 64 << 20


class NotToldByKubelet(Exception):
    """The kubelet does not say what its pods hold."""


@dataclass(frozen=True, slots=True)
class PodHolding:
    """One pod of the kubelet: `namespace/name`, and the GPUs of each of its containers."""

    key: str
    containers: Mapping[str, tuple[str, ...]]

    @property
    def gpus(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(sorted(gpu for held in self.containers.values() for gpu in held))


def holdings(socket: pathlib.Path, resource: str, seconds: float = CALL_S) -> list[PodHolding]:
    """Every pod that the kubelet has, whether it holds any or not."""
    options = [("grpc.max_receive_message_length", MESSAGE_MAX)]
    with grpc.insecure_channel(f"unix:{socket}", options) as channel:
        call = channel.unary_unary(LIST, _bytes, api.ListPodResourcesResponse.FromString)
        try:
            told = call(api.ListPodResourcesRequest(), timeout=seconds)
        except grpc.RpcError as error:
            words = error.details() if hasattr(error, "details") else error
            raise NotToldByKubelet(f"the kubelet at {socket} does not tell what its pods hold: {words}") from error
    return [_holding(pod, resource) for pod in told.pod_resources]


def _holding(pod: Any, resource: str) -> PodHolding:
    held = {container.name: _of(container.devices, resource) for container in pod.containers}
    return PodHolding(f"{pod.namespace}/{pod.name}", held)


def _of(devices: Any, resource: str) -> tuple[str, ...]:
    return tuple(name for each in devices if each.resource_name == resource for name in each.device_ids)


def _bytes(message: Any) -> bytes:
    return bytes(message.SerializeToString())
