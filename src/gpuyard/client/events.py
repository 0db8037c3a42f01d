"""Server-sent events as documents. Called by both clients; it reads lines and opens nothing."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterable, Iterator

from gpuyard.client.calls import Document

DATA = b"data:"


def sse_events(lines: Iterable[bytes], close: Callable[[], None]) -> Iterator[Document]:
    """The events of a stream until it ends or breaks; comments (its heartbeat) are left out."""
    try:
        for line in lines:
            if event := sse_event(line):
                yield event
    except (ConnectionError, TimeoutError, http.client.HTTPException):
        return  # whoever follows connects again, and learns then whether anybody is there
    finally:
        close()


def sse_event(line: bytes) -> Document | None:
    """The event on a line, if there is one: we write each event's data on one line."""
    if not line.startswith(DATA):
        return None
    event: Document = json.loads(line.removeprefix(DATA))
    return event
