"""Where the yard can be reached: a Unix socket that only its owner can open, and TCP for the live page.

Called by `hosting`. It opens sockets and serves an application on them in a thread; who may come in is the gate's
business, but two things are refused here already: TCP beyond this machine without TLS, and somebody else's socket.
"""

from __future__ import annotations

import asyncio
import errno
import grp
import ipaddress
import os
import socket
import ssl
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from gpuyard.model.errors import Refused
from gpuyard.server.doors.peer import PeerProtocol
from gpuyard.server.doors.renewing import Renewal

PORTS_TRIED = 100
START_S = 10.0
GRACE_S = 2
LOOK_S = 0.01
HANDSHAKE_S = 5.0
"""Who has not said hello by then holds a place that others want; it counts before anything else does."""
BACKLOG = 128
"""How many may have knocked and not been let in yet; the rest wait on their own side, and knock again."""


@dataclass(frozen=True)
class Tcp:
    """Where to listen for browsers and for programs on other machines."""

    host: str = "127.0.0.1"
    port: int = 7411
    certificate: str = ""
    key: str = ""
    only: bool = field(default=False, kw_only=True)
    """Whether no other port will do: a Service points at it."""

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def url(self, port: int) -> str:
        """The address as people type it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.certificate else 'http'}://{host}:{port}"


def open_unix(path: Path, group: str = "") -> socket.socket:
    """A listening socket that only we can open, or a group where one is named. What lay there before is removed:
    whoever calls this holds the state folder, so nobody can be listening on it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(seen.st_uid not in (os.getuid(), 0) for seen in (path.parent.lstat(), path.parent.stat())):
        raise Refused(f"{path.parent} belongs to somebody else, so the socket cannot be put there; remove it.")
    path.unlink(missing_ok=True)
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        opened.bind(str(path))
    finally:
        os.umask(before)
    if group:
        _open_to_group(path, group)
    opened.listen(BACKLOG)
    return opened


def _open_to_group(path: Path, group: str) -> None:
    try:
        gid = grp.getgrnam(group).gr_gid
    except KeyError:
        raise Refused(f"There is no group '{group}' on this machine. Name another with --group.") from None
    os.chown(path, -1, gid)
    path.chmod(0o660)
    path.parent.chmod(0o711)


def open_tcp(where: Tcp) -> tuple[socket.socket, int]:
    """A listening socket on the first free port from the wished one on, or on that one alone, and its port."""
    if not where.host:
        raise Refused("--host names nothing to listen on; 127.0.0.1 is this machine alone.")
    if not where.is_local and not where.certificate:
        raise Refused(
            f"{where.host} can be reached from other machines, so it needs TLS: give --certificate and --key, "
            "or listen on 127.0.0.1."
        )
    _check_certificate(where)
    last = where.port + PORTS_TRIED if where.port and not where.only else where.port + 1
    for port in range(where.port, min(last, 65536)):
        try:
            return _bind(where.host, port)
        except (OSError, UnicodeError) as error:
            if getattr(error, "errno", None) != errno.EADDRINUSE:
                told = getattr(error, "strerror", None) or "that is no name of a host"
                raise Refused(f"Cannot listen on {where.host[:80]}:{port}: {told}.") from None
    if where.only:
        raise Refused(f"Port {where.port} of {where.host} is busy, and no other was asked for: who listens there?")
    raise Refused(f"Ports {where.port} to {min(last, 65536) - 1} are all busy. Name another with --port.")


def _check_certificate(where: Tcp) -> None:
    if not where.certificate:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(where.certificate, where.key or None)
    except (OSError, ValueError) as error:
        told = getattr(error, "strerror", None) or error
        names = f"{where.certificate} and {where.key}" if where.key else where.certificate
        raise Refused(f"{names} are no certificate with its key that can be read: {told}.") from None


def _bind(host: str, port: int) -> tuple[socket.socket, int]:
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((host, port))
        opened.listen(BACKLOG)
    except OSError:
        opened.close()
        raise
    return opened, int(opened.getsockname()[1])


class Listener:
    """Serves an application on sockets, in a thread with its own event loop."""

    def __init__(self, app: ASGIApp, sockets: list[socket.socket], tls: Tcp | None = None) -> None:
        self._sockets = sockets
        self._tls = tls
        self._server = uvicorn.Server(_config(app, tls))
        self._thread = threading.Thread(target=self._run, name="api", daemon=True)

    def start(self) -> None:
        """Return when the first request can be answered."""
        self._thread.start()
        waited = 0.0
        while not self._server.started:
            if not self._thread.is_alive() or waited > START_S:
                raise Refused("The API could not be started; is the certificate readable and its key the right one?")
            self._thread.join(LOOK_S)
            waited += LOOK_S

    def stop(self) -> None:
        """Answer what is being answered, then hang up."""
        self._server.should_exit = True
        if self._thread.ident is not None:  # another door may have refused to open before this one served
            self._thread.join(GRACE_S + 3)
        for opened in self._sockets:
            opened.close()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=ImpatientLoop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        config = self._server.config
        config.load()
        renewal = None
        if config.ssl is not None and self._tls is not None:
            renewal = asyncio.create_task(Renewal(config.ssl, self._tls.certificate, self._tls.key).go_on())
        try:
            await self._server.serve(self._sockets)
        finally:
            if renewal is not None:
                renewal.cancel()


class ImpatientLoop(asyncio.SelectorEventLoop):
    """An event loop that waits for no handshake as long as asyncio would (60 s); uvicorn has no setting for that."""

    async def create_server(self, *args: Any, **options: Any) -> asyncio.Server:
        """The same, with an end to saying hello and goodbye."""
        if options.get("ssl"):
            options |= {"ssl_handshake_timeout": HANDSHAKE_S, "ssl_shutdown_timeout": HANDSHAKE_S}
        return await super().create_server(*args, **options)


def _config(app: ASGIApp, tls: Tcp | None) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=PeerProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        # A header that says whom a request comes from is worth nothing here: no proxy stands before us.
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=GRACE_S,
        ssl_certfile=(tls.certificate or None) if tls else None,
        ssl_keyfile=(tls.key or None) if tls else None,
    )
