"""What a kubelet asks the scheduler of a cluster: /livez and /readyz, over plain HTTP and without a token.

Opened by `yard serve --probes`. So anybody may ask, and learns only whether it lives, leads, knows the cluster, and
how long ago it heard of it: no names, no reasons. One who stands by is ready too. Few at a time are answered, none for
long.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from gpuyard.runtime.clustered.readiness import ClusterReadiness

MOST_AT_ONCE = 16
ANSWER_S = 2.0
HEARD_S = 150.0
"""A server that is there is heard about every minute; one that was not for so long is not followed any more."""


class ProbeDoor:
    """Open from `start` to `stop`."""

    def __init__(self, host: str, port: int, ask: Callable[[], ClusterReadiness]) -> None:
        self._server = _ProbeServer((host, port), ask)
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, name="probes", daemon=True)

    def start(self) -> None:
        """Answer from now on."""
        self._thread.start()

    def stop(self) -> None:
        """No more."""
        self._server.shutdown()
        self._server.server_close()


class _ProbeServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], ask: Callable[[], ClusterReadiness]) -> None:
        self.ask = ask
        self._places = threading.BoundedSemaphore(MOST_AT_ONCE)
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """One too many is let go at once: a kubelet asks again."""
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who does not speak HTTP, or leaves, is nobody's trouble."""


class _Handler(BaseHTTPRequestHandler):
    server: _ProbeServer
    timeout = ANSWER_S
    server_version = "gpuyard"
    sys_version = ""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path not in ("/livez", "/readyz", "/healthz"):
            self._answer(404, "not found\n")
            return
        now = self.server.ask()
        well = now.turns if path == "/livez" else _is_ready(now)
        self._answer(200 if well else 503, verdict(now))

    def _answer(self, code: int, text: str) -> None:
        body = text.encode()
        self.send_response(code)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing is worth a line."""


def _is_ready(now: ClusterReadiness) -> bool:
    return now.turns and not now.fails and now.synced and now.heard_s <= HEARD_S


def verdict(now: ClusterReadiness) -> str:
    """For whoever looks."""
    heard = f"{now.heard_s:.1f} s ago" if now.synced else "never all of it"
    turns = "fail" if now.turns and now.fails else _yes(now.turns)
    return f"leads: {_yes(now.leads)}\nsynced: {_yes(now.synced)}\nheard: {heard}\nturns: {turns}\n"


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"
