"""Whose socket it is: a caller tells its wishes and its jobs' secrets only to a yard of its own, or to root's.

Called by both clients before anything is sent; they queue up here too. The kernel says who listens; the path alone
proves nothing, because anybody may have put a socket there first.
"""

from __future__ import annotations

import os
import pwd
import socket
import struct
import time
from pathlib import Path

from gpuyard.client.errors import Unreachable

ROOT_UID = 0
_UCRED = struct.Struct("3i")
_FULL_S = 0.02
"""How often a socket is tried again at which too many wait: the kernel tells nobody when there is room."""


def queue_up(connection: socket.socket, path: Path, timeout_s: float) -> None:
    """Connect, if need be once there is room among those who wait at that socket; `TimeoutError` if there is none by
    then. Whoever waits at a Unix socket with a timeout is turned away at once (EAGAIN), where TCP would wait."""
    connection.settimeout(timeout_s)
    for _ in range(1 + int(timeout_s / _FULL_S)):
        try:
            return connection.connect(str(path))
        except BlockingIOError:
            time.sleep(_FULL_S)
    raise TimeoutError


def check(connection: socket.socket, path: Path) -> None:
    """`Unreachable` unless whoever listens there may be told things."""
    _pid, uid, _gid = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    if uid in (ROOT_UID, os.geteuid()):
        return
    if os.geteuid() == ROOT_UID and uid == path.parent.stat().st_uid:
        return  # root looks after somebody's own yard, in that somebody's own folder
    raise Unreachable(
        f"The socket {path} is {_name(uid)}'s, and neither yours nor root's, so nothing was sent to it. Set "
        "GPUYARD_STATE to the folder of the yard you mean, or start your own with `yard up`."
    )


def check_path(path: Path, timeout_s: float) -> None:
    """The same for those who cannot ask their connection itself; `TimeoutError` if nobody can be asked by then."""
    with socket.socket(socket.AF_UNIX) as knock:
        try:
            queue_up(knock, path, timeout_s)
        except TimeoutError:
            raise
        except OSError:
            return  # nobody is there, or it is not open to us; the connection itself says which
        check(knock, path)


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
