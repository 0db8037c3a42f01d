"""Connections by Unix socket that know who is at the other end. Handed to uvicorn by `listening`.

The kernel says who connected (SO_PEERCRED); nothing that the caller sends can change it.
"""

from __future__ import annotations

import asyncio
import socket
import struct

from uvicorn.protocols.http.h11_impl import H11Protocol

from gpuyard.server.access import PEER

_UCRED = struct.Struct("3i")


class PeerProtocol(H11Protocol):
    """uvicorn's own protocol, with the peer's user in place of an address that a Unix socket does not have."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Ask the kernel once, when the connection opens."""
        super().connection_made(transport)
        opened = transport.get_extra_info("socket")
        if opened is not None and opened.family == socket.AF_UNIX:
            self.client = (f"{PEER}{peer_uid(opened)}", 0)


def peer_uid(connection: socket.socket) -> int:
    """The user at the other end of a Unix socket."""
    _pid, uid, _gid = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return int(uid)
