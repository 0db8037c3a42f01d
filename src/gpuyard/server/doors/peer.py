"""Connections that know who is at the other end, and do not wait for them for ever. Handed to uvicorn by `listening`.

The kernel says who connected (SO_PEERCRED on a Unix socket, the socket table for TCP within this machine); nothing that
the caller sends can change it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from gpuyard.server.doors.access import PEER

HEAD_S = 10.0
"""A request whose head has not come by then does not come."""
BODY_S = 120.0
"""The largest body takes this long at 300 KiB/s."""
READ_S = 60.0
"""A caller who takes nothing of an answer for so long has left."""

_UCRED = struct.Struct("3i")


class PeerProtocol(H11Protocol):
    """uvicorn's own protocol, with the peer's user in place of an address that a Unix socket does not have, and with
    an end to waiting: for a head, for a body, for an answer to be taken."""

    _awaited: str = ""
    _timer: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Ask the kernel once, when the connection opens."""
        super().connection_made(transport)
        opened = transport.get_extra_info("socket")
        if opened is not None and opened.family == socket.AF_UNIX:
            self.client = (f"{PEER}{peer_uid(opened)}", 0)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Something came; what is awaited now has its own time."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is awaited any more."""
        self._await("", 0.0)
        self.resume_writing()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """They do not read; they have some time to begin again."""
        super().pause_writing()
        self._reading = self.loop.call_later(READ_S, self.transport.abort)

    def resume_writing(self) -> None:
        """They read again."""
        super().resume_writing()
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _watch(self) -> None:
        if self.conn.their_state is h11.IDLE:
            self._await("head", HEAD_S)
        elif self.conn.their_state is h11.SEND_BODY:
            self._await("body", BODY_S)
        else:
            self._await("", 0.0)

    def _await(self, what: str, seconds: float) -> None:
        """A drop now and then does not buy more time: the clock starts with what is awaited, not with each byte."""
        if what == self._awaited:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._awaited = what
        self._timer = self.loop.call_later(seconds, self.transport.abort) if what else None


def peer_uid(connection: socket.socket) -> int:
    """The user at the other end of a Unix socket."""
    _pid, uid, _gid = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return int(uid)


# --- TCP within this machine ---------------------------------------------------------------------

SOCK_DIAG = 4
BY_FAMILY = 20
"""Kernel names: NETLINK_SOCK_DIAG and SOCK_DIAG_BY_FAMILY."""
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBxI")
_UID_AT = _HEADER.size + 4 + 48 + 4 + 8
"""Where the user stands in the answer: after family, state and timer, the socket's id, expiry and two queues."""


def tcp_uid(connection: socket.socket) -> int | None:
    """The user who owns the other end of a connection within this machine; None if the kernel does not say."""
    family = connection.family
    ask = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0xFFFFFFFF)
    ask += _socket_id(family, connection.getpeername(), connection.getsockname())
    message = _HEADER.pack(_HEADER.size + len(ask), BY_FAMILY, 1, os.getpid() & 0xFFFF, 0) + ask
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, SOCK_DIAG) as kernel:
            kernel.settimeout(1.0)
            kernel.send(message)
            answer = kernel.recv(1 << 12)
    except OSError:
        return None
    if len(answer) < _UID_AT + 4 or _HEADER.unpack_from(answer)[1] != BY_FAMILY:
        return None
    return int(struct.unpack_from("=I", answer, _UID_AT)[0])


def _socket_id(family: int, one: tuple[str, int], other: tuple[str, int]) -> bytes:
    ends = b"".join(socket.inet_pton(family, end[0].partition("%")[0]).ljust(16, b"\0") for end in (one, other))
    return struct.pack("!HH", one[1], other[1]) + ends + struct.pack("=I", 0) + b"\xff" * 8
