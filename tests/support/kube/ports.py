"""Ports that stay free for whoever they were given to."""

from __future__ import annotations

import socket

HELD: list[socket.socket] = []
"""Bound and never listening, for as long as this process lives: nobody else is given such a port, for its own door or
for a connection, and whoever binds it by number and lets it be used again, as servers do, can have it."""


def free_ports(count: int, address: str = "127.0.0.1") -> list[int]:
    """So many of an address, for servers of the caller."""
    found = [socket.socket() for _ in range(count)]
    for each in found:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        each.bind((address, 0))
    HELD.extend(found)
    return [int(each.getsockname()[1]) for each in found]
