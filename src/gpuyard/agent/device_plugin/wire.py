"""The device plugin API on the wire: the one door to gRPC. Serves a `Plugin` on a Unix socket, and registers it.

Used by `registering`. Methods and messages are those of `v1beta1.proto`.
"""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import grpc

from gpuyard.agent.device_plugin import v1beta1_pb2 as api
from gpuyard.agent.device_plugin.offers import PluginDevice
from gpuyard.agent.device_plugin.plugin import Plugin, UnknownDevice

VERSION = "v1beta1"
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"
CALL_S = 10.0
LOOK_S = 1.0
THREADS = 8


class PluginServer:
    """A plugin that a kubelet can call; one socket from begin to end."""

    def __init__(self, plugin: Plugin, socket: pathlib.Path, heard: Callable[[], None] = lambda: None) -> None:
        self._plugin = plugin
        self.socket = socket
        self._heard = heard
        """Called when a kubelet begins to listen, and when it ends."""
        self._listening: set[object] = set()
        self._over = threading.Event()
        socket.unlink(missing_ok=True)
        self._server = grpc.server(futures.ThreadPoolExecutor(THREADS, thread_name_prefix="device-plugin"))
        service = grpc.method_handlers_generic_handler(f"{VERSION}.DevicePlugin", self._methods())
        self._server.add_generic_rpc_handlers((service,))
        self._server.add_insecure_port(f"unix:{socket}")
        self._server.start()

    @property
    def is_heard(self) -> bool:
        """Whether a kubelet listens: it has been told of every device."""
        return bool(self._listening)

    def close(self) -> None:
        """Answer no more; the kubelet takes the devices for gone until the next registration."""
        self._over.set()
        self._server.stop(1.0).wait()
        self.socket.unlink(missing_ok=True)

    def _methods(self) -> dict[str, Any]:
        def answers(call: Callable[[Any], Any], asked: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(
                lambda request, context: _answered(call, request, context), asked.FromString, _bytes
            )

        return {
            "GetDevicePluginOptions": answers(lambda _: options(), api.Empty),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(self._watch, api.Empty.FromString, _bytes),
            "GetPreferredAllocation": answers(self._preferred, api.PreferredAllocationRequest),
            "Allocate": answers(self._allocate, api.AllocateRequest),
            "PreStartContainer": answers(lambda _: api.PreStartContainerResponse(), api.PreStartContainerRequest),
        }

    def _watch(self, _: Any, context: Any) -> Iterator[Any]:
        """The whole list at once, and again whenever a device comes, goes, falls ill or gets well."""
        mark = object()
        context.add_callback(lambda: self._ended(mark))
        while self._goes_on(context):
            version = self._plugin.version
            yield api.ListAndWatchResponse(devices=[_device(device) for device in self._plugin.devices])
            if mark not in self._listening and context.is_active():
                self._listening.add(mark)
                self._heard()
            while self._goes_on(context) and not self._plugin.wait(version, LOOK_S):
                pass

    def _ended(self, mark: object) -> None:
        self._listening.discard(mark)
        self._heard()

    def _goes_on(self, context: Any) -> bool:
        return bool(context.is_active()) and not self._over.is_set()

    def _preferred(self, request: Any) -> Any:
        found = [
            self._plugin.preferred(each.available_deviceIDs, each.must_include_deviceIDs, each.allocation_size)
            for each in request.container_requests
        ]
        return api.PreferredAllocationResponse(
            container_responses=[api.ContainerPreferredAllocationResponse(deviceIDs=uuids) for uuids in found]
        )

    def _allocate(self, request: Any) -> Any:
        handed = [self._plugin.hand(list(each.devices_ids)) for each in request.container_requests]
        return api.AllocateResponse(
            container_responses=[
                api.ContainerAllocateResponse(
                    envs=dict(each.environment), cdi_devices=[api.CDIDevice(name=name) for name in each.cdi]
                )
                for each in handed
            ]
        )


def register(kubelet: pathlib.Path, endpoint: str, resource: str) -> None:
    """Tell a kubelet of a plugin; `ConnectionError` says why it does not listen."""
    with grpc.insecure_channel(f"unix:{kubelet}") as channel:
        call = channel.unary_unary(f"/{VERSION}.Registration/Register", _bytes, api.Empty.FromString)
        asked = api.RegisterRequest(version=VERSION, endpoint=endpoint, resource_name=resource, options=options())
        try:
            call(asked, timeout=CALL_S)
        except grpc.RpcError as error:
            raise ConnectionError(f"the kubelet at {kubelet} takes no registration: {_words(error)}") from error


def options() -> Any:
    """What the kubelet should call us for."""
    return api.DevicePluginOptions(get_preferred_allocation_available=True)


def _answered(call: Callable[[Any], Any], request: Any, context: Any) -> Any:
    try:
        return call(request)
    except UnknownDevice as error:
        context.abort(grpc.StatusCode.NOT_FOUND, str(error))


def _device(device: PluginDevice) -> Any:
    nodes = [api.NUMANode(ID=device.numa)] if device.numa >= 0 else []
    health = HEALTHY if device.healthy else UNHEALTHY
    return api.Device(ID=device.uuid, health=health, topology=api.TopologyInfo(nodes=nodes) if nodes else None)


def _bytes(message: Any) -> bytes:
    return bytes(message.SerializeToString())


def _words(error: Any) -> str:
    return str(error.details() if hasattr(error, "details") else error)
