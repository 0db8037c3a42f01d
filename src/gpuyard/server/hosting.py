"""A yard with its doors open: what `yard up` and `yard demo` run in their process.

Called by the command line. Order matters: the yard takes its state folder first, so whoever comes this far owns the
socket's path too; the doors close before the yard does.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

from gpuyard.client import places
from gpuyard.model.outside.ports import Clock
from gpuyard.runtime.service import Yard
from gpuyard.server import api
from gpuyard.server.context import HandlerContext
from gpuyard.server.doors import descriptors, listening
from gpuyard.server.doors.access import Access, make_token
from gpuyard.server.doors.admitting import Door
from gpuyard.server.doors.gate import Gate
from gpuyard.server.doors.listening import Listener, Tcp

LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True)
class Doors:
    """Where to listen. `group` may open the socket, on a machine that many share; without `tcp` there is no page."""

    state: Path
    socket: Path | None = None
    group: str = ""
    tcp: Tcp | None = Tcp()


class Hosting:
    """Opens, waits, closes."""

    def __init__(self, yard: Yard, doors: Doors, clock: Clock) -> None:
        self._yard = yard
        self._doors = doors
        self._clock = clock
        self._over = threading.Event()
        self._end_jobs = False
        self._listeners: list[Listener] = []
        self._socket = doors.socket or places.socket_path(doors.state)
        self.context: HandlerContext | None = None

    def start(self) -> HandlerContext:
        """Take the state folder and open the doors."""
        self._yard.start()
        try:
            return self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> HandlerContext:
        access = Access(
            make_token(places.token_path(self._doors.state)), self._clock.monotonic, bool(self._doors.group)
        )
        self.context = context = HandlerContext(self._yard, access, self._clock.now, self.stop, str(self._socket))
        app = api.build(context)
        local, remote = descriptors.limits_of(descriptors.raise_limit())
        opened = Door(listening.open_unix(self._socket, self._doors.group), local)
        self._listeners.append(Listener(Gate(app, access, LOCAL_NAMES), [opened]))
        if tcp := self._doors.tcp:
            bound, port = listening.open_tcp(tcp)
            context.urls.append(tcp.url(port))
            door = Door(bound, remote)
            self._listeners.append(Listener(Gate(app, access, {*LOCAL_NAMES, tcp.host}), [door], tcp))
        for listener in self._listeners:
            listener.start()
        return context

    def stop(self, end_jobs: bool = False) -> None:
        """Ask for the end; from any thread, a signal handler or a request."""
        self._end_jobs = self._end_jobs or end_jobs
        self._over.set()

    def wait(self, seconds: float | None = None) -> bool:
        """Until somebody asked for the end; False if nobody did in that time."""
        return self._over.wait(seconds)

    def close(self) -> None:
        """Close the doors, then the yard."""
        if self.context is not None:
            self.context.pump.stop()
        for listener in self._listeners:
            listener.stop()
        self._listeners.clear()
        self._yard.close(self._end_jobs)
        self._socket.unlink(missing_ok=True)
