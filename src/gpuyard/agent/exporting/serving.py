"""The agent's /metrics over HTTP: on this machine alone unless TLS is given, and to bearers of the token alone.

Used by the daemon. The standard library's server, because the agent is to be small; it answers one path, takes no
body, and hangs up on whoever is slow.
"""

from __future__ import annotations

import contextlib
import hmac
import http.server
import ipaddress
import os
import pathlib
import secrets
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass

from gpuyard.agent.exporting.text import CONTENT_TYPE
from gpuyard.model.errors import Refused

TOKEN_FILE = "agent-token"
SLOW_S = 10.0
GUESTS_MAX = 16


@dataclass(frozen=True, slots=True)
class MetricsDoor:
    """Where to listen; the port 0 is any that is free."""

    host: str = "127.0.0.1"
    port: int = 9400
    certificate: str = ""
    key: str = ""

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def token(folder: pathlib.Path) -> str:
    """The token of this agent, made once; its file is for its owner alone."""
    path = folder / TOKEN_FILE
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
    found = path.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise Refused(f"{path} can be read by others, so it keeps no secret: remove it, and a new one is made.")
    text = path.read_text(encoding="ascii").strip()
    if not text:
        raise Refused(f"{path} is empty, and an empty token would let everybody in: remove it, and a new one is made.")
    return text


class MetricsServer:
    """Answers in threads of its own, from what `body` gives at that moment."""

    def __init__(self, door: MetricsDoor, secret: str, body: Callable[[], str]) -> None:
        if not door.is_local and not door.certificate:
            raise Refused(
                f"{door.host} can be reached from other machines, so it needs TLS: give --certificate and --key, "
                "or listen on 127.0.0.1."
            )
        if not secret:
            raise Refused("Nothing is served without a token.")
        try:
            self._server = _Server(door, _handler(secret, body))
        except OSError as error:
            told = f"Cannot listen on {door.host}:{door.port}: {error.strerror or error}"
            raise Refused(f"{told}. Name another with --port; 0 takes any.") from None
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()


class _Server(http.server.ThreadingHTTPServer):
    """A server that knows its limits: so many guests at a time, and none that dawdles."""

    daemon_threads = True
    request_queue_size = 32

    def __init__(self, door: MetricsDoor, handler: type[http.server.BaseHTTPRequestHandler]) -> None:
        self._guests: dict[int, socket.socket] = {}
        self._door = threading.Lock()
        self._tls: ssl.SSLContext | None = None
        if door.certificate:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            try:
                self._tls.load_cert_chain(door.certificate, door.key or None)
            except (OSError, ValueError) as error:
                raise Refused(f"{door.certificate} is no certificate with its key: {error}.") from None
        self.address_family = socket.AF_INET6 if ":" in door.host else socket.AF_INET
        super().__init__((door.host, door.port), handler)

    def process_request(self, request: object, client_address: object) -> None:
        """In a thread. Who is one too many costs the one who has stayed longest its place: a scrape takes a moment, so
        that is somebody who only holds the door."""
        assert isinstance(request, socket.socket)
        with self._door:
            if len(self._guests) >= GUESTS_MAX:
                with contextlib.suppress(OSError):
                    next(iter(self._guests.values())).shutdown(socket.SHUT_RDWR)
                del self._guests[next(iter(self._guests))]
            self._guests[id(request)] = request
        super().process_request(request, client_address)

    def process_request_thread(self, request: object, client_address: object) -> None:
        """The handshake belongs here, where it holds nobody up."""
        assert isinstance(request, socket.socket)
        guest = id(request)
        try:
            request.settimeout(SLOW_S)
            if self._tls is not None:
                request = self._tls.wrap_socket(request, server_side=True)
            super().process_request_thread(request, client_address)
        except OSError:
            assert isinstance(request, socket.socket)
            self.shutdown_request(request)
        finally:
            with self._door:
                self._guests.pop(guest, None)

    def handle_error(self, request: object, client_address: object) -> None:
        """A guest that hung up is no news."""


def _handler(secret: str, body: Callable[[], str]) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        """One question, one answer."""

        server_version = "gpuyard-agent"
        sys_version = ""
        timeout = SLOW_S

        def do_GET(self) -> None:
            """The metrics, to whoever bears the token."""
            given = self.headers.get("Authorization", "").encode(errors="replace")
            if not hmac.compare_digest(given, f"Bearer {secret}".encode()):
                self._say(401, "The agent's token is needed.\n")
            elif self.path.partition("?")[0] != "/metrics":
                self._say(404, "There is /metrics here, and nothing else.\n")
            else:
                self._say(200, body())

        def _say(self, code: int, text: str) -> None:
            content = text.encode()
            self.send_response(code)
            self.send_header("Content-Type", CONTENT_TYPE if code == 200 else "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            if code == 401:
                self.send_header("WWW-Authenticate", "Bearer")
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads these."""

    return Handler
