"""Events as they happen, to any number of listeners. Called by `api`.

One thread waits at the service; the streams wait at that thread. A listener that comes back with Last-Event-ID gets
what it missed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import msgspec
from starlette.concurrency import run_in_threadpool

from gpuyard.runtime.service import EVERYBODY, Caller, Document, Service

BATCH = 500
HEARTBEAT_S = 15.0
LOOK_S = 1.0
HEARTBEAT = b": still here\n\n"


class Pump:
    """Wakes the streams when something has happened."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._seen = 0

    def stop(self) -> None:
        """End the thread and every stream."""
        self._over.set()
        self._wake()

    @property
    def over(self) -> bool:
        """Whether the yard is going down."""
        return self._over.is_set()

    async def wait(self, after: int) -> None:
        """Return when there may be something newer than `after`, or it is time for a sign of life."""
        waiting = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            if self._thread is None:
                self._seen = after
                self._thread = threading.Thread(target=self._run, name="events", daemon=True)
                self._thread.start()
            elif self._seen > after:
                return
            self._waiting.add(waiting)
        try:
            await asyncio.wait_for(waiting[1].wait(), HEARTBEAT_S)
        except TimeoutError:
            pass
        finally:
            with self._lock:
                self._waiting.discard(waiting)

    def _run(self) -> None:
        """Wait at the service while anybody waits here; then go home, so that an idle yard is idle."""
        while not self._over.is_set():
            if self._service.wait_events(self._seen, LOOK_S):
                newest = _newest(self._service)
                with self._lock:
                    self._seen = max(self._seen, newest)
                self._wake()
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return

    def _wake(self) -> None:
        with self._lock:
            for loop, event in self._waiting:
                if not loop.is_closed():
                    loop.call_soon_threadsafe(event.set)


def _newest(service: Service) -> int:
    """The id of the newest event, 0 if there is none."""
    newest = service.events(EVERYBODY, -2, 1)
    return int(newest[-1]["id"]) if newest else 0


async def stream(service: Service, pump: Pump, caller: Caller, after: int) -> AsyncIterator[bytes]:
    """Server-sent events from the one after `after` on; a negative one begins with what comes next."""
    yield b"retry: 1000\n\n"
    if after < 0:
        after = await run_in_threadpool(_newest, service)
    while not pump.over:
        events = await run_in_threadpool(service.events, caller, after, BATCH)
        for event in events:
            yield written(event)
            after = int(event["id"])
        if not events:
            await pump.wait(after)
            yield HEARTBEAT


def written(event: Document) -> bytes:
    """One event as it goes over the wire; its data is one line of JSON."""
    return b"id: %d\ndata: %b\n\n" % (int(event["id"]), msgspec.json.encode(event))
