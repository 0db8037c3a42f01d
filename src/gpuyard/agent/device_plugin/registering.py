"""Keeps a plugin registered: a kubelet that starts anew knows of no plugin, and has emptied the folder of sockets.

Used by `yard agent --device-plugin`. The old socket is closed before the next registration: a kubelet that sees an old
stream end takes whichever plugin is registered then for gone.
"""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from gpuyard.agent.device_plugin import wire
from gpuyard.agent.device_plugin.offers import WHOLE
from gpuyard.agent.device_plugin.plugin import Plugin
from gpuyard.agent.device_plugin.wire import PluginServer

FOLDER = pathlib.Path("/var/lib/kubelet/device-plugins")
KUBELET = "kubelet.sock"
ENDPOINT = "gpuyard-gpu.sock"
RESOURCE = WHOLE
LOOK_S = 1.0


@dataclass(slots=True)
class Registering:
    """One resource's life with one kubelet after another."""

    plugin: Plugin
    say: Callable[[str], None]
    folder: pathlib.Path = FOLDER
    resource: str = RESOURCE
    look_s: float = LOOK_S
    tell_ready: Callable[[bool], bool] | None = None
    """Who tells the cluster whether this kubelet has devices to give; False if it could not be told."""
    _ready_told: bool | None = None
    _wake: threading.Event = field(default_factory=threading.Event)
    _server: PluginServer | None = None
    _kubelet: tuple[int, int] = (0, 0)
    _told: str = ""
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Register as soon as there is a kubelet, and again whenever there is another."""
        self._thread = threading.Thread(target=self._work, name="registering", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Leave the kubelet without this plugin; whoever binds pods here is told so before."""
        self._over.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(30.0)
        self._publish(False)
        self._leave()

    @property
    def endpoint(self) -> str:
        """The name of its socket: a kubelet tells plugins apart by it."""
        return ENDPOINT if self.resource == RESOURCE else f"gpuyard-{self.resource.rpartition('/')[2]}.sock"

    @property
    def is_ready(self) -> bool:
        """Whether a kubelet knows every device, now."""
        return self._server is not None and self._server.is_heard

    def look(self) -> None:
        """Once: register if this kubelet does not know us."""
        kubelet = self._identity(self.folder / KUBELET)
        if kubelet is None:
            self._leave()
            self._tell(f"no kubelet listens in {self.folder}")
        elif kubelet != self._kubelet or self._server is None or not self._server.socket.exists():
            self._register(kubelet)

    def _register(self, kubelet: tuple[int, int]) -> None:
        self._leave()
        self._server = PluginServer(self.plugin, self.folder / self.endpoint, self._wake.set)
        try:
            wire.register(self.folder / KUBELET, self.endpoint, self.resource)
        except ConnectionError as error:
            self._leave()
            self._tell(str(error))
            return
        self._kubelet = kubelet
        self._tell(f"the kubelet knows of {self.resource}")

    def _leave(self) -> None:
        server, self._server = self._server, None
        self._kubelet = (0, 0)
        if server is not None:
            server.close()

    def _identity(self, path: pathlib.Path) -> tuple[int, int] | None:
        try:
            found = path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_ctime_ns

    def _tell(self, words: str) -> None:
        if words != self._told:
            self._told = words
            self.say(words)

    def _work(self) -> None:
        while not self._over.is_set():
            self._publish(self.is_ready)
            self.look()
            self._publish(self.is_ready)
            self._wake.wait(self.look_s)
            self._wake.clear()

    def _publish(self, ready: bool) -> None:
        """What could not be told is told again at the next look."""
        if self.tell_ready is None or ready == self._ready_told:
            return
        if self.tell_ready(ready):
            self._ready_told = ready
        else:
            self._tell(f"the cluster could not be told that devices {'can' if ready else 'cannot'} be had here")
