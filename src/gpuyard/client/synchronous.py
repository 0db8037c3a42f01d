"""`Client`: the API's client for programs that wait for their answers, the command line among them.

It stands on the standard library's `http.client`, because importing a full HTTP client would take longer than most
commands (0.04 s against 0.17 s here). One connection, opened when it is first needed and again after it was lost.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from gpuyard.client import calls, peers, places
from gpuyard.client.calls import Call, Document
from gpuyard.client.errors import Unreachable, distrusted, error_of, not_open, silent, trusting, unreachable
from gpuyard.client.events import sse_events
from gpuyard.client.places import Address

T = TypeVar("T")

TIMEOUT_S = 60.0
"""A yard that has not answered by then is stuck."""

GONE = (
    ConnectionError, FileNotFoundError, PermissionError, socket.gaierror,
    http.client.BadStatusLine, http.client.IncompleteRead,
)  # fmt: skip
"""Nobody is there, or is not any more: also one that was killed in the middle of its answer."""


class Client:
    """Asks one yard. Without arguments it finds the local one; `Unreachable` if there is none."""

    def __init__(self, place: Address | None = None, timeout_s: float = TIMEOUT_S) -> None:
        self._places = [place] if place else list(places.candidates())
        self._timeout_s = timeout_s
        self._connection: HTTPConnection | None = None
        self._token = ""

    @classmethod
    def at_state(cls, state: Path) -> Client:
        """The client of the yard that keeps its state in that folder."""
        return cls(Address(socket=places.socket_path(state)))

    def close(self) -> None:
        """Hang up."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- questions -------------------------------------------------------------------------------

    def status(self) -> Document:
        """Up since when, pid, version, addresses, state folder, fleet in short."""
        return self._ask(calls.status())

    def submit(self, jobs: Sequence[Document], key: str = "", queue_anyway: bool = False) -> list[Document]:
        """Hand in jobs, all or none; `key` makes a repeated call harmless, and so does the one made here without."""
        return self._ask(calls.submit(jobs, key or os.urandom(16).hex(), queue_anyway))

    def preview(self, jobs: Sequence[Document]) -> list[Document]:
        """What would happen to these jobs."""
        return self._ask(calls.preview(jobs))

    def jobs(self, all_ended: bool = False, fields: Sequence[str] = ()) -> list[Document]:
        """The active jobs and the newest ended; `fields` asks for some keys only."""
        return self._ask(calls.jobs(all_ended, fields))

    def job(self, name: str) -> Document:
        """One job with its history."""
        return self._ask(calls.job(name))

    def why(self, name: str) -> Document:
        """Why it does not run, or where it does."""
        return self._ask(calls.why(name))

    def cancel(self, name: str) -> Document:
        """End it."""
        return self._ask(calls.act(name, "cancel"))

    def hold(self, name: str, requeue: bool = False) -> Document:
        """Keep a job from starting; one that runs goes on, unless it is to be queued again too."""
        return self._ask(calls.act(name, "requeuehold" if requeue else "hold"))

    def release(self, name: str) -> Document:
        """Let it start again."""
        return self._ask(calls.act(name, "release"))

    def requeue(self, name: str) -> Document:
        """Stop it and put it back in its queue."""
        return self._ask(calls.act(name, "requeue"))

    def vouch(self, name: str) -> Document:
        """Say that nothing is left of it, where that is in doubt: its GPUs are given on. Admins only."""
        return self._ask(calls.act(name, "vouch"))

    def logs(self, name: str, task: int = 0, offset: int = 0, wait_s: float = 0.0) -> tuple[bytes, int, bool]:
        """Output from `offset` on, the next offset, and whether more may come."""
        return self._try(lambda place: self._logs(place, calls.logs(name, task, offset, wait_s)))

    def attach(self, name: str, task: int = 0) -> str:
        """The path of the socket of its terminal."""
        return str(self._ask(calls.attach(name, task))["socket"])

    def nodes(self) -> list[Document]:
        """The nodes with their GPUs and who holds them."""
        return self._ask(calls.nodes())

    def drain(
        self, node: str, gpu: int | None = None, reason: str = "", force: bool = False, dry_run: bool = False
    ) -> Document:
        """Close a node or one GPU of it and empty it gently, or see what that would do."""
        return self._ask(calls.drain(node, {"gpu": gpu, "reason": reason, "force": force}, dry_run))

    def undrain(self, node: str, gpu: int | None = None) -> Document:
        """Open a node or GPU again."""
        return self._ask(calls.undrain(node, gpu))

    def alerts(self) -> list[Document]:
        """What an operator should hear of without asking, the worst first."""
        return self._ask(calls.alerts())

    def overview(self) -> Document:
        """History of use, expected starts and fragmentation."""
        return self._ask(calls.overview())

    def queues(self) -> list[Document]:
        """The queues with quota, use and fair share."""
        return self._ask(calls.queues())

    def set_queue(self, document: Document, dry_run: bool = False) -> Document:
        """Create or change a queue, or see what that would do."""
        return self._ask(calls.set_queue(document, dry_run))

    def delete_queue(self, name: str, dry_run: bool = False) -> Document:
        """Delete a queue in which no job stands, or see what that would do."""
        return self._ask(calls.delete_queue(name, dry_run))

    def snapshot(self) -> Document:
        """The whole moment, as a snapshot file."""
        return self._ask(calls.snapshot())

    def report(self, by: str = "user", since: float = 0.0) -> list[Document]:
        """GPU-seconds and money by user or queue."""
        return self._ask(calls.report(by, since))

    def events(self, after: int = 0, limit: int = 1000, wait_s: float = 0.0) -> list[Document]:
        """What happened after that event; with `wait_s` it waits that long for something to."""
        return self._ask(calls.events(after, limit, wait_s))

    def follow(self, after: int = -1) -> Iterator[Document]:
        """What happens, as it happens, for ever; a lost connection is taken up again where it broke."""
        while True:
            call = calls.stream(after)
            for event in self._try(lambda place, call=call: self._stream(place, call)):  # type: ignore[misc]
                after = int(event["id"])
                yield event

    def backup(self, path: str) -> Document:
        """A consistent copy of the state in a new file."""
        return self._ask(calls.backup(path))

    def login(self) -> Document:
        """A `url` of the live page that opens once."""
        return self._ask(calls.login())

    def shut_down(self, end_jobs: bool = False) -> Document:
        """Stop the yard; jobs run on unless they are to end too."""
        return self._ask(calls.shut_down(end_jobs))

    # --- how they are sent -----------------------------------------------------------------------

    def _ask(self, call: Call[T]) -> T:
        answer: T = self._try(lambda place: json.loads(self._send(place, call)[1]))
        return answer

    def _logs(self, place: Address, call: Call[Any]) -> tuple[bytes, int, bool]:
        answer, body = self._send(place, call)
        return body, int(answer.headers["X-Next-Offset"]), answer.headers["X-More"] == "true"

    def _try(self, use: Callable[[Address], T]) -> T:
        """Ask where the yard may be, best place first; the first that answers is kept."""
        shut = []
        for place in list(self._places):
            for _ in range(2 if self._connection else 1):  # a kept connection may have died of old age
                try:
                    answer = use(place)
                except GONE as error:
                    shut += [str(place)] * isinstance(error, PermissionError)
                    self.close()
                except ssl.SSLError as error:
                    self.close()
                    told = getattr(error, "verify_message", "") or error.reason or "it speaks no TLS"
                    raise distrusted(str(place), told) from None
                except TimeoutError:
                    self.close()
                    raise silent(str(place), self._timeout_s) from None
                else:
                    self._places = [place]
                    return answer
        raise not_open(shut[0]) if shut else unreachable([str(place) for place in self._places])

    def _send(self, place: Address, call: Call[Any]) -> tuple[HTTPResponse, bytes]:
        if self._connection is None:
            self._connection = connect(place, self._timeout_s)
        answer = self._request(self._connection, place, call)
        if answer.length is None and not answer.chunked:
            raise ConnectionResetError("the head of an answer says how long it is, and this one was cut off before")
        body = answer.read()
        if error := error_of(answer.status, body):
            raise error
        return answer, body

    def _stream(self, place: Address, call: Call[Any]) -> Iterator[Document]:
        connection = connect(place, self._timeout_s)
        answer = self._request(connection, place, call)
        if error := error_of(answer.status, b"" if answer.status < 300 else answer.read()):
            raise error
        return sse_events(answer, connection.close)

    def _request(self, connection: HTTPConnection, place: Address, call: Call[Any]) -> HTTPResponse:
        headers = {"Authorization": f"Bearer {place.token}"} if place.token else {}
        body = None
        if call.body is not None:
            body, headers["Content-Type"] = json.dumps(call.body).encode(), "application/json"
        connection.timeout = self._timeout_s + call.patience_s
        connection.request(call.method, call.target, body, headers)
        return connection.getresponse()


def connect(place: Address, timeout_s: float) -> HTTPConnection:
    """An open connection to a place."""
    if place.socket is not None:
        return _UnixConnection(place.socket, timeout_s)
    parts = urlsplit(place.url)
    host = parts.hostname or "localhost"
    if parts.scheme == "https":
        context = trusting(place.certificate)
        return http.client.HTTPSConnection(host, parts.port, timeout=timeout_s, context=context)
    return HTTPConnection(host, parts.port, timeout=timeout_s)


class _UnixConnection(HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        """Open the socket, where the base class would open a TCP connection."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            peers.queue_up(self.sock, self._path, self.timeout or TIMEOUT_S)
            peers.check(self.sock, self._path)
        except (OSError, Unreachable):
            self.sock.close()
            raise
