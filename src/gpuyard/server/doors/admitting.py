"""How many may be in at once: listening sockets that count their guests, in all and for each peer. Used by `hosting`.

A guest counts from the moment the kernel hands it over until its socket is closed, whatever is spoken in between, so
half-open connections, failed TLS handshakes and slow readers count like all others. Who is too many is told so and
turned away at once; the doors together never use more descriptors than `descriptors` gives them.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import ipaddress
import os
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpuyard.server.doors.peer import peer_uid, tcp_uid

TURNED_AWAY_MAX = 64
"""So many are turned away before others get their turn."""

FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
WORDS = b'{"error": "You have too many connections open here.", "hint": "Close some, or wait a little."}'
TOO_MANY = (
    b"HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(WORDS), WORDS)
)


@dataclass(frozen=True, slots=True)
class Limits:
    """The most connections through one door, in all and for one peer; the yard's owner counts only in all."""

    in_all: int
    per_peer: int


class Guest(socket.socket):
    """A connection that tells its door when it is over."""

    on_close: Callable[[], None] | None = None

    def close(self) -> None:
        """Hang up; said once, however often it is called."""
        leave, self.on_close = self.on_close, None
        if leave is not None:
            leave()
        super().close()


class Door(socket.socket):
    """A listening socket that lets in as many as its limits allow."""

    def __init__(self, opened: socket.socket, limits: Limits) -> None:
        super().__init__(opened.family, opened.type, opened.proto, fileno=opened.detach())
        self.setblocking(False)
        self._limits = limits
        self._inside: Counter[str] = Counter()
        self._spare: int | None = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def accept(self) -> tuple[socket.socket, Any]:
        """The next guest who may come in; `BlockingIOError` when there is none for now."""
        for _ in range(TURNED_AWAY_MAX):
            guest, address = self._next()
            peer = peer_of(guest)
            if peer is not None and self._has_room(peer):
                self._inside[peer] += 1
                guest.on_close = functools.partial(self._leave, peer)
                return guest, address
            turn_away(guest)
        raise BlockingIOError

    def close(self) -> None:
        """Shut it."""
        super().close()
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None

    def _next(self) -> tuple[Guest, Any]:
        try:
            came, address = super().accept()
        except OSError as error:
            if error.errno in FULL:
                self._shed()
                raise BlockingIOError from None
            raise
        return Guest(came.family, came.type, came.proto, fileno=came.detach()), address

    def _shed(self) -> None:
        """No descriptor is left: turn one away with the one kept for this, or they would knock for ever."""
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
        with contextlib.suppress(OSError):
            super().accept()[0].close()
        with contextlib.suppress(OSError):
            self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _has_room(self, peer: str) -> bool:
        if self._inside.total() >= self._limits.in_all:
            return False
        return peer in _owners() or self._inside[peer] < self._limits.per_peer

    def _leave(self, peer: str) -> None:
        self._inside[peer] -= 1
        if self._inside[peer] <= 0:
            del self._inside[peer]


def _owners() -> tuple[str, str]:
    return "uid 0", f"uid {os.getuid()}"


def peer_of(guest: socket.socket) -> str | None:
    """Who connected, as the kernel knows them: a user of this machine, or an address beyond it; None if they have
    hung up already."""
    try:
        if guest.family == socket.AF_UNIX:
            return f"uid {peer_uid(guest)}"
        address = str(guest.getpeername()[0])
        if not ipaddress.ip_address(address.partition("%")[0]).is_loopback:
            return f"address {address}"
        uid = tcp_uid(guest)
    except OSError:
        return None
    return f"address {address}" if uid is None else f"uid {uid}"


def turn_away(guest: socket.socket) -> None:
    """Say why, as far as that can be said without waiting, and hang up."""
    with contextlib.suppress(OSError):
        guest.setblocking(False)
        guest.send(TOO_MANY)
        guest.shutdown(socket.SHUT_WR)
        guest.recv(1 << 16)  # what lies unread when we close would take our words with it
    guest.close()
