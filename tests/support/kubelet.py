"""A kubelet as far as a device plugin knows it: takes registrations on its socket, and calls the plugin back."""

from __future__ import annotations

import threading
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc

from gpuyard.agent.device_plugin import v1beta1_pb2 as api

WAIT_S = 300.0


class FakeKubelet:
    """Starts and stops like the real one: a new socket each time, and a folder swept clean before."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._news = threading.Condition()
        self.registered: list[Any] = []
        self.devices: dict[str, str] = {}
        self._topology: dict[str, list[int]] = {}
        self._channels: list[Any] = []

    def start(self) -> None:
        for path in self.folder.glob("*.sock"):
            path.unlink()
        self._server = grpc.server(futures.ThreadPoolExecutor(4))
        register = grpc.unary_unary_rpc_method_handler(
            self._register, api.RegisterRequest.FromString, lambda message: message.SerializeToString()
        )
        service = grpc.method_handlers_generic_handler("v1beta1.Registration", {"Register": register})
        self._server.add_generic_rpc_handlers((service,))
        self._server.add_insecure_port(f"unix:{self.folder / 'kubelet.sock'}")
        self._server.start()

    def stop(self) -> None:
        for channel in self._channels:
            channel.close()
        self._channels = []
        self._server.stop(0.5).wait()

    def _register(self, request: Any, _: Any) -> Any:
        with self._news:
            self.registered.append(request)
            self._news.notify_all()
        threading.Thread(target=self._listen, args=(request.endpoint,), daemon=True).start()
        return api.Empty()

    def _listen(self, endpoint: str) -> None:
        channel = grpc.insecure_channel(f"unix:{self.folder / endpoint}")
        self._channels.append(channel)
        self._channel = channel
        stream = channel.unary_stream(
            "/v1beta1.DevicePlugin/ListAndWatch",
            lambda message: message.SerializeToString(),
            api.ListAndWatchResponse.FromString,
        )
        try:
            for answer in stream(api.Empty(), wait_for_ready=True):
                with self._news:
                    self.devices = {device.ID: device.health for device in answer.devices}
                    self._topology = {each.ID: [node.ID for node in each.topology.nodes] for each in answer.devices}
                    self._news.notify_all()
        except (grpc.RpcError, ValueError):
            pass
        with self._news:
            self.devices = {}
            self._news.notify_all()

    def allocatable(self) -> int:
        return sum(health == "Healthy" for health in self.devices.values())

    def until(self, condition: Any) -> None:
        with self._news:
            assert self._news.wait_for(condition, WAIT_S), (self.devices, self.registered)

    def call(self, method: str, request: Any, answer: Any) -> Any:
        stub = self._channel.unary_unary(
            f"/v1beta1.DevicePlugin/{method}", lambda message: message.SerializeToString(), answer.FromString
        )
        return stub(request, timeout=WAIT_S)

    def numa(self) -> dict[str, list[int]]:
        return dict(self._topology)
